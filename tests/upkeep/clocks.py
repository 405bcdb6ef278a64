"""Clocks for tests of retention: the daemon's answers, and a clock that is trusted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import PenstockError
from penstock.files.file_system import SYSTEM_CLOCK, Clock
from penstock.landing.table_paths import Layout
from penstock.upkeep.believed_clock import BelievedClock


@dataclass
class DaemonAnswers:
    """The answers of ``GET /clock`` of a daemon on the machine of ``clock``."""

    clock_of_machine: Clock = SYSTEM_CLOCK
    right: bool = True
    accepted: bool = False
    ahead: float = 0.0
    is_away: bool = False

    def clock(self) -> Mapping[str, Any]:
        if self.is_away:
            raise PenstockError("GET /clock: connection refused")
        now = self.clock_of_machine.micros() / 1e6 + self.ahead
        return {"right": self.right, "accepted": self.accepted, "time": now}


class Later:
    """A clock that was right all the time, some seconds from now."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def micros(self) -> int:
        return round((time.time() + self._seconds) * 1e6)

    def monotonic(self) -> float:
        return time.monotonic() + self._seconds


def believed(layout: Layout, seconds: float = 0.0) -> BelievedClock:
    """Return a trusted clock that is ``seconds`` ahead."""
    clock = Later(seconds)
    trusted_clock = BelievedClock(layout, DaemonAnswers(clock, accepted=True), clock)
    assert trusted_clock.now() is not None
    return trusted_clock
