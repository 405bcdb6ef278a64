"""Sets of offsets as runs: [begin, end) pairs, ascending and disjoint.

A range costs the same however long it is: a topic of a billion offsets without gaps is one pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

OffsetRange = tuple[int, int]
"""Offsets [begin, end)."""
Offsets = npt.NDArray[np.int64]
Runs = npt.NDArray[np.int64]
"""Begins and ends, in the shape (runs, 2)."""
Mask = npt.NDArray[np.bool_]
NO_RUNS: Runs = np.zeros((0, 2), np.int64)


def as_runs(pairs: Iterable[OffsetRange] | Runs) -> Runs:
    """Return pairs as runs; the pairs may be in any order, overlap or be empty."""
    array = pairs if isinstance(pairs, np.ndarray) else np.array(list(pairs), np.int64).reshape(-1, 2)
    array = array[array[:, 0] < array[:, 1]]
    if not len(array):
        return NO_RUNS
    begins, ends = array[np.argsort(array[:, 0], kind="stable")].T
    ends = np.maximum.accumulate(ends)
    # A run starts where no earlier pair reaches; touching pairs are joined.
    first = np.r_[True, begins[1:] > ends[:-1]]
    return np.stack([begins[first], ends[np.r_[first[1:], True]]], axis=1)


def runs_of(offsets: Offsets) -> Runs:
    """Return ascending offsets as runs."""
    return as_runs(np.stack([offsets, offsets + 1], axis=1))


def offsets_of(runs: Iterable[OffsetRange] | Runs) -> Offsets:
    """Return all offsets of runs, ascending."""
    begins, ends = as_runs(runs).T
    sizes = ends - begins
    return np.repeat(begins - np.r_[0, np.cumsum(sizes)[:-1]][: len(sizes)], sizes) + np.arange(sizes.sum())


def count_offsets(runs: Runs) -> int:
    """Return the number of offsets."""
    return int((runs[:, 1] - runs[:, 0]).sum())


def is_inside(offsets: Offsets, runs: Iterable[OffsetRange] | Runs) -> Mask:
    """Report for each offset whether it is in one of the runs."""
    begins, ends = as_runs(runs).T
    before = np.searchsorted(begins, offsets, "right") - 1
    mask: Mask = before >= 0
    mask[mask] = offsets[mask] < ends[before[mask]]
    return mask


def joined(sets: Iterable[Mapping[str, Runs]]) -> dict[str, Runs]:
    """Return the offsets of all sets, by topic (or partition of Kafka)."""
    parts: dict[str, list[Runs]] = {}
    for runs_by_topic in sets:
        for topic, runs in runs_by_topic.items():
            parts.setdefault(topic, []).append(runs)
    return {topic: as_runs(np.concatenate(runs)) for topic, runs in parts.items()}


def missing_offsets(offsets: Offsets, begin: int, end: int) -> Runs:
    """Return the part of [begin, end) without these ascending offsets."""
    edges = np.r_[begin - 1, offsets, end]
    return as_runs(np.stack([edges[:-1] + 1, edges[1:]], axis=1))


def intersection(first: Runs, second: Runs) -> Runs:
    """Return the offsets that are in both."""
    # Each run overlaps consecutive runs of the other set, so all overlapping pairs are built without a Python loop.
    low = np.searchsorted(second[:, 1], first[:, 0], "right")
    overlaps = np.maximum(np.searchsorted(second[:, 0], first[:, 1], "left") - low, 0)
    first_index = np.repeat(np.arange(len(first)), overlaps)
    second_index = np.repeat(low - np.r_[0, np.cumsum(overlaps)[:-1]][: len(low)], overlaps) + np.arange(overlaps.sum())
    begins = np.maximum(first[first_index, 0], second[second_index, 0])
    return np.stack([begins, np.minimum(first[first_index, 1], second[second_index, 1])], axis=1)


def difference(runs: Runs, removed: Iterable[OffsetRange] | Runs) -> Runs:
    """Return the runs without the removed offsets."""
    removed_runs = as_runs(removed)
    if not len(removed_runs) or not len(runs):
        return runs
    low, high = min(runs[0, 0], removed_runs[0, 0]), max(runs[-1, 1], removed_runs[-1, 1])
    remaining = np.stack([np.r_[low, removed_runs[:, 1]], np.r_[removed_runs[:, 0], high]], axis=1)
    return intersection(runs, remaining[remaining[:, 0] < remaining[:, 1]])


def count_below(runs: Runs, points: Offsets) -> Offsets:
    """Return for each point the number of offsets of the runs below it."""
    before = np.searchsorted(runs[:, 0], points, "left")
    passed = np.r_[0, np.cumsum(runs[:, 1] - runs[:, 0])]
    last_end = np.r_[np.iinfo(np.int64).min, runs[:, 1]][before]
    counts: Offsets = passed[before] - np.maximum(last_end - points, 0) * (before > 0)
    return counts
