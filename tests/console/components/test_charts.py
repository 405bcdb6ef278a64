"""Options of the charts."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa

from penstock.console.components.charts import (
    MAX_BARS,
    bars,
    chart_columns,
    heat,
    lag_chart,
    query_chart,
    rates,
    stacked,
)
from penstock.console.wording import COLOURS


def test_balance_over_time_is_stacked_by_fate() -> None:
    series = {
        "step": 60,
        "series": [
            {
                "bucket": 120,
                "counts": {"accepted": 9, "landed.event": 5, "refused.oversize": 1, "incomplete.expired": 2},
            },
            {"bucket": 240, "counts": {"pending": 3, "quarantined.bad_json": 1}},
        ],
    }
    counts_by_name = {entry["name"]: entry["data"] for entry in stacked(series, 60, 300)["series"]}
    assert counts_by_name == {
        "events": [0, 5, 0, 0],
        "quarantined": [0, 0, 0, 1],
        "lost": [0, 3, 0, 0],
        "on the way": [0, 0, 0, 3],
    }


def test_heat_map_has_a_cell_per_nonzero_count() -> None:
    options = heat([[0], [4, 0], [0, 0, 9]], "index", "fragments")
    assert [cell[:3] for cell in options["series"][0]["data"]] == [[0, 1, 4], [2, 2, 9]]
    assert options["xAxis"]["data"] == ["0", "1", "2-3"]


def test_size_classes_end_at_the_largest_used_one_and_their_labels_do_not_overlap() -> None:
    options = heat([[0] * 17, [0, 0, 3] + [0] * 14, *([0] * 17 for _ in range(15))], "index", "fragments")
    assert (options["xAxis"]["data"], options["yAxis"]["data"]) == (["0", "1", "2-3"], ["0", "1"])
    assert options["yAxis"]["axisLabel"]["hideOverlap"]
    assert bars([0, 4, 0, 0], "index")["series"][0]["data"] == [0, 4]


def test_bars_and_lines_have_all_values() -> None:
    assert bars([1, 2], "x")["series"][0]["data"] == [1, 2]
    assert rates({"duplicate": [(10.0, 2.0), (70.0, 3.0)]}, 70.0)["series"][0]["data"] == [[-1.0, 2.0], [0.0, 3.0]]
    assert lag_chart({"a": [(10.0, 2)]}, 70.0)["series"][0]["data"] == [[-1.0, 2]]


def test_every_axis_has_a_name_and_whole_counts() -> None:
    series = {"step": 60, "series": []}
    charts = [
        stacked(series, 60, 300),
        rates({}, 0.0),
        lag_chart({}, 0.0),
        bars([1], "fragments"),
        heat([[1]], "a", "b"),
    ]
    assert all(chart[axis]["name"] for chart in charts for axis in ("xAxis", "yAxis"))
    assert all(chart["yAxis"]["minInterval"] == 1 for chart in charts[:-1])


def test_fate_has_the_same_color_in_every_chart() -> None:
    over_time = {"step": 60, "series": [{"bucket": 60, "counts": dict.fromkeys(COLOURS, 1)}]}
    bars_by_color = {entry["name"]: entry["itemStyle"]["color"] for entry in stacked(over_time, 60, 120)["series"]}
    lines = rates({fate: [(1.0, 1.0)] for fate in COLOURS}, 1.0)["series"]
    assert bars_by_color == {entry["name"]: entry["itemStyle"]["color"] for entry in lines}


RESTART: dict[str, Any] = {
    "at": 130_000,
    "kind": "restart",
    "text": "receiver in was killed by SIGKILL, back after 0.4 s",
}


def test_event_is_drawn_at_the_bar_of_its_time() -> None:
    series = {"step": 60, "series": [{"bucket": 120, "counts": {"landed.event": 5}}]}
    *bars_by_color, events = stacked(series, 60, 300, [RESTART, RESTART | {"at": 1_000_000_000}])["series"]
    (line,) = events["markLine"]["data"]
    assert line["xAxis"] == 1
    assert line["name"].endswith(f":10 {RESTART['text']}")
    assert [entry["name"] for entry in bars_by_color] == ["events"]
    assert [entry["name"] for entry in stacked(series, 60, 300)["series"]] == ["events"]


def test_event_is_drawn_over_rates_in_minutes_before_now() -> None:
    now = RESTART["at"] / 1000 + 90
    started = RESTART | {"at": 0, "kind": "start"}
    events = rates({"duplicate": [(10.0, 2.0)]}, 10.0, [RESTART, started], now)["series"][-1]
    assert [line["xAxis"] for line in events["markLine"]["data"]] == [-1.5, -3.67]
    assert rates({}, 10.0, [RESTART], now + 3600)["series"] == []


def times_and_counts() -> pa.Table:
    moments = [dt.datetime(2026, 11, 22, hour, tzinfo=dt.UTC) for hour in (12, 10)]
    return pa.table({"type": ["a", "b"], "hour": moments, "n": [1, 2], "share": [float("nan"), 0.5]})


def test_chart_offers_times_for_a_line_and_texts_for_bars() -> None:
    schema = times_and_counts().schema
    assert chart_columns(schema, "line") == (["hour", "type", "n", "share"], ["n", "share"])
    assert chart_columns(schema, "bar") == (["type", "hour", "n", "share"], ["n", "share"])


def test_line_of_an_answer_is_in_the_order_of_time() -> None:
    options = query_chart(times_and_counts(), "hour", "n", "line")
    assert options["xAxis"]["type"] == "time"
    assert options["series"][0]["data"] == [["2026-11-22 10:00:00+00:00", 2.0], ["2026-11-22 12:00:00+00:00", 1.0]]


def test_bars_of_an_answer_are_in_its_order_and_limited() -> None:
    options = query_chart(times_and_counts(), "type", "share", "bar")
    assert options["series"][0]["data"] == [["a", None], ["b", 0.5]]
    json.dumps(options, allow_nan=False)
    many = query_chart(pa.table({"x": [str(n) for n in range(1000)], "n": range(1000)}), "x", "n", "bar")
    assert len(many["series"][0]["data"]) == MAX_BARS
