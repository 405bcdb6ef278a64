"""Options of the charts, as Apache ECharts takes them.

Functions here are pure: they take answers of the daemon or lines of the history, and draw nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from penstock.console.wording import COLOURS, FATES, clock, fate_of
from penstock.ledger.event_words import moment
from penstock.sql.answers import is_number, value_text

Options = dict[str, Any]
GRID = {"left": 56, "right": 16, "top": 52, "bottom": 44}
TEXT = {":color": "chartText()"}
"""Color of a chart's text, evaluated in the browser for the theme."""
MARK = "#808a98"
AXIS_MINUTES = 60
LEGEND = {"type": "scroll", "top": 0, "left": 0, "textStyle": TEXT, "pageTextStyle": TEXT}
"""A single line at any width: entries without room are on further pages of the legend."""
LINE = {"lineStyle": {"color": "rgba(128,138,152,.25)"}}


Events = Sequence[Mapping[str, Any]]
EVENT_COLOURS = {"restart": "#d64545", "loss": "#d64545", "disk": "#d64545", "clock": "#e0a030"}
"""Color of the mark of an event by kind; other kinds are grey."""


def messages_by_fate(series: Mapping[str, Any], since: int, until: int) -> dict[int, Counter[str]]:
    """Return the messages of each interval of the balance over time by fate; empty intervals too."""
    step = int(series["step"])
    ends: dict[int, Counter[str]] = {start: Counter() for start in range(since - since % step, until, step)}
    for interval in series["series"]:
        for name, count in interval["counts"].items():
            fate = fate_of(name)
            if fate and interval["bucket"] in ends:
                ends[interval["bucket"]][fate] += count
    return ends


def marks(positions: Iterable[tuple[float, Mapping[str, Any]]]) -> Options:
    """Return a series that draws events as lines across a chart; their text is in the tooltip."""
    lines = [
        {
            "xAxis": position,
            "name": f"{moment(event['at'])} {event['text']}",
            "lineStyle": {"color": EVENT_COLOURS.get(event["kind"], MARK), "type": "dashed", "width": 1.5},
        }
        for position, event in positions
    ]
    line = {"symbol": ["none", "pin"], "symbolSize": 12, "label": {"show": False}, "data": lines}
    return {"name": "events", "type": "line", "data": [], "markLine": {**line, "tooltip": {"formatter": "{b}"}}}


