"""Conditions hold where, when and as long as they should."""

from __future__ import annotations

from penstock.server.alarms.evaluation import Evaluation, Moment
from penstock.server.alarms.rules import Behind, Growth, NotZero, Share, Stuck
from penstock.server.metrics.prometheus import Family

GROWTH = Growth("fates", ("topic",), "fate", ("gap.*", "lost"), window=60)


def at(seconds: float) -> Moment:
    """A moment of a clock that is right."""
    return Moment(seconds, seconds)


def fates(**counts: float) -> dict[str, Family]:
    samples = [({"topic": "t", "fate": name.replace("_", ".")}, count) for name, count in counts.items()]
    return {"fates": Family("fates", "counter", "", samples)}


def test_a_counter_that_grows_holds_until_the_window_has_passed() -> None:
    evaluation = Evaluation(GROWTH)
    assert evaluation.holds(fates(gap_a=5), at(0)) == {}, "what was there before is no growth"
    assert evaluation.holds(fates(gap_a=7, landed=9), at(30)) == {("t",): 2}
    assert evaluation.holds(fates(gap_a=7), at(59)) == {("t",): 2}
    assert evaluation.holds(fates(gap_a=7), at(91)) == {}


def test_a_count_that_comes_for_the_first_time_has_grown_from_nothing() -> None:
    evaluation = Evaluation(GROWTH)
    assert evaluation.holds({}, at(0)) == {}
    assert evaluation.holds(fates(lost=3, gap_b=1), at(10)) == {("t",): 4}


def test_a_gauge_that_is_not_zero_holds() -> None:
    evaluation = Evaluation(NotZero("gauge"))
    assert evaluation.holds({"gauge": Family("gauge", "gauge", "", [({}, 0)])}, at(0)) == {}
    assert evaluation.holds({"gauge": Family("gauge", "gauge", "", [({}, -2)])}, at(1)) == {(): -2}


def test_a_table_that_is_behind_holds_with_how_far() -> None:
    marks = {"marks": Family("marks", "gauge", "", [({"table": "a"}, 1000), ({"table": "b"}, 1900)])}
    assert Evaluation(Behind("marks", ("table",), 600)).holds(marks, at(2000)) == {("a",): 1000}


def test_a_share_holds_beyond_its_part() -> None:
    evaluation = Evaluation(Share(0.01, Growth("fates", ("topic",), "fate", ("quarantined.*",), 60)))
    evaluation.holds(fates(landed_event=1000), at(0))
    assert evaluation.holds(fates(landed_event=2000, quarantined_x=10), at(10)) == {}
    assert evaluation.holds(fates(landed_event=2000, quarantined_x=11), at(20)) == {("t",): 11}


def test_what_waits_while_nothing_is_done_is_stuck() -> None:
    evaluation = Evaluation(Stuck("waits", Growth("done", ("handler",), "fate", ("delivered",), 60)))

    def now(waiting: int, done: int) -> dict[str, Family]:
        return {
            "waits": Family("waits", "gauge", "", [({"handler": "kafka"}, waiting)]),
            "done": Family("done", "counter", "", [({"handler": "kafka", "fate": "delivered"}, done)]),
        }

    evaluation.holds(now(0, 5), at(0))
    assert evaluation.holds(now(9, 6), at(10)) == {}
    assert evaluation.holds(now(9, 6), at(80)) == {("kafka",): 9}
    assert evaluation.holds(now(0, 6), at(90)) == {}


def test_growth_is_measured_by_the_monotonic_clock() -> None:
    evaluation = Evaluation(GROWTH)
    evaluation.holds(fates(lost=0), Moment(0, 1e9))
    assert evaluation.holds(fates(lost=100), Moment(15, 1e9 - 86_400)) == {("t",): 100}
    assert evaluation.holds(fates(lost=100), Moment(90, 1e9 - 86_400)) == {}
    assert evaluation.holds(fates(lost=105), Moment(105, 1e9 + 365 * 86_400)) == {("t",): 5}
