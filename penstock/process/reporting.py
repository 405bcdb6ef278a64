"""How Penstock's processes report: by ``logging``, each record one line on standard error with time and component.

    2026-11-22T03:10:45Z receiver events-udp: empty datagrams: 12

A process configures it once, at its start; everything else has a module logger and configures nothing.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Final, TextIO

from penstock.errors import PenstockError

REPEAT_EVERY: Final = 60.0
"""Seconds until the same warning or error is reported again."""
MOST_REASONS: Final = 1000
"""Reasons that are remembered."""
SAID_AGAIN: Final = 12
"""Starts in vain from one line that says why to the next: about a minute."""
INNERMOST: Final = 5
"""Calls shown of where an exception was raised."""


def configure(component: str) -> None:
    """Has this process report as ``component``: what Penstock does from INFO on, what libraries do from WARNING on."""
    handler = _StandardError()
    handler.setFormatter(LineFormatter(component))
    handler.addFilter(OnceAMinute())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in ("penstock", "__main__"):  # a module of Penstock that runs as a process has the latter name
        logging.getLogger(name).setLevel(logging.INFO)


@contextlib.contextmanager
def starting(failed: str) -> Iterator[None]:
    """What keeps a process from starting (a full disk, say) is one line, not a traceback, and ends it with status 1.

    The line begins with ``failed``.

    A process that is started again and again (its supervisor hands it the number as second argument) says so every
    SAID_AGAIN times.
    """
    try:
        yield
    except (PenstockError, OSError) as error:
        again = int(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2].isdigit() else 0
        if again % SAID_AGAIN == 0:
            logging.getLogger(__name__).critical("%s: %s", failed, error)
        sys.exit(1)


class LineFormatter(logging.Formatter):
    """Formats a record as one line: lines of a message are joined, an exception is its text and where it was raised."""

    converter = staticmethod(time.gmtime)

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        parts = [record.getMessage()]
        if record.exc_info and record.exc_info[1]:
            parts.append(_raised(record.exc_info[1]))
        if repeats := getattr(record, "repeats", 0):
            parts.append(f"({repeats} times more since it was last reported)")
        text = "; ".join(" ".join(parts).splitlines())
        return f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%SZ')} {self._component}: {text}"


class OnceAMinute(logging.Filter):
    """Lets the same warning or error pass once a minute, with the number of those held back as ``record.repeats``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._passed: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        reason, now = record.getMessage(), self._clock()
        with self._lock:
            at, repeats = self._passed.pop(reason, (now - REPEAT_EVERY, 0))
            due = now - at >= REPEAT_EVERY
            self._passed[reason] = (now, 0) if due else (at, repeats + 1)
            if len(self._passed) > MOST_REASONS:
                del self._passed[next(iter(self._passed))]
        record.repeats = repeats
        return due


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to what is the standard error at the time of writing."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def _raised(error: BaseException) -> str:
    calls = traceback.extract_tb(error.__traceback__)[-INNERMOST:]
    places = " < ".join(f"{call.name} at {call.filename}:{call.lineno}" for call in reversed(calls))
    return f"{type(error).__name__}: {error}" + (f" ({places})" if places else "")
