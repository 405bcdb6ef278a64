"""``penstock up``: all processes of Penstock on one machine.

The listeners with the log daemon (``serve``), the pipeline, the console and the SQL server are child processes, each
with the same settings; ``Up`` starts, checks and stops them.
"""

from __future__ import annotations

import importlib.util
import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.common import fail
from penstock.cli.options import Config, Override, load_settings
from penstock.cli.run.config import check_functions
from penstock.cli.run.sample_tour import Tour
from penstock.cli.run.up_processes import CONSOLE, SQL_SERVERS, Up
from penstock.cli.tables.spark_session import missing_spark
from penstock.config import ConfigError, Settings
from penstock.ingest.sockets import CannotListen, check_address, check_listener
from penstock.process.module_search import python_command
from penstock.process.reporting import configure
from penstock.supervise.data_directory import already_running
from penstock.supervise.instances import running_supervisor
from penstock.supervise.listener_checks import check_console_address, check_listeners
from penstock.supervise.succession import (
    Program,
    is_rehearsal,
    report_rehearsal,
    take_inheritance,
)

_LOGGER = logging.getLogger(__name__)
WITHOUT_SPARK = "; or start without tables: penstock up --no-spark"
DEMO = [
    "buffer.term_length=4MiB",
    "buffer.slots=256",
    "shutdown_time=20s",
    "listener.events-udp.defrag.max_size=128KiB",
    "listener.events-udp.defrag.expire_time=2s",
    "listener.events-tcp.max_line=64KiB",
    "listener.syslog-udp.defrag.max_size=128KiB",
    "listener.syslog-tcp.max_line=64KiB",
]
"""Settings of the demo: small files, and incomplete messages expire after seconds."""


def up(
    config: Config = None,
    override: Override = None,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Run without tables: no Spark, no Java.")] = False,
    no_console: Annotated[bool, typer.Option("--no-console", help="Run without the web console.")] = False,
    sample: Annotated[bool, typer.Option("--sample", help="Send a sample of real messages after the start.")] = False,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="Send the sample to a temporary pipe with its own configuration, print its balance and exit.",
        ),
    ] = False,
) -> None:
    """Run listeners, log daemon, Spark pipeline and web console together."""
    configure("up")
    missing = "" if no_spark else _missing_for_tables()
    if demo:
        if missing:
            _LOGGER.warning("the demo runs without tables: %s", missing)
        sys.exit(_run_demo(config, override, spark=not (no_spark or missing)))
    inheritance = take_inheritance()
    settings = load_settings(config, override)
    if missing:
        fail(f"{missing}{WITHOUT_SPARK}")
    if not no_console:
        _check_console(settings)
    if not no_spark:
        check_functions(settings.pipeline)
    if is_rehearsal():
        _check_serve(settings)
        _check_programs(settings, spark=not no_spark, console=not no_console)
        report_rehearsal()
        return
    if inheritance is None:
        _check_ports(settings)
    # Without the console everything else works, so a missing package is only a warning.
    with_console = not no_console and _can_serve_console(settings, is_successor=inheritance is not None)
    with Up(settings, config, override, not no_spark, with_console, inheritance) as running:
        tour = Tour(settings, spark=not no_spark)
        if sample and inheritance is None:
            tour.run_sample(running.check)
        tour.print_directions(console_too=with_console)
        running.stay()


def _check_console(settings: Settings) -> None:
    """End the command if the settings of the console would stop it."""
    try:
        settings.console.check_files()
        check_console_address(settings)
    except ConfigError as error:
        fail(error)


def _check_serve(settings: Settings) -> None:
    """End a rehearsal with the reason for which ``serve`` would not start."""
    try:
        settings.security.check_files()
        check_listeners(settings, settings.listener)
    except (ConfigError, CannotListen) as error:
        fail(error)


def _check_programs(settings: Settings, spark: bool, console: bool) -> None:
    """End a rehearsal with the reason for which a program of a child would not start."""
    has_console = console and importlib.util.find_spec("nicegui") is not None
    programs = [(spark, "penstock.spark.pipeline"), (has_console, CONSOLE), (settings.sql.addresses, SQL_SERVERS)]
    try:
        for is_configured, module in programs:
            if is_configured:
                # A process for each, as each sets how its libraries are loaded.
                Program(python_command("-c", f"import {module}")).rehearse(lambda: None)
    except ConfigError as error:
        fail(error)


def _check_ports(settings: Settings) -> None:
    """End the command, before anything is started, if an address is in use."""
    if running_supervisor(settings.data_dir) is not None:
        fail(already_running(settings.data_dir))
    if problems := list(_unavailable_addresses(settings)):
        fail("\n".join(map(str, problems)))


def _unavailable_addresses(settings: Settings) -> Iterator[CannotListen]:
    for key, address in {**settings.log.addresses, **settings.sql.addresses}.items():
        try:
            check_address(key, address)
        except CannotListen as error:
            yield error
    for listener in settings.listener:
        try:
            check_listener(listener)
        except CannotListen as error:
            yield error


def _missing_for_tables() -> str:
    """Return the instruction that installs what this machine lacks, Spark or Java; empty if it has both."""
    from penstock.java.runtime import NoJava, find_java

    if missing := missing_spark():
        return missing
    try:
        find_java()
    except NoJava as error:
        return str(error)
    return ""


def _can_serve_console(settings: Settings, is_successor: bool) -> bool:
    """Report whether the console can be served; everything else runs without it."""
    if importlib.util.find_spec("nicegui") is None:
        _LOGGER.warning("no web console: pip install 'penstock-pipe[console]'")
        return False
    if is_successor:  # the predecessor's console may still have the address
        return True
    try:
        check_address("console.http", settings.console.http)
    except CannotListen as error:
        _LOGGER.warning("no web console: %s", error)
        return False
    return True


def _run_demo(config: Path | None, override: list[str] | None, spark: bool) -> int:
    data_dir = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        if config is None:
            # The default file of the folder may lack the listeners that the demo configures.
            config = data_dir / "demo.toml"
            config.touch()
        override = [*(override or []), *DEMO, *_free_ports(data_dir)]
        settings = load_settings(config, override)
        with Up(settings, config, override, spark=spark) as running:
            good = Tour(settings, spark=spark).run_sample(running.check)
        return 0 if good else 1
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)


def _free_ports(data_dir: Path) -> list[str]:
    # Imports httpx, which is slow.
    from penstock.testing.pipe import free_ports

    ports = free_ports(2)
    listeners = ["events-udp", "events-tcp", "syslog-udp", "syslog-tcp"]
    return [
        f"data_dir={data_dir}",
        f"log.http=127.0.0.1:{ports[0]}",
        f"log.grpc=127.0.0.1:{ports[1]}",
        "log.flight=",
        *(f"listener.{name}.port=0" for name in listeners),
    ]
