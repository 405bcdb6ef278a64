"""Reloads the configuration of running processes (SIGHUP), or replaces them all (SIGUSR2); the outcome is in a file."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

from penstock.config import ConfigError, Settings
from penstock.config.reloadable import restart_reason, restart_step
from penstock.errors import PenstockError
from penstock.files.disk_space import has_space
from penstock.files.file_system import OS, replace_durably
from penstock.files.json_values import parse_object
from penstock.supervise.endpoints import endpoints
from penstock.supervise.installation import (
    NEXT_STEP,
    Installation,
    discard_request,
    read_request,
    write_request,
)
from penstock.supervise.instances import NotRunning, find_supervisor
from penstock.supervise.sd_notify import Service
from penstock.supervise.succession import (
    REHEARSAL_TIMEOUT_S,
    REQUESTS,
    Inheritance,
    Program,
    accept_requests,
    read_step,
    report_step,
    unless_stopping,
)
from penstock.supervise.supervisor import Supervisor, check_succession

OUTCOME = "reloaded.json"
"""Name of the file with the outcome of the last reload, in the data directory."""
SERVE_RESTARTED = "serve-restarted.json"
"""Name of the file with the outcome of ``serve`` alone, which becomes ``OUTCOME`` once ``penstock up`` has followed."""
STEP_TIMEOUT_S = 60.0
"""Time that a step of a reload or restart may take beyond its own limits."""
TERMINAL = "/dev/tty"
POLL_INTERVAL_S = 0.05
_LOGGER = logging.getLogger(__name__)


UNCHANGED = "nothing is restarted; the previous processes continue"


class NoAnswer(PenstockError, RuntimeError):
    """The running penstock does not report the outcome of a reload."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a reload that began at monotonic time ``began`` (nanoseconds).

    ``error`` has a line for each bad key, and then nothing has changed; ``applied`` are the changes in words;
    ``waiting`` are the keys that take effect at the next start. ``replaced`` and ``running`` are the installations
    before and after a restart, in words. ``remaining``: the processes after a failed restart, in words. ``apart``:
    commands that neither `penstock serve` nor `penstock up` runs, so that `penstock restart` does not restart them.
    """

    began: int
    error: str = ""
    applied: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    restart: bool = False
    replaced: str = ""
    running: str = ""
    remaining: str = UNCHANGED
    apart: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """The outcome in sentences."""
        if self.restart:
            if self.error:
                return [*self.error.splitlines(), self.remaining]
            change = f"{self.replaced} was replaced by" if self.replaced != self.running else "as before,"
            return [", ".join(["penstock is restarted", *self.applied]), f"version: {change} {self.running}"]
        if self.error:
            return [*self.error.splitlines(), "the configuration is not reloaded; the previous one stays in force"]
        changed = f"the configuration is reloaded: {', '.join(self.applied) or 'no key differs'}"
        return [
            changed,
            *(
                f"{key}: takes effect with {restart_step(key, self.apart)}: {restart_reason(key)}"
                for key in self.waiting
            ),
        ]


class Signals:
    """Requests by signal: SIGTERM and SIGINT to stop, SIGHUP to reload, SIGUSR2 to restart.

    A closing terminal sends SIGHUP too: a process that was started in a terminal stops with it, unless SIGHUP is
    ignored (nohup). ``has_parent``: a parent that receives SIGINT, too, stops this process in its turn.
    """

    def __init__(self, inheritance: Inheritance | None = None, has_parent: bool = False) -> None:
        self.stop, self._reload, self._restart = False, False, False
        self.may_hang_up = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN and _has_terminal()
        if inheritance:
            self.may_hang_up = inheritance.may_hang_up
        for number in REQUESTS:
            if number != signal.SIGINT or not has_parent:
                signal.signal(number, self._receive)
        accept_requests()

    def take_reload(self) -> bool:
        """Report whether a reload was requested since the last call."""
        requested, self._reload = self._reload, False
        return requested

    def take_restart(self) -> bool:
        """Report whether a restart was requested since the last call."""
        requested, self._restart = self._restart, False
        return requested

    def _receive(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGUSR2:
            self._restart = True
        elif number != signal.SIGHUP or (self.may_hang_up and not _has_terminal()):
            self.stop = True
        else:
            self._reload = True


def _has_terminal() -> bool:
    try:
        os.close(os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


class Reloader:
    """Reloads the configuration of a supervisor. ``read`` reads the settings again, or raises ConfigError.

    ``has_parent``: ``penstock up`` follows a restart, and then reports its outcome. ``apart``: see ``Outcome``.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        read: Callable[[], Settings],
        data_dir: Path,
        service: Service,
        has_parent: bool = False,
        apart: Collection[str] = (),
    ) -> None:
        self._supervisor, self._read, self._service = supervisor, read, service
        self._data_dir, self._path = data_dir, data_dir / OUTCOME
        self._apart = list(apart)
        self._restarted_path = data_dir / SERVE_RESTARTED if has_parent else self._path
        self.close()

    def reload(self) -> None:
        """Read, validate and swap; log the outcome, and write it for the process that requested the reload."""
        began = time.monotonic_ns()
        self._service.reloading()
        try:
            reloaded = self._supervisor.reload(self._read(), self._service.alive)
            outcome = Outcome(began, applied=reloaded.applied, waiting=reloaded.waiting, apart=self._apart)
        except (ConfigError, OSError) as error:  # CannotListen, or no descriptors to be had
            outcome = Outcome(began, error=str(error))
        self._report(outcome)

    def restart(self, program: Program, signals: Signals) -> None:
        """Apply the configuration, then become ``program``, which inherits sockets and children.

        Returns only if that fails, or if ``signals`` request the stop; then everything runs on.
        """
        began = time.monotonic_ns()
        self._service.reloading()
        try:
            requested = read_request(self._data_dir)
            if requested:
                program = program.run_by(requested)
            report_step(self._data_dir, "trying the new listeners and log daemon")
            program.rehearse_succession(unless_stopping(self._service.alive, lambda: signals.stop), requested)
            settings = self._read()
            check_succession(self._supervisor.settings, settings)
            report_step(self._data_dir, "changing the listeners")
            # Order: first the change of listeners while everything runs, so that the successor has the same ones.
            self._supervisor.reload(settings, self._service.alive)
            discard_request(self._data_dir)
            self._supervisor.hand_over(program, began, signals.may_hang_up, lambda: signals.stop)
        except (ConfigError, OSError) as error:
            discard_request(self._data_dir)
            self._report(Outcome(began, error=str(error), restart=True))

    def report_restart(self, inheritance: Inheritance) -> None:
        """Report that this process has succeeded another one."""
        count = len(inheritance.sockets)
        self._report(
            Outcome(
                inheritance.began,
                applied=[f"{count} {'socket was' if count == 1 else 'sockets were'} kept open"],
                restart=True,
                replaced=inheritance.replaced,
                running=Installation.current().text,
            ),
            self._restarted_path,
        )

    def _report(self, outcome: Outcome, path: Path | None = None) -> None:
        for line in outcome.lines:
            _LOGGER.log(logging.ERROR if outcome.error else logging.INFO, "%s", line)
        self._supervisor.timeline.record("reload", "; ".join(outcome.lines))
        write_outcome(path or self._path, outcome)

    def close(self) -> None:
        """Remove the outcome: it concerns this run only."""
        # An outcome that stays on a failing disk is older than any later request.
        for path in (self._path, self._restarted_path):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def write_outcome(path: Path, outcome: Outcome) -> None:
    """Write an outcome for the process that requested it."""
    with contextlib.suppress(OSError):  # a full disk: the outcome is in the log
        replace_durably(OS, path, json.dumps(asdict(outcome)).encode(), synced=False)  # of this run only


