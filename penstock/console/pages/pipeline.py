"""The pipeline: batches, lag, throughput, quarantine with replay."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from html import escape

from nicegui import ui

from penstock.client import ClientError, Log
from penstock.config import Settings
from penstock.config.daemon_access import Access
from penstock.console.charts import rates
from penstock.console.daemon_poll import Away, Daemon
from penstock.console.readable import readable_topics
from penstock.console.theme import Html, frame, live, panel, table
from penstock.console.wording import exact, lasted, short
from penstock.landing.quarantine.send_back import Row, SendBack, rows
from penstock.landing.status import Status, status
from penstock.landing.table_paths import Layout

SAMPLE = 50
FATES = {"events": "landed.event", "syslog": "landed.syslog", "messages": "landed.message", "duplicates": "duplicate"}


def build(daemon: Daemon, settings: Settings) -> None:
    """The page."""
    layout = Layout.of(settings.tables)
    with frame("/pipeline", daemon):
        with panel("Now"):
            now = Html()
        with panel("Topics", "how far the tables are behind"):
            behind = Html()
        with panel("Landing", "rows a second, over the last hour"):
            chart = ui.echart({"series": []}).style("height:240px;width:100%")
        with panel("Quarantine", "messages that look like events and are none"):
            _quarantine(settings, layout, daemon)

    async def refresh() -> None:
        found = await asyncio.to_thread(status, settings.topics, layout, settings.pipeline.topics)
        now.show(described(found))
        behind.show(topics(found))

    def draw() -> None:
        lines = {name: daemon.history.line(f"fate/{fate}") for name, fate in FATES.items()}
        chart.options.clear()
        moved = {name: line for name, line in lines.items() if any(rate for _, rate in line)}
        chart.options.update(rates(moved, daemon.at, daemon.events, daemon.latest.seen))
        chart.update()

    live(refresh)
    ui.timer(10.0, draw)


def described(found: Status) -> str:
    """The pipeline in a line of numbers."""
    last = ("none yet", "last batch")
    if found.last_batch_age is not None:
        last = (f"{lasted(found.last_batch_age)} ago", f"last batch, number {found.last_batch}")
    pairs = (
        ("running" if found.running else "not running", "the query"),
        last,
        (f"{short(found.rate)}/s", "rows, last minute"),
        (exact(found.rows), "rows proved"),
        (exact(found.quarantined), "in quarantine"),
        (exact(found.duplicates), "duplicates dropped"),
        (exact(found.unaccounted), "unaccounted"),
    )
    cells = "".join(f'<div><div class="number">{v}</div><div class="dim">{w}</div></div>' for v, w in pairs)
    return f'<div style="display:flex;flex-wrap:wrap;gap:14px 40px">{cells}</div>'


def topics(found: Status) -> str:
    """A row for each topic."""
    cells = [
        [escape(t.topic), exact(t.end), exact(t.landed), exact(t.proved), exact(t.lag_rows), lasted(t.lag)]
        for t in found.topics
    ]
    heads = ["topic", "end", "landed", "proved", "rows behind", "time behind"]
    return table(heads, cells, {1, 2, 3, 4, 5}) if cells else '<div class="dim">There is no topic yet.</div>'


def _quarantine(settings: Settings, layout: Layout, daemon: Daemon) -> None:
    reason = ui.select({"": "all reasons"}, value="").props("dense outlined").style("min-width:220px")
    shown = Html()

    async def seen() -> list[Row]:
        """Rows of topics that may be read."""
        found = await asyncio.to_thread(lambda: list(rows(layout)))
        readable = await readable_topics(daemon)
        return [row for row in found if readable is None or row.topic in readable]

    async def look() -> None:
        try:
            found = await seen()
        except Away:  # said above
            return
        counted = Counter(row.reason for row in found)
        reason.set_options({"": "all reasons", **{name: f"{name} ({n})" for name, n in counted.most_common()}})
        chosen = [row for row in found if reason.value in ("", row.reason)]
        shown.show(listing(chosen))

    async def send_back() -> None:
        try:
            chosen = [row for row in await seen() if reason.value in ("", row.reason)]
            sent = await asyncio.to_thread(replayed, settings, layout, chosen, daemon.token)
        except (Away, ClientError, OSError) as error:
            ui.notify(str(error), type="negative")
            return
        ui.notify(f"{sent:,} messages sent back into their topics")

    reason.on_value_change(look)
    ui.button("send these back into their topics", on_click=send_back).props("outline no-caps dense color=teal-8")
    ui.timer(5.0, look)


def replayed(settings: Settings, layout: Layout, chosen: list[Row], token: str = "") -> int:
    """Send rows back, each once ever, with a token or our own; how many were sent now. Raises ClientError, OSError."""
    access = Access(settings)
    with Log(access.rpc_address, token=token or access.token, retry_for=5.0) as log:
        return SendBack(layout, log).run(chosen)[0]


def listing(chosen: list[Row]) -> str:
    """The first of them, as a table."""
    cells = [
        [escape(row.topic), exact(row.offset), escape(row.reason), f"<code>{escape(_shown(row))}</code>"]
        for row in itertools.islice(chosen, SAMPLE)
    ]
    more = f'<div class="dim">and {exact(len(chosen) - SAMPLE)} more</div>' if len(chosen) > SAMPLE else ""
    if not cells:
        return '<div class="dim">Nothing.</div>'
    return table(["topic", "offset", "reason", "payload"], cells, {1}) + more


def _shown(row: Row) -> str:
    text = row.payload[:200].decode(errors="replace")
    return text if len(text) <= 100 else f"{text[:100]}..."
