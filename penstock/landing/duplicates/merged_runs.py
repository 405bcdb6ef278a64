"""Several runs of keys as one, a range of keys at a time: in memory is little of them, however many there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from penstock.landing.duplicates.events_seen import together
from penstock.landing.duplicates.hash_run import Columns, HashRun, write_run
from penstock.landing.duplicates.key_filter import Array, empty_filter, enter

STEP = 1 << 19
"""Keys that are in memory at once, about: they are hashes, and so come evenly from all ranges."""


def merge_runs(runs: Sequence[HashRun], path: Path) -> int:
    """Write the keys of all runs as the file of one; its checksum."""
    rows, (topics, numbers) = sum(map(len, runs)), together([run.topics for run in runs])
    bitmap = empty_filter(rows)
    return write_run(path, topics, _in_order(runs, numbers, bitmap), bitmap, rows)


def _in_order(runs: Sequence[HashRun], numbers: Sequence[Array], bitmap: Array) -> Iterator[Columns]:
    """The keys of all runs in ascending order, a part at a time, each entered in the filter."""
    steps = max(1, sum(map(len, runs)) // STEP)
    edges = np.array([(1 << 64) * step // steps for step in range(1, steps)], np.uint64)
    cuts = [[0, *np.searchsorted(run.high, edges).tolist(), len(run)] for run in runs]
    for step in range(steps):
        parts = [run.columns(slice(cut[step], cut[step + 1])) for run, cut in zip(runs, cuts, strict=True)]
        part = _sorted(parts, numbers)
        enter(bitmap, part[0], part[1])
        yield part


def _sorted(parts: Sequence[Columns], numbers: Sequence[Array]) -> Columns:
    """The keys of parts with topics of their own as one part in ascending order; ``numbers``: what topics become."""
    high, low, micros = (np.concatenate(column) for column in list(zip(*parts, strict=True))[:3])
    topic = np.concatenate([number[part[3]] for number, part in zip(numbers, parts, strict=True)])
    order = np.argsort(high)
    return high[order], low[order], micros[order], topic[order]
