"""The first page: the receipt, the pipe, what happened, the last hours, what needs attention."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from html import escape
from typing import Any

from nicegui import ui

from penstock.config import Settings
from penstock.console.charts import ends_of, stacked
from penstock.console.daemon_poll import Away, Daemon
from penstock.console.findings import Finding, findings
from penstock.console.pages.receipt import ReceiptPanel
from penstock.console.pipe_picture import draw
from penstock.console.theme import Chart, Html, frame, live, panel, table
from penstock.console.wording import clock, exact
from penstock.landing.landing_lock import is_running
from penstock.landing.table_paths import Layout
from penstock.ledger.event_words import moment

SPANS = {"1 hour": (3600, 60), "6 hours": (6 * 3600, 360), "24 hours": (86400, 1440), "7 days": (7 * 86400, 10080)}
CHART_EVERY = 2.0
MARKS_EVERY = 5.0
MOST_EVENTS = 12
MOST_FINDINGS = 20
MOST_MARKS = 12
BAD_KINDS = ("restart", "loss", "disk")


def build(daemon: Daemon, settings: Settings) -> None:
    """The page."""
    layout = Layout.for_tables(settings.tables)
    with frame("/", daemon):
        receipt = ReceiptPanel(daemon, layout)
        with panel("The pipe", "messages a second, over the last ten seconds"), ui.element("div").classes("wide"):
            picture = Html()
        with panel("What happened", "the newest first; all of it: penstock events"):
            events = Html()
        with panel("What needs attention"):
            attention = Html()
        _chart(daemon)
        with panel("Complete up to", "what was received before is in the table; share: of what is known to have come"):
            marks = Html()

    def refresh() -> None:
        receipt.refresh()
        picture.show(draw(daemon))
        events.show(timeline(daemon.events))
        attention.show(_findings(findings(daemon, is_running(layout))))

    async def complete() -> None:
        await asyncio.gather(receipt.look_closer(), _complete(marks, daemon))

    live(refresh)
    ui.timer(MARKS_EVERY, complete)


def timeline(events: Sequence[dict[str, Any]]) -> str:
    """The newest events in words."""
    lines = "".join(
        f'<div class="event {"bad" if event["kind"] in BAD_KINDS else ""}"><time>{moment(event["at"])}</time>'
        f"<span>{escape(event['text'])}</span></div>"
        for event in events[:MOST_EVENTS]
    )
    return f'<div class="timeline">{lines}</div>' if lines else '<div class="dim">Nothing yet.</div>'


def _findings(found: list[Finding]) -> str:
    if not found:
        return '<div class="dim">Nothing.</div>'
    return "".join(
        f'<div class="finding {one.level}-edge"><div>{escape(one.what)}</div>'
        + (f'<div class="dim">{escape(one.advice)}</div>' if one.advice else "")
        + "</div>"
        for one in found[:MOST_FINDINGS]
    ) + (f'<div class="dim">and {exact(len(found) - MOST_FINDINGS)} more</div>' if len(found) > MOST_FINDINGS else "")


def _chart(daemon: Daemon) -> None:
    with panel("What became of the messages", "by the minute they were received; dashed: what happened"):
        with ui.row().classes("items-center w-full"):
            span = ui.toggle(list(SPANS), value="1 hour").props(
                "dense unelevated no-caps toggle-color=primary toggle-text-color=white padding='2px 10px'"
            )
            lost = ui.label().classes("dim chart-lost")
        chart = Chart(280)

    async def refresh() -> None:
        seconds, step = SPANS[span.value]
        now = int(time.time())
        try:
            series = await daemon.get("/balance/series", since=now - seconds, step=step)
        except Away:
            return
        gone = sum(ends["lost"] for ends in ends_of(series, now - seconds, now).values())
        lost.set_text(f"{exact(gone)} lost within {span.value}" if gone else f"none lost within {span.value}")
        chart.show(stacked(series, now - seconds, now, daemon.events))

    span.on_value_change(refresh)
    ui.timer(CHART_EVERY, refresh)


async def _complete(marks: Html, daemon: Daemon) -> None:
    marks.show(await _watermarks(daemon))


async def _watermarks(daemon: Daemon) -> str:
    try:
        tables = (await daemon.get("/watermarks"))["tables"]
    except (Away, KeyError, TypeError):
        return '<div class="dim">No pipeline has said so yet.</div>'
    rows = [
        [escape(one["table"]), escape(one.get("topic", "")), clock(one["until"]), f"{one.get('share', 1):.2%}"]
        for one in sorted(tables, key=lambda one: (one["until"], one.get("share", 1)))  # the least complete first
        if daemon.is_there(one.get("topic", ""))
    ]
    more = f'<div class="dim">and {exact(len(rows) - MOST_MARKS)} more</div>' if len(rows) > MOST_MARKS else ""
    if not rows:
        return '<div class="dim">Nothing has landed yet.</div>'
    return table(["table", "topic", "complete up to", "share"], rows[:MOST_MARKS], {3}) + more
