"""Rates and growth of counters, and readers' lag over time."""

from __future__ import annotations

from penstock.console.history import MAX_LAG_SAMPLES, History, Lags


def cursor(name: str, lag: int, topic: str = "t") -> dict[str, object]:
    return {"topic": topic, "name": name, "lag_entries": str(lag)}


def test_rate_is_growth_of_last_ten_seconds() -> None:
    history = History()
    for second in range(100):
        history.add(float(second), {"a": second * (1 if second < 50 else 10)})
    assert history.rate("a") == 10
    assert history.rate("unknown") == 0


def test_lowest_value_needs_samples_of_the_whole_time() -> None:
    history = History()
    assert history.lowest("a", 3) == 0
    for second, value in enumerate((9, 2, 7, 5, 6)):
        history.add(float(second), {"a": value})
    assert [history.lowest("a", seconds) for seconds in (1, 3, 4, 5)] == [5, 2, 2, 0]


def test_single_sample_has_no_rate() -> None:
    history = History()
    history.add(0.0, {"a": 5})
    assert (history.rate("a"), history.grown("a")) == (0, 0)


def test_reset_counter_counts_from_zero() -> None:
    history = History()
    history.add(0.0, {"a": 1000})
    history.add(10.0, {"a": 20})
    assert (history.rate("a"), history.grown("a")) == (2, 20)


def test_growth_covers_requested_seconds_and_at_most_an_hour() -> None:
    history = History()
    for second in range(0, 7200, 5):
        history.add(float(second), {"a": second})
    assert 3580 <= history.grown("a") <= 3600
    assert 50 <= history.grown("a", 60) <= 60
    line = history.line("a")
    assert len(line) == 359
    assert {round(rate, 6) for _, rate in line} == {1}


def test_each_reader_of_a_topic_has_a_line() -> None:
    lags = Lags()
    lags.add(1.0, [cursor("a", 5), cursor("b", 0), cursor("a", 7, "u")])
    lags.add(16.0, [cursor("a", 3), cursor("c", 1)])
    assert lags.of_topic("t") == {"a": [(1.0, 5), (16.0, 3)], "c": [(16.0, 1)]}
    assert lags.of_topic("u") == {}


def test_lags_cover_an_hour() -> None:
    lags = Lags()
    for second in range(MAX_LAG_SAMPLES + 10):
        lags.add(float(second), [cursor("a", second)])
    assert len(lags.of_topic("t")["a"]) == MAX_LAG_SAMPLES
    assert lags.of_topic("t")["a"][0] == (10.0, 10)
