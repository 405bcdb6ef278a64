"""The pipeline: batches, lag, throughput, and how much is in quarantine for which reason."""

from __future__ import annotations

import asyncio
from collections import Counter
from html import escape

from nicegui import ui

from penstock.config import Settings
from penstock.console.charts import rates
from penstock.console.daemon_poll import Daemon
from penstock.console.pages.quarantine import address
from penstock.console.theme import Chart, Html, frame, panel, table
from penstock.console.wording import exact, lasted, short
from penstock.landing.table_paths import Layout
from penstock.ledger.receipt import Receipt
from penstock.proof.status import Status, status
from penstock.sql.quarantined import Selection

MOST = 50
"""Topics that are shown: those furthest behind."""
EVERY = 3.0
FATES = ("landed.event", "landed.syslog", "landed.message", "quarantined", "duplicate")


def build(daemon: Daemon, settings: Settings) -> None:
    """The page."""
    layout = Layout.for_tables(settings.tables)
    with frame("/pipeline", daemon):
        with panel("Now"):
            now = Html()
        with panel("Topics", "how far the tables are behind"):
            behind = Html()
        with panel("Landing", "rows a second, over the last hour"):
            chart = Chart(240)
        with panel("Quarantine", "messages that are not valid events"):
            reasons = Html()

    async def refresh() -> None:
        found = await asyncio.to_thread(status, settings.topics, layout, settings.pipeline.topics)
        now.show(described(found))
        behind.show(topics(found, daemon))
        reasons.show(quarantined(daemon.receipt))

    def draw() -> None:
        lines = {fate: daemon.history.line(f"fate/{fate}") for fate in FATES}
        moved = {fate: line for fate, line in lines.items() if any(rate for _, rate in line)}
        chart.show(rates(moved, daemon.at, daemon.events, daemon.latest.seen))

    for one in (now, behind, reasons):
        one.show('<div class="dim" role="status">Reading...</div>')
    ui.timer(EVERY, refresh)
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


def topics(found: Status, daemon: Daemon) -> str:
    """A row for each topic that there is."""
    there = [t for t in found.topics if daemon.is_there(t.topic)]
    most = sorted(there, key=lambda t: (-t.lag_rows, t.topic))[:MOST]
    cells = [[escape(t.topic), *map(exact, (t.end, t.landed, t.proved, t.lag_rows)), lasted(t.lag)] for t in most]
    more = len(there) - len(cells)
    heads = ["topic", "end", "landed", "proved", "rows behind", "time behind"]
    rest = f'<div class="dim">and {exact(more)} topics more, which are less behind</div>' if more else ""
    return table(heads, cells, {1, 2, 3, 4, 5}) + rest if cells else '<div class="dim">There is no topic yet.</div>'


def quarantined(told: Receipt | None) -> str:
    """By reason, with links to the messages."""
    counted: Counter[str] = Counter()
    for counts in told.quarantined.values() if told else ():
        counted.update(counts)
    links = [(name.partition(".")[2], n) for name, n in counted.most_common() if n]
    chips = "".join(_chip(reason, n) for reason, n in links)
    everything = '<div class="dim"><a href="/quarantine">Inspect, correct and send them again</a></div>'
    return f'<div class="chips">{chips}</div>{everything}' if links else '<div class="dim">Nothing.</div>'


def _chip(reason: str, n: int) -> str:
    named = escape(reason.replace("_", " "))
    return f'<a class="chip" href="{escape(address(Selection(reason)))}">{named} <small>{exact(n)}</small></a>'
