"""The first page: the verdict, the pipe, the last hours, what needs attention."""

from __future__ import annotations

import time
from html import escape

from nicegui import ui

from penstock.console.charts import stacked
from penstock.console.daemon_poll import Away, Daemon
from penstock.console.findings import Finding, findings
from penstock.console.pipe_picture import draw
from penstock.console.theme import Html, frame, live, panel, table
from penstock.console.totals import totals
from penstock.console.wording import clock, exact

SPANS = {"1 hour": (3600, 60), "6 hours": (6 * 3600, 360), "24 hours": (86400, 1440), "7 days": (7 * 86400, 10080)}
CHART_EVERY = 5.0


def build(daemon: Daemon) -> None:
    """The page."""
    with frame("/", daemon):
        verdict = Html()
        with panel("The pipe", "messages a second, over the last ten seconds"), ui.element("div").classes("wide"):
            picture = Html()
        with panel("What needs attention"):
            attention = Html()
        _chart(daemon)
        with panel("Complete up to", "what was received before is in the table; share: of what is known to have come"):
            marks = Html()

    def refresh() -> None:
        verdict.show(_verdict(daemon))
        picture.show(draw(daemon))
        attention.show(_findings(findings(daemon)))

    async def complete() -> None:
        marks.show(await _watermarks(daemon))

    live(refresh)
    ui.timer(CHART_EVERY, complete)


def _verdict(daemon: Daemon) -> str:
    if not daemon.balance:
        return f'<div class="panel verdict warn">Waiting for the log daemon: {escape(daemon.error)}</div>'
    lost = daemon.balance["unaccounted"]
    said = "Every message is accounted for" if not lost else f"{exact(lost)} messages are unaccounted for"
    cells = "".join(
        f'<div><div class="number">{exact(n)}</div><div class="dim">{word}</div></div>'
        for word, n in totals(daemon.balance).items()
    )
    return (
        f'<div class="panel" style="display:flex;flex-wrap:wrap;gap:18px 48px;align-items:center">'
        f'<div class="verdict {"bad" if lost else "good"}" style="flex:1 1 280px">{said}</div>{cells}</div>'
    )


def _findings(found: list[Finding]) -> str:
    if not found:
        return '<div class="dim">Nothing.</div>'
    return "".join(
        f'<div class="finding {one.level}-edge"><div>{escape(one.what)}</div>'
        + (f'<div class="dim">{escape(one.advice)}</div>' if one.advice else "")
        + "</div>"
        for one in found
    )


def _chart(daemon: Daemon) -> None:
    with panel("What became of the messages", "by the minute they were received"):
        span = ui.toggle(list(SPANS), value="1 hour").props(
            "dense unelevated no-caps toggle-color=teal-8 toggle-text-color=white padding='2px 10px'"
        )
        chart = ui.echart({"series": []}).style("height:280px;width:100%")

    async def refresh() -> None:
        seconds, step = SPANS[span.value]
        now = int(time.time())
        try:
            series = await daemon.get("/balance/series", since=now - seconds, step=step)
        except Away:
            return
        options = stacked(series, now - seconds, now)
        if options != dict(chart.options):
            chart.options.clear()
            chart.options.update(options)
            chart.update()

    span.on_value_change(refresh)
    ui.timer(CHART_EVERY, refresh)


async def _watermarks(daemon: Daemon) -> str:
    try:
        tables = (await daemon.get("/watermarks"))["tables"]
    except (Away, KeyError, TypeError):
        return '<div class="dim">No pipeline has said so yet.</div>'
    rows = [
        [escape(one["table"]), escape(one.get("topic", "")), clock(one["until"]), f"{one.get('share', 1):.2%}"]
        for one in tables
    ]
    if not rows:
        return '<div class="dim">Nothing has landed yet.</div>'
    return table(["table", "topic", "complete up to", "share"], rows, {3})
