"""The machine's clock, watched: retention by age and the ledger's roll-up wait while it cannot be right.

What the clock should say is known: what it said last (kept in ``CLOCK`` beside the topics, else the newest stored
entry's time), and how much time has passed since by the monotonic clock. A clock that is off by more is not believed
before it says again what it should, or has gone on for as long as it is ahead (an hour where it is behind), or somebody
says that it is right. So a wrong clock costs nothing, and a machine that was off for long keeps things for longer.
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
from penstock.log.store import index, segment

FILE_NAME = "CLOCK"
"""Beside the topics; no topic can have this name."""
MAX_DRIFT_S = 600.0
"""Seconds by which the clock may differ from what passed: it is set right by less all the time."""
MAX_DOWNTIME_S = 86_400.0
"""Seconds for which penstock may have been off before a start."""
STEADY_AFTER_S = 600.0
"""Seconds for which a clock must have said again what it should."""
BEHIND_BELIEVED_AFTER_S = 3_600.0
"""Seconds after which a clock that is behind is believed: nothing is dropped for that."""
EARLIEST_TIME_S = 1_735_689_600.0
"""2025-01-01: a clock before it was never set."""
COMMAND = "penstock clock --accept"
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClockState:
    """Whether the clock is believed, by how many seconds it is ahead (negative: behind), and when it will be believed.

    ``believed_in`` is in seconds; None where it never is by itself. ``accepted``: an operator said that the clock is
    right, and nothing has contradicted that since. ``time``: what the clock says, seconds since the epoch.
    """

    right: bool
    ahead: float = 0.0
    believed_in: float | None = 0.0
    accepted: bool = False
    time: float = 0.0

    def text(self) -> str:
        """In words; empty when all is right."""
        if self.right:
            return ""
        how = f"{_span(abs(self.ahead))} {'ahead of' if self.ahead > 0 else 'behind'} what it should say"
        until = "" if self.believed_in is None else f" for {_span(self.believed_in)} more"
        return (
            f"the clock is {how}: retention by age and the ledger's roll-up wait{until}, until it is set right, or "
            f"until somebody says that it is right: {COMMAND}"
        )

    def document(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self) | {"text": self.text()}


class PlausibleClock:
    """A ``Clock`` that watches another one. From any thread. ``newest``: the newest entry's time, microseconds."""

    def __init__(self, clock: Clock, fs: FileSystem, path: Path, newest: Callable[[], int] = lambda: 0) -> None:
        self._clock, self._fs, self._path = clock, fs, path
        self._lock = threading.RLock()
        known = self._kept() or newest() / 1e6
        self._said, self._at = known or clock.micros() / 1e6, clock.monotonic()
        self._off = 0.0
        self._since: float | None = None
        self._agrees: float | None = None
        self._accepted = False
        self._look(MAX_DOWNTIME_S)

    def _kept(self) -> float:
        try:
            return float((decode(self._fs.read(self._path), self._path) or {})["time"])
        except (OSError, KeyError, TypeError, ValueError, UnknownFormat):
            return 0.0

    def micros(self) -> int:
        """What the clock says."""
        return round(self._look(MAX_DRIFT_S) * 1e6)

    def monotonic(self) -> float:
        """Seconds that passed."""
        return self._clock.monotonic()

    @property
    def right(self) -> bool:
        """Whether the clock is believed."""
        self._look(MAX_DRIFT_S)
        return self._since is None

    def state(self) -> ClockState:
        """What is to be told."""
        with self._lock:
            now = self._look(MAX_DRIFT_S)
            if self._since is None:
                return ClockState(True, accepted=self._accepted, time=now)
            wait = self._patience(now)
            left = None if wait is None else max(0.0, wait - (self.monotonic() - self._since))
            return ClockState(False, round(self._off, 1), left, time=now)

    def expected(self) -> float:
        """Return what the clock should say, in seconds since the epoch: what it says, as long as it is believed."""
        with self._lock:
            now = self._look(MAX_DRIFT_S)
            return now if self._since is None else self._should()

    def accept(self) -> None:
        """Believe the clock from now on."""
        with self._lock:
            now = self._clock.micros() / 1e6
            if self._since is not None:
                _LOGGER.info("the clock is taken as right, as somebody said so")
            self._accepted = True
            self._believe(now)

    def keep(self) -> None:
        """Keep what the clock should say, for the next start; where the disk takes it."""
        with self._lock:
            self._look(MAX_DRIFT_S)
            with contextlib.suppress(OSError):
                replace_durably(self._fs, self._path, encode({"time": self._should(), "ahead": self._ahead()}))

    def _ahead(self) -> float:
        return 0.0 if self._since is None else self._off

    def _should(self) -> float:
        return self._said + self._clock.monotonic() - self._at

    def _look(self, allowed: float) -> float:
        """What the clock says, seconds, compared with what it should."""
        with self._lock:
            now, passed = self._clock.micros() / 1e6, self._clock.monotonic()
            off = now - self._said - (passed - self._at)
            if self._since is None:
                if -MAX_DRIFT_S <= off <= allowed:
                    self._said, self._at = now, passed
                else:
                    self._doubt(off, passed)
            elif abs(off) <= MAX_DRIFT_S:
                self._agrees = passed if self._agrees is None else self._agrees
                if passed - self._agrees >= STEADY_AFTER_S:
                    _LOGGER.info("the clock is right again")
                    self._believe(now)
            else:
                self._go_on(now, off, passed)
            return now

    def _doubt(self, off: float, passed: float) -> None:
        self._off, self._since, self._agrees, self._accepted = off, passed, None, False
        _LOGGER.warning("%s", self.state().text())
        self.keep()

    def _go_on(self, now: float, off: float, passed: float) -> None:
        """It is still wrong: as before, or otherwise."""
        self._agrees = None
        if abs(off - self._off) > MAX_DRIFT_S:
            self._doubt(off, passed)
        wait = self._patience(now)
        if self._since is not None and wait is not None and passed - self._since >= wait:
            _LOGGER.warning("the clock is taken as right: it has gone on steadily for %s", _span(wait))
            self._believe(now)

    def _patience(self, now: float) -> float | None:
        """For how long it must go on as it is to be believed; None where that is of no use."""
        return patience(self._off, now)

    def _believe(self, now: float) -> None:
        self._said, self._at = now, self._clock.monotonic()
        self._off, self._since, self._agrees = 0.0, None, None
        self.keep()


