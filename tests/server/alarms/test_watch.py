"""The watch over alarm rules."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.server.alarms.evaluation import Moment
from penstock.server.alarms.rules import RULES, Growth, NotZero, Rule
from penstock.server.alarms.watch import AlarmWatch, RuleState
from penstock.server.metrics.prometheus import Family


def moment(seconds: float) -> Moment:
    """Return a moment of a correct clock."""
    return Moment(seconds, seconds)


@dataclass
class WatchClock:
    """Two clocks that move only when a test sets them."""

    passed: float = 0.0
    wall: float = 1e9

    def monotonic(self) -> float:
        return self.passed

    def expected(self) -> float:
        return self.wall


def unaccounted(count: int) -> dict[str, Family]:
    return {"penstock_unaccounted": Family("penstock_unaccounted", "gauge", "", [({}, count)])}


def test_alarm_begins_after_its_hold_and_ends_once() -> None:
    state = RuleState(Rule("Lost", "critical", NotZero("penstock_unaccounted"), "{value} are gone", hold=60))
    assert list(state.changes(unaccounted(1200), moment(0))) == []
    (begins,) = state.changes(unaccounted(1200), moment(60))
    assert (begins["alarm"], begins["state"], begins["severity"]) == ("Lost", "begins", "critical")
    assert (begins["summary"], begins["value"]) == ("1,200 are gone", 1200)
    assert begins["at"] == "1970-01-01T00:01:00+00:00"
    assert list(state.changes(unaccounted(1300), moment(70))) == []
    assert [message["summary"] for message in state.current(moment(70))] == ["1,300 are gone"]
    (ends,) = state.changes(unaccounted(0), moment(80))
    assert ends["state"] == "ends"
    assert list(state.changes(unaccounted(0), moment(90))) == []
    assert list(state.current(moment(90))) == []


def test_short_condition_is_not_reported() -> None:
    state = RuleState(Rule("Lost", "critical", NotZero("penstock_unaccounted"), "gone", hold=60))
    for now, count in enumerate([1, 0, 1, 0]):
        assert list(state.changes(unaccounted(count), moment(now * 50))) == []


def test_alarm_from_before_a_restart_is_not_begun_again_and_ends_once_it_is_over() -> None:
    rule = Rule("Lost", "critical", NotZero("penstock_unaccounted"), "gone", hold=60)
    before = RuleState(rule)
    (begins,) = [change for now in (0, 60) for change in before.changes(unaccounted(1), moment(now))]
    # The first evaluation after a start may lack what processes have not reported yet.
    state = RuleState(rule, [begins])
    assert [list(state.changes(unaccounted(n), moment(now))) for now, n in ((0, 0), (15, 1), (30, 1))] == [[], [], []]
    assert [change["state"] for change in state.changes(unaccounted(0), moment(45))] == ["ends"]
    never_again = RuleState(rule, [begins])
    assert list(never_again.changes(unaccounted(0), moment(0))) == []
    assert [change["state"] for change in never_again.changes(unaccounted(0), moment(60))] == ["ends"]


def test_pending_alarms_are_listed_with_their_begin() -> None:
    state = RuleState(Rule("Lost", "critical", NotZero("penstock_unaccounted"), "gone", hold=60))
    assert list(state.changes(unaccounted(1), moment(10))) == []
    (waiting,) = state.pending(moment(20))
    assert waiting == {"alarm": "Lost", "labels": {}, "since": "1970-01-01T00:00:10+00:00"}
    assert len(list(state.changes(unaccounted(1), moment(70)))) == 1
    assert list(state.pending(moment(70))) == []


@pytest.mark.parametrize("jump", [-86_400, 365 * 86_400])
def test_alarms_survive_a_clock_change(jump: float) -> None:
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
    assert [states_now for _ in range(40) if (states_now := states(100))] == [["ends"]]
    assert states(5000) == ["begins"]


def test_alarm_carries_receipt_and_rules_without_metrics_are_silent() -> None:
    messages: list[dict[str, Any]] = []
    clock = WatchClock()
    watch = AlarmWatch(
        1,
        clock,
        lambda: unaccounted(3).values(),
        lambda: "3 messages are unaccounted for",
        lambda changes, *_: messages.extend(changes),
    )
    for clock.passed in (0, 299, 300, 301):
        watch.evaluate()
    assert [(message["alarm"], message["receipt"]) for message in messages] == [
        ("PenstockUnaccounted", "3 messages are unaccounted for")
    ]


def test_rules_are_evaluated_at_once_after_the_start() -> None:
    looked = threading.Event()

    def families() -> Iterable[Family]:
        looked.set()
        return unaccounted(0).values()

    watch = AlarmWatch(3600, WatchClock(), families, str, lambda *_: None)
    watch.start()
    assert looked.wait(20)
    watch.stop()
    watch.join(20)
    assert not watch.is_alive()


def entered(families: Iterable[Family], receipt: Callable[[], str]) -> list[tuple[str, str]]:
    """Return the names and receipts of alarms that a watch enters in two rounds of five minutes each."""
    messages: list[dict[str, Any]] = []
    clock = WatchClock()
    watch = AlarmWatch(1, clock, lambda: families, receipt, lambda changes, *_: messages.extend(changes))
    for clock.passed in (0, 300, 600):
        watch.evaluate()
    return [(message["alarm"], message["receipt"]) for message in messages]


def test_receipt_that_cannot_be_made_loses_no_change(caplog: pytest.LogCaptureFixture) -> None:
    def receipt() -> str:
        raise OSError(errno.ENFILE, "Too many open files in system")

    assert entered(unaccounted(3).values(), receipt) == [("PenstockUnaccounted", "")]
    assert "delivered without a receipt, which cannot be made: [Errno 23]" in caplog.text


def test_rule_that_fails_loses_no_change_of_other_rules(caplog: pytest.LogCaptureFixture) -> None:
    nameless = Family("penstock_listener_count_total", "counter", "", [({"name": "kernel_dropped"}, 1.0)])
    assert entered([*unaccounted(3).values(), nameless], lambda: "3 lost") == [("PenstockUnaccounted", "3 lost")]
    assert "alarms: rule PenstockKernelDrops cannot be evaluated" in caplog.text


def test_alarm_whose_message_cannot_be_made_stays_unreported() -> None:
    rule = Rule("Drops", "warning", Growth("drops", ("listener",), "name", ("*",)), "{value} of {handler}")
    state = RuleState(rule)

    def look(count: float, now: float) -> list[dict[str, Any]]:
        family = Family("drops", "counter", "", [({"listener": "in", "name": "n"}, count)])
        return list(state.changes({"drops": family}, moment(now)))

    assert look(0, 0) == []
    with pytest.raises(KeyError, match="handler"):
        look(1, 1)
    with pytest.raises(KeyError, match="handler"):
        look(1, 2)
