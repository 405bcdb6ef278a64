"""Faults are drawn from the seed alone, and any of them can be left out."""

from __future__ import annotations

from penstock.testing.simulation.faults import FIRST_OF_BAD_DISK, FIRST_OF_CLAIM_KILLS, Kind, draw_faults


def test_same_seed_draws_the_same_faults() -> None:
    assert draw_faults(5, 300) == draw_faults(5, 300)
    assert draw_faults(5, 300) != draw_faults(6, 300)


def test_faults_come_in_order_of_their_steps() -> None:
    steps = [fault.step for seed in range(20) for fault in draw_faults(seed, 100)[:1]]
    assert steps
    for seed in range(20):
        faults = draw_faults(seed, 300)
        assert [fault.step for fault in faults] == sorted(fault.step for fault in faults)


def test_selection_leaves_the_other_faults_unchanged() -> None:
    faults = next(faults for seed in range(100) if len(faults := draw_faults(seed, 300)) > 4)
    seed = next(seed for seed in range(100) if draw_faults(seed, 300) == faults)
    chosen = [faults[1], faults[3]]
    assert draw_faults(seed, 300, [fault.number for fault in chosen]) == chosen


def test_faults_of_a_bad_disk_leave_the_numbers_of_others_unchanged() -> None:
    bad_disk = range(FIRST_OF_BAD_DISK, FIRST_OF_CLAIM_KILLS)
    kinds = {fault.kind for seed in range(30) for fault in draw_faults(seed, 300) if fault.number in bad_disk}
    assert kinds == {Kind.FAILED_READ, Kind.LYING_SYNC, Kind.POWER_CUT}
    for seed in range(30):
        numbers = [fault.number for fault in draw_faults(seed, 300) if fault.number < FIRST_OF_BAD_DISK]
        assert sorted(numbers) == [*range(len(numbers))]
