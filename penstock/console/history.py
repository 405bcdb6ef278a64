"""Counters and readers' lag over time, sampled by the poll of the daemon."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

RATE_WINDOW_S = 10.0
"""A rate is the growth over this window: long enough to smooth batches, short enough to follow a change."""
HISTORY_S = 3600.0
SPARSE_INTERVAL_S = 10.0
"""Interval of the samples of the hour: 360 of them at any interval of the poll."""
LAGS_INTERVAL_POLLS = 15
"""Polls, of one second, between two samples of lag."""
MAX_LAG_SAMPLES = 240
"""An hour of samples."""
MAX_READERS = 2000
"""Limit: cursors are named by clients, so their number is not the console's to choose."""

Counters = Mapping[str, float]
Sample = tuple[float, npt.NDArray[np.float64]]
Reader = tuple[str, str]
"""Topic and name of a cursor."""


class History:
    """Samples of the same counters: every sample of the last ten seconds, and one of each ten seconds for an hour.

    A sample is one array over all counters: thousands of topics have tens of thousands of counters.
    """

    def __init__(self) -> None:
        self._columns: dict[str, int] = {}
        self._recent: deque[Sample] = deque()
        self._hour: deque[Sample] = deque()

    def add(self, now_s: float, counters: Counters) -> None:
        """Add a sample taken at ``now_s``, of a monotonic clock."""
        for name in counters:
            self._columns.setdefault(name, len(self._columns))
        values = np.zeros(len(self._columns))
        values[[self._columns[name] for name in counters]] = list(counters.values())
        self._recent.append((now_s, values))
        # One sample older than the window stays: the rate spans the whole window, not a part of it.
        while len(self._recent) > 2 and self._recent[1][0] <= now_s - RATE_WINDOW_S:
            self._recent.popleft()
        if not self._hour or now_s - self._hour[-1][0] >= SPARSE_INTERVAL_S:
            self._hour.append((now_s, values))
        while self._hour[0][0] < now_s - HISTORY_S:
            self._hour.popleft()

    def _counter(self, name: str, sample: Sample) -> float:
        column = self._columns.get(name, -1)
        # Older arrays are shorter: a counter that appeared later was 0 then.
        return float(sample[1][column]) if 0 <= column < len(sample[1]) else 0.0

    def rate(self, name: str) -> float:
        """Return the growth per second over the last ten seconds; 0 with fewer than two samples."""
        if len(self._recent) < 2:
            return 0.0
        before, now = self._recent[0], self._recent[-1]
        return _growth(self._counter(name, before), self._counter(name, now)) / max(now[0] - before[0], 1e-9)

    def grown(self, name: str, seconds: float = HISTORY_S) -> float:
        """Return the growth over the last ``seconds``, at most an hour, as far as samples reach back."""
        if not self._recent:
            return 0.0
        now = self._recent[-1]
        before = next((sample for sample in self._hour if sample[0] >= now[0] - seconds), now)
        return _growth(self._counter(name, before), self._counter(name, now))

    def lowest(self, name: str, seconds: float) -> float:
        """Return the lowest value within the last ``seconds``, at most ten; 0 if samples do not reach back as far."""
        since_s = self._recent[-1][0] - seconds if self._recent else 0.0
        if not self._recent or self._recent[0][0] > since_s:
            return 0.0
        return min(self._counter(name, sample) for sample in self._recent if sample[0] >= since_s)

    @property
    def span(self) -> float:
        """Return the seconds that the samples reach back."""
        return self._recent[-1][0] - self._hour[0][0] if self._recent else 0.0

    def line(self, name: str) -> list[tuple[float, float]]:
        """Return rates over the last hour: the end of each interval, and the growth per second in it."""
        values = [(sample[0], self._counter(name, sample)) for sample in self._hour]
        return [(t, _growth(a, b) / (t - s)) for (s, a), (t, b) in pairwise(values)]


def _growth(before: float, now: float) -> float:
    # A counter that shrank was reset: it counts from 0.
    return now - before if now >= before else now


class Lags:
    """Entries behind of each reader over the last hour."""

    def __init__(self) -> None:
        self._lines: dict[Reader, deque[tuple[float, int]]] = {}

    def add(self, now_s: float, cursors: Iterable[Mapping[str, Any]]) -> None:
        """Add a sample taken at ``now_s``, of a monotonic clock; readers without a cursor in it are forgotten."""
        before, self._lines = self._lines, {}
        for cursor, _ in zip(cursors, range(MAX_READERS), strict=False):
            reader = (str(cursor.get("topic", "")), str(cursor["name"]))
            line = self._lines[reader] = before.get(reader) or deque(maxlen=MAX_LAG_SAMPLES)
            line.append((now_s, int(cursor.get("lag_entries", 0))))

    def of_topic(self, topic: str) -> dict[str, list[tuple[float, int]]]:
        """Return the readers of a topic by name, with entries behind over time."""
        return {name: list(line) for (read, name), line in self._lines.items() if read == topic}
