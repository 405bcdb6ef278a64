"""Meters: how much of something there was, and its rate over the last 1, 5 and 15 minutes.

The rates are exponentially weighted, in steps of five seconds, as those of Unix's load average and of the
meters that plog's ``kafka`` statistics show.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypedDict

STEP = 5.0
MINUTES = (1, 5, 15)
_WEIGHTS = tuple(1 - math.exp(-STEP / (60 * minutes)) for minutes in MINUTES)
_FORGOTTEN = 24 * 3600
"""Seconds of silence after which nothing is left of any rate."""


class Rate(TypedDict):
    """A meter as STAT shows it: ``rate`` a second over the last 1, 5 and 15 minutes."""

    count: int
    rate: list[float]


class Meter:
    """Counts events. ``clock`` gives seconds and does not go back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._clock = clock
        self._stepped = clock()
        self._since = 0
        self._rates: list[float] | None = None

    def mark(self, events: int) -> None:
        """``events`` more happened."""
        self._step()
        self.count += events
        self._since += events

    def document(self) -> Rate:
        """Count and rates so far; the rates are 0 until the first five seconds have passed."""
        self._step()
        return {"count": self.count, "rate": list(self._rates or (0.0,) * len(MINUTES))}

    def _step(self) -> None:
        """Take the steps that are due: the first with what happened since, the others with nothing."""
        due = int((self._clock() - self._stepped) // STEP)
        if due <= 0:
            return
        self._stepped += due * STEP
        now, self._since = self._since / STEP, 0
        if self._rates is None:
            self._rates = [now] * len(MINUTES)
        else:
            self._rates = [rate + weight * (now - rate) for rate, weight in zip(self._rates, _WEIGHTS, strict=True)]
        left = min(due - 1, _FORGOTTEN / STEP)
        self._rates = [rate * (1 - weight) ** left for rate, weight in zip(self._rates, _WEIGHTS, strict=True)]
