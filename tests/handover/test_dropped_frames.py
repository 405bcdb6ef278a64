"""Counts of missed frames are entered once at any moment of a kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.handover.dropped_frames import MAX_BUCKETS, Carrier, DroppedFrameCounts, Move
from penstock.handover.state_page import SKIPPED, StatePage


@pytest.fixture
def page(tmp_path: Path) -> Iterator[StatePage]:
    state = StatePage(tmp_path / "state")
    yield state
    state.close()


COUNTS = {"60@accepted": 5}


def test_missed_counts_ride_once(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.confirm_skip()
    assert missed
    assert missed.ride() == COUNTS
    assert missed.number == 1
    missed.confirm_ride()
    assert missed.ride() == {}
    assert not missed


def test_kill_before_the_move_voids_the_skip(page: StatePage) -> None:
    DroppedFrameCounts(page).skip("log", Move(to=100), COUNTS)
    assert not DroppedFrameCounts(page, floors={"log": 0})


def test_kill_after_the_move_keeps_the_skip(page: StatePage) -> None:
    DroppedFrameCounts(page).skip("log", Move(to=100), COUNTS)
    assert DroppedFrameCounts(page, floors={"log": 100}).ride() == COUNTS


def test_kill_before_the_frame_lets_counts_ride_again(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.confirm_skip()
    missed.ride()
    successor = DroppedFrameCounts(page, rode=0, floors={"log": 100})
    assert successor.ride() == COUNTS
    assert successor.number == 2


def test_kill_after_the_frame_does_not_repeat_counts(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.confirm_skip()
    missed.ride()
    successor = DroppedFrameCounts(page, rode=1, floors={"log": 100})
    assert not successor
    assert successor.number == 1


def test_older_text_does_not_repeat_counts_that_a_later_frame_carries(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.confirm_skip()
    missed.ride()
    missed.skip("log", Move(to=200), COUNTS)
    # A power failure has taken the later texts: of the skip's end, and of the second frame with counts.
    assert not DroppedFrameCounts(page, rode=2, floors={"log": 200})


def test_ride_names_the_move_that_it_carries(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100, mark=5), COUNTS)
    missed.confirm_skip()
    missed.ride()
    assert missed.carried == Move(to=100, mark=5)
    missed.confirm_ride()
    missed.ride()
    assert missed.carried == Move()


def test_counts_missed_during_a_ride_wait(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.confirm_skip()
    missed.ride()
    missed.skip("log", Move(to=200), {"60@accepted": 2})
    missed.confirm_skip()
    missed.confirm_ride()
    assert DroppedFrameCounts(page, rode=1, floors={"log": 200}).ride() == {"60@accepted": 2}


def test_oldest_minutes_are_merged(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    for minute in range(1000):
        missed.skip("log", Move(to=100), {f"{60 * minute}@accepted": 1, f"{60 * minute}@policy_drop.log": 1})
        missed.confirm_skip()
    carried = missed.ride()
    assert len(carried) == 2 * MAX_BUCKETS
    assert sum(count for name, count in carried.items() if name.endswith("accepted")) == 1000
    assert carried["59940@accepted"] == 1


def test_next_ride_names_the_lost_frames_that_carried_its_counts(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.confirm_skip()
    missed.ride("a", 320)
    assert missed.lost_carriers == ()
    DroppedFrameCounts(page, rode=0)
    missed = DroppedFrameCounts(page, rode=0)
    missed.ride("b", 64, "in")
    assert missed.lost_carriers == (Carrier("a", 320, None, COUNTS),)
    missed = DroppedFrameCounts(page, rode=0)
    missed.ride("c", 96)
    assert missed.lost_carriers == (Carrier("b", 64, "in", COUNTS), Carrier("a", 320, None, COUNTS))
    assert not DroppedFrameCounts(page, rode=3).ride("d", 0)


def test_text_of_an_earlier_version_lets_counts_ride_again(page: StatePage) -> None:
    page.write(SKIPPED, {"owed": {}, "riding": {"number": 1, "counts": COUNTS}, "skip": None, "number": 1})
    missed = DroppedFrameCounts(page, rode=0)
    assert missed.ride("a", 0) == COUNTS
    assert missed.lost_carriers == ()


@pytest.mark.parametrize("rode", [0, 1])
def test_damaged_ride_text_does_not_repeat_counts(page: StatePage, rode: int) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.confirm_skip()
    missed.ride()
    newest = page._half_offset(SKIPPED, page._newest(SKIPPED)[0] & 1)
    page._map[newest + 20] ^= 1
    repeated = DroppedFrameCounts(page, rode)
    assert repeated.ride() == ({} if rode else COUNTS)
