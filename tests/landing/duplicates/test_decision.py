"""Tests of the decision about duplicates: it agrees with a plain loop over all events."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.duplicates.decision import find_late_duplicates, find_repeats, landed_before
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.hash_run import HashRun
from tests.landing.duplicates.events import WINDOW, Event, as_seen, draw_events, in_order, without_duplicates

KEY = (7, 9)


def not_dropped(events: list[Event], dropped: np.ndarray) -> list[Event]:
    return in_order(event for event, is_dropped in zip(events, dropped.tolist(), strict=True) if not is_dropped)


def runs_of(events: list[Event], parts: int) -> list[HashRun]:
    return [HashRun.from_events(as_seen(events[start::parts])) for start in range(parts)]


@given(draw_events(), draw_events(), st.integers(1, 3))
def test_landed_before_finds_keys_within_window_in_any_run(
    events: list[Event], landed: list[Event], parts: int
) -> None:
    is_landed = landed_before(as_seen(events), runs_of(landed, parts), WINDOW).tolist()
    expected = [
        any(
            event.key == landed_event.key and abs(event.micros - landed_event.micros) <= WINDOW
            for landed_event in landed
        )
        for event in events
    ]
    assert is_landed == expected


@given(draw_events(), st.randoms())
def test_first_by_partition_and_offset_stays_for_any_order_of_rows(events: list[Event], chance: random.Random) -> None:
    assert not_dropped(events, find_repeats(as_seen(events), WINDOW)) == without_duplicates([], events)
    chance.shuffle(events)
    assert not_dropped(events, find_repeats(as_seen(events), WINDOW)) == without_duplicates([], events)


class Task:
    """The decision of one task: events without landed ones, and a mask of repeats among them."""

    def __init__(self, events: list[Event], known_runs: list[HashRun]) -> None:
        all_events = as_seen(events)
        is_landed = landed_before(all_events, known_runs, WINDOW)
        self.events = [event for event, has_landed in zip(events, is_landed.tolist(), strict=True) if not has_landed]
        self.dropped = find_repeats(all_events.select_rows(~is_landed), WINDOW)


@settings(max_examples=400, deadline=None)
@given(st.data(), draw_events(first=100), draw_events(most=15))
def test_tasks_together_decide_as_one_loop_over_all_events(
    data: st.DataObject, events: list[Event], landed: list[Event]
) -> None:
    landed = without_duplicates([], landed)
    task_count = data.draw(st.integers(1, 4))
    owners = data.draw(st.lists(st.integers(0, task_count - 1), min_size=len(events), max_size=len(events)))
    runs = runs_of(landed, data.draw(st.integers(1, 3)))
    known_counts = data.draw(st.lists(st.integers(0, len(runs)), min_size=task_count, max_size=task_count))
    tasks = [
        Task([event for event, owner in zip(events, owners, strict=True) if owner == task], runs[: known_counts[task]])
        for task in range(task_count)
    ]
    all_events = [event for task in tasks for event in task.events]
    dropped = np.concatenate([task.dropped for task in tasks])
    all_seen = EventsSeen.concat([as_seen(task.events) for task in tasks])
    unknown = [run for task_count, run in enumerate(runs) if not all(task_count < count for count in known_counts)]
    is_duplicate = find_late_duplicates(all_seen, dropped, unknown, runs, WINDOW)
    assert not_dropped(all_events, is_duplicate) == without_duplicates(landed, events)


def test_event_at_edge_of_window_is_duplicate() -> None:
    times = [0, WINDOW, WINDOW + 1, 2 * WINDOW + 1, 2 * WINDOW + 2]
    events = [Event(KEY, micros, offset=number) for number, micros in enumerate(times)]
    assert find_repeats(as_seen(events), WINDOW).tolist() == [False, True, False, True, False]


@pytest.mark.survives("landing from the log", "wrong clock")
def test_clock_may_go_back() -> None:
    events = [Event(KEY, micros, offset=number) for number, micros in enumerate([1000, 1000 - WINDOW, 999 - WINDOW])]
    assert find_repeats(as_seen(events), WINDOW).tolist() == [False, True, False]


def test_repeat_of_another_tasks_duplicate_is_judged_again() -> None:
    """The third event repeats the second in its task; the second is a duplicate, so the third is not."""
    events = [Event(KEY, micros, offset=number) for number, micros in enumerate([0, WINDOW, 2 * WINDOW])]
    dropped = np.array([False, False, True])
    assert find_late_duplicates(as_seen(events), dropped, [], [], WINDOW).tolist() == [False, True, False]


def test_half_a_key_makes_no_duplicate() -> None:
    events = [Event((7, 9), 0, offset=0), Event((7, 10), 0, offset=1), Event((8, 9), 0, offset=2)]
    assert not find_repeats(as_seen(events), WINDOW).any()
    assert not landed_before(as_seen(events[1:]), runs_of(events[:1], 1), WINDOW).any()
    landed = runs_of(events[:1], 1)
    assert find_late_duplicates(as_seen(events), np.zeros(3, bool), landed, landed, WINDOW).tolist() == [
        True,
        False,
        False,
    ]


def test_no_events_give_empty_masks() -> None:
    no_events = np.zeros(0, bool)
    assert find_repeats(as_seen([]), WINDOW).tolist() == []
    landed = runs_of([Event(KEY, 0)], 1)
    assert find_late_duplicates(as_seen([]), no_events, landed, landed, WINDOW).tolist() == []
    assert landed_before(as_seen([]), runs_of([], 1), WINDOW).tolist() == []
