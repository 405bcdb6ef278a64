"""Events by hand for the tests of duplicates, and the rule as a loop over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from penstock.landing.duplicates.events_seen import EventsSeen

WINDOW = 100


@dataclass(frozen=True)
class One:
    """An event: its key (two halves), when the log stored it, and where."""

    key: tuple[int, int]
    micros: int
    partition: int = -1
    offset: int = 0
    topic: str = "t"


def seen(events: Sequence[One]) -> EventsSeen:
    topics = tuple(dict.fromkeys(one.topic for one in events))
    return EventsSeen(
        np.array([one.key[0] for one in events], np.uint64),
        np.array([one.key[1] for one in events], np.uint64),
        np.array([one.micros for one in events], np.int64),
        np.array([one.partition for one in events], np.int32),
        np.array([one.offset for one in events], np.int64),
        np.array([topics.index(one.topic) for one in events], np.uint32),
        topics,
    )


def in_order(events: Iterable[One]) -> list[One]:
    return sorted(events, key=lambda one: (one.partition, one.offset))


def staying(landed: Iterable[One], events: Iterable[One], window: int = WINDOW) -> list[One]:
    """Those of ``events`` that are no duplicates, where ``landed`` stay already."""
    stay: dict[tuple[int, int], list[int]] = {}
    for one in landed:
        stay.setdefault(one.key, []).append(one.micros)
    found = []
    for one in in_order(events):
        times = stay.setdefault(one.key, [])
        if all(abs(one.micros - at) > window for at in times):
            times.append(one.micros)
            found.append(one)
    return found


LOW = (1 << 63) + 5
KEYS = st.tuples(st.sampled_from([0, 1, 2, 2**63, 2**64 - 1]), st.sampled_from([0, 1, LOW, LOW + (1 << 32)]))
"""Few, so that many events share one, or half of one."""


@st.composite
def events_of(draw: st.DrawFn, most: int = 30, first: int = 0) -> list[One]:
    """Events at different places."""
    places = draw(st.lists(st.tuples(st.integers(-1, 2), st.integers(first, first + 60)), max_size=most, unique=True))
    return [One(draw(KEYS), draw(st.integers(0, 4 * WINDOW)), *place) for place in places]