def step_timeout(shutdown_time_s: float) -> float:
    """Return the seconds that a step of a reload or restart takes at most, unless something is wrong.

    Receivers end before their readers, and both may take the shutdown time.
    """
    return max(REHEARSAL_TIMEOUT_S, 2 * shutdown_time_s) + STEP_TIMEOUT_S


def request_reload(data_dir: Path, timeout_s: float, show: Callable[[str], None] = lambda _: None) -> Outcome:
    """Make the penstock that runs on ``data_dir`` reload. Raises NotRunning, PermissionError, NoAnswer.

    Waits until a step takes longer than ``timeout_s``; calls ``show`` with each step.
    """
    return _request(data_dir, find_supervisor(data_dir), signal.SIGHUP, timeout_s, show)


def request_restart(data_dir: Path, timeout_s: float, show: Callable[[str], None] = lambda _: None) -> Outcome:
    """Make all processes on ``data_dir`` restart with the installation of this process.

    Waits until a step takes longer than ``timeout_s``; calls ``show`` with each step. Raises NotRunning, OSError,
    NoAnswer.
    """
    supervisor = find_supervisor(data_dir)
    installation = Installation.current()
    try:
        running = Installation.from_document(endpoints(data_dir).get("installation"))
    except ValueError:
        raise NoAnswer(f"the running penstock cannot change to another installation: {NEXT_STEP}") from None
    if not has_space(data_dir):
        # The processes note their steps and the outcome there: on a full disk nobody would learn of them.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(data_dir))
    # Order: the request is complete before the signal. The usual restart needs none.
    if running.is_replaced_by(installation):
        write_request(data_dir, installation)
    else:
        discard_request(data_dir)
    # `penstock up` restarts its other processes too.
    return _request(data_dir, endpoints(data_dir).get("up") or supervisor, signal.SIGUSR2, timeout_s, show)


