"""``penstock up``: the whole pipe on one machine."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.common import errors, fail, file_of
from penstock.cli.options import Config, Override, settings_of
from penstock.cli.run.ledger_door import LedgerDoor
from penstock.cli.run.sample_tour import Show
from penstock.cli.tables.spark_session import spark_lacking
from penstock.config import Settings
from penstock.config.daemon_access import Access
from penstock.ingest.sockets import CannotListen, check_address, open_socket
from penstock.process.child import Child
from penstock.process.reporting import configure
from penstock.supervise.endpoints import endpoints
from penstock.supervise.reload import Signals, running_supervisor
from penstock.supervise.supervisor import make_folders
from penstock.supervise.timeline import Timeline

SERVE, PIPELINE, CONSOLE = "penstock.cli.run.serve", "penstock.cli.tables.pipeline", "penstock.console.main"
LOOK_EVERY = 0.2
STEADY = 1.0
"""Seconds after which a process that is started again is taken as back."""
_LOGGER = logging.getLogger(__name__)
OTHERWISE = "; or leave the tables out: penstock up --no-spark"
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
"""Settings of the demo: little disk, quick decisions."""


def up(
    config: Config = None,
    override: Override = None,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Sockets to log only: no Spark, no Java.")] = False,
    no_console: Annotated[bool, typer.Option("--no-console", help="Without the web console.")] = False,
    sample: Annotated[bool, typer.Option("--sample", help="Send a sample of real messages first.")] = False,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="Free ports, a temporary data directory, the sample, its balance; then the end."),
    ] = False,
) -> None:
    """Run listeners, log daemon, Spark pipeline and web console together."""
    configure("up")
    settings = settings_of(config, override)
    if not demo:
        _need_ports(settings)
    lacking = "" if no_spark else _lacking()
    if demo:
        if lacking:
            _LOGGER.warning("the demo goes without tables: %s", lacking)
        sys.exit(_demo(config, override, spark=not (no_spark or lacking)))
    if lacking:
        fail(f"{lacking}{OTHERWISE}")
    with_console = not no_console and _can_show(settings)
    with Up(settings, config, override, spark=not no_spark, console=with_console) as running:
        show = Show(settings, spark=not no_spark)
        if sample:
            show.sample(running.check)
        show.directions(console_too=with_console)
        running.stay()


def _need_ports(settings: Settings) -> None:
    """End the command, before anything is started, where others have its ports."""
    if running_supervisor(settings.data_dir) is not None:
        fail(f"data_dir: another penstock uses {settings.data_dir}")
    if taken := list(_taken(settings)):
        fail("\n".join(map(str, taken)))


def _taken(settings: Settings) -> Iterator[CannotListen]:
    for key, address in settings.log.addresses.items():
        try:
            check_address(key, address)
        except CannotListen as error:
            yield error
    for listener in settings.listener:
        try:
            open_socket(listener).close()
        except CannotListen as error:
            yield error


def _lacking() -> str:
    """Why there can be no tables: Spark, or a Java for it, is not there; empty where there can."""
    from penstock.java.runtime import NoJava, find_java

    if lacking := spark_lacking():
        return lacking
    try:
        find_java()
    except NoJava as error:
        return str(error)
    return ""


def _can_show(settings: Settings) -> bool:
    """Whether there can be a console; everything else runs without it."""
    if importlib.util.find_spec("nicegui") is None:
        _LOGGER.warning("no web console: pip install 'penstock-pipe[console]'")
        return False
    try:
        check_address("console.http", settings.console.http)
    except CannotListen as error:
        _LOGGER.warning("no web console: %s", error)
        return False
    return True


def _demo(config: Path | None, override: list[str] | None, spark: bool) -> int:
    data_dir = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        override = [*(override or []), *DEMO, *_free_ports(data_dir)]
        settings = settings_of(config, override)
        with Up(settings, config, override, spark=spark) as running:
            good = Show(settings, spark=spark).sample(running.check)
        return 0 if good else 1
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)


def _free_ports(data_dir: Path) -> list[str]:
    """Overrides that keep out of everybody's way; the listeners' ports are the kernel's choice."""
    from penstock.testing.pipe import free_ports  # it needs httpx, which is slow to import

    ports = free_ports(2)
    listeners = ["events-udp", "events-tcp", "syslog-udp", "syslog-tcp"]
    return [
        f"data_dir={data_dir}",
        f"log.http=127.0.0.1:{ports[0]}",
        f"log.grpc=127.0.0.1:{ports[1]}",
        "log.flight=",
        *(f"listener.{name}.port=0" for name in listeners),
    ]


