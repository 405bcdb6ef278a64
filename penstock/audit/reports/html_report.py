"""The report as one HTML file with a picture: records of the topic by minute, and how many of them are missing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

import numpy as np

from penstock.audit.outcome import Report
from penstock.audit.reports.report import lines
from penstock.audit.source import AuditSource
from penstock.landing.offset_runs import as_runs, count_below

MAX_BARS = 240
MAX_LINES = 10_000
"""Limit: intervals of a table; each costs a request per partition."""
INTERVALS = {"minute": 60, "hour": 3600, "day": 86_400}
INTERVALS_S = (60, 300, 900, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400)
WIDTH, HEIGHT, MARGIN = 960, 240, 30
STYLE = """body{font:15px/1.45 system-ui,sans-serif;max-width:1000px;margin:2rem auto;padding:0 1rem}
pre{overflow-x:auto;background:#f4f4f4;padding:1rem}rect.due{fill:#b8c4d0}rect.present{fill:#3b7a57}
rect.doubled{fill:#d9a406}text{font-size:12px;fill:#444}"""


@dataclass(frozen=True, slots=True)
class Bar:
    """The records of an interval that begins at ``begin_s``."""

    begin_s: float
    expected: int
    missing: int
    doubled: int


def bars(source: AuditSource, report: Report, interval_s: int = 0) -> list[Bar]:
    """Return the records by interval: by minute, or by a longer one if the audit covers more than four hours.

    ``interval_s``: another length; the newest MAX_LINES intervals. Empty if rows were only counted: counts name no
    records.
    """
    if report.request.times is not None:
        return []
    parts = [part for part in report.partitions if part.expected.due > part.expected.begin]
    firsts = [
        record.timestamp / 1000
        for part in parts
        for record in source.records(
            part.partition, as_runs([(part.expected.begin, part.expected.due)]), 1, is_complete=False
        )
        if record.timestamp > 0
    ]
    if not firsts:
        return []
    end_s = report.began_s
    limit = MAX_LINES if interval_s else MAX_BARS
    interval_s = interval_s or next(
        (interval for interval in INTERVALS_S if end_s - min(firsts) <= interval * (MAX_BARS - 1)), INTERVALS_S[-1]
    )
    last_s = (math.floor(end_s / interval_s) + 1) * interval_s
    first_s = max(math.floor(min(firsts) / interval_s) * interval_s, last_s - limit * interval_s)
    moments = np.arange(first_s, last_s + interval_s, interval_s).tolist()
    expected, missing, doubled = np.zeros((3, len(moments) - 1), np.int64)
    for part in parts:
        offsets = source.offsets_at(part.partition, moments[1:-1], part.expected.due)
        edges = np.array([part.expected.begin, *offsets, part.expected.due], np.int64)
        edges = np.maximum.accumulate(np.clip(edges, part.expected.begin, part.expected.due))
        expected += np.diff(edges)
        missing += np.diff(count_below(part.missing, edges))
        doubled += np.diff(count_below(part.doubled, edges))
    return [
        Bar(begin_s, *counts)
        for begin_s, *counts in zip(moments, expected.tolist(), missing.tolist(), doubled.tolist(), strict=False)
    ]


def interval_lines(drawn: Sequence[Bar]) -> Iterator[str]:
    """Yield the records by interval as text, without intervals of no record."""
    for bar in drawn:
        if bar.expected or bar.doubled:
            moment = f"{datetime.fromtimestamp(bar.begin_s, UTC):%Y-%m-%d %H:%M}"
            yield f"{moment} UTC: {bar.expected:,} records, {bar.missing:,} missing, {bar.doubled:,} doubled"


def render(report: Report, drawn: Sequence[Bar], *, with_payloads: bool = True) -> str:
    """Return the page; ``with_payloads``: with samples of records and contents."""
    head, *text = lines(report, with_payloads=with_payloads)
    return "\n".join(
        [
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(head)}</title>',
            f"<style>{STYLE}</style><h1>{escape(head)}</h1>",
            *_picture(drawn),
            f"<pre>{escape(chr(10).join(text).strip())}</pre></html>\n",
        ]
    )


def _picture(drawn: Sequence[Bar]) -> Iterator[str]:
    if not drawn:
        return
    highest = max(1, *(bar.expected + bar.doubled for bar in drawn))
    width = WIDTH / len(drawn)
    interval_s = drawn[1].begin_s - drawn[0].begin_s if len(drawn) > 1 else 60
    unit = f"{interval_s / 60:.0f} min" if interval_s < 3600 else f"{interval_s / 3600:.0f} h"
    yield (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + MARGIN}" role="img" aria-label="Records of the topic and of the table by '
        f'{unit}">'
    )
    for index, bar in enumerate(drawn):
        moment = f"{datetime.fromtimestamp(bar.begin_s, UTC):%Y-%m-%d %H:%M}"
        title = f"{moment}: {bar.expected:,} expected, {bar.missing:,} missing, {bar.doubled:,} doubled"
        yield f"<g><title>{title}</title>"
        for name, begin, count in (
            ("due", 0, bar.expected),
            ("present", 0, bar.expected - bar.missing),
            ("doubled", bar.expected, bar.doubled),
        ):
            if count:
                # Limit: half a unit, so that a single missing record among millions is still seen.
                tall = max(0.5, count / highest * HEIGHT)
                if name == "present" and bar.missing:
                    tall = min(tall, max(0.0, bar.expected / highest * HEIGHT - 4))
                top = HEIGHT - begin / highest * HEIGHT - tall
                yield (
                    f'<rect class="{name}" x="{index * width:.2f}" y="{top:.2f}" width="{max(0.5, width - 1):.2f}" '
                    f'height="{tall:.2f}"/>'
                )
        yield "</g>"
    first, last = (f"{datetime.fromtimestamp(bar.begin_s, UTC):%Y-%m-%d %H:%M} UTC" for bar in (drawn[0], drawn[-1]))
    yield f'<text x="0" y="{HEIGHT + 18}">{first}</text>'
    yield f'<text x="{WIDTH}" y="{HEIGHT + 18}" text-anchor="end">{last}</text></svg>'
    yield f"<p>Records by {unit}: green is in the table, grey is missing, yellow is there twice.</p>"
