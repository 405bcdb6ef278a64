"""``penstock serve``, which runs listeners and log daemon, ``penstock console``, which serves the web console, and
``penstock postgres``, which serves the tables to clients of PostgreSQL.

``main`` is the entry point of the child process that ``penstock up`` starts.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.common import active_config_file, fail
from penstock.cli.common import console as terminal
from penstock.cli.options import Config, Override, load_settings
from penstock.cli.progress import Progress
from penstock.config import ConfigError, Settings, load, notices, split_address
from penstock.config.daemon_access import reachable
from penstock.config.reloadable import APART, in_force
from penstock.files.errors import UnsafeFile
from penstock.ingest.sockets import CannotListen, check_address
from penstock.process.kernel import die_with_parent
from penstock.process.reporting import configure
from penstock.supervise.data_directory import AlreadyRunning
from penstock.supervise.installation import discard_request
from penstock.supervise.listener_checks import check_listeners
from penstock.supervise.listener_processes import RECEIVER
from penstock.supervise.reload import Reloader, Signals
from penstock.supervise.sd_notify import Service, listens
from penstock.supervise.succession import Program, is_rehearsal, report_rehearsal, take_inheritance
from penstock.supervise.supervisor import DAEMON, Supervisor

_LOGGER = logging.getLogger(__name__)


def serve(
    config: Config = None,
    override: Override = None,
    http_addr: Annotated[
        str | None, typer.Option("--http_addr", help="Address of the HTTP API; same as log.http.", show_default=False)
    ] = None,
    rpc_addr: Annotated[
        str | None, typer.Option("--rpc_addr", help="Address of the gRPC API; same as log.grpc.", show_default=False)
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data_dir", help="Data directory; same as data_dir.", show_default=False)
    ] = None,
    verbose: Annotated[bool, typer.Option("-v", help="Log each listener and address at the start.")] = False,
) -> None:
    """Run the listeners and the log daemon until Ctrl-C."""
    flags = {"log.http": http_addr, "log.grpc": rpc_addr, "data_dir": str(data_dir) if data_dir else None}
    overrides = [*(override or []), *(f"{key}={value}" for key, value in flags.items() if value is not None)]
    configure("supervisor")
    settings = load_settings(config, overrides)
    read = partial(load, active_config_file(config), overrides)
    run(settings, read, notices(settings, config, overrides), Program.of_command_line(), verbose)


def console(
    config: Config = None,
    override: Override = None,
    http: Annotated[
        str | None, typer.Option(help="Address of the web console; same as console.http.", show_default=False)
    ] = None,
) -> None:
    """Serve the web console until Ctrl-C."""
    address = [f"console.http={http}"] if http else []
    settings = load_settings(config, [*(override or []), *address])
    try:
        settings.console.check_files()
        check_address("console.http", settings.console.http)
        with Progress("starting the console"):
            from penstock.console.main import run as run_console
    except (CannotListen, ConfigError) as error:
        fail(error)
    except ImportError:
        fail("this needs NiceGUI: pip install 'penstock-pipe[console]'")
    terminal.print(f"the console is at {settings.console.url}", markup=False)
    run_console(settings)


def postgres(
    config: Config = None,
    override: Override = None,
    address: Annotated[
        str | None, typer.Option(help="Address of the server; same as sql.postgres.", show_default=False)
    ] = None,
) -> None:
    """Serve the tables and the log to clients of PostgreSQL until Ctrl-C."""
    configure("sql")
    settings = load_settings(config, [*(override or []), *([f"sql.postgres={address}"] if address else [])])
    if not settings.sql.addresses:
        fail("sql.postgres has no address: penstock postgres --address 127.0.0.1:8847")
    with contextlib.ExitStack() as start:
        start.enter_context(Progress("starting the SQL server"))
        try:
            settings.security.check_files()
            for key, entry in settings.sql.addresses.items():
                check_address(key, entry)
            from penstock.sql.servers import run as run_sql_server
        except (CannotListen, ConfigError) as error:
            fail(error)
        run_sql_server(settings, start.close)


def run(
    settings: Settings,
    read: Callable[[], Settings],
    lines: list[str],
    program: Program,
    verbose: bool = False,
    up_pid: int = 0,
    apart: Collection[str] = APART,
) -> None:
    """Supervise until SIGTERM or SIGINT; on SIGHUP apply the configuration that ``read`` returns.

    ``lines`` are logged once everything has started. On SIGUSR2 this process becomes ``program``. ``up_pid`` is the
    process id of ``penstock up``, 0 without it. ``apart``: commands that neither this process nor ``penstock up`` runs,
    so that a changed key of theirs waits for their own restart.

    In a rehearsal (``succession``) this only checks that the program could start.
    """
    inheritance = take_inheritance()
    signals = Signals(inheritance, has_parent=bool(up_pid))
    try:
        settings.security.check_files()
        if is_rehearsal():
            check_listeners(settings, settings.listener)
            for module in (RECEIVER, DAEMON):
                importlib.import_module(module)
            report_rehearsal()
            return
        # Order: the files of TLS and tokens are checked before a port is opened.
        supervisor = Supervisor(settings, inheritance, up_pid)
        if inheritance is None:
            # Crash: a request that no process has followed must not decide a later restart.
            discard_request(settings.data_dir)
        supervisor.start()
    except (CannotListen, AlreadyRunning, UnsafeFile, ConfigError, OSError) as error:
        fail(error)
    for line in lines:
        _LOGGER.info(line)
    if verbose:
        _describe(settings)
    # systemd gets READY=1 once the log daemon answers; its watchdog observes this loop, which restarts the others.
    service = Service(lambda: listens(split_address(reachable(settings.log.http))))

    def read_checked() -> Settings:
        new = read()
        check_typed_tables(supervisor.settings, new, service.alive)
        return new

    reloader = Reloader(supervisor, read_checked, settings.data_dir, service, has_parent=bool(up_pid), apart=apart)

    def is_stopping() -> bool:
        nonlocal inheritance
        service.tick()
        if inheritance and service.is_ready:
            reloader.report_restart(inheritance)
            inheritance = None
        if signals.take_reload():
            reloader.reload()
        if signals.take_restart():
            reloader.restart(program, signals)
        return signals.stop

    supervisor.run(is_stopping)
    # Order: systemd gets STOPPING=1 first, as the processes may take `shutdown_time` to end.
    service.stopping()
    reloader.close()
    supervisor.stop()


def check_typed_tables(current: Settings, new: Settings, tick: Callable[[], None]) -> None:
    """Raise ConfigError if ``new`` changes typed tables to columns that existing ones cannot have; calls ``tick``.

    Crash: a pipeline that dies after the reload is started again with the new columns, and would fail at its start.
    """
    if new.pipeline.typed != current.pipeline.typed:
        reloaded, _ = in_force(current, new)
        # A process of its own, as delta-rs starts threads, and this process forks.
        task = {"settings": reloaded.model_dump(mode="json")}
        Program.of_child("penstock.landing.typed.typed_tables", task).rehearse(tick)


def _describe(settings: Settings) -> None:
    for listener in settings.listener:
        _LOGGER.info("%s: %s %s, codec %s", listener.name, listener.protocol, listener.address_text, listener.codec)
    _LOGGER.info("log: gRPC %s, HTTP %s, data in %s", settings.log.grpc, settings.log.http, settings.data_dir)


def main() -> None:
    """Run as a child process: read the settings, and the sources to reload them from, from standard input."""
    die_with_parent()
    configure("supervisor")
    task = json.load(sys.stdin)
    file, overrides = Path(task["config"]) if task["config"] else None, task["overrides"]
    read = partial(load, file, overrides)
    # A successor reads the file itself: it may be a newer Penstock, with other keys.
    settings = Settings.model_validate(task["settings"]) if task["settings"] else read()
    program = Program.of_child(__spec__.name, {**task, "settings": None})
    apart = task.get("apart", ())
    run(settings, read, notices(settings, file, overrides), program, up_pid=os.getppid(), apart=apart)


if __name__ == "__main__":
    main()
