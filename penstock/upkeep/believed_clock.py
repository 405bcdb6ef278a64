"""The single judgement on whether the clock may decide that data outside the log is old enough to be removed.

Invariant: rows, files, keys and minutes of the tables are removed by age only after ``BelievedClock.now`` returned a
time. A wrong clock therefore costs nothing: everything is kept for longer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from penstock.errors import PenstockError
from penstock.files.errors import FileError
from penstock.files.file_system import OS, SYSTEM_CLOCK, Clock
from penstock.landing.journal import latest
from penstock.landing.table_paths import Layout
from penstock.log.plausible_clock import MAX_DRIFT_S, PlausibleClock

HOUR_S = 3_600.0


class DaemonClock(Protocol):
    """The log daemon's judgement on its clock: the document of ``GET /clock``."""

    def clock(self) -> Mapping[str, Any]:
        """Return the document of ``GET /clock``. Raises PenstockError if the daemon is unreachable."""


class BelievedClock:
    """The clock of a process that maintains tables. Any thread may use it.

    The clock is believed when two judges agree. This process compares the clock with the newest time that the pipeline
    stored, so that a daemon whose folder is new cannot confirm a wrong clock. The daemon (``None``: there is none)
    knows what its clock said before, and whether an operator accepted it; a daemon that does not answer confirms
    nothing.
    """

    def __init__(self, layout: Layout, daemon: DaemonClock | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._daemon, self._clock = daemon, clock
        self._own = PlausibleClock(clock, OS, layout.clock, lambda: _newest_landed(layout))
        self._doubted = -math.inf

    def now(self) -> float | None:
        """Return the time in seconds since the epoch; None while the clock is not believed."""
        time = self._clock.micros() / 1e6
        if self._daemon_agrees(time) and self._own.right:
            return time
        self._doubted = self._clock.monotonic()
        return None

    def now_if_steady(self, hours: float) -> float | None:
        """Return the time if the clock has been believed for ``hours`` (or since this process started); otherwise None.

        For files whose age is the difference of two readings of the clock: the first may be from before a correction.
        """
        time = self.now()
        return None if self._clock.monotonic() - self._doubted < hours * HOUR_S else time

    def watch(self) -> None:
        """Notice a jump even if nothing is due: between two calls of ``now`` the clock may jump there and back."""
        if not self._own.right:
            self._doubted = self._clock.monotonic()

    def store_time(self) -> None:
        """Store the time for the next start of the pipeline."""
        self._own.store_time()

    def expected_micros(self) -> int:
        """Return the time that the clock should show, in microseconds. A wrong clock stamped log times after it."""
        return round(self._own.expected() * 1e6)

    def _daemon_agrees(self, time: float) -> bool:
        try:
            document = self._daemon.clock() if self._daemon is not None else {}
            if not document.get("right") or abs(float(document["time"]) - time) > MAX_DRIFT_S:
                return False
        except (PenstockError, KeyError, TypeError, ValueError, AttributeError):
            return False
        if document.get("accepted"):  # by an operator, which this process hears of in no other way
            self._own.accept()
        return True


def _newest_landed(layout: Layout) -> int:
    """Return when the newest batch landed, in microseconds; 0 before the first one."""
    try:
        rolled, commits = latest(layout)
    except (FileError, OSError):  # reported by the journal's owner
        return 0
    return max((commit.landed_at for commit in commits), default=rolled.landed_at) * 1000