def _request(
    data_dir: Path, pid: int, number: signal.Signals, timeout_s: float, show: Callable[[str], None]
) -> Outcome:
    requested_ns = time.monotonic_ns()
    os.kill(pid, number)
    step, deadline = "", time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if (reported := read_step(data_dir, requested_ns)) != step:
            # A busy machine may take long for all steps together.
            step, deadline = reported, time.monotonic() + timeout_s
            show(step)
        outcome = read_outcome(data_dir / OUTCOME)
        # An older outcome belongs to an earlier request.
        if outcome and outcome.began >= requested_ns:
            return outcome
        _check_running(data_dir, pid)
        time.sleep(POLL_INTERVAL_S)
    running = endpoints(data_dir)
    last = f" since it reported: {step}" if step else ""
    with contextlib.suppress(ValueError):
        version = Installation.from_document(running.get("installation")).text
        last += f"; listeners and log daemon (process {running.get('supervisor')}) run version {version}"
    raise NoAnswer(
        f"process {pid} has not reported the outcome within {timeout_s:g} s{last}; it may still finish: "
        "`penstock events` will show it"
    )


def _check_running(data_dir: Path, pid: int) -> None:
    """Raise NotRunning if the process ``pid`` that was signalled, a supervisor or its parent ``up``, has ended."""
    try:
        find_supervisor(data_dir)
    except NotRunning:
        # `penstock up` starts a supervisor again that dies during its restart, and reports that.
        if endpoints(data_dir).get("up") != pid:
            raise
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            raise NotRunning(f"penstock up (process {pid}) has ended during the restart") from None


def read_outcome(path: Path) -> Outcome | None:
    """Read the outcome of the last reload; None if it is absent or unreadable."""
    try:
        document = parse_object(path.read_bytes())
        error, replaced, running = (str(document.get(name, "")) for name in ("error", "replaced", "running"))
        remaining = str(document.get("remaining", UNCHANGED))
        applied, waiting, apart = ([str(t) for t in document.get(name, ())] for name in ("applied", "waiting", "apart"))
        is_restart = bool(document.get("restart", False))
        return Outcome(int(document["began"]), error, applied, waiting, is_restart, replaced, running, remaining, apart)
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        return None
