"""Reports of processes: ``logging``, one line per record on standard error, with time and component.

    2026-11-22T03:10:45Z receiver events-udp: empty datagrams: 12

A process calls ``configure`` once, at its start; other modules only have a module logger.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Final, NoReturn, TextIO

from penstock.errors import PenstockError

REPEAT_INTERVAL_S: Final = 60.0
"""Interval at which the same warning or error is reported."""
MAX_REASONS: Final = 1000
"""Limit of remembered texts: texts may contain names that senders choose."""
ATTEMPTS_PER_REPORT: Final = 12
"""Failed starts per logged line: about a minute at the largest restart delay."""
TRACEBACK_CALLS: Final = 5
"""Innermost calls shown of a traceback."""
FAILURE_FILE: Final = "penstock-failure"
"""Name of the file in memory by which a process tells its parent why it cannot start: its descriptor is argument 3."""
MAX_FAILURE_BYTES: Final = 2000
FREE_SPACE: Final = "free space there (penstock cleanup)"
ADVICE: Final = {
    errno.ENOSPC: FREE_SPACE,
    errno.EDQUOT: FREE_SPACE,
    errno.EACCES: "let the user of this process write there (chown, chmod)",
    errno.EROFS: "mount the file system for writing",
    errno.EAGAIN: "allow more processes and threads (ulimit -u, TasksMax of systemd, a container's pids limit)",
}
NO_THREAD: Final = "can't start new thread"
"""Text of the RuntimeError that Python makes of EAGAIN."""


def configure(component: str) -> None:
    """Report as ``component``: Penstock's records from INFO on, library records from WARNING on."""
    handler = _StandardError()
    handler.setFormatter(LineFormatter(component))
    handler.addFilter(RepeatFilter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # A module that runs as a process is named __main__.
    for name in ("penstock", "__main__"):
        logging.getLogger(name).setLevel(logging.INFO)
    # Limit: gRPC writes a line of its own for each connection without a TLS handshake, and anybody can open one. It
    # reads the variable at its import, in this process or a child.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


@contextlib.contextmanager
def starting(failed: str) -> Iterator[None]:
    """End the process with status 1 and one line, without a traceback, when the block fails (a full disk, say).

    The line begins with ``failed``. A supervisor passes the number of failed attempts as the second argument; then only
    every ATTEMPTS_PER_REPORT-th failure is logged.
    """
    try:
        yield
    except (PenstockError, OSError) as error:
        _end_failed_start(f"{failed}: {describe_error(error)}")
    except Exception as error:
        if str(error) == NO_THREAD:
            _end_failed_start(f"{failed}: {describe_error(OSError(errno.EAGAIN, NO_THREAD))}")
        _tell_parent(f"{failed}: {type(error).__name__}: {error}")
        raise


def _end_failed_start(line: str) -> NoReturn:
    _tell_parent(line)
    if is_reported_attempt():
        logging.getLogger(__name__).critical("%s", line)
    sys.exit(1)


def is_reported_attempt() -> bool:
    """Report whether this start is the first attempt, or the ATTEMPTS_PER_REPORT-th since the last one reported."""
    attempt = int(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2].isdigit() else 0
    return attempt % ATTEMPTS_PER_REPORT == 0


def _tell_parent(line: str) -> None:
    """Leave the reason of a failed start for the parent, if it has passed a file for it (``Child``)."""
    descriptor = sys.argv[3] if len(sys.argv) > 3 and sys.argv[3].isdigit() else ""
    with contextlib.suppress(OSError):
        # A command that was started by hand may have a number as its argument, too.
        if descriptor and FAILURE_FILE in os.readlink(f"/proc/self/fd/{descriptor}"):
            os.pwrite(int(descriptor), " ".join(line.split()).encode()[:MAX_FAILURE_BYTES], 0)


def describe_error(error: Exception) -> str:
    """Return an error in the words of the system, with the next step for known ones."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{text}: {advice}" if (advice := ADVICE.get(error.errno or 0)) else text


class LineFormatter(logging.Formatter):
    """Formatter that writes a record as one line; an exception becomes its text and the calls that raised it."""

    converter = staticmethod(time.gmtime)

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        parts = [record.getMessage()]
        if record.exc_info and record.exc_info[1]:
            parts.append(_describe(record.exc_info[1]))
        if repeats := getattr(record, "repeats", 0):
            parts.append(f"({repeats} repetitions since the last report)")
        text = "; ".join(" ".join(parts).splitlines())
        return f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%SZ')} {self._component}: {text}"


class RepeatFilter(logging.Filter):
    """Filter that passes the same warning or error once a minute; ``record.repeats`` counts the suppressed ones.

    Thread-safe: every thread of a process logs through it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._reported: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        reason, now = record.getMessage(), self._clock()
        with self._lock:
            reported_at, repeats = self._reported.pop(reason, (now - REPEAT_INTERVAL_S, 0))
            due = now - reported_at >= REPEAT_INTERVAL_S
            self._reported[reason] = (now, 0) if due else (reported_at, repeats + 1)
            if len(self._reported) > MAX_REASONS:
                # Limit: the oldest text goes; insertion order is report order, because each report re-inserts its text.
                del self._reported[next(iter(self._reported))]
        record.repeats = repeats
        return due


class _StandardError(logging.StreamHandler[TextIO]):
    """Handler that writes to the standard error of the moment of writing."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def _describe(error: BaseException) -> str:
    calls = traceback.extract_tb(error.__traceback__)[-TRACEBACK_CALLS:]
    origin = " < ".join(f"{call.name} at {call.filename}:{call.lineno}" for call in reversed(calls))
    return f"{type(error).__name__}: {error}" + (f" ({origin})" if origin else "")
