"""An alarm is told once when it begins and once when it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from penstock.server.alarms.rules import NotZero, Rule
from penstock.server.alarms.watch import AlarmWatch, RuleState
from penstock.server.metrics.prometheus import Family


def unaccounted(count: int) -> dict[str, Family]:
    return {"penstock_unaccounted": Family("penstock_unaccounted", "gauge", "", [({}, count)])}


def test_it_begins_once_it_has_lasted_and_ends_once() -> None:
    state = RuleState(Rule("Lost", "critical", NotZero("penstock_unaccounted"), "{value} are gone", hold=60))
    assert list(state.changes(unaccounted(1200), 0)) == []
    (begins,) = state.changes(unaccounted(1200), 60)
    assert (begins["alarm"], begins["state"], begins["severity"]) == ("Lost", "begins", "critical")
    assert (begins["summary"], begins["value"]) == ("1,200 are gone", 1200)
    assert begins["at"] == "1970-01-01T00:01:00+00:00"
    assert list(state.changes(unaccounted(1300), 70)) == []
    (ends,) = state.changes(unaccounted(0), 80)
    assert ends["state"] == "ends"
    assert list(state.changes(unaccounted(0), 90)) == []


def test_what_does_not_last_is_not_told() -> None:
    state = RuleState(Rule("Lost", "critical", NotZero("penstock_unaccounted"), "gone", hold=60))
    for now, count in enumerate([1, 0, 1, 0]):
        assert list(state.changes(unaccounted(count), now * 50)) == []


def test_the_receipt_goes_with_it_and_rules_of_missing_metrics_are_silent() -> None:
    told: list[dict[str, Any]] = []
    watch = AlarmWatch(1, lambda: unaccounted(3).values(), lambda: "3 messages are unaccounted for", told.append)
    for now in (0, 299, 300, 301):
        watch.look(now)
    assert [(one["alarm"], one["receipt"]) for one in told] == [
        ("PenstockUnaccounted", "3 messages are unaccounted for")
    ]


def test_the_first_look_is_at_once_so_that_what_grows_later_is_seen_to_grow() -> None:
    looked = threading.Event()

    def families() -> Iterable[Family]:
        looked.set()
        return unaccounted(0).values()

    watch = AlarmWatch(3600, families, str, lambda _: None)
    watch.start()
    assert looked.wait(20)
    watch.stop()
    watch.join(20)
    assert not watch.is_alive()
