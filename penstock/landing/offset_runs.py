"""Sets of offsets as runs: [begin, end) pairs, ascending and apart: a range costs the same however long it is."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

OffsetRange = tuple[int, int]
"""Offsets from the first to before the second."""
Offsets = npt.NDArray[np.int64]
Runs = npt.NDArray[np.int64]
"""Shape (runs, 2)."""
Mask = npt.NDArray[np.bool_]
NO_RUNS: Runs = np.zeros((0, 2), np.int64)


def as_runs(pairs: Iterable[OffsetRange] | Runs) -> Runs:
    """Pairs in any order, which may overlap or be empty."""
    given = pairs if isinstance(pairs, np.ndarray) else np.array(list(pairs), np.int64).reshape(-1, 2)
    given = given[given[:, 0] < given[:, 1]]
    if not len(given):
        return NO_RUNS
    begins, ends = given[np.argsort(given[:, 0], kind="stable")].T
    ends = np.maximum.accumulate(ends)
    first = np.r_[True, begins[1:] > ends[:-1]]
    return np.stack([begins[first], ends[np.r_[first[1:], True]]], axis=1)


def runs_of(offsets: Offsets) -> Runs:
    """Ascending offsets as runs."""
    return as_runs(np.stack([offsets, offsets + 1], axis=1))


def offsets_of(runs: Iterable[OffsetRange] | Runs) -> Offsets:
    """Runs as offsets."""
    begins, ends = as_runs(runs).T
    sizes = ends - begins
    return np.repeat(begins - np.r_[0, np.cumsum(sizes)[:-1]][: len(sizes)], sizes) + np.arange(sizes.sum())


def count_offsets(runs: Runs) -> int:
    """How many offsets they have."""
    return int((runs[:, 1] - runs[:, 0]).sum())


def is_inside(offsets: Offsets, runs: Iterable[OffsetRange] | Runs) -> Mask:
    """Which of the offsets lie in one of the runs."""
    begins, ends = as_runs(runs).T
    before = np.searchsorted(begins, offsets, "right") - 1
    found: Mask = before >= 0
    found[found] = offsets[found] < ends[before[found]]
    return found


def missing_offsets(offsets: Offsets, begin: int, end: int) -> Runs:
    """What [begin, end) has beside these offsets of it (ascending)."""
    edges = np.r_[begin - 1, offsets, end]
    return as_runs(np.stack([edges[:-1] + 1, edges[1:]], axis=1))


def intersection(one: Runs, other: Runs) -> Runs:
    """What both have."""
    low = np.searchsorted(other[:, 1], one[:, 0], "right")
    several = np.maximum(np.searchsorted(other[:, 0], one[:, 1], "left") - low, 0)
    mine = np.repeat(np.arange(len(one)), several)
    theirs = np.repeat(low - np.r_[0, np.cumsum(several)[:-1]][: len(low)], several) + np.arange(several.sum())
    begins = np.maximum(one[mine, 0], other[theirs, 0])
    return np.stack([begins, np.minimum(one[mine, 1], other[theirs, 1])], axis=1)


def difference(runs: Runs, taken: Iterable[OffsetRange] | Runs) -> Runs:
    """The runs without those that are taken."""
    gone = as_runs(taken)
    if not len(gone) or not len(runs):
        return runs
    low, high = min(runs[0, 0], gone[0, 0]), max(runs[-1, 1], gone[-1, 1])
    left = np.stack([np.r_[low, gone[:, 1]], np.r_[gone[:, 0], high]], axis=1)
    return intersection(runs, left[left[:, 0] < left[:, 1]])


def count_below(runs: Runs, points: Offsets) -> Offsets:
    """How many offsets of the runs come before each point."""
    before = np.searchsorted(runs[:, 0], points, "left")
    passed = np.r_[0, np.cumsum(runs[:, 1] - runs[:, 0])]
    last_end = np.r_[np.iinfo(np.int64).min, runs[:, 1]][before]
    found: Offsets = passed[before] - np.maximum(last_end - points, 0) * (before > 0)
    return found
