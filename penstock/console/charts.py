"""Options of the charts (Apache ECharts)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.console.wording import COLOURS, FATES, clock, fate_of
from penstock.ledger.event_words import moment

Options = dict[str, Any]
GRID = {"left": 56, "right": 16, "top": 52, "bottom": 44}
TEXT = "#808a98"
HOUR = 60
"""Minutes."""
LEGEND = {"type": "scroll", "top": 0, "left": 0, "textStyle": {"color": TEXT}, "pageTextStyle": {"color": TEXT}}
"""In one line, however narrow the page: what has no room is turned to."""
LINE = {"lineStyle": {"color": "rgba(128,138,152,.25)"}}


Events = Sequence[Mapping[str, Any]]
EVENT_COLOURS = {"restart": "#d64545", "loss": "#d64545", "disk": "#d64545", "clock": "#e0a030"}
"""Of the marks of events; the others are grey."""


def ends_of(series: Mapping[str, Any], since: int, until: int) -> dict[int, Counter[str]]:
    """What became of the messages, by the start of each stretch of the balance over time; empty ones too."""
    step = int(series["step"])
    ends: dict[int, Counter[str]] = {start: Counter() for start in range(since - since % step, until, step)}
    for one in series["series"]:
        for name, count in one["counts"].items():
            fate = fate_of(name)
            if fate and one["bucket"] in ends:
                ends[one["bucket"]][fate] += count
    return ends


def marks(places: Iterable[tuple[float, Mapping[str, Any]]]) -> Options:
    """Events as lines across a chart, each with its place on the axis; their words in the tooltip."""
    lines = [
        {
            "xAxis": place,
            "name": f"{moment(event['at'])} {event['text']}",
            "lineStyle": {"color": EVENT_COLOURS.get(event["kind"], TEXT), "type": "dashed", "width": 1.5},
        }
        for place, event in places
    ]
    line = {"symbol": ["none", "pin"], "symbolSize": 12, "label": {"show": False}, "data": lines}
    return {"name": "events", "type": "line", "data": [], "markLine": {**line, "tooltip": {"formatter": "{b}"}}}


def stacked(series: Mapping[str, Any], since: int, until: int, events: Events = ()) -> Options:
    """The balance over time as stacked bars, one for each stretch, with the events of that time."""
    ends, step = ends_of(series, since, until), int(series["step"])
    starts = list(ends)
    happened = [(starts.index(at), e) for e in events if (at := e["at"] // 1000 // step * step) in ends]
    used = [fate for fate in FATES if any(counts[fate] for counts in ends.values())]
    return {
        "animation": False,
        "grid": GRID,
        "tooltip": {"trigger": "axis", "axisPointer": {"type": "shadow"}},
        "legend": {**LEGEND, "itemHeight": 10, "itemWidth": 14, "data": [FATES[fate] for fate in used]},
        "xAxis": {
            "type": "category",
            "data": [clock(s) for s in starts],
            **_named("received at", 28),
            "axisLabel": {"color": TEXT, "hideOverlap": True},
        },
        "yAxis": _counted("messages"),
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
        ]
        + ([marks(happened)] if happened else []),
    }


def heat(rows: Sequence[Sequence[int]], x_name: str, y_name: str) -> Options:
    """plog's two-dimensional counts as a heat map: colour by the logarithm, the number in the tooltip."""
    cells = [[x, y, n] for y, row in enumerate(rows) for x, n in enumerate(row) if n]
    most = max((n for _, _, n in cells), default=1)
    width = max((len(row) for row in rows), default=1)
    return {
        "animation": False,
        "grid": {**GRID, "top": 32, "left": 76},
        "tooltip": {"formatter": f"{y_name} {{b}}: {{c}}"},
        "xAxis": _powers(width, x_name),
        "yAxis": {**_powers(len(rows), y_name), "nameLocation": "end", "nameGap": 12},
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
        "grid": {**GRID, "top": 32},
        "tooltip": {},
        "xAxis": _powers(len(counts), x_name),
        "yAxis": _counted("count"),
        "series": [{"type": "bar", "data": list(counts), "itemStyle": {"color": COLOURS["landed.event"]}}],
    }


def _powers(count: int, name: str) -> Options:
    """An axis of powers of two: 0, 1, 2-3, 4-7, ..."""
    labels = ["0", *(f"{1 << n}-{(2 << n) - 1}" if n else "1" for n in range(count - 1))]
    return {"type": "category", "data": labels, **_named(name, 28), "axisLabel": {"color": TEXT}}


def _named(name: str, gap: int) -> Options:
    """The name of an axis in its middle."""
    return {"name": name, "nameLocation": "middle", "nameGap": gap, "nameTextStyle": {"color": TEXT}}


def _counted(name: str) -> Options:
    """An axis of whole numbers, as short as they can be."""
    return {
        "type": "value",
        "name": name,
        "nameTextStyle": {"color": TEXT, "align": "left"},
        "min": 0,
        "minInterval": 1,
        "axisLine": {"onZero": False},
        "axisLabel": {"color": TEXT, ":formatter": "shortNumber"},
        "splitLine": LINE,
    }


Line = Sequence[tuple[float, float]]
"""Times of the history's clock in seconds, with values."""


def rates(lines: Mapping[str, Line], now: float, events: Events = (), wall: float = 0.0) -> Options:
    """Rows a second over the last hour; ``lines`` by fate, as in FATES.

    ``now`` is the present of their clock, ``wall`` the same in seconds since the epoch, as the times of ``events`` are.
    """
    named = {FATES[fate]: (line, COLOURS[fate]) for fate, line in lines.items()}
    return _hour(named, "rows a second", now, events, wall)


def behind(lines: Mapping[str, Line], now: float, events: Events = (), wall: float = 0.0) -> Options:
    """How many entries readers were behind over the last hour, by their names; times are as of ``rates``."""
    return _hour({name: (line, "") for name, line in lines.items()}, "entries behind", now, events, wall)


def _hour(lines: Mapping[str, tuple[Line, str]], counted: str, now: float, events: Events, wall: float) -> Options:
    ages = ((round((event["at"] / 1000 - wall) / 60, 2), event) for event in events)
    happened = [(age, event) for age, event in ages if -HOUR <= age <= 0]
    ago = {"color": TEXT, ":formatter": "v => v ? `${-v}` : 'now'"}
    span = {"type": "value", "min": -HOUR, "max": 0}
    series = [_line(name, line, colour, now) for name, (line, colour) in lines.items()]
    return {
        "animation": False,
        "grid": GRID,
        "tooltip": {"trigger": "axis"},
        "legend": {**LEGEND, "data": list(lines)},
        "xAxis": {**span, **_named("minutes ago", 28), "axisLabel": ago, "splitLine": LINE},
        "yAxis": _counted(counted),
        "series": series + ([marks(happened)] if happened else []),
    }


def _line(name: str, line: Line, colour: str, now: float) -> Options:
    points = [[round((t - now) / 60, 2), round(value, 1)] for t, value in line]
    coloured = {"itemStyle": {"color": colour}, "lineStyle": {"color": colour, "width": 2}} if colour else {}
    return {"name": name, "type": "line", "showSymbol": len(points) < 2, "data": points, **coloured}
