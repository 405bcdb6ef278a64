"""An alarm is told once when it begins and once when it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.server.alarms.evaluation import Moment
from penstock.server.alarms.rules import RULES, NotZero, Rule
from penstock.server.alarms.watch import AlarmWatch, RuleState
from penstock.server.metrics.prometheus import Family


def at(seconds: float) -> Moment:
    """A moment of a clock that is right."""
    return Moment(seconds, seconds)


@dataclass
class WatchClock:
    """Two clocks that move only when told."""

    passed: float = 0.0
    wall: float = 1e9

    def monotonic(self) -> float:
        return self.passed

    def expected(self) -> float:
        return self.wall


def unaccounted(count: int) -> dict[str, Family]:
    return {"penstock_unaccounted": Family("penstock_unaccounted", "gauge", "", [({}, count)])}


def test_it_begins_once_it_has_lasted_and_ends_once() -> None:
    state = RuleState(Rule("Lost", "critical", NotZero("penstock_unaccounted"), "{value} are gone", hold=60))
    assert list(state.changes(unaccounted(1200), at(0))) == []
    (begins,) = state.changes(unaccounted(1200), at(60))
    assert (begins["alarm"], begins["state"], begins["severity"]) == ("Lost", "begins", "critical")
    assert (begins["summary"], begins["value"]) == ("1,200 are gone", 1200)
    assert begins["at"] == "1970-01-01T00:01:00+00:00"
    assert list(state.changes(unaccounted(1300), at(70))) == []
    (ends,) = state.changes(unaccounted(0), at(80))
    assert ends["state"] == "ends"
    assert list(state.changes(unaccounted(0), at(90))) == []


def test_what_does_not_last_is_not_told() -> None:
    state = RuleState(Rule("Lost", "critical", NotZero("penstock_unaccounted"), "gone", hold=60))
    for now, count in enumerate([1, 0, 1, 0]):
        assert list(state.changes(unaccounted(count), at(now * 50))) == []


@pytest.mark.parametrize("jump", [-86_400, 365 * 86_400])
def test_alarms_go_on_when_the_clock_is_set(jump: float) -> None:
    rule = next(rule for rule in RULES if rule.name == "PenstockKernelDrops")
    state, clock = RuleState(rule), WatchClock()

    def states(dropped: int) -> list[str]:
        clock.passed, clock.wall = clock.passed + 15, clock.wall + 15
        labels = {"listener": "in", "name": "kernel_dropped"}
        family = Family("penstock_listener_count_total", "counter", "", [(labels, dropped)])
        changes = state.changes({family.name: family}, Moment(clock.monotonic(), clock.expected()))
        return [change["state"] for change in changes]

    assert states(0) == []
    assert states(100) == ["begins"]
    clock.wall += jump
    assert [found for _ in range(40) if (found := states(100))] == [["ends"]]
    assert states(5000) == ["begins"]


def test_the_receipt_goes_with_it_and_rules_of_missing_metrics_are_silent() -> None:
    told: list[dict[str, Any]] = []
    clock = WatchClock()
    watch = AlarmWatch(1, clock, lambda: unaccounted(3).values(), lambda: "3 messages are unaccounted for", told.append)
    for clock.passed in (0, 299, 300, 301):
        watch.evaluate()
    assert [(one["alarm"], one["receipt"]) for one in told] == [
        ("PenstockUnaccounted", "3 messages are unaccounted for")
    ]


def test_the_first_look_is_at_once_so_that_what_grows_later_is_seen_to_grow() -> None:
    looked = threading.Event()

    def families() -> Iterable[Family]:
        looked.set()
        return unaccounted(0).values()

    watch = AlarmWatch(3600, WatchClock(), families, str, lambda _: None)
    watch.start()
    assert looked.wait(20)
    watch.stop()
    watch.join(20)
    assert not watch.is_alive()
