"""Counts of frames a reader missed: whatever the moment of a kill, they are entered once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.handover.dropped_frames import MOST_BUCKETS, DroppedFrameCounts, Move
from penstock.handover.state_page import SKIPPED, StatePage


@pytest.fixture
def page(tmp_path: Path) -> Iterator[StatePage]:
    state = StatePage(tmp_path / "state")
    yield state
    state.close()


COUNTS = {"60@accepted": 5}


def test_what_was_missed_rides_once(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.skipped()
    assert missed
    assert missed.ride() == COUNTS
    assert missed.number == 1
    missed.rode()
    assert missed.ride() == {}
    assert not missed


def test_a_kill_before_the_reader_was_moved_voids_the_skip(page: StatePage) -> None:
    DroppedFrameCounts(page).skip("log", Move(to=100), COUNTS)
    assert not DroppedFrameCounts(page, floors={"log": 0})


def test_a_kill_after_the_reader_was_moved_keeps_the_skip(page: StatePage) -> None:
    DroppedFrameCounts(page).skip("log", Move(to=100), COUNTS)
    assert DroppedFrameCounts(page, floors={"log": 100}).ride() == COUNTS


def test_a_kill_before_the_frame_was_offered_lets_them_ride_again(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.skipped()
    missed.ride()
    successor = DroppedFrameCounts(page, rode=0, floors={"log": 100})
    assert successor.ride() == COUNTS
    assert successor.number == 2


def test_a_kill_after_the_frame_was_offered_does_not_let_them_ride_twice(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.skipped()
    missed.ride()
    successor = DroppedFrameCounts(page, rode=1, floors={"log": 100})
    assert not successor
    assert successor.number == 1


def test_what_is_missed_while_others_ride_waits_for_its_turn(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.skipped()
    missed.ride()
    missed.skip("log", Move(to=200), {"60@accepted": 2})
    missed.skipped()
    missed.rode()
    assert DroppedFrameCounts(page, rode=1, floors={"log": 200}).ride() == {"60@accepted": 2}


def test_of_a_long_time_the_oldest_minutes_are_put_together(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    for minute in range(1000):
        missed.skip("log", Move(to=100), {f"{60 * minute}@accepted": 1, f"{60 * minute}@policy_drop.log": 1})
        missed.skipped()
    carried = missed.ride()
    assert len(carried) == 2 * MOST_BUCKETS
    assert sum(count for name, count in carried.items() if name.endswith("accepted")) == 1000
    assert carried["59940@accepted"] == 1


@pytest.mark.parametrize("rode", [0, 1])
def test_where_the_text_that_says_that_counts_ride_is_damaged_they_ride_once(page: StatePage, rode: int) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.skipped()
    missed.ride()
    newest = page._place(SKIPPED, page._newest(SKIPPED)[0] & 1)
    page._map[newest + 20] ^= 1
    again = DroppedFrameCounts(page, rode)
    assert again.ride() == ({} if rode else COUNTS)
