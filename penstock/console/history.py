"""Counters over time: how fast they grow, and by how much they grew lately."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt

RATE_SECONDS = 10.0
"""A rate is the growth over so many seconds."""
KEEP_SECONDS = 3600.0
SPARSE_SECONDS = 10.0
"""Beyond the rate's window one sample in so many seconds is kept."""

Counters = Mapping[str, float]
Sample = tuple[float, npt.NDArray[np.float64]]


class History:
    """Samples of the same counters, the newest ones densely and an hour of them sparsely.

    Kept as arrays: thousands of topics have tens of thousands of counters.
    """

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._recent: deque[Sample] = deque()
        self._hour: deque[Sample] = deque()

    def add(self, at: float, counters: Counters) -> None:
        """A sample taken ``at`` (seconds of a clock that never goes back)."""
        for name in counters:
            self._places.setdefault(name, len(self._places))
        values = np.zeros(len(self._places))
        values[[self._places[name] for name in counters]] = list(counters.values())
        self._recent.append((at, values))
        while len(self._recent) > 2 and self._recent[1][0] <= at - RATE_SECONDS:
            self._recent.popleft()
        if not self._hour or at - self._hour[-1][0] >= SPARSE_SECONDS:
            self._hour.append((at, values))
        while self._hour[0][0] < at - KEEP_SECONDS:
            self._hour.popleft()

    def _of(self, name: str, sample: Sample) -> float:
        place = self._places.get(name, -1)
        return float(sample[1][place]) if 0 <= place < len(sample[1]) else 0.0

    def rate(self, name: str) -> float:
        """Growth a second over the last seconds; 0 while that cannot be said. A counter begun anew counts from 0."""
        if len(self._recent) < 2:
            return 0.0
        before, now = self._recent[0], self._recent[-1]
        return _growth(self._of(name, before), self._of(name, now)) / max(now[0] - before[0], 1e-9)

    def grown(self, name: str, seconds: float = KEEP_SECONDS) -> float:
        """Growth over the last ``seconds``, at most an hour, as far as samples reach."""
        if not self._recent:
            return 0.0
        now = self._recent[-1]
        before = next((sample for sample in self._hour if sample[0] >= now[0] - seconds), now)
        return _growth(self._of(name, before), self._of(name, now))

    @property
    def span(self) -> float:
        """Seconds that the samples reach back."""
        return self._recent[-1][0] - self._hour[0][0] if self._recent else 0.0

    def line(self, name: str) -> list[tuple[float, float]]:
        """Rates over the last hour: end of each stretch, growth a second in it."""
        values = [(sample[0], self._of(name, sample)) for sample in self._hour]
        return [(t, _growth(a, b) / (t - s)) for (s, a), (t, b) in pairwise(values)]


def _growth(before: float, now: float) -> float:
    return now - before if now >= before else now