def stacked(series: Mapping[str, Any], since: int, until: int, events: Events = ()) -> Options:
    """Return the balance over time as one stacked bar per interval, with the events of that time."""
    fates_of_start, step = messages_by_fate(series, since, until), int(series["step"])
    # An event is drawn at the interval that contains it; events outside the chart are dropped.
    starts = list(fates_of_start)
    marked_events = [
        (starts.index(bucket_start), e)
        for e in events
        if (bucket_start := e["at"] // 1000 // step * step) in fates_of_start
    ]
    fates = [fate for fate in FATES if any(counts[fate] for counts in fates_of_start.values())]
    return {
        "animation": False,
        "grid": GRID,
        "tooltip": {"trigger": "axis", "axisPointer": {"type": "shadow"}},
        "legend": {**LEGEND, "itemHeight": 10, "itemWidth": 14, "data": [FATES[fate] for fate in fates]},
        "xAxis": {
            "type": "category",
            "data": [clock(s) for s in starts],
            **_axis_name("received at", 28),
            "axisLabel": {**TEXT, "hideOverlap": True},
        },
        "yAxis": _count_axis("messages"),
        "series": [
            {
                "name": FATES[fate],
                "type": "bar",
                "stack": "all",
                "barCategoryGap": "15%",
                "itemStyle": {"color": COLOURS[fate]},
                "data": [fates_of_start[start][fate] for start in starts],
            }
            for fate in fates
        ]
        + ([marks(marked_events)] if marked_events else []),
    }


def heat(rows: Sequence[Sequence[int]], x_name: str, y_name: str) -> Options:
    """Return plog's two-dimensional counts as a heat map, colored by logarithm; the tooltip has the number."""
    # Zero cells are left out: a grid of all sizes has thousands.
    cells = [[x, y, n] for y, row in enumerate(rows) for x, n in enumerate(row) if n]
    largest = max((n for _, _, n in cells), default=1)
    width = max((x for x, _, _ in cells), default=0) + 1
    height = max((y for _, y, _ in cells), default=0) + 1
    return {
        "animation": False,
        "grid": {**GRID, "top": 32, "left": 76},
        "tooltip": {"formatter": f"{y_name} {{b}}: {{c}}"},
        "xAxis": _power_of_two_axis(width, x_name),
        "yAxis": {**_power_of_two_axis(height, y_name), "nameLocation": "end", "nameGap": 12},
        "visualMap": {
            "show": False,
            "min": 0,
            "max": math.log1p(largest),
            "dimension": 3,
            "inRange": {"color": ["#cfe8ea", "#0e9aa7", "#8f1d2c"]},
        },
        # The fourth number is the color: a linear scale would show the largest cell only.
        "series": [{"type": "heatmap", "data": [[*cell, math.log1p(cell[2])] for cell in cells]}],
    }


def bars(counts: Sequence[int], x_name: str) -> Options:
    """Return plog's one-dimensional counts as bars, one per power of two."""
    used = max((number for number, count in enumerate(counts, 1) if count), default=1)
    return {
        "animation": False,
        "grid": {**GRID, "top": 32},
        "tooltip": {},
        "xAxis": _power_of_two_axis(used, x_name),
        "yAxis": _count_axis("count"),
        "series": [{"type": "bar", "data": list(counts[:used]), "itemStyle": {"color": COLOURS["landed.event"]}}],
    }


def _power_of_two_axis(count: int, name: str) -> Options:
    """Return an axis with the categories 0, 1, 2-3, 4-7, and so on."""
    labels = ["0", *(f"{1 << n}-{(2 << n) - 1}" if n else "1" for n in range(count - 1))]
    return {"type": "category", "data": labels, **_axis_name(name, 28), "axisLabel": {**TEXT, "hideOverlap": True}}


def _axis_name(name: str, gap: int) -> Options:
    """Return the keys that put the name of an axis in its middle."""
    return {"name": name, "nameLocation": "middle", "nameGap": gap, "nameTextStyle": TEXT}


def _count_axis(name: str) -> Options:
    """Return an axis of whole numbers with short labels."""
    return {
        "type": "value",
        "name": name,
        "nameTextStyle": {**TEXT, "align": "left"},
        "min": 0,
        "minInterval": 1,
        # The lowest label stays at the axis; minInterval avoids labels such as 0.5 messages.
        "axisLine": {"onZero": False},
        "axisLabel": {**TEXT, ":formatter": "shortNumber"},
        "splitLine": LINE,
    }


Line = Sequence[tuple[float, float]]
"""Pairs of a time in seconds, of the monotonic clock, and a value."""


def rates(lines: Mapping[str, Line], now_s: float, events: Events = (), now_unix_s: float = 0.0) -> Options:
    """Return rows per second over the last hour; ``lines`` by fate, see FATES.

    ``now_s`` is the present of the lines' clock, ``now_unix_s`` the same moment since the epoch, for ``events``.
    """
    named = {FATES[fate]: (line, COLOURS[fate]) for fate, line in lines.items()}
    return _hour_chart(named, "rows a second", now_s, events, now_unix_s)


def histogram(counts: Sequence[tuple[datetime, int]]) -> Options:
    """Return messages per interval of time as bars."""
    return {
        "animation": False,
        "grid": {"left": 48, "right": 8, "top": 24, "bottom": 24},
        "tooltip": {"trigger": "axis", "axisPointer": {"type": "shadow"}},
        "xAxis": {
            "type": "category",
            "data": [f"{start:%H:%M}" for start, _ in counts],
            "axisLabel": {**TEXT, "hideOverlap": True},
        },
        "yAxis": {**_count_axis("messages"), "splitNumber": 2},
        "series": [
            {
                "type": "bar",
                "barCategoryGap": "15%",
                "itemStyle": {"color": COLOURS["landed.event"]},
                "data": [count for _, count in counts],
            }
        ],
    }


CHART_KINDS = ("table", "bar", "line")
"""Ways to show the rows of a query; the first one is without a chart."""
MAX_BARS = 200


def chart_columns(schema: pa.Schema, kind: str) -> tuple[list[str], list[str]]:
    """Return the columns that a chart may have along its axis, the best one first, and the ones that it may draw."""
    times = [field.name for field in schema if pa.types.is_temporal(field.type)]
    numbers = [field.name for field in schema if is_number(field.type)]
    texts = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_boolean(field.type)]
    return [*(times + texts if kind == "line" else texts + times), *numbers], numbers


