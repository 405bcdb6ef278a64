"""Counts of missed frames are entered once at any moment of a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from penstock.handover.dropped_frames import (
    MAX_BUCKETS,
    MAX_CARRIERS,
    MAX_OWED_BYTES,
    Carrier,
    DroppedFrameCounts,
    LostCounts,
    Move,
    dropped,
    moved_readers,
)
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
    assert missed.attach() == COUNTS
    assert missed.number == 1
    missed.confirm_attached()
    assert missed.attach() == {}
    assert not missed


def test_text_of_an_earlier_version_is_read(page: StatePage) -> None:
    """Lost frames are named as ``lost``, and their counts are repeated there."""
    move, lost = {"begin": 0, "to": 100, "mark": 0}, [["a", 320, "in", COUNTS], ["b", 64, None, COUNTS]]
    dropped = {"log": move | {"counts": COUNTS}}
    page.write(SKIPPED, {"owed": COUNTS, "lost": lost, "riding": None, "skip": None, "number": 0, "dropped": dropped})
    assert DroppedFrameCounts(page, floors={"log": 100}).attach() == COUNTS
    riding = {"number": 1, "counts": COUNTS, "frame": ["c", 320, "in"], "lost": lost}
    page.write(SKIPPED, {"owed": {}, "lost": [], "riding": riding, "skip": None, "number": 0, "dropped": dropped})
    assert DroppedFrameCounts(page, floors={"log": 100}).attach() == COUNTS


def test_kill_before_the_move_voids_the_skip(page: StatePage) -> None:
    DroppedFrameCounts(page).skip("log", Move(to=100), COUNTS)
    assert not DroppedFrameCounts(page, floors={"log": 0})


def test_kill_after_the_move_keeps_the_skip(page: StatePage) -> None:
    DroppedFrameCounts(page).skip("log", Move(to=100), COUNTS)
    assert DroppedFrameCounts(page, floors={"log": 100}).attach() == COUNTS


def test_kill_before_the_frame_lets_counts_ride_again(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.confirm_skip()
    missed.attach()
    successor = DroppedFrameCounts(page, carried_number=0, floors={"log": 100})
    assert successor.attach() == COUNTS
    assert successor.number == 1


def test_kill_after_the_frame_does_not_repeat_counts(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.confirm_skip()
    missed.attach()
    successor = DroppedFrameCounts(page, carried_number=1, floors={"log": 100})
    assert not successor
    assert successor.number == 1


def test_older_text_does_not_repeat_counts_that_a_later_frame_carries(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.confirm_skip()
    missed.attach()
    missed.skip("log", Move(to=200), COUNTS)
    # A power failure has taken the later texts: of the skip's end, and of the second frame with counts.
    assert not DroppedFrameCounts(page, carried_number=2, floors={"log": 200})


def test_frame_and_the_one_that_repeats_its_counts_name_their_move(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100, mark=5), COUNTS)
    missed.confirm_skip()
    missed.attach()
    assert missed.carried == Move(to=100, mark=5)
    missed.confirm_attached()
    assert missed.attach() == {}
    assert missed.carried == Move(to=100, mark=5)
    assert [counts for _, counts in missed.repeated] == [COUNTS]
    missed.confirm_attached()
    missed.attach()
    assert (missed.carried, missed.repeated) == (Move(), ())


def test_frame_carries_counts_that_are_missed_before_it_is_written(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.confirm_skip()
    missed.attach()
    missed.skip("log", Move(to=200), {"60@accepted": 2})
    missed.confirm_skip()
    assert missed.attach() == {"60@accepted": 7}
    assert missed.number == 1
    missed.confirm_attached()
    assert not DroppedFrameCounts(page, carried_number=1, floors={"log": 200})


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_counts_name_the_frame_that_is_to_carry_them_before_they_ride(page: StatePage, is_confirmed: bool) -> None:
    missed, frame = DroppedFrameCounts(page), Carrier("a", 320, "in")
    missed.skip("log", Move(to=100), COUNTS, (), frame)
    if is_confirmed:
        missed.confirm_skip()
    missed = DroppedFrameCounts(page, carried_number=0, floors={"log": 100})
    assert missed.attach("b", 64) == COUNTS
    assert missed.lost_counts == (LostCounts((frame,), COUNTS),)


def test_number_never_decreases(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    for _ in range(2):
        owe(missed, COUNTS)
        missed.attach()
        missed.confirm_attached()
    # A power failure has taken the last frame, and then spares an older text and the next frame with counts.
    missed = DroppedFrameCounts(page, carried_number=1)
    owe(missed, COUNTS)
    missed.attach()
    assert missed.number == 3


def test_oldest_minutes_are_merged(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    for minute in range(1000):
        missed.skip("log", Move(to=100), {f"{60 * minute}@accepted": 1, f"{60 * minute}@policy_drop.log": 1})
        missed.confirm_skip()
    carried = missed.attach()
    assert len(carried) == 2 * MAX_BUCKETS
    assert sum(count for name, count in carried.items() if name.endswith("accepted")) == 1000
    assert carried["59940@accepted"] == 1


def owe(missed: DroppedFrameCounts, counts: Mapping[str, int], *lost: LostCounts) -> None:
    missed.skip("log", Move(to=100), counts, lost)
    missed.confirm_skip()


def test_next_ride_names_the_lost_frames_that_carried_its_counts(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    owe(missed, COUNTS)
    missed.attach("a", 320)
    assert missed.lost_counts == ()
    DroppedFrameCounts(page, carried_number=0)
    missed = DroppedFrameCounts(page, carried_number=0)
    missed.attach("b", 64, "in")
    first, second = Carrier("a", 320, None), Carrier("b", 64, "in")
    assert missed.lost_counts == (LostCounts((first,), COUNTS),)
    missed = DroppedFrameCounts(page, carried_number=0)
    owe(missed, {"60@accepted": 2})
    assert missed.attach("c", 96) == {"60@accepted": 7}
    assert missed.lost_counts == (LostCounts((second, first), COUNTS),)
    assert not DroppedFrameCounts(page, carried_number=3).attach("d", 0)


def test_frame_of_the_current_epoch_is_never_named_as_lost(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    owe(missed, COUNTS)
    missed.attach("a", 320, "in")
    missed = DroppedFrameCounts(page, carried_number=0)
    assert missed.attach("a", 320) == COUNTS
    assert missed.lost_counts == ()


@pytest.mark.parametrize("is_killed", [False, True])
def test_dropped_frame_hands_on_the_lost_frames_of_its_counts(page: StatePage, is_killed: bool) -> None:
    missed = DroppedFrameCounts(page)
    lost = LostCounts((Carrier("a", 320, "in"),), COUNTS)
    missed.skip("log", Move(to=100), {"60@accepted": 8}, [lost])
    if is_killed:
        missed = DroppedFrameCounts(page, floors={"log": 100})
    missed.confirm_skip()
    assert missed.attach("b", 64) == {"60@accepted": 8}
    assert missed.lost_counts == (lost,)


def test_counts_dropped_before_their_frame_keep_their_lost_frames_after_a_kill(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    first, second = Carrier("a", 320, "in"), Carrier("b", 64)
    owe(missed, COUNTS)
    owe(missed, COUNTS, LostCounts((first,), COUNTS))
    missed.attach(*second)
    missed = DroppedFrameCounts(page, carried_number=0, floors={"log": 100})
    assert missed.attach("c", 0) == {"60@accepted": 10}
    assert missed.lost_counts == (LostCounts((second,), COUNTS), LostCounts((second, first), COUNTS))


def minutes_of(names: int, minutes: int) -> dict[str, int]:
    return {f"{1_795_000_000 + 60 * minute}@name_{name}": 1000 for name in range(names) for minute in range(minutes)}


def test_receiver_starts_after_a_move_over_a_thousand_minutes(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), minutes_of(8, 1000))
    riding = DroppedFrameCounts(page, floors={"log": 100}).attach()
    assert len(riding) == 8 * MAX_BUCKETS
    assert sum(riding.values()) == 8 * 1000 * 1000


def test_eight_counts_of_all_separate_minutes_keep_their_minutes_and_lost_frames(page: StatePage) -> None:
    counts = minutes_of(8, MAX_BUCKETS)
    carriers = tuple(Carrier("18ab3c4d5e6f7081", 1 << 40, "in") for _ in range(MAX_CARRIERS))
    missed = DroppedFrameCounts(page)
    owe(missed, counts, LostCounts(carriers, counts))
    assert missed.attach() == counts
    assert missed.lost_counts == (LostCounts(carriers, counts),)


def test_minutes_are_merged_before_a_lost_frame_is_forgotten(page: StatePage) -> None:
    counts = minutes_of(20, MAX_BUCKETS)
    lost = LostCounts((Carrier("18ab3c4d5e6f7081", 1 << 40, "t" * 249),), counts)
    missed = DroppedFrameCounts(page)
    # The largest text: of counts that are owed, that ride, and that are about to be missed.
    owe(missed, counts, lost)
    missed.attach()
    owe(missed, counts, lost)
    missed.skip("log", Move(to=200), counts, [lost])
    missed = DroppedFrameCounts(page, floors={"log": 200})
    riding = missed.attach()
    assert sum(riding.values()) == 3 * sum(counts.values())
    assert 1 < len({name.partition("@")[0] for name in riding}) < MAX_BUCKETS
    assert [(entry.carriers, sum(entry.counts.values())) for entry in missed.lost_counts] == [
        (lost.carriers, sum(riding.values()))
    ]
    assert len(json.dumps(missed.lost_counts)) <= MAX_OWED_BYTES


def test_oldest_lost_frames_are_forgotten_beyond_the_limit_and_no_count_is(page: StatePage) -> None:
    missed = DroppedFrameCounts(page)
    owe(missed, COUNTS)
    for number in range(MAX_CARRIERS + 2):
        missed.attach(f"epoch {number}", 0)
        missed = DroppedFrameCounts(page, carried_number=0)
    assert missed.attach("last", 0) == COUNTS
    ((carriers, counts),) = missed.lost_counts
    assert counts == COUNTS
    assert [carrier.epoch for carrier in carriers] == [f"epoch {number}" for number in range(9, 1, -1)]


@pytest.mark.parametrize(("forwarders", "minutes"), [(15, MAX_BUCKETS), (60, MAX_BUCKETS), (200, 3)])
def test_counts_of_many_forwarders_fit_and_are_complete(page: StatePage, forwarders: int, minutes: int) -> None:
    missed = DroppedFrameCounts(page)
    counts = minutes_of(2, minutes)
    names = [f"forwarder-{number}" for number in range(forwarders)]
    move = Move(1 << 40, 1 << 41, 1 << 40)
    for name in names:
        missed.skip(name, move, counts)
        missed.confirm_skip()
    owed = minutes_of(8, MAX_BUCKETS)
    owe(missed, owed)
    missed.skip("log", Move(to=200), owed)  # the largest text
    assert moved_readers(page) == sorted([*names, "log"])
    for name in names:
        mark, dropped_counts = dropped(page, name, move.to)
        assert (mark, sum(dropped_counts.values())) == (move.mark, sum(counts.values()))
        assert forwarders > 15 or dropped_counts == counts


def test_lost_frames_are_forgotten_if_their_names_alone_exceed_the_limit(page: StatePage) -> None:
    lost = [
        LostCounts((Carrier(f"epoch {number}", 0, "t" * 249),), {f"60@name_{name}": 1 for name in range(50)})
        for number in range(20)
    ]
    missed = DroppedFrameCounts(page)
    owe(missed, {f"60@name_{name}": 20 for name in range(50)}, *lost)
    assert sum(missed.attach().values()) == 50 * 20
    assert missed.lost_counts == ()


def test_text_of_an_earlier_version_lets_counts_ride_again(page: StatePage) -> None:
    page.write(SKIPPED, {"owed": {}, "riding": {"number": 1, "counts": COUNTS}, "skip": None, "number": 1})
    missed = DroppedFrameCounts(page, carried_number=0)
    assert missed.attach("a", 0) == COUNTS
    assert missed.lost_counts == ()
    assert missed.number == 2
    page.write(SKIPPED, {"owed": {}, "riding": {"number": 1, "counts": COUNTS}, "skip": None, "number": 1})
    assert not DroppedFrameCounts(page, carried_number=1)


@pytest.mark.parametrize("rode", [0, 1])
def test_damaged_ride_text_does_not_repeat_counts(page: StatePage, rode: int) -> None:
    missed = DroppedFrameCounts(page)
    missed.skip("log", Move(to=100), COUNTS)
    missed.confirm_skip()
    missed.attach()
    newest = page._half_offset(SKIPPED, page._newest(SKIPPED)[0] & 1)
    page._map[newest + 20] ^= 1
    repeated = DroppedFrameCounts(page, rode)
    assert repeated.attach() == ({} if rode else COUNTS)
