"""A watched clock: retention by age and the ledger's roll-up wait while the machine's clock is implausible.

The expected time is the last believed one (stored in ``CLOCK`` in the folder of the topics, otherwise the newest
stored entry's time) plus the time that passed on the monotonic clock. A clock that differs by more than MAX_DRIFT_S is
believed again when it agrees with the expected time, when it has run on for the time by which it is ahead (at most an
hour if it is behind), or when an operator accepts it. So a wrong clock drops nothing, and a machine that was off for
long keeps rows for longer.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.files.checked_document import decode, encode
from penstock.files.errors import UnknownFormat
from penstock.files.file_system import SYSTEM_CLOCK, Clock, FileSystem, replace_durably
from penstock.log.store import index, segment_files

FILE_NAME = "CLOCK"
"""File in the folder of the topics; its capitals are not allowed in the name of a topic."""
MAX_DRIFT_S = 600.0
"""Largest plausible step: time synchronisation corrects by less all the time."""
MAX_DOWNTIME_S = 86_400.0
"""Longest plausible downtime before a start."""
STEADY_AFTER_S = 600.0
"""Time for which a wrong clock must agree with the expected time before it is believed again."""
BEHIND_BELIEVED_AFTER_S = 3_600.0
"""Time after which a clock that is behind is believed: it drops nothing too early."""
EARLIEST_TIME_S = 1_735_689_600.0
"""2025-01-01: a clock before it was never set."""
COMMAND = "penstock clock --accept"
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClockState:
    """Whether the clock is believed, how many seconds it is ahead (negative: behind), and when it will be believed.

    ``believed_in`` is in seconds; None if it is never believed by itself. ``accepted``: an operator accepted the
    clock, and it has not jumped since. ``time`` is the clock's time in seconds since the epoch.
    """

    right: bool
    ahead: float = 0.0
    believed_in: float | None = 0.0
    accepted: bool = False
    time: float = 0.0

    def text(self) -> str:
        """Return a sentence for users; empty if the clock is believed."""
        if self.right:
            return ""
        how = f"{_span(abs(self.ahead))} {'ahead of' if self.ahead > 0 else 'behind'} what it should say"
        until = "" if self.believed_in is None else f" for {_span(self.believed_in)} more"
        return (
            f"the clock is {how}: retention by age and the ledger's roll-up wait{until}, until it is set right, or "
            f"until somebody says that it is right: {COMMAND}"
        )

    def document(self) -> dict[str, Any]:
        """Return a JSON-ready document."""
        return asdict(self) | {"text": self.text()}


class PlausibleClock:
    """A ``Clock`` that watches another one. From any thread. ``newest``: time of the newest entry, microseconds."""

    def __init__(self, clock: Clock, fs: FileSystem, path: Path, newest: Callable[[], int] = lambda: 0) -> None:
        self._clock, self._fs, self._path = clock, fs, path
        self._lock = threading.RLock()
        last_time = self._load_time() or newest() / 1e6
        self._believed_time, self._believed_at = last_time or clock.micros() / 1e6, clock.monotonic()
        self._offset = 0.0
        self._wrong_since: float | None = None
        self._agrees_since: float | None = None
        self._accepted = False
        self._compare(MAX_DOWNTIME_S)

    def _load_time(self) -> float:
        try:
            return float((decode(self._fs.read(self._path), self._path) or {})["time"])
        except FileNotFoundError:
            return 0.0
        except (OSError, KeyError, TypeError, ValueError, UnknownFormat):
            _LOGGER.warning("%s is damaged: the clock is compared with the newest entry instead", self._path)
            return 0.0

    def micros(self) -> int:
        """Return the clock's time, believed or not: entries are stamped with it."""
        return round(self._compare(MAX_DRIFT_S) * 1e6)

    def monotonic(self) -> float:
        """Return seconds on the monotonic clock."""
        return self._clock.monotonic()

    @property
    def right(self) -> bool:
        """Report whether the clock is believed."""
        self._compare(MAX_DRIFT_S)
        return self._wrong_since is None

    def state(self) -> ClockState:
        """Return the state for users."""
        with self._lock:
            now = self._compare(MAX_DRIFT_S)
            if self._wrong_since is None:
                return ClockState(True, accepted=self._accepted, time=now)
            wait = self._wait(now)
            remaining = None if wait is None else max(0.0, wait - (self.monotonic() - self._wrong_since))
            return ClockState(False, round(self._offset, 1), remaining, time=now)

    def expected(self) -> float:
        """Return the expected time in seconds since the epoch: the clock's time while it is believed."""
        with self._lock:
            now = self._compare(MAX_DRIFT_S)
            return now if self._wrong_since is None else self._expected()

    def accept(self) -> None:
        """Believe the clock from now on, as an operator says."""
        with self._lock:
            now = self._clock.micros() / 1e6
            if self._wrong_since is not None:
                _LOGGER.info("clock: accepted by an operator")
            self._accepted = True
            self._believe(now)

    def store_time(self) -> None:
        """Store the expected time for the next start; ignore a disk that refuses it."""
        with self._lock:
            self._compare(MAX_DRIFT_S)
            with contextlib.suppress(OSError):
                replace_durably(self._fs, self._path, encode({"time": self._expected(), "ahead": self._ahead()}))

    def _ahead(self) -> float:
        return 0.0 if self._wrong_since is None else self._offset

    def _expected(self) -> float:
        return self._believed_time + self._clock.monotonic() - self._believed_at

    def _compare(self, allowed: float) -> float:
        """Return the clock's time in seconds after a comparison with the expected time."""
        with self._lock:
            now, monotonic_s = self._clock.micros() / 1e6, self._clock.monotonic()
            off = now - self._believed_time - (monotonic_s - self._believed_at)
            if self._wrong_since is None:
                if -MAX_DRIFT_S <= off <= allowed:
                    self._believed_time, self._believed_at = now, monotonic_s
                else:
                    self._doubt(off, monotonic_s)
            elif abs(off) <= MAX_DRIFT_S:
                self._agrees_since = monotonic_s if self._agrees_since is None else self._agrees_since
                if monotonic_s - self._agrees_since >= STEADY_AFTER_S:
                    _LOGGER.info("clock: it agrees with the expected time again")
                    self._believe(now)
            else:
                self._judge_again(now, off, monotonic_s)
            return now

    def _doubt(self, off: float, monotonic_s: float) -> None:
        self._offset, self._wrong_since, self._agrees_since, self._accepted = off, monotonic_s, None, False
        _LOGGER.warning("%s", self.state().text())
        self.store_time()

    def _judge_again(self, now: float, off: float, monotonic_s: float) -> None:
        """Decide about a clock that is still wrong, by the same amount or by another one."""
        self._agrees_since = None
        if abs(off - self._offset) > MAX_DRIFT_S:
            self._doubt(off, monotonic_s)
        wait = self._wait(now)
        if self._wrong_since is not None and wait is not None and monotonic_s - self._wrong_since >= wait:
            _LOGGER.warning("clock: believed after it ran steadily for %s", _span(wait))
            self._believe(now)

    def _wait(self, now: float) -> float | None:
        return time_to_belief(self._offset, now)

    def _believe(self, now: float) -> None:
        self._believed_time, self._believed_at = now, self._clock.monotonic()
        self._offset, self._wrong_since, self._agrees_since = 0.0, None, None
        self.store_time()


