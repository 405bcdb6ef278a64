"""Which events are duplicates: the same as one after the other would say."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.duplicates.decision import landed_before, reconsidered, repeated
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.hash_run import HashRun
from tests.landing.duplicates.events import WINDOW, One, events_of, in_order, seen, staying

KEY = (7, 9)


def kept(events: list[One], dropped: np.ndarray) -> list[One]:
    return in_order(one for one, gone in zip(events, dropped.tolist(), strict=True) if not gone)


def runs_of(events: list[One], parts: int) -> list[HashRun]:
    return [HashRun.of(seen(events[at::parts])) for at in range(parts)]


@given(events_of(), events_of(), st.integers(1, 3))
def test_what_landed_within_the_window_is_found_in_whatever_run_it_is(
    events: list[One], landed: list[One], parts: int
) -> None:
    found = landed_before(seen(events), runs_of(landed, parts), WINDOW).tolist()
    near = [any(one.key == old.key and abs(one.micros - old.micros) <= WINDOW for old in landed) for one in events]
    assert found == near


@given(events_of(), st.randoms())
def test_the_first_by_partition_and_offset_stays_whatever_the_order_of_the_rows(
    events: list[One], chance: random.Random
) -> None:
    assert kept(events, repeated(seen(events), WINDOW)) == staying([], events)
    chance.shuffle(events)
    assert kept(events, repeated(seen(events), WINDOW)) == staying([], events)


class Task:
    """What a task says of its events: which it leaves out as landed, and which it takes for repeats of its own."""

    def __init__(self, events: list[One], known: list[HashRun]) -> None:
        whole = seen(events)
        before = landed_before(whole, known, WINDOW)
        self.events = [one for one, gone in zip(events, before.tolist(), strict=True) if not gone]
        self.dropped = repeated(whole.take(~before), WINDOW)


@settings(max_examples=400, deadline=None)
@given(st.data(), events_of(first=100), events_of(most=15))
def test_several_tasks_decide_together_what_one_loop_over_all_would(
    data: st.DataObject, events: list[One], landed: list[One]
) -> None:
    landed = staying([], landed)
    number = data.draw(st.integers(1, 4))
    owners = data.draw(st.lists(st.integers(0, number - 1), min_size=len(events), max_size=len(events)))
    runs = runs_of(landed, data.draw(st.integers(1, 3)))
    known = data.draw(st.lists(st.integers(0, len(runs)), min_size=number, max_size=number))
    tasks = [
        Task([one for one, owner in zip(events, owners, strict=True) if owner == task], runs[: known[task]])
        for task in range(number)
    ]
    everything = [one for task in tasks for one in task.events]
    dropped = np.concatenate([task.dropped for task in tasks])
    whole = EventsSeen.concat([seen(task.events) for task in tasks])
    unknown = [run for number, run in enumerate(runs) if not all(number < knows for knows in known)]
    found = reconsidered(whole, dropped, unknown, runs, WINDOW)
    assert kept(everything, found) == staying(landed, events)


def test_one_at_the_edge_of_the_window_is_a_duplicate_and_one_beyond_it_is_not() -> None:
    times = [0, WINDOW, WINDOW + 1, 2 * WINDOW + 1, 2 * WINDOW + 2]
    events = [One(KEY, at, offset=number) for number, at in enumerate(times)]
    assert repeated(seen(events), WINDOW).tolist() == [False, True, False, True, False]


def test_the_clock_may_go_back() -> None:
    events = [One(KEY, at, offset=number) for number, at in enumerate([1000, 1000 - WINDOW, 999 - WINDOW])]
    assert repeated(seen(events), WINDOW).tolist() == [False, True, False]


def test_what_repeats_a_duplicate_of_another_task_is_asked_again() -> None:
    """Within its task the last one repeats the second, which goes: then it is no duplicate."""
    events = [One(KEY, at, offset=number) for number, at in enumerate([0, WINDOW, 2 * WINDOW])]
    aside = np.array([False, False, True])
    assert reconsidered(seen(events), aside, [], [], WINDOW).tolist() == [False, True, False]


def test_half_a_key_makes_no_duplicate() -> None:
    events = [One((7, 9), 0, offset=0), One((7, 10), 0, offset=1), One((8, 9), 0, offset=2)]
    assert not repeated(seen(events), WINDOW).any()
    assert not landed_before(seen(events[1:]), runs_of(events[:1], 1), WINDOW).any()
    landed = runs_of(events[:1], 1)
    assert reconsidered(seen(events), np.zeros(3, bool), landed, landed, WINDOW).tolist() == [True, False, False]


def test_nothing_is_decided_of_nothing() -> None:
    none = np.zeros(0, bool)
    assert repeated(seen([]), WINDOW).tolist() == []
    landed = runs_of([One(KEY, 0)], 1)
    assert reconsidered(seen([]), none, landed, landed, WINDOW).tolist() == []
    assert landed_before(seen([]), runs_of([], 1), WINDOW).tolist() == []
