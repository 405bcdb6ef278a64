"""A new configuration for processes that run: asked for by SIGHUP, told of in a file of the data directory."""

from __future__ import annotations

import contextlib
import fcntl
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
from penstock.supervise.endpoints import endpoints
from penstock.supervise.sd_notify import Service
from penstock.supervise.supervisor import LOCK, Supervisor

OUTCOME = "reloaded.json"
"""In the data directory: what became of the last reload."""
TERMINAL = "/dev/tty"
LOOK_EVERY = 0.05
_LOGGER = logging.getLogger(__name__)


class NotRunning(PenstockError, RuntimeError):
    """No penstock runs on this data directory."""


class NoAnswer(PenstockError, RuntimeError):
    """The running penstock does not say what became of a reload."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a reload that began at monotonic time ``began`` (nanoseconds).

    ``error``: why nothing has changed, a line for each bad key; ``applied``: what has, in words; ``waiting``: the
    keys that come into force at the next start.
    """

    began: int
    error: str = ""
    applied: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """For people."""
        if self.error:
            return [*self.error.splitlines(), "the configuration is not reloaded; everything goes on as before"]
        changed = f"the configuration is reloaded: {', '.join(self.applied) or 'nothing has changed'}"
        return [changed, *(f"{key}: comes into force at the next start" for key in self.waiting)]


class Signals:
    """What this process was asked for: SIGTERM and SIGINT to stop, SIGHUP to reload.

    A terminal that is closed sends SIGHUP too: who was started in one stops with it, unless told not to (nohup).
    """

    def __init__(self) -> None:
        self.stop, self._reload = False, False
        self._may_hang_up = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN and _has_terminal()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._received)

    def take_reload(self) -> bool:
        """Whether a reload was asked for since this was called last."""
        asked, self._reload = self._reload, False
        return asked

    def _received(self, number: int, _: FrameType | None) -> None:
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
    """Reloads for one supervisor. ``read`` gives the settings anew, or raises ConfigError."""

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
        """Read, validate and swap; report what became of it, and leave it for who asked."""
        began = time.monotonic_ns()
        self._service.reloading()
        try:
            done = self._supervisor.reload(self._read(), self._service.alive)
            outcome = Outcome(began, applied=done.applied, waiting=done.waiting)
        except (ConfigError, OSError) as error:  # CannotListen, or no descriptors to be had
            outcome = Outcome(began, error=str(error))
        for line in outcome.lines:
            _LOGGER.log(logging.ERROR if outcome.error else logging.INFO, "%s", line)
        self._supervisor.timeline.happened("reload", "; ".join(outcome.lines))
        with contextlib.suppress(OSError):  # a full disk: it was reported
            replace_durably(OS, self._path, json.dumps(asdict(outcome)).encode(), synced=False)  # of this run only

    def close(self) -> None:
        """What was told of a reload is of no use to anybody later."""
        self._path.unlink(missing_ok=True)


def ask_reload(data_dir: Path, patience: float) -> Outcome:
    """Have the penstock that runs on ``data_dir`` reload. Raises NotRunning, PermissionError, NoAnswer."""
    pid = _supervisor(data_dir)
    asked = time.monotonic_ns()
    os.kill(pid, signal.SIGHUP)
    until = time.monotonic() + patience
    while time.monotonic() < until:
        outcome = outcome_of(data_dir / OUTCOME)
        if outcome and outcome.began >= asked:
            return outcome
        _supervisor(data_dir)
        time.sleep(LOOK_EVERY)
    raise NoAnswer(f"process {pid} has not said within {patience:g} s what became of it")


def outcome_of(path: Path) -> Outcome | None:
    """What was told of the last reload; None where that cannot be read, as of another penstock."""
    try:
        told = parse_object(path.read_bytes())
        lines = {name: [str(line) for line in told.get(name, ())] for name in ("applied", "waiting")}
        return Outcome(int(told["began"]), str(told.get("error", "")), **lines)
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        return None


def running_supervisor(data_dir: Path) -> int | None:
    """The process id of the penstock that runs on ``data_dir``, if one does."""
    try:
        return _supervisor(data_dir)
    except (NotRunning, OSError):
        return None


def _supervisor(data_dir: Path) -> int:
    """The process id of the supervisor. Raises NotRunning."""
    try:
        descriptor = os.open(data_dir / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotRunning(f"no penstock runs on {data_dir}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        with contextlib.suppress(FileNotFoundError):
            pid = int(endpoints(data_dir).get("supervisor", 0))
            if pid and _has_open(pid, os.fstat(descriptor)):  # else the file is that of one that was killed
                return pid
        raise NotRunning(f"the penstock that runs on {data_dir} is just starting: try again") from None
    finally:
        os.close(descriptor)
    raise NotRunning(f"no penstock runs on {data_dir}")


def _has_open(pid: int, file: os.stat_result) -> bool:
    """Whether a process has a file open. Raises PermissionError where that is not ours to know."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(entry.stat(), file):
                return True
    return False
