"""Options of the charts (Apache ECharts)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.console.wording import COLOURS, FATES, clock, fate_of

Options = dict[str, Any]
GRID = {"left": 56, "right": 12, "top": 36, "bottom": 26}
TEXT = "#808a98"
LEGEND = {"type": "scroll", "top": 0, "left": 0, "textStyle": {"color": TEXT}, "pageTextStyle": {"color": TEXT}}
"""In one line, however narrow the page: what has no room is turned to."""
LINE = {"lineStyle": {"color": "rgba(128,138,152,.25)"}}


def stacked(series: Mapping[str, Any], since: int, until: int) -> Options:
    """The balance over time as stacked bars: one for each stretch, empty ones too."""
    step = int(series["step"])
    starts = list(range(since - since % step, until, step))
    ends: dict[int, Counter[str]] = {start: Counter() for start in starts}
    for one in series["series"]:
        for name, count in one["counts"].items():
            fate = fate_of(name)
            if fate and one["bucket"] in ends:
                ends[one["bucket"]][fate] += count
    used = [fate for fate in FATES if any(counts[fate] for counts in ends.values())]
    return {
        "animation": False,
        "grid": GRID,
        "tooltip": {"trigger": "axis", "axisPointer": {"type": "shadow"}},
        "legend": {**LEGEND, "itemHeight": 10, "itemWidth": 14},
        "xAxis": {"type": "category", "data": [clock(s) for s in starts], "axisLabel": {"color": TEXT}},
        "yAxis": {"type": "value", "axisLabel": {"color": TEXT}, "splitLine": LINE},
        "series": [
            {
                "name": FATES[fate],
                "type": "bar",
                "stack": "all",
                "barCategoryGap": "15%",
                "itemStyle": {"color": COLOURS[fate]},
                "data": [ends[start][fate] for start in starts],
            }
            for fate in used
        ],
    }


def heat(rows: Sequence[Sequence[int]], x_name: str, y_name: str) -> Options:
    """plog's two-dimensional counts as a heat map: colour by the logarithm, the number in the tooltip."""
    cells = [[x, y, n] for y, row in enumerate(rows) for x, n in enumerate(row) if n]
    most = max((n for _, _, n in cells), default=1)
    width = max((len(row) for row in rows), default=1)
    return {
        "animation": False,
        "grid": {**GRID, "top": 12, "bottom": 40},
        "tooltip": {"formatter": f"{y_name} {{b}}: {{c}}"},
        "xAxis": _powers(width, x_name),
        "yAxis": _powers(len(rows), y_name),
        "visualMap": {
            "show": False,
            "min": 0,
            "max": math.log1p(most),
            "dimension": 3,
            "inRange": {"color": ["#cfe8ea", "#0e9aa7", "#8f1d2c"]},
        },
        "series": [{"type": "heatmap", "data": [[*cell, math.log1p(cell[2])] for cell in cells]}],
    }


def bars(counts: Sequence[int], x_name: str) -> Options:
    """plog's one-dimensional counts, by powers of two."""
    return {
        "animation": False,
        "grid": {**GRID, "top": 12, "bottom": 40},
        "tooltip": {},
        "xAxis": _powers(len(counts), x_name),
        "yAxis": {"type": "value", "axisLabel": {"color": TEXT}, "splitLine": LINE},
        "series": [{"type": "bar", "data": list(counts), "itemStyle": {"color": COLOURS["landed.event"]}}],
    }


def _powers(count: int, name: str) -> Options:
    """An axis of powers of two: 0, 1, 2-3, 4-7, ..."""
    labels = ["0", *(f"{1 << n}-{(2 << n) - 1}" if n else "1" for n in range(count - 1))]
    return {
        "type": "category",
        "data": labels,
        "name": name,
        "nameLocation": "middle",
        "nameGap": 26,
        "axisLabel": {"color": TEXT},
        "nameTextStyle": {"color": TEXT},
    }


def rates(lines: Mapping[str, Sequence[tuple[float, float]]], now: float) -> Options:
    """Rates over the last hour as lines; times are seconds of the history's clock, ``now`` its present."""
    return {
        "animation": False,
        "grid": GRID,
        "tooltip": {"trigger": "axis"},
        "legend": LEGEND,
        "xAxis": {
            "type": "value",
            "min": -60,
            "max": 0,
            "name": "min",
            "axisLabel": {"color": TEXT},
            "splitLine": LINE,
        },
        "yAxis": {"type": "value", "axisLabel": {"color": TEXT}, "splitLine": LINE},
        "series": [
            {
                "name": name,
                "type": "line",
                "showSymbol": False,
                "data": [[round((t - now) / 60, 2), round(rate, 1)] for t, rate in line],
            }
            for name, line in lines.items()
        ],
    }
