"""Tests of the filter of a run of keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.duplicates import key_filter
from penstock.landing.duplicates.key_filter import (
    BITS_PER_KEY,
    Array,
    add_keys,
    empty_filter,
    filter_bytes,
    possible_rows,
)

HALVES = st.integers(0, 2**64 - 1)


def halves(keys: list[tuple[int, int]]) -> tuple[Array, Array]:
    return np.array([high for high, _ in keys], np.uint64), np.array([low for _, low in keys], np.uint64)


def random_halves(count: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2**64, count, dtype=np.uint64), rng.integers(0, 2**64, count, dtype=np.uint64)


@given(st.lists(st.tuples(HALVES, HALVES)), st.integers(1, 9))
def test_possible_rows_contain_all_added_keys_for_any_step(keys: list[tuple[int, int]], keys_per_step: int) -> None:
    bitmap = empty_filter(len(keys))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_filter, "KEYS_PER_STEP", keys_per_step)
        add_keys(bitmap, *halves(sorted(keys)))
    assert possible_rows(bitmap, *halves(keys)).tolist() == list(range(len(keys)))


def test_absent_keys_are_rarely_possible() -> None:
    high, low = random_halves(200_000, 1)
    bitmap = empty_filter(len(high))
    add_keys(bitmap, np.sort(high), low)
    assert len(possible_rows(bitmap, *random_halves(200_000, 2))) < 200_000 * (2 / BITS_PER_KEY) ** 2 * 1.1


def test_empty_filter_has_no_possible_rows() -> None:
    assert not len(possible_rows(empty_filter(0), *random_halves(1000, 1)))
    assert not len(possible_rows(empty_filter(1000), *halves([])))


@pytest.mark.parametrize(("rows", "size"), [(0, 64), (1, 64), (32, 64), (33, 128), (24_000_000, 48_000_000)])
def test_filter_has_sixteen_bits_per_key(rows: int, size: int) -> None:
    assert filter_bytes(rows) == size
