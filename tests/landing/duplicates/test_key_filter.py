"""The filter of a run of keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.duplicates import key_filter
from penstock.landing.duplicates.key_filter import BITS, Array, empty_filter, enter, filter_bytes, maybe_there

HALVES = st.integers(0, 2**64 - 1)


def halves(keys: list[tuple[int, int]]) -> tuple[Array, Array]:
    return np.array([high for high, _ in keys], np.uint64), np.array([low for _, low in keys], np.uint64)


def random_halves(count: int, seed: int) -> tuple[Array, Array]:
    dice = np.random.default_rng(seed)
    return dice.integers(0, 2**64, count, dtype=np.uint64), dice.integers(0, 2**64, count, dtype=np.uint64)


@given(st.lists(st.tuples(HALVES, HALVES)), st.integers(1, 9))
def test_all_that_was_entered_is_found_whatever_is_entered_at_once(keys: list[tuple[int, int]], at_once: int) -> None:
    bitmap = empty_filter(len(keys))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_filter, "_AT_ONCE", at_once)
        enter(bitmap, *halves(sorted(keys)))
    assert maybe_there(bitmap, *halves(keys)).tolist() == list(range(len(keys)))


def test_nearly_nothing_else_is_found() -> None:
    high, low = random_halves(200_000, 1)
    bitmap = empty_filter(len(high))
    enter(bitmap, np.sort(high), low)
    assert len(maybe_there(bitmap, *random_halves(200_000, 2))) < 200_000 * (2 / BITS) ** 2 * 1.1


def test_nothing_is_found_where_nothing_was_entered() -> None:
    assert not len(maybe_there(empty_filter(0), *random_halves(1000, 1)))
    assert not len(maybe_there(empty_filter(1000), *halves([])))


@pytest.mark.parametrize(("rows", "size"), [(0, 64), (1, 64), (32, 64), (33, 128), (24_000_000, 48_000_000)])
def test_a_filter_has_sixteen_bits_for_each_key(rows: int, size: int) -> None:
    assert filter_bytes(rows) == size
