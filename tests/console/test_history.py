"""Rates and growth of counters."""

from __future__ import annotations

from penstock.console.history import History


def test_a_rate_is_the_growth_of_the_last_ten_seconds() -> None:
    history = History()
    for second in range(100):
        history.add(float(second), {"a": second * (1 if second < 50 else 10)})
    assert history.rate("a") == 10
    assert history.rate("never heard of") == 0


def test_one_sample_has_no_rate() -> None:
    history = History()
    history.add(0.0, {"a": 5})
    assert (history.rate("a"), history.grown("a")) == (0, 0)


def test_a_counter_begun_anew_counts_from_nothing() -> None:
    history = History()
    history.add(0.0, {"a": 1000})
    history.add(10.0, {"a": 20})
    assert (history.rate("a"), history.grown("a")) == (2, 20)


def test_growth_looks_back_as_far_as_asked_and_an_hour_at_most() -> None:
    history = History()
    for second in range(0, 7200, 5):
        history.add(float(second), {"a": second})
    assert 3580 <= history.grown("a") <= 3600
    assert 50 <= history.grown("a", 60) <= 60
    line = history.line("a")
    assert len(line) == 359
    assert {round(rate, 6) for _, rate in line} == {1}
