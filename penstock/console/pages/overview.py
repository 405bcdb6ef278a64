"""The first page: the receipt, the pipe, recent events, findings, the balance over time, and watermarks.

Panels read the shared answers of the poll each second; only the chart and the watermarks send requests of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from html import escape
from typing import Any

from nicegui import ui

from penstock.config import Settings
from penstock.console.components.charts import messages_by_fate, stacked
from penstock.console.components.empty_states import PIPELINE_COMMAND, command_html, first_message_html
from penstock.console.components.findings_list import findings_html
from penstock.console.components.pipe_picture import draw
from penstock.console.components.theme import Chart, Html, frame, live, panel, table
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.findings import findings, not_started
from penstock.console.pages.panels.receipt import ReceiptPanel
from penstock.console.wording import clock, exact
from penstock.landing.landing_lock import is_running
from penstock.landing.table_paths import Layout
from penstock.ledger.event_words import moment

# Limit: 60 bars at any span; the second number is the seconds of a bar.
SPANS = {"1 hour": (3600, 60), "6 hours": (6 * 3600, 360), "24 hours": (86400, 1440), "7 days": (7 * 86400, 10080)}
CHART_INTERVAL_S = 2.0
WATERMARKS_INTERVAL_S = 5.0
MAX_EVENTS = 12
MAX_WATERMARKS = 12
NO_FINDINGS = '<div class="dim">No findings.</div>'
BAD_EVENT_KINDS = ("restart", "stopped", "loss", "disk", "landing", "foreign")


def build(daemon: Daemon, settings: Settings) -> None:
    """Build the page."""
    layout = Layout.for_tables(settings.tables)
    with frame("/", daemon):
        receipt = ReceiptPanel(daemon, layout)
        missing = Html()
        with panel("Send a first message") as first_message:
            Html().show(first_message_html(settings))
        with panel("The pipe", "messages a second, over the last ten seconds"), ui.element("div").classes("wide"):
            picture = Html()
        with panel("What happened", "newest first; all events: penstock events"):
            events = Html()
        with panel("What needs attention"):
            attention = Html()
        _build_chart(daemon)
        with panel("Complete up to", "the table has everything received before; share: of all received messages"):
            watermarks = Html()

    def refresh() -> None:
        daemon.latest.pipeline_runs = is_running(layout)
        receipt.refresh()
        missing.show(findings_html(not_started(daemon)))
        first_message.set_visibility(daemon.is_empty)
        picture.show(draw(daemon))
        events.show(timeline(daemon.events))
        problems = findings(daemon, daemon.latest.pipeline_runs)
        attention.show(findings_html(problems) or NO_FINDINGS)

    async def refresh_slow_panels() -> None:
        await asyncio.gather(receipt.refresh_details(), _show_watermarks(watermarks, daemon))

    live(refresh)
    ui.timer(WATERMARKS_INTERVAL_S, refresh_slow_panels)


def timeline(events: Sequence[dict[str, Any]]) -> str:
    """Return the newest events as HTML."""
    items = "".join(
        f'<div class="event {"bad" if event["kind"] in BAD_EVENT_KINDS else ""}"><time>{moment(event["at"])}</time>'
        f"<span>{escape(event['text'])}</span></div>"
        for event in events[:MAX_EVENTS]
    )
    return f'<div class="timeline">{items}</div>' if items else '<div class="dim">No events yet.</div>'


def _build_chart(daemon: Daemon) -> None:
    with panel("What became of the messages", "by time of receipt; dashed lines: events"):
        with ui.row().classes("items-center w-full"):
            span = ui.toggle(list(SPANS), value="1 hour").props(
                "dense unelevated no-caps toggle-color=primary toggle-text-color=on-primary padding='2px 10px'"
            )
            lost_label = ui.label().classes("dim chart-lost")
        chart = Chart(280)

    async def refresh() -> None:
        seconds, step = SPANS[span.value]
        now = int(time.time())
        try:
            series = await daemon.get("/balance/series", since=now - seconds, step=step)
        except DaemonUnavailable:
            return
        # From the bars, so that the text and the chart agree.
        lost_messages = sum(counts["lost"] for counts in messages_by_fate(series, now - seconds, now).values())
        lost_label.set_text(
            f"{exact(lost_messages)} lost within {span.value}" if lost_messages else f"none lost within {span.value}"
        )
        chart.show(stacked(series, now - seconds, now, daemon.events))

    span.on_value_change(refresh)
    ui.timer(CHART_INTERVAL_S, refresh)


async def _show_watermarks(watermarks: Html, daemon: Daemon) -> None:
    watermarks.show(await _watermarks_html(daemon))


async def _watermarks_html(daemon: Daemon) -> str:
    try:
        tables = (await daemon.get("/watermarks"))["tables"]
    except (DaemonUnavailable, KeyError, TypeError):
        return f'<div class="dim">No pipeline has reported yet: {command_html(PIPELINE_COMMAND)}</div>'
    rows = [
        [
            escape(watermark["table"]),
            escape(watermark.get("topic", "")),
            clock(watermark["until"]),
            f"{watermark.get('share', 1):.2%}",
        ]
        for watermark in sorted(
            tables, key=lambda watermark: (watermark["until"], watermark.get("share", 1))
        )  # the least complete first
        if daemon.topic_exists(watermark.get("topic", ""))
    ]
    more = f'<div class="dim">and {exact(len(rows) - MAX_WATERMARKS)} more</div>' if len(rows) > MAX_WATERMARKS else ""
    if not rows:
        return '<div class="dim">Nothing has landed yet.</div>'
    return table(["table", "topic", "complete up to", "share"], rows[:MAX_WATERMARKS], {3}) + more
