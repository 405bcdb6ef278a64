"""Ranges of offsets agree with a plain set, in any order and with repetitions."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.audit import offset_ranges
from penstock.audit.offset_ranges import OffsetRanges
from penstock.landing.offset_runs import as_runs, count_offsets, difference, intersection


@given(st.lists(st.lists(st.integers(-5, 60), max_size=30), max_size=8), st.integers(1, 20), st.integers(1, 4))
def test_ranges_hold_the_offsets_and_those_that_repeat(batches: list[list[int]], merge: int, dense_runs: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_ranges, "MERGE_RANGES", merge)
        patch.setattr(offset_ranges, "BLOCK_BITS", 4)
        patch.setattr(offset_ranges, "BLOCK_BYTES", 2)
        patch.setattr(offset_ranges, "DENSE_RUNS", dense_runs)
        held = OffsetRanges()
        for batch in batches:
            held.add(np.array(batch, np.int64))
        ranges, repeated_ranges = held.ranges, held.repeated
    counts = Counter(offset for batch in batches for offset in batch)
    assert {offset for begin, end in ranges for offset in range(begin, end)} == set(counts)
    repeated = {offset for begin, end in repeated_ranges for offset in range(begin, end)}
    assert repeated == {offset for offset, count in counts.items() if count > 1}
    assert held.rows == sum(counts.values())
    missing = {offset for begin, end in difference(as_runs([(10, 50)]), ranges) for offset in range(begin, end)}
    assert missing == set(range(10, 50)) - set(counts)
    for runs in (ranges, repeated_ranges):
        assert all(first[1] < second[0] for first, second in pairwise(runs))


def test_consecutive_offsets_of_many_batches_are_one_range() -> None:
    held = OffsetRanges()
    for begin in (2_000_000, 0, 1_000_000):
        held.add(np.arange(begin, begin + 1_000_000, dtype=np.int64))
    assert (held.ranges.tolist(), held.repeated.tolist()) == ([[0, 3_000_000]], [])
    assert intersection(held.ranges, as_runs([(5, 8)])).tolist() == [[5, 8]]
    assert count_offsets(held.ranges) == 3_000_000


def test_offsets_in_random_order_take_one_bit_each() -> None:
    shuffled = np.random.default_rng(1).permutation(1 << 22)
    held = OffsetRanges()
    for begin in range(0, len(shuffled), 1 << 18):
        held.add(shuffled[begin : begin + (1 << 18)])
        assert held.size_bytes < 48 << 20
    assert held.ranges.tolist() == [[0, 1 << 22]]
    assert held.size_bytes <= 1 << 20