def patience(off: float, now: float) -> float | None:
    """For how long a clock that is off by ``off`` seconds must go on to be believed; None where that is of no use."""
    if off > 0:
        return off
    return min(-off, BEHIND_BELIEVED_AFTER_S) if now >= EARLIEST_TIME_S else None


def load_clock_state(topics: Path, clock: Clock = SYSTEM_CLOCK) -> ClockState:
    """What a daemon kept in the folder of the topics, beside the clock now."""
    try:
        kept = decode((topics / FILE_NAME).read_bytes(), topics / FILE_NAME) or {}
        should, ahead = float(kept["time"]), float(kept["ahead"])
    except (OSError, KeyError, TypeError, ValueError, UnknownFormat):
        return ClockState(True)
    now = clock.micros() / 1e6
    off = ahead or now - should
    if not ahead and -MAX_DRIFT_S <= off <= MAX_DOWNTIME_S:
        return ClockState(True)
    return ClockState(False, round(off, 1), patience(off, now))


def newest_stored(fs: FileSystem, directory: Path, topics: list[str]) -> int:
    """The newest timestamp that the topics' indices tell, microseconds; 0 where they tell none."""
    return max((_newest(fs, directory / name) for name in topics), default=0)


def _newest(fs: FileSystem, topic: Path) -> int:
    for first in reversed(segment.first_offsets(fs.names(topic))):
        files = segment.SegmentFiles(topic, first)
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
