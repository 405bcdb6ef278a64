"""Detection of holes and jumps in the message ids of senders."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.plog.holes import HoleDetector, HolesAndJumps, HoleSettings

SETTINGS = HoleSettings(ports=3, ids_per_port=5, expire_time=10, maximum_hole=4)
WRAP = 1 << 32


def observe(detector: HoleDetector, ids: Iterable[int], port: int = 1, now: float = 0.0) -> HolesAndJumps:
    numbers = np.array([number % WRAP for number in ids], np.int64)
    ports = np.full(len(numbers), port, np.int64)
    return detector.observe(np.ones(len(numbers), np.uint64), ports, numbers, now)


def total_of(ids: Iterable[int], settings: HoleSettings = SETTINGS, one_by_one: bool = False) -> tuple[int, int]:
    """Return the holes and jumps of ``ids`` once the sender has expired."""
    detector, numbers = HoleDetector(settings), list(ids)
    counted = [observe(detector, [number]) for number in numbers] if one_by_one else [observe(detector, numbers)]
    counted.append(detector.expire(1000))
    return sum(total.hole for total in counted), sum(total.jump for total in counted)


def test_hole_is_counted_when_it_leaves_the_window() -> None:
    detector = HoleDetector(SETTINGS)
    assert observe(detector, [1, 2, 3, 6, 7]) == HolesAndJumps()
    assert observe(detector, [8, 9]) == HolesAndJumps()
    assert observe(detector, [10]) == HolesAndJumps(hole=2)


def test_disorder_within_the_window_is_no_hole() -> None:
    assert total_of([1, 2, 4, 3, 6, 5, 7, 10, 9, 8, 11, 12]) == (0, 0)


def test_late_arrival_takes_its_hole_back() -> None:
    detector = HoleDetector(SETTINGS)
    assert observe(detector, [1, 2, 5, 6, 7, 8, 9]).hole == 2
    assert observe(detector, [4]).hole == -1
    assert observe(detector, [4]).hole == 0
    assert observe(detector, [3]).hole == -1


def test_missing_ids_are_a_hole_up_to_the_maximum_and_a_jump_beyond() -> None:
    assert total_of([1, 6, 7, 8, 9, 10]) == (4, 0)
    assert total_of([1, 7, 8, 9, 10, 11]) == (0, 1)


def test_sender_that_restarts_its_ids_is_one_jump() -> None:
    assert total_of([*range(1000, 1020), *range(20), *range(20, 40)]) == (0, 1)


def test_ids_are_unsigned_and_wrap() -> None:
    assert total_of(range(2**31 - 10, 2**31 + 10)) == (0, 0)
    assert total_of([*range(-10, 3), *range(4, 20)]) == (1, 0)


def test_repeated_ids_change_nothing() -> None:
    assert total_of([1, 1, 2, 2, 3, 1, 2, 3, 4, 5, 6, 7, 8, 3, 2]) == (0, 0)


def test_late_repeated_id_changes_nothing() -> None:
    detector = HoleDetector(SETTINGS)
    observe(detector, range(20))
    assert observe(detector, [12]) == HolesAndJumps()
    assert observe(detector, [20]) == HolesAndJumps()


def test_sources_are_kept_apart_by_address_and_port() -> None:
    detector = HoleDetector(SETTINGS)
    addresses = np.array([1, 2, 1, 1, 2, 1] * 6, np.uint64)
    ports = np.array([5, 5, 6, 5, 5, 6] * 6, np.int64)
    ids = np.concatenate([[2 * i, 2 * i, 2 * i, 2 * i + 1, 2 * i + 1, 2 * i + 1] for i in range(6)])
    assert detector.observe(addresses, ports, ids, 0) == HolesAndJumps()
    assert len(detector) == 3


def test_holes_of_an_expired_source_are_counted_with_the_source_as_dead() -> None:
    detector = HoleDetector(SETTINGS)
    observe(detector, [1, 3, 100], now=0)
    assert detector.expire(9.9) == HolesAndJumps()
    assert detector.expire(10) == HolesAndJumps(hole=1, jump=1, dead=1)
    assert len(detector) == 0


def test_source_silent_for_longest_is_evicted() -> None:
    detector = HoleDetector(SETTINGS)
    for port in (1, 2, 3):
        observe(detector, [1, 3], port)
    observe(detector, [4], 1)
    assert observe(detector, [1], 4) == HolesAndJumps(hole=1, dead=1)
    assert observe(detector, [2, 5], 1) == HolesAndJumps()
    assert len(detector) == 3


@given(st.lists(st.one_of(st.integers(0, 30), st.integers(WRAP - 5, WRAP - 1), st.integers(0, WRAP - 1)), max_size=60))
def test_any_ids_in_one_batch_or_one_by_one_count_the_same(ids: list[int]) -> None:
    assert total_of(ids) == total_of(ids, one_by_one=True)


@given(st.integers(0, WRAP - 1), st.sets(st.integers(1, 98), max_size=30))
def test_lost_ids_of_an_ordered_sender_equal_the_missing_ids(start: int, lost: set[int]) -> None:
    settings = HoleSettings(maximum_hole=100)
    assert total_of((start + i for i in range(100) if i not in lost), settings) == (len(lost), 0)


@given(st.permutations(range(40)), st.integers(2, 10))
def test_any_disorder_of_all_ids_leaves_no_hole(order: list[int], keep: int) -> None:
    shuffled = sorted(range(40), key=lambda position: position + order[position] % 9)
    assert total_of(shuffled, HoleSettings(ids_per_port=keep, maximum_hole=10)) == (0, 0)


@pytest.mark.parametrize("first", [0, 7, WRAP - 3])
def test_contiguous_run_equals_its_single_steps(first: int) -> None:
    detector = HoleDetector(SETTINGS)
    observe(detector, range(first, first + 20))
    assert observe(detector, [first + 22, *range(first + 23, first + 30)]) == HolesAndJumps(hole=2)
