"""The processes of ``penstock up``: their start, supervision, restart and end, in the thread of the command.

Order: the pipeline and the console end before ``serve``, because they read what its daemon serves.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from penstock.cli.common import active_config_file, fail
from penstock.cli.progress import Progress
from penstock.cli.run.serve import check_typed_tables
from penstock.config import ConfigError, Settings, load
from penstock.config.daemon_access import Access
from penstock.config.reloadable import in_force
from penstock.files.disk_space import describe_full, has_space
from penstock.ingest.sockets import check_address
from penstock.process.child import Child
from penstock.supervise.data_directory import make_folders
from penstock.supervise.endpoints import endpoints
from penstock.supervise.installation import Installation, discard_request, read_request
from penstock.supervise.reload import OUTCOME, SERVE_RESTARTED, Outcome, Signals, read_outcome, write_outcome
from penstock.supervise.sd_notify import Watchdog
from penstock.supervise.succession import (
    Inheritance,
    Program,
    report_step,
    unless_stopping,
)
from penstock.supervise.supervisor import check_succession
from penstock.supervise.timeline import Timeline

_LOGGER = logging.getLogger(__name__)
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
        apart = {"penstock pipeline run": not spark, "penstock console": not console}
        self._apart = [command for command, is_apart in apart.items() if is_apart]
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
        file = str(self._file) if self._file else None
        source = {"config": file, "overrides": self._overrides, "apart": self._apart}
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
            program.rehearse_succession(unless_stopping(self._watchdog.tick, lambda: self._signals.stop), requested)
            settings = load(self._file, self._overrides)
            check_typed_tables(self._settings, settings, self._watchdog.tick)
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
                self._successor.replace_process(inheritance, lambda: self._signals.stop)
            except (ConfigError, OSError) as error:
                remaining = "listeners and log daemon run the new version; pipeline, console and supervisor the old one"
                text = f"{self._successor.command[0]}: {error.strerror}" if isinstance(error, OSError) else str(error)
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
