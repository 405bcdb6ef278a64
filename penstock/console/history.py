"""Counters over time: how fast they grow, and by how much they grew lately."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

RATE_SECONDS = 10.0
"""A rate is the growth over so many seconds."""
KEEP_SECONDS = 3600.0
SPARSE_SECONDS = 10.0
"""Beyond the rate's window one sample in so many seconds is kept."""

Counters = Mapping[str, float]


class History:
    """Samples of the same counters, the newest ones densely and an hour of them sparsely."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, Counters]] = deque()
        self._hour: deque[tuple[float, Counters]] = deque()

    def add(self, at: float, counters: Counters) -> None:
        """A sample taken ``at`` (seconds of a clock that never goes back)."""
        self._recent.append((at, counters))
        while len(self._recent) > 2 and self._recent[1][0] <= at - RATE_SECONDS:
            self._recent.popleft()
        if not self._hour or at - self._hour[-1][0] >= SPARSE_SECONDS:
            self._hour.append((at, counters))
        while self._hour[0][0] < at - KEEP_SECONDS:
            self._hour.popleft()

    def rate(self, name: str) -> float:
        """Growth a second over the last seconds; 0 while that cannot be said. A counter begun anew counts from 0."""
        if len(self._recent) < 2:
            return 0.0
        (first, before), (last, now) = self._recent[0], self._recent[-1]
        return _growth(before.get(name, 0), now.get(name, 0)) / max(last - first, 1e-9)

    def grown(self, name: str, seconds: float = KEEP_SECONDS) -> float:
        """Growth over the last ``seconds``, at most an hour, as far as samples reach."""
        if not self._recent:
            return 0.0
        at, now = self._recent[-1]
        before = next((counters for t, counters in self._hour if t >= at - seconds), now)
        return _growth(before.get(name, 0), now.get(name, 0))

    @property
    def span(self) -> float:
        """Seconds that the samples reach back."""
        return self._recent[-1][0] - self._hour[0][0] if self._recent else 0.0

    def line(self, name: str) -> list[tuple[float, float]]:
        """Rates over the last hour: end of each stretch, growth a second in it."""
        pairs = zip(list(self._hour), list(self._hour)[1:], strict=False)
        return [(t, _growth(a.get(name, 0), b.get(name, 0)) / (t - s)) for (s, a), (t, b) in pairs]


def _growth(before: float, now: float) -> float:
    return now - before if now >= before else now
