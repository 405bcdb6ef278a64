"""``python -m bench.curves RESULT SVG``: draw the growth curves of a result, a small chart for each figure."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from bench.results import load

SHOWN = [
    ("message_bytes", "messages_per_s", "lines a second, by bytes of one"),
    ("message_bytes", "mb_per_s", "MB a second, by bytes of a line"),
    ("connections", "receiver_mib", "receiver's MiB, by connections"),
    ("connections", "lines_per_s", "lines a second beside idle connections"),
    ("readers", "p50_ms", "ms to a stream (median), by readers"),
    ("readers", "cpu_us_a_delivery", "us of CPU a page delivered, by readers"),
    ("topics", "start_s", "seconds of a start, by topics"),
    ("topics", "describe_ms", "ms to describe all, by topics"),
    ("topics", "daemon_mib", "daemon's MiB, by topics"),
    ("topics", "appends_per_s", "appends a second to topics in turn"),
    ("history_mib", "open_ms", "ms to open after a kill, by MiB of a topic"),
    ("history_mib", "first_page_ms", "ms to a page in the middle, by MiB"),
    ("history_mib", "ledger_anew_ms", "ms to count all anew, by MiB"),
    ("cursors", "lags_ms", "ms to list cursors with their lag"),
    ("buffer_mib", "open_ms", "ms to open a dirty log buffer, by MiB"),
]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 300, 170, 52, 26, 24
COLUMNS = 3
STYLE = "text{font:11px system-ui,sans-serif;fill:#667}polyline{fill:none;stroke:#2f7ed8;stroke-width:2}"
FRAME = "path{stroke:#99a;fill:none}circle{fill:#2f7ed8}"


def points(figures: dict[str, Any], curve: str, name: str) -> list[tuple[float, float]]:
    """A curve of a result."""
    found = []
    for key, value in figures.items():
        parts = key.split(" ")
        if parts[0] == "growth" and (parts[1], parts[3]) == (curve, name):
            found.append((float(parts[2]), float(value)))
    return sorted(found)


def drawn(figures: dict[str, Any]) -> str:
    """All charts as one SVG. Both axes are logarithmic."""
    charts = [(title, found) for curve, name, title in SHOWN if (found := points(figures, curve, name))]
    rows = math.ceil(len(charts) / COLUMNS)
    parts = [
        f'<g transform="translate({n % COLUMNS * WIDTH},{n // COLUMNS * HEIGHT})">{_chart(title, found)}</g>'
        for n, (title, found) in enumerate(charts)
    ]
    size = f'viewBox="0 0 {COLUMNS * WIDTH} {rows * HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}{FRAME}</style>{"".join(parts)}</svg>\n'


def _chart(title: str, found: list[tuple[float, float]]) -> str:
    across = _scale([x for x, _ in found], LEFT, WIDTH - 16)
    up = _scale([max(y, 0.01) for _, y in found], HEIGHT - BOTTOM, TOP)
    places = [(across(x), up(max(y, 0.01))) for x, y in found]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places)
    heights = {y for _, y in found}
    sides = "".join(
        f'<text x="{LEFT - 6}" y="{up(max(value, 0.01)) + 4:.0f}" text-anchor="end">{_short(value)}</text>'
        for value in sorted({min(heights), max(heights)})
    )
    ends = "".join(
        f'<text x="{across(x):.0f}" y="{HEIGHT - 8}" text-anchor="middle">{_short(x)}</text>'
        for x in (found[0][0], found[-1][0])
    )
    axes = f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM + 4}H{WIDTH - 10}"/>'
    return f'<text x="{LEFT}" y="15">{title}</text>{axes}<polyline points="{line}"/>{dots}{sides}{ends}'


def _scale(values: list[float], begin: float, end: float) -> Any:
    """Logarithmic; at least one power of ten, so that what is level looks so."""
    low, high = math.log10(min(values)), math.log10(max(values))
    if high - low < 1:
        low, high = (low + high) / 2 - 0.5, (low + high) / 2 + 0.5
    return lambda value: begin + (math.log10(value) - low) / (high - low) * (end - begin)


def _short(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(drawn(load(Path(sys.argv[1]))["figures"]))
