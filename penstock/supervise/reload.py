"""Reloads the configuration of running processes: requested by SIGHUP, reported in a file of the data directory."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

from penstock.config import ConfigError, Settings
from penstock.errors import PenstockError
from penstock.files.file_system import OS, replace_durably
from penstock.files.json_values import parse_object
from penstock.supervise.instances import find_supervisor
from penstock.supervise.sd_notify import Service
from penstock.supervise.supervisor import Supervisor

OUTCOME = "reloaded.json"
"""Name of the file with the outcome of the last reload, in the data directory."""
TERMINAL = "/dev/tty"
POLL_INTERVAL_S = 0.05
_LOGGER = logging.getLogger(__name__)


class NoAnswer(PenstockError, RuntimeError):
    """The running penstock does not report the outcome of a reload."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a reload that began at monotonic time ``began`` (nanoseconds).

    ``error`` has a line for each bad key, and then nothing has changed; ``applied`` are the changes in words;
    ``waiting`` are the keys that take effect at the next start.
    """

    began: int
    error: str = ""
    applied: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """The outcome in sentences."""
        if self.error:
            return [*self.error.splitlines(), "the configuration is not reloaded; the previous one stays in force"]
        changed = f"the configuration is reloaded: {', '.join(self.applied) or 'no key differs'}"
        return [changed, *(f"{key}: takes effect at the next start" for key in self.waiting)]


class Signals:
    """Requests by signal: SIGTERM and SIGINT to stop, SIGHUP to reload.

    A closing terminal sends SIGHUP too: a process that was started in a terminal stops with it, unless SIGHUP is
    ignored (nohup).
    """

    def __init__(self) -> None:
        self.stop, self._reload = False, False
        self._may_hang_up = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN and _has_terminal()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._receive)

    def take_reload(self) -> bool:
        """Report whether a reload was requested since the last call."""
        requested, self._reload = self._reload, False
        return requested

    def _receive(self, number: int, _: FrameType | None) -> None:
        if number != signal.SIGHUP or (self._may_hang_up and not _has_terminal()):
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
    """Reloads the configuration of a supervisor. ``read`` reads the settings again, or raises ConfigError."""

    def __init__(
        self,
        supervisor: Supervisor,
        read: Callable[[], Settings],
        data_dir: Path,
        service: Service,
    ) -> None:
        self._supervisor, self._read, self._service = supervisor, read, service
        self._path = data_dir / OUTCOME
        self.close()

    def reload(self) -> None:
        """Read, validate and swap; log the outcome, and write it for the process that requested the reload."""
        began = time.monotonic_ns()
        self._service.reloading()
        try:
            reloaded = self._supervisor.reload(self._read(), self._service.alive)
            outcome = Outcome(began, applied=reloaded.applied, waiting=reloaded.waiting)
        except (ConfigError, OSError) as error:  # CannotListen, or no descriptors to be had
            outcome = Outcome(began, error=str(error))
        for line in outcome.lines:
            _LOGGER.log(logging.ERROR if outcome.error else logging.INFO, "%s", line)
        self._supervisor.timeline.record("reload", "; ".join(outcome.lines))
        with contextlib.suppress(OSError):  # a full disk: the outcome is in the log
            replace_durably(OS, self._path, json.dumps(asdict(outcome)).encode(), synced=False)  # of this run only

    def close(self) -> None:
        """Remove the outcome: it concerns this run only."""
        self._path.unlink(missing_ok=True)


def request_reload(data_dir: Path, timeout_s: float) -> Outcome:
    """Make the penstock that runs on ``data_dir`` reload. Raises NotRunning, PermissionError, NoAnswer."""
    pid = find_supervisor(data_dir)
    requested_ns = time.monotonic_ns()
    os.kill(pid, signal.SIGHUP)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        outcome = read_outcome(data_dir / OUTCOME)
        # An older outcome belongs to an earlier request.
        if outcome and outcome.began >= requested_ns:
            return outcome
        find_supervisor(data_dir)
        time.sleep(POLL_INTERVAL_S)
    raise NoAnswer(f"process {pid} has not reported the outcome within {timeout_s:g} s")


def read_outcome(path: Path) -> Outcome | None:
    """Read the outcome of the last reload; None if it is absent or unreadable."""
    try:
        document = parse_object(path.read_bytes())
        lines = {name: [str(line) for line in document.get(name, ())] for name in ("applied", "waiting")}
        return Outcome(int(document["began"]), str(document.get("error", "")), **lines)
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        return None
