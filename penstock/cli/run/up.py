"""``penstock up``: all processes of Penstock on one machine.

The listeners with the log daemon (``serve``), the pipeline, the console and the SQL server are child processes, each
with the same settings; ``Up`` starts, checks and stops them.
"""

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.common import active_config_file, fail
from penstock.cli.options import Config, Override, load_settings
from penstock.cli.progress import Progress
from penstock.cli.run.config import check_functions
from penstock.cli.run.sample_tour import Tour
from penstock.cli.run.serve import check_typed
from penstock.cli.tables.spark_session import missing_spark
from penstock.config import ConfigError, Settings, load
from penstock.config.daemon_access import Access
from penstock.config.reloadable import in_force
from penstock.files.disk_space import describe_full, has_space
from penstock.ingest.sockets import CannotListen, check_address, check_listener
from penstock.process.child import Child
from penstock.process.module_search import python_command
from penstock.process.reporting import configure
from penstock.supervise.data_directory import already_running, make_folders
from penstock.supervise.endpoints import endpoints
from penstock.supervise.installation import Installation, discard_request, read_request
from penstock.supervise.instances import running_supervisor
from penstock.supervise.listener_checks import check_console_address, check_listeners
from penstock.supervise.reload import OUTCOME, SERVE_RESTARTED, Outcome, Signals, read_outcome, write_outcome
from penstock.supervise.sd_notify import Watchdog
from penstock.supervise.succession import (
    Inheritance,
    Program,
    is_rehearsal,
    report_rehearsal,
    report_step,
    take_inheritance,
)
from penstock.supervise.supervisor import check_succession
from penstock.supervise.timeline import Timeline

SERVE, PIPELINE, CONSOLE = "penstock.cli.run.serve", "penstock.cli.tables.pipeline", "penstock.console.main"
SQL_SERVERS = "penstock.sql.servers"
POLL_INTERVAL_S = 0.2
STEADY_S = 1.0
"""Age at which a restarted process counts as back."""
START_TIMEOUT_S = 60.0
STOP_MARGIN_S = 5.0
"""Time of the supervisor for its last event, beyond the shutdown time of its processes."""
LEDGER_TIMEOUT_S = 2.0
LEDGER_PAUSE_S = 5.0
"""Time without another attempt after one fails: the thread that waits here also looks after the processes."""
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
    # Without the console everything else works, so a missing package is a warning and no error.
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


