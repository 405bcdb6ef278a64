"""Meters: counts and rates over 1, 5 and 15 minutes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.meters import Meter


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_steady_flow_has_one_rate() -> None:
    clock = Clock()
    meter = Meter(clock)
    for _ in range(3600):
        meter.mark(20)
        clock.now += 1
    assert meter.document() == {"count": 72_000, "rate": [pytest.approx(20), pytest.approx(20), pytest.approx(20)]}


def test_nothing_has_no_rate() -> None:
    clock = Clock()
    meter = Meter(clock)
    assert meter.document() == {"count": 0, "rate": [0, 0, 0]}
    clock.now += 1e9
    assert meter.document() == {"count": 0, "rate": [0, 0, 0]}


def test_one_minute_rate_decays_by_e_in_a_minute() -> None:
    clock = Clock()
    meter = Meter(clock)
    meter.mark(500)
    clock.now += 5
    assert meter.document()["rate"] == [100, 100, 100]
    clock.now += 60
    one_minute, five, fifteen = meter.document()["rate"]
    assert (one_minute, five, fifteen) == (
        pytest.approx(100 / math.e),
        pytest.approx(100 * math.exp(-1 / 5)),
        pytest.approx(100 * math.exp(-1 / 15)),
    )


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 20)), max_size=30))
def test_reading_does_not_change_the_rate(marks: list[tuple[int, float]]) -> None:
    clock = Clock()
    read, remaining = Meter(clock), Meter(clock)
    for events, seconds in marks:
        read.mark(events)
        remaining.mark(events)
        clock.now += seconds
        read.document()
    assert read.document()["rate"] == pytest.approx(remaining.document()["rate"])
    assert read.count == sum(events for events, _ in marks)