class Up:
    """The processes of ``penstock up``: started on entry, stopped on exit."""

    def __init__(
        self, settings: Settings, config: Path | None, override: list[str] | None, spark: bool, console: bool = False
    ) -> None:
        make_folders(settings)
        task = settings.model_dump(mode="json")
        self._settings = settings
        file = file_of(config)
        source = {"config": str(file) if file else None, "overrides": override or []}
        self._serve = Child("serve", SERVE, {"settings": task, **source})
        self._children = [self._serve]
        if spark:
            output = settings.data_dir / "pipeline.log"
            self._children.append(Child("pipeline", PIPELINE, task, output=output))
        if console:
            self._children.append(Child("console", CONSOLE, task, output=settings.data_dir / "console.log"))
        self._signals = Signals()
        self._timeline = Timeline(LedgerDoor(settings))

    def __enter__(self) -> Up:
        try:
            for child in self._children:
                child.start()
            self._wait_for_daemon()
        except BaseException:  # asked to stop, or told that it cannot start: nothing is left behind
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with errors.status("stopping"):
            until = time.monotonic() + 2 * self._settings.shutdown_time
            for child in reversed(self._children):  # what reads first
                child.stop()
                if not child.wait(until):
                    _LOGGER.warning("%s did not end in time and was killed", child.name)

    def check(self) -> None:
        """Look after the processes; ends the command when it was asked to stop, or a listener cannot be opened."""
        if self._signals.stop:
            raise typer.Exit(130)
        if self._signals.take_reload() and self._serve.pid:
            os.kill(self._serve.pid, signal.SIGHUP)
        if self._serve.pid is None:
            raise typer.Exit(1)  # it has said why
        for child in self._children:
            if line := child.check():
                if child is not self._serve:
                    self._timeline.record_death(child.name, child.cause)
                said = self._settings.data_dir / f"{child.name}.log"
                _LOGGER.warning("%s%s", line, f" (see {said})" if said.exists() else "")

        for child in self._children:
            if child.name in self._timeline.missing_processes and child.age > STEADY:
                self._timeline.record_return(child.name)
        self._timeline.deliver(self._serve.pid)

    def stay(self) -> None:
        """Until Ctrl-C."""
        while not self._signals.stop:
            self.check()
            time.sleep(LOOK_EVERY)

    def _wait_for_daemon(self) -> None:
        with errors.status("starting the log daemon"):
            wait_until(self._is_ready, self.check, 60, "the log daemon does not answer")

    def _is_ready(self) -> bool:
        """Whether the daemon that answers is ours."""
        ours = endpoints(self._settings.data_dir).get("supervisor") == self._serve.pid
        return ours and _answers(self._settings)


def wait_until(done: Callable[[], bool], check: Callable[[], None], seconds: float, otherwise: str) -> None:
    """Wait until ``done``, looking after the processes meanwhile; ends with ``otherwise`` after ``seconds``."""
    until = time.monotonic() + seconds
    while not done():
        check()
        if time.monotonic() > until:
            fail(f"{otherwise} within {seconds:g} s")
        time.sleep(LOOK_EVERY)


def _answers(settings: Settings) -> bool:
    with contextlib.suppress(OSError):
        return Access(settings).request("/topics", timeout=2)[0] < 400
    return False
