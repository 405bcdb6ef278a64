"""Events for tests of duplicates, and the rule about duplicates as a plain loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from penstock.landing.duplicates.events_seen import EventsSeen

WINDOW = 100


@dataclass(frozen=True)
class Event:
    """An event: its key (two halves), the log's timestamp, and its position."""

    key: tuple[int, int]
    micros: int
    partition: int = -1
    offset: int = 0
    topic: str = "t"


def as_seen(events: Sequence[Event]) -> EventsSeen:
    topics = tuple(dict.fromkeys(event.topic for event in events))
    return EventsSeen(
        np.array([event.key[0] for event in events], np.uint64),
        np.array([event.key[1] for event in events], np.uint64),
        np.array([event.micros for event in events], np.int64),
        np.array([event.partition for event in events], np.int32),
        np.array([event.offset for event in events], np.int64),
        np.array([topics.index(event.topic) for event in events], np.uint32),
        topics,
    )


def in_order(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda event: (event.partition, event.offset))


def without_duplicates(landed: Iterable[Event], events: Iterable[Event], window: int = WINDOW) -> list[Event]:
    """Return the ``events`` that are not duplicates if ``landed`` have landed before."""
    times_by_key: dict[tuple[int, int], list[int]] = {}
    for event in landed:
        times_by_key.setdefault(event.key, []).append(event.micros)
    remaining = []
    for event in in_order(events):
        times = times_by_key.setdefault(event.key, [])
        if all(abs(event.micros - earlier) > window for earlier in times):
            times.append(event.micros)
            remaining.append(event)
    return remaining


LOW = (1 << 63) + 5
KEYS = st.tuples(st.sampled_from([0, 1, 2, 2**63, 2**64 - 1]), st.sampled_from([0, 1, LOW, LOW + (1 << 32)]))
"""Few keys, so that many events share one, or half of one."""


@st.composite
def draw_events(draw: st.DrawFn, most: int = 30, first: int = 0) -> list[Event]:
    """Generate events at different positions."""
    positions = draw(
        st.lists(st.tuples(st.integers(-1, 2), st.integers(first, first + 60)), max_size=most, unique=True)
    )
    return [Event(draw(KEYS), draw(st.integers(0, 4 * WINDOW)), *position) for position in positions]