def time_to_belief(off: float, now: float) -> float | None:
    """Return how long a clock that is off by ``off`` seconds must run on to be believed; None if it never is."""
    if off > 0:
        return off
    return min(-off, BEHIND_BELIEVED_AFTER_S) if now >= EARLIEST_TIME_S else None


def load_clock_state(topics: Path, clock: Clock = SYSTEM_CLOCK) -> ClockState:
    """Return the state that a daemon stored in the folder of the topics, compared with the clock now."""
    try:
        stored = decode((topics / FILE_NAME).read_bytes(), topics / FILE_NAME) or {}
        expected, ahead = float(stored["time"]), float(stored["ahead"])
    except (OSError, KeyError, TypeError, ValueError, UnknownFormat):
        return ClockState(True)
    now = clock.micros() / 1e6
    off = ahead or now - expected
    if not ahead and -MAX_DRIFT_S <= off <= MAX_DOWNTIME_S:
        return ClockState(True)
    return ClockState(False, round(off, 1), time_to_belief(off, now))


def newest_stored(fs: FileSystem, directory: Path, topics: list[str]) -> int:
    """Return the newest timestamp in the topics' indices, microseconds; 0 if they have none."""
    return max((_newest(fs, directory / name) for name in topics), default=0)


def _newest(fs: FileSystem, topic: Path) -> int:
    for first in reversed(segment_files.first_offsets(fs.names(topic))):
        files = segment_files.SegmentFiles(topic, first)
        with contextlib.suppress(OSError):
            records = index.read(fs.read(files.index), files.fingerprint)
            if len(records) and index.valid(records[-1:]).all():
                return int(records["last"][-1])
    return 0


def _span(seconds: float) -> str:
    for name, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
