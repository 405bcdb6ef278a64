"""Meters: a count of events, and its rate over the last 1, 5 and 15 minutes.

The rates are exponentially weighted in steps of five seconds, like Unix's load average and the meters in plog's
``kafka`` statistics.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypedDict

STEP_S = 5.0
MINUTES = (1, 5, 15)
_WEIGHTS = tuple(1 - math.exp(-STEP_S / (60 * minutes)) for minutes in MINUTES)
_DECAY_LIMIT_S = 24 * 3600
"""Limit: silence after which every rate is 0; it bounds the exponent of the decay."""


class Rate(TypedDict):
    """A meter in the answer to STAT; ``rate``: events per second over the last 1, 5 and 15 minutes."""

    count: int
    rate: list[float]


class Meter:
    """Counter of events with rates; ``clock`` returns monotonic seconds. Used by one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._clock = clock
        self._stepped = clock()
        self._since = 0
        self._rates: list[float] | None = None

    def mark(self, events: int) -> None:
        """Count ``events`` more events."""
        self._step()
        self.count += events
        self._since += events

    def document(self) -> Rate:
        """Return count and rates; the rates are 0 during the first five seconds."""
        self._step()
        return {"count": self.count, "rate": list(self._rates or (0.0,) * len(MINUTES))}

    def _step(self) -> None:
        """Apply the steps that are due: the first with the new events, the others with none."""
        due = int((self._clock() - self._stepped) // STEP_S)
        if due <= 0:
            return
        self._stepped += due * STEP_S
        now, self._since = self._since / STEP_S, 0
        if self._rates is None:
            self._rates = [now] * len(MINUTES)
        else:
            self._rates = [rate + weight * (now - rate) for rate, weight in zip(self._rates, _WEIGHTS, strict=True)]
        idle_steps = min(due - 1, _DECAY_LIMIT_S / STEP_S)
        self._rates = [rate * (1 - weight) ** idle_steps for rate, weight in zip(self._rates, _WEIGHTS, strict=True)]
