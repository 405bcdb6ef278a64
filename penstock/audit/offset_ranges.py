"""The offsets of one partition that a table has, as ranges, and the offsets that it has more than once.

Rows of a table come in files, each with long runs of consecutive offsets, so ranges need far less memory than offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]
Range = tuple[int, int]
"""Offsets [begin, end)."""
MERGE_RANGES = 1 << 20
"""Limit: ranges that wait to be merged, 16 MiB; the merged ones are as many as the table has gaps."""


class OffsetRanges:
    """A set of offsets that also counts repetitions. One thread."""

    def __init__(self) -> None:
        self._waiting: list[Offsets] = []
        self._waiting_count = 0
        self._merged: Offsets = np.empty((0, 2), np.int64)
        self._repeated: Offsets = np.empty((0, 2), np.int64)
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
        first = np.flatnonzero(np.concatenate([[True], steps != 1]))
        last = np.concatenate([first[1:] - 1, [len(offsets) - 1]])
        self._add_ranges(np.stack([offsets[first], offsets[last] + 1], axis=1))

    def add_range(self, begin: int, end: int) -> None:
        """Add the offsets [begin, end)."""
        self.rows += end - begin
        self._add_ranges(np.array([[begin, end]], np.int64))

    def _add_ranges(self, ranges: Offsets) -> None:
        self._waiting.append(ranges)
        self._waiting_count += len(ranges)
        if self._waiting_count > MERGE_RANGES:
            self._merge()

    def _merge(self) -> None:
        if not self._waiting:
            return
        spans = np.concatenate([self._merged, *self._waiting])
        self._waiting, self._waiting_count = [], 0
        covered, repeated = cover(spans)
        self._merged = covered
        if len(repeated):
            self._repeated = cover(np.concatenate([self._repeated, repeated]))[0]

    @property
    def ranges(self) -> list[Range]:
        """The offsets, as ascending ranges with gaps between them."""
        self._merge()
        return as_ranges(self._merged)

    @property
    def repeated(self) -> list[Range]:
        """The offsets that were added more than once, likewise."""
        self._merge()
        return as_ranges(self._repeated)

    def missing(self, begin: int, end: int) -> list[Range]:
        """Return the ranges within [begin, end) that were not added."""
        return list(gaps(self.ranges, begin, end))


def cover(spans: Offsets) -> tuple[Offsets, Offsets]:
    """Return the union of ``spans``, shape (n, 2), and the offsets that lie in more than one, as joined ranges."""
    points = np.concatenate([spans[:, 0], spans[:, 1]])
    changes = np.concatenate([np.ones(len(spans), np.int64), np.full(len(spans), -1, np.int64)])
    order = np.argsort(points, kind="stable")
    points, depth = points[order], np.cumsum(changes[order])
    # At equal points only the depth behind the last of them counts.
    is_last = np.concatenate([points[1:] != points[:-1], [True]])
    points, depth = points[is_last], depth[is_last]
    return _runs(points, depth >= 1), _runs(points, depth >= 2)


def _runs(points: Offsets, inside: npt.NDArray[np.bool_]) -> Offsets:
    changes = np.flatnonzero(np.diff(np.concatenate([[False], inside])))
    return points[changes].reshape(-1, 2)


def as_ranges(spans: Offsets) -> list[Range]:
    """Return spans, shape (n, 2), as pairs of Python numbers."""
    return [(int(begin), int(end)) for begin, end in spans.tolist()]


def gaps(ranges: Iterable[Range], begin: int, end: int) -> Iterator[Range]:
    """Yield what ``ranges``, ascending and apart, leave out of [begin, end)."""
    position = begin
    for first, last in ranges:
        if first >= end:
            break
        if first > position:
            yield position, min(first, end)
        position = max(position, last)
    if position < end:
        yield position, end


def intersection(ranges: Iterable[Range], begin: int, end: int) -> list[Range]:
    """Return the parts of ``ranges`` within [begin, end)."""
    return [(max(first, begin), min(last, end)) for first, last in ranges if first < end and last > begin]


def total(ranges: Iterable[Range]) -> int:
    """Return the number of offsets in ``ranges``."""
    return sum(last - first for first, last in ranges)
