"""How far readers were behind."""

from __future__ import annotations

from penstock.console.lags import KEPT, Lags


def cursor(name: str, lag: int, topic: str = "t") -> dict[str, object]:
    return {"topic": topic, "name": name, "lag_entries": str(lag)}


def test_each_reader_of_a_topic_has_a_line() -> None:
    lags = Lags()
    lags.add(1.0, [cursor("a", 5), cursor("b", 0), cursor("a", 7, "u")])
    lags.add(16.0, [cursor("a", 3), cursor("c", 1)])
    assert lags.of("t") == {"a": [(1.0, 5), (16.0, 3)], "c": [(16.0, 1)]}
    assert lags.of("u") == {}


def test_an_hour_is_kept() -> None:
    lags = Lags()
    for at in range(KEPT + 10):
        lags.add(float(at), [cursor("a", at)])
    assert len(lags.of("t")["a"]) == KEPT
    assert lags.of("t")["a"][0] == (10.0, 10)
