"""Options of the charts."""

from __future__ import annotations

from penstock.console.charts import bars, heat, rates, stacked


def test_the_balance_over_time_is_stacked_by_end() -> None:
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
    found = {one["name"]: one["data"] for one in stacked(series, 60, 300)["series"]}
    assert found == {
        "events": [0, 5, 0, 0],
        "quarantined": [0, 0, 0, 1],
        "lost before the log": [0, 3, 0, 0],
        "on the way": [0, 0, 0, 3],
    }


def test_a_heat_map_has_a_cell_for_each_count_that_is_not_zero() -> None:
    options = heat([[0], [4, 0], [0, 0, 9]], "index", "fragments")
    assert [cell[:3] for cell in options["series"][0]["data"]] == [[0, 1, 4], [2, 2, 9]]
    assert options["xAxis"]["data"] == ["0", "1", "2-3"]


def test_bars_and_lines_have_all_their_values() -> None:
    assert bars([1, 2], "x")["series"][0]["data"] == [1, 2]
    assert rates({"a": [(10.0, 2.0), (70.0, 3.0)]}, 70.0)["series"][0]["data"] == [[-1.0, 2.0], [0.0, 3.0]]
