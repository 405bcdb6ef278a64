"""Sets of offsets as runs, compared with Python's sets."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.offset_runs import (
    Offsets,
    as_runs,
    count_below,
    count_offsets,
    difference,
    intersection,
    is_inside,
    joined,
    missing_offsets,
    offsets_of,
    runs_of,
)

SETS = st.sets(st.integers(0, 60))
PAIRS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8)


def array(offsets: set[int]) -> Offsets:
    return np.array(sorted(offsets), np.int64)


@given(SETS)
def test_runs_have_the_offsets_of_a_set(offsets: set[int]) -> None:
    runs = runs_of(array(offsets))
    assert offsets_of(runs).tolist() == sorted(offsets)
    assert count_offsets(runs) == len(offsets)
    assert is_inside(np.arange(70), runs).nonzero()[0].tolist() == sorted(offsets)
    assert all(end < begin for (_, end), (begin, _) in pairwise(runs.tolist()))


@given(PAIRS)
def test_as_runs_joins_pairs_in_any_order(pairs: list[tuple[int, int]]) -> None:
    runs = as_runs(pairs)
    assert offsets_of(runs).tolist() == sorted({offset for pair in pairs for offset in range(*pair)})
    assert all(end < begin for (_, end), (begin, _) in pairwise(runs.tolist()))


@given(SETS, PAIRS)
def test_intersection_and_difference_match_sets(first: set[int], pairs: list[tuple[int, int]]) -> None:
    runs, second = runs_of(array(first)), {offset for pair in pairs for offset in range(*pair)}
    assert offsets_of(intersection(runs, as_runs(pairs))).tolist() == sorted(first & second)
    assert offsets_of(difference(runs, pairs)).tolist() == sorted(first - second)


@given(SETS, st.integers(0, 60), st.integers(0, 60))
def test_missing_offsets_match_the_difference_of_sets(offsets: set[int], begin: int, end: int) -> None:
    expected = set(range(begin, end))
    assert offsets_of(missing_offsets(array(offsets & expected), begin, end)).tolist() == sorted(expected - offsets)


@given(SETS, st.lists(st.integers(-5, 70)))
def test_count_below_matches_a_loop(offsets: set[int], points: list[int]) -> None:
    counts = count_below(runs_of(array(offsets)), np.array(points, np.int64))
    assert counts.tolist() == [sum(offset < point for offset in offsets) for point in points]


@given(st.lists(st.dictionaries(st.sampled_from("ab"), SETS, max_size=2), max_size=4))
def test_sets_by_topic_are_joined(sets: list[dict[str, set[int]]]) -> None:
    runs = joined({topic: runs_of(array(offsets)) for topic, offsets in each.items()} for each in sets)
    united = {topic: set[int]().union(*(each.get(topic, set()) for each in sets)) for each in sets for topic in each}
    assert {topic: set(offsets_of(part).tolist()) for topic, part in runs.items()} == united