class LedgerEndpoint:
    """Delivery of timeline events to the ledger through the daemon's HTTP API."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._delivered = 0
        self._not_before = 0.0

    def send_events(self, events: Sequence[Mapping[str, Any]]) -> int:
        """Post events; return the number of the delivery, or 0 if the caller must retry later."""
        # Slow to import.
        import httpx

        if time.monotonic() < self._not_before:
            return 0
        try:
            with Access(self._settings).client(timeout=LEDGER_TIMEOUT_S) as client:
                for event in events:
                    client.post("/ledger", json=event).raise_for_status()
        except (httpx.HTTPError, OSError):
            self._not_before = time.monotonic() + LEDGER_PAUSE_S
            return 0
        self._delivered += 1
        return self._delivered

    def poll_answers(self) -> int:
        """Return the number of the last stored delivery: the daemon answers when the events are stored."""
        return self._delivered


class Up:
    """The processes of ``penstock up``: started on entry, stopped on exit. Owned by the main thread."""

    def __init__(
        self,
        settings: Settings,
        config: Path | None,
        override: list[str] | None,
        spark: bool,
        console: bool = False,
        inheritance: Inheritance | None = None,
    ) -> None:
        make_folders(settings)
        self._settings = settings
        self._file, self._overrides = active_config_file(config), override or []
        self._reloaded_at, self._restart_began, self._has_started = 0, 0, False
        self._reloading: Settings | None = None
        self._successor: Program | None = None
        """The program of a restart that ``serve`` has been asked for, until its outcome."""
        self._serve = Child("serve", SERVE, {})
        self._children = [self._serve]
        if spark:
            self._children.append(Child("pipeline", PIPELINE, {}, output=settings.data_dir / "pipeline.log"))
        if console:
            self._children.append(Child("console", CONSOLE, {}, output=settings.data_dir / "console.log"))
        if settings.sql.addresses:
            self._children.append(Child("sql", SQL_SERVERS, {}, output=settings.data_dir / "sql.log"))
        self._set_tasks()
        self._inheritance, self._watchdog = inheritance, Watchdog()
        self._signals = Signals(inheritance)
        self._timeline = Timeline(LedgerEndpoint(settings))

    def __enter__(self) -> Up:
        try:
            if self._inheritance:
                self._replace_inherited_children(self._inheritance.pids)
            else:
                for child in self._children:
                    child.start()
            self._wait_for_daemon()
            self._has_started = True
        except BaseException:
            # Ctrl-C during the start, or a listener that cannot be opened: stop the children that run already.
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with Progress("stopping", has_plain_lines=True) as progress:
            # Order: readers first, so that they read while the daemon still answers.
            readers = [child for child in self._children if child is not self._serve]
            self._stop(readers, self._settings.shutdown_time, progress)
            # Limit: the supervisor gives its receivers, then its readers the shutdown time. It has time of its own:
            # killed because a reader took all, it would report at the next start that it was killed.
            self._stop([self._serve], 2 * self._settings.shutdown_time + STOP_MARGIN_S, progress)

    def check(self) -> None:
        """Restart dead processes and report them.

        Raises typer.Exit on a signal, or if a listener cannot be opened at the start.
        """
        if self._signals.stop:
            raise typer.Exit(130)
        self._watchdog.tick()
        if self._signals.take_reload() and self._serve.pid:
            # Now: the file may be changed again before `serve` reports the reload.
            with contextlib.suppress(ConfigError):
                self._reloading = load(self._file, self._overrides)
            os.kill(self._serve.pid, signal.SIGHUP)
        if self._signals.take_restart():
            self._restart()
        # An inherited `serve` had started before: it is started again like any other process.
        if self._serve.pid is None and not self._has_started and not self._inheritance:
            # The process has printed the reason.
            raise typer.Exit(1)
        self._follow_reload()
        self._follow_restart()
        for child in self._children:
            if line := child.check():
                if child is self._serve and self._successor:
                    self._report_failed_restart(child.cause)
                self._timeline.record_death(child.name, child.cause)
                log_file = self._settings.data_dir / f"{child.name}.log"
                _LOGGER.warning("%s%s", line, f" (see {log_file})" if log_file.exists() else "")
        for child in self._children:
            if child.name in self._timeline.missing_processes and child.age > STEADY_S:
                self._timeline.record_return(child.name)
        # Delivered here and not at once: the daemon that stores the events may be the process that died.
        self._timeline.deliver(self._serve.pid)

    def _stop(self, children: Sequence[Child], timeout_s: float, progress: Progress) -> None:
        deadline = time.monotonic() + timeout_s
        for child in children:
            child.stop()
        for child in children:
            progress.update(child.name)
            if not child.wait(deadline):
                _LOGGER.warning("%s did not end within %g s and was killed", child.name, timeout_s)

    def _set_tasks(self) -> None:
        """Give children the settings with which they start from now on."""
        settings = self._settings.model_dump(mode="json")
        source = {"config": str(self._file) if self._file else None, "overrides": self._overrides}
        for child in self._children:
            child.replace_task({"settings": settings, **source} if child is self._serve else settings, ())

    def _follow_reload(self) -> None:
        """Take over the settings of a reload that ``serve`` has reported since the last call."""
        outcome = read_outcome(self._settings.data_dir / OUTCOME)
        if outcome is None or outcome.began == self._reloaded_at:
            return
        self._reloaded_at = outcome.began
        if outcome.error and outcome.restart:  # `serve` has refused, and all processes stay
            self._successor = None
        if not (outcome.error or outcome.restart):
            # Crash: a child that dies after a reload starts with its settings. A file that was changed again and is
            # wrong now leaves the settings from before.
            with contextlib.suppress(ConfigError):
                reloaded = self._reloading or load(self._file, self._overrides)
                self._settings, _ = in_force(self._settings, reloaded)
                self._set_tasks()
        self._reloading = None

    def _restart(self) -> None:
        """Try the installed version of all processes, and make ``serve`` restart itself if that goes well.

        Order: ``serve`` goes first, because it alone can still refuse, and then all processes stay.
        """
        self._restart_began = time.monotonic_ns()
        self._follow_reload()
        program = Program.of_command_line()
        data_dir = self._settings.data_dir
        try:
            # The request stays for `serve`.
            if requested := read_request(data_dir):
                program = program.run_by(requested)
            report_step(data_dir, "trying the new version of all processes")
            program.rehearse_succession(self._watchdog.tick, requested)
            settings = load(self._file, self._overrides)
            check_typed(self._settings, settings, self._watchdog.tick)
            check_succession(self._settings, settings)
            for key, address in settings.sql.addresses.items():
                if address != self._settings.sql.addresses.get(key):
                    check_address(key, address)
            if not self._serve.pid:
                raise ConfigError("the listeners and the log daemon are just being started again: try again")
            # `serve` notes its restart in a file: without it the other processes would stay on the old version.
            if not has_space(data_dir):
                raise ConfigError(
                    f"{describe_full({'data_dir': data_dir})}: free some (penstock cleanup), then restart"
                )
            (data_dir / SERVE_RESTARTED).unlink(missing_ok=True)
            os.kill(self._serve.pid, signal.SIGUSR2)
            self._successor = program
        except (ConfigError, OSError) as error:
            self._refuse_restart(Outcome(self._restart_began, error=str(error), restart=True))

    def _refuse_restart(self, outcome: Outcome) -> None:
        self._successor = None
        _LOGGER.error("%s", "; ".join(outcome.lines))
        discard_request(self._settings.data_dir)
        # Order: a reload that has ended since has its outcome in the same file.
        self._follow_reload()
        write_outcome(self._settings.data_dir / OUTCOME, outcome)
        self._reloaded_at = outcome.began

    def _report_failed_restart(self, cause: str) -> None:
        """Report that the new ``serve`` died at its start."""
        remaining = f"they are started again by version {Installation.current().text}; all other processes stay"
        error = f"the new listeners and log daemon did not start: serve {cause}"
        self._refuse_restart(Outcome(self._restart_began, error=error, restart=True, remaining=remaining))

    def _follow_restart(self) -> None:
        """Once ``serve`` has restarted, become the new program, which replaces the other processes and reports that."""
        data_dir = self._settings.data_dir
        if not (data_dir / SERVE_RESTARTED).exists():
            return
        if self._successor:
            pids = {child.name: child.pid for child in self._children if child.pid}
            inheritance = Inheritance(pids, self._restart_began, self._signals.may_hang_up, serve_is_replaced=True)
            try:
                self._successor.replace_process(inheritance)
            except OSError as error:
                remaining = "listeners and log daemon run the new version; pipeline, console and supervisor the old one"
                text = f"{self._successor.command[0]}: {error.strerror}"
                self._refuse_restart(Outcome(self._restart_began, error=text, restart=True, remaining=remaining))
        elif self._has_started:
            with contextlib.suppress(OSError):  # a `serve` that ends removes it
                os.replace(data_dir / SERVE_RESTARTED, data_dir / OUTCOME)

    def _replace_inherited_children(self, pids: Mapping[str, int]) -> None:
        """Replace the inherited children other than ``serve``, which restarts itself and keeps its sockets open."""
        orphans = pids.keys() - {child.name for child in self._children}
        for child in self._children:
            if pid := pids.get(child.name):
                child.adopt(pid)
        report_step(self._settings.data_dir, "replacing pipeline, console and SQL server")
        if not self._serve.pid:
            self._serve.start()
        elif not (self._inheritance and self._inheritance.serve_is_replaced):
            # A predecessor up to 0.2.0 leaves it to its successor.
            os.kill(self._serve.pid, signal.SIGUSR2)
        others = [child for child in self._children if child is not self._serve]
        until = time.monotonic() + self._settings.shutdown_time
        for child in others:
            child.stop()
        if self._inheritance:
            self._inheritance.end_children(sorted(orphans), self._settings.shutdown_time)
        for child in others:
            child.wait(until)
            child.start()

    def stay(self) -> None:
        """Check the processes until Ctrl-C."""
        while not self._signals.stop:
            self.check()
            time.sleep(POLL_INTERVAL_S)

    def _wait_for_daemon(self) -> None:
        with Progress("starting the log daemon", has_plain_lines=True):
            wait_until(self._is_ready, self.check, START_TIMEOUT_S, "the log daemon does not answer")

    def _is_ready(self) -> bool:
        # Another penstock may answer at the same address: the endpoints have the process that opened it.
        is_own = endpoints(self._settings.data_dir).get("supervisor") == self._serve.pid
        return is_own and _answers(self._settings)


def wait_until(condition: Callable[[], bool], check: Callable[[], None], timeout_s: float, problem: str) -> None:
    """Wait until ``condition`` holds, calling ``check``; end the command with ``problem`` after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        check()
        if time.monotonic() > deadline:
            fail(f"{problem} within {timeout_s:g} s")
        time.sleep(POLL_INTERVAL_S)


def _answers(settings: Settings) -> bool:
    with contextlib.suppress(OSError):
        return Access(settings).request("/topics", timeout=2)[0] < 400
    return False
