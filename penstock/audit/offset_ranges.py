"""The offsets of one partition that a table has, and the offsets that it has more than once.

Rows of a table come in files, each with long runs of consecutive offsets, so runs (``landing.offset_runs``) need far
less memory than offsets.
"""

from __future__ import annotations

import numpy as np

from penstock.landing.offset_runs import NO_RUNS, Offsets, Runs, as_runs

MERGE_RANGES = 1 << 20
"""Limit: ranges that wait to be merged, 16 MiB; the merged ones are as many as the table has gaps."""


class OffsetRanges:
    """A set of offsets that also knows repetitions. One thread."""

    def __init__(self) -> None:
        self._waiting: list[Runs] = []
        self._waiting_count = 0
        self._merged, self._repeated = NO_RUNS, NO_RUNS
        self.rows = 0
        """Number of added offsets, with repetitions."""

    def add(self, offsets: Offsets) -> None:
        """Add offsets in any order, shape (n,)."""
        if not len(offsets):
            return
        self.rows += len(offsets)
        steps = np.diff(offsets)
        if len(steps) and steps.min() < 1:
            # Repeated offsets of one batch need a range each, which the merge finds to overlap.
            offsets = np.sort(offsets)
            steps = np.diff(offsets)
        first = np.flatnonzero(np.r_[True, steps != 1])
        last = np.r_[first[1:] - 1, len(offsets) - 1]
        self._waiting.append(np.stack([offsets[first], offsets[last] + 1], axis=1))
        self._waiting_count += len(first)
        if self._waiting_count > MERGE_RANGES:
            self._merge()

    def _merge(self) -> None:
        if not self._waiting:
            return
        ranges = np.concatenate([self._merged, *self._waiting])
        self._waiting, self._waiting_count = [], 0
        self._merged = as_runs(ranges)
        self._repeated = as_runs(np.concatenate([self._repeated, overlaps(ranges)]))

    @property
    def ranges(self) -> Runs:
        """The offsets."""
        self._merge()
        return self._merged

    @property
    def repeated(self) -> Runs:
        """The offsets that were added more than once."""
        self._merge()
        return self._repeated


def overlaps(ranges: Runs) -> Runs:
    """Return the offsets that lie in more than one of ``ranges``, which may be in any order."""
    begins, ends = ranges[np.argsort(ranges[:, 0], kind="stable")].T
    # The earlier range that reaches farthest begins before this one, so it covers all of the overlap.
    reached = np.maximum.accumulate(ends)[:-1]
    return as_runs(np.stack([begins[1:], np.minimum(ends[1:], reached)], axis=1))