def query_chart(rows: pa.Table, x: str, y: str, kind: str) -> Options:
    """Return a chart of two columns: a bar per row, or a line over times or numbers in ascending order."""
    is_line = kind == "line"
    rows = rows.sort_by(x) if is_line else rows.slice(0, MAX_BARS)
    labels, heights = rows[x].to_pylist(), rows[y].cast(pa.float64()).to_pylist()
    on_time, on_numbers = pa.types.is_temporal(rows[x].type), is_number(rows[x].type)
    axis_type = ("time" if on_time else "value") if is_line and (on_time or on_numbers) else "category"
    texts = [value_text(label) if axis_type != "value" else float(label or 0) for label in labels]
    # JSON has neither NaN nor infinity.
    finite = [height if height is not None and math.isfinite(height) else None for height in heights]
    points = [[label, height] for label, height in zip(texts, finite, strict=True)]
    return {
        "animation": False,
        "grid": {**GRID, "left": 72, "top": 32},
        "tooltip": {"trigger": "axis"},
        "xAxis": {
            "type": axis_type,
            **_axis_name(x, 28),
            "axisLabel": {**TEXT, "hideOverlap": True},
            "splitLine": LINE,
            **({"scale": True} if axis_type == "value" else {}),
        },
        "yAxis": {
            "type": "value",
            "name": y,
            "nameTextStyle": {**TEXT, "align": "left"},
            "axisLabel": {**TEXT, ":formatter": "shortNumber"},
            "splitLine": LINE,
        },
        "series": [
            {
                "type": kind,
                "name": y,
                "data": points,
                "showSymbol": len(points) < 50,
                "itemStyle": {"color": COLOURS["landed.event"]},
                "lineStyle": {"color": COLOURS["landed.event"], "width": 2},
            }
        ],
    }


def lag_chart(lines: Mapping[str, Line], now_s: float, events: Events = (), now_unix_s: float = 0.0) -> Options:
    """Return entries behind over the last hour by reader; times as in ``rates``."""
    return _hour_chart({name: (line, "") for name, line in lines.items()}, "entries behind", now_s, events, now_unix_s)


def _hour_chart(
    lines: Mapping[str, tuple[Line, str]], axis_name: str, now_s: float, events: Events, now_unix_s: float
) -> Options:
    ages = ((round((event["at"] / 1000 - now_unix_s) / 60, 2), event) for event in events)
    marked_events = [(age, event) for age, event in ages if -AXIS_MINUTES <= age <= 0]
    ago = {**TEXT, ":formatter": "v => v ? `${-v}` : 'now'"}
    span = {"type": "value", "min": -AXIS_MINUTES, "max": 0}
    series = [_line_series(name, line, colour, now_s) for name, (line, colour) in lines.items()]
    return {
        "animation": False,
        "grid": GRID,
        "tooltip": {"trigger": "axis"},
        "legend": {**LEGEND, "data": list(lines)},
        "xAxis": {**span, **_axis_name("minutes ago", 28), "axisLabel": ago, "splitLine": LINE},
        "yAxis": _count_axis(axis_name),
        "series": series + ([marks(marked_events)] if marked_events else []),
    }


def _line_series(name: str, line: Line, colour: str, now_s: float) -> Options:
    # Rounded: the options are sent to the browser whenever they change.
    points = [[round((t - now_s) / 60, 2), round(number, 1)] for t, number in line]
    coloured = {"itemStyle": {"color": colour}, "lineStyle": {"color": colour, "width": 2}} if colour else {}
    return {"name": name, "type": "line", "showSymbol": len(points) < 2, "data": points, **coloured}
