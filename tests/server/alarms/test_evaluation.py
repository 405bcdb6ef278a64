"""Conditions of the alarm rules."""

from __future__ import annotations

import pytest

from penstock.server.alarms.evaluation import Evaluation, Moment
from penstock.server.alarms.rules import Above, Behind, Growth, NotZero, Share, Stuck
from penstock.server.metrics.prometheus import Family

GROWTH = Growth("fates", ("topic",), "fate", ("gap.*", "lost"), window=60)


def moment(seconds: float) -> Moment:
    """Return a moment of a correct clock."""
    return Moment(seconds, seconds)


def fates(**counts: float) -> dict[str, Family]:
    samples = [({"topic": "t", "fate": name.replace("_", ".")}, count) for name, count in counts.items()]
    return {"fates": Family("fates", "counter", "", samples)}


def test_growing_counter_holds_until_the_window_has_passed() -> None:
    evaluation = Evaluation(GROWTH)
    assert evaluation.holds(fates(gap_a=5), moment(0)) == {}, "what was there before is not growth"
    assert evaluation.holds(fates(gap_a=7, landed=9), moment(30)) == {("t",): 2}
    assert evaluation.holds(fates(gap_a=7), moment(59)) == {("t",): 2}
    assert evaluation.holds(fates(gap_a=7), moment(91)) == {}


def test_new_counter_grows_from_zero() -> None:
    evaluation = Evaluation(GROWTH)
    assert evaluation.holds({}, moment(0)) == {}
    assert evaluation.holds(fates(lost=3, gap_b=1), moment(10)) == {("t",): 4}


def test_nonzero_gauge_holds() -> None:
    evaluation = Evaluation(NotZero("gauge"))
    assert evaluation.holds({"gauge": Family("gauge", "gauge", "", [({}, 0)])}, moment(0)) == {}
    assert evaluation.holds({"gauge": Family("gauge", "gauge", "", [({}, -2)])}, moment(1)) == {(): -2}


def test_late_table_holds_with_its_delay() -> None:
    marks = {"marks": Family("marks", "gauge", "", [({"table": "a"}, 1000), ({"table": "b"}, 1900)])}
    assert Evaluation(Behind("marks", ("table",), 600)).holds(marks, moment(2000)) == {("a",): 1000}


def test_share_holds_above_its_threshold() -> None:
    evaluation = Evaluation(Share(0.01, Growth("fates", ("topic",), "fate", ("quarantined.*",), 60)))
    evaluation.holds(fates(landed_event=1000), moment(0))
    assert evaluation.holds(fates(landed_event=2000, quarantined_x=10), moment(10)) == {}
    assert evaluation.holds(fates(landed_event=2000, quarantined_x=11), moment(20)) == {("t",): 11}


def test_waiting_messages_without_progress_are_stuck() -> None:
    evaluation = Evaluation(Stuck("waits", Growth("done", ("handler",), "fate", ("delivered",), 60)))

    def now(waiting: int, delivered: int) -> dict[str, Family]:
        return {
            "waits": Family("waits", "gauge", "", [({"handler": "kafka"}, waiting)]),
            "done": Family("done", "counter", "", [({"handler": "kafka", "fate": "delivered"}, delivered)]),
        }

    evaluation.holds(now(0, 5), moment(0))
    assert evaluation.holds(now(9, 6), moment(10)) == {}
    assert evaluation.holds(now(9, 6), moment(80)) == {("kafka",): 9}
    assert evaluation.holds(now(0, 6), moment(90)) == {}


@pytest.mark.survives("alarms", "wrong clock")
def test_growth_is_measured_by_the_monotonic_clock() -> None:
    evaluation = Evaluation(GROWTH)
    evaluation.holds(fates(lost=0), Moment(0, 1e9))
    assert evaluation.holds(fates(lost=100), Moment(15, 1e9 - 86_400)) == {("t",): 100}
    assert evaluation.holds(fates(lost=100), Moment(90, 1e9 - 86_400)) == {}
    assert evaluation.holds(fates(lost=105), Moment(105, 1e9 + 365 * 86_400)) == {("t",): 5}


def test_gauge_above_its_limit_holds() -> None:
    silences = {
        "silent": Family("silent", "gauge", "", [({"listener": "a"}, 3.0), ({"listener": "b"}, 12.4)]),
    }
    assert Evaluation(Above("silent", ("listener",), 3)).holds(silences, moment(0)) == {("b",): 12.4}
