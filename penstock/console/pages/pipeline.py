"""The pipeline page: batches, lag, throughput, and quarantine by reason."""

from __future__ import annotations

import asyncio
from collections import Counter
from html import escape

from nicegui import ui

from penstock.config import Settings
from penstock.console.components.charts import rates
from penstock.console.components.empty_states import PIPELINE_COMMAND, command_html
from penstock.console.components.theme import Chart, Html, frame, long_text, panel, table
from penstock.console.daemon_poll import Daemon
from penstock.console.pages.quarantine import page_address
from penstock.console.wording import exact, lasted, short
from penstock.errors import PenstockError
from penstock.landing.table_paths import Layout
from penstock.ledger.receipt import Receipt
from penstock.proof.kafka_records import kafka_partitions
from penstock.proof.status import Status, status
from penstock.sql.quarantined import Selection

MAX_TOPICS = 50
"""Topics with the largest lag."""
STATUS_INTERVAL_S = 3.0
CHART_INTERVAL_S = 10.0
FATES = ("landed.event", "landed.syslog", "landed.message", "quarantined", "duplicate")


def build(daemon: Daemon, settings: Settings) -> None:
    """Build the page."""
    layout = Layout.for_tables(settings.tables)
    with frame("/pipeline", daemon):
        with panel("Now"):
            now = Html()
        with panel("Topics", "how far the tables are behind"):
            behind = Html()
        with panel("Landing", "rows a second, over the last hour"):
            chart = Chart(240)
        with panel("Quarantine", "messages that look like events but are invalid"):
            reasons = Html()

    source = kafka_partitions(settings) or settings.topics

    async def refresh() -> None:
        # In a thread: it reads the journal and the topics' files, or asks Kafka.
        try:
            pipeline_status = await asyncio.to_thread(status, source, layout, settings.pipeline.topics)
        except PenstockError as error:
            now.show(f'<div class="verdict warn">{escape(str(error))}</div>')
            return
        now.show(status_html(pipeline_status))
        behind.show(topics(pipeline_status, daemon))
        reasons.show(quarantined(daemon.receipt))

    def draw() -> None:
        lines = {fate: daemon.history.line(f"fate/{fate}") for fate in FATES}
        active = {fate: line for fate, line in lines.items() if any(rate for _, rate in line)}
        chart.show(rates(active, daemon.answered_s, daemon.events, daemon.latest.answered_unix_s))

    for panel_html in (now, behind, reasons):
        panel_html.show('<div class="dim" role="status">Reading...</div>')
    ui.timer(STATUS_INTERVAL_S, refresh)
    ui.timer(CHART_INTERVAL_S, draw)


def status_html(pipeline_status: Status) -> str:
    """Return the state of the pipeline as a row of numbers."""
    failure = pipeline_status.failure
    last = ("none yet", "last batch")
    if pipeline_status.last_batch_age is not None:
        last = (f"{lasted(pipeline_status.last_batch_age)} ago", f"last batch, number {pipeline_status.last_batch}")
    elif pipeline_status.last_batch >= 0:
        last = (str(pipeline_status.last_batch), "last batch")
    pairs = (
        (("failing" if failure else "running") if pipeline_status.running else "not running", "pipeline"),
        last,
        (f"{short(pipeline_status.rate)}/s", "rows, last minute"),
        (exact(pipeline_status.rows), "rows proved"),
        (exact(pipeline_status.quarantined), "in quarantine"),
        (exact(pipeline_status.duplicates), "duplicates dropped"),
        (exact(pipeline_status.unaccounted), "unaccounted"),
    )
    cells = "".join(
        f'<div><div class="number">{text}</div><div class="dim">{label}</div></div>' for text, label in pairs
    )
    advice = f'<p class="dim">Start the pipeline: {command_html(PIPELINE_COMMAND)}</p>'
    start = "" if pipeline_status.running else advice
    failed = f"{failure['text']}; {failure['advice']}" if failure else ""
    banner = "".join(
        f'<div class="finding {edge}-edge">{escape(text)}</div>'
        for edge, text in (("bad", failed), ("warn", pipeline_status.problem))
        if text
    )
    return f'{banner}<div style="display:flex;flex-wrap:wrap;gap:14px 40px">{cells}</div>{start}'


def topics(pipeline_status: Status, daemon: Daemon) -> str:
    """Return a row per existing topic, largest lag first."""
    existing = [topic for topic in pipeline_status.topics if daemon.topic_exists(topic.topic)]
    ordered = sorted(existing, key=lambda topic: (-topic.lag_rows, topic.topic))[:MAX_TOPICS]
    cells = [
        [
            long_text(topic.topic),
            *map(exact, (topic.end, topic.landed, topic.proved, topic.lag_rows)),
            lasted(topic.lag),
        ]
        for topic in ordered
    ]
    more = len(existing) - len(cells)
    heads = ["topic", "end", "landed", "proved", "rows behind", "time behind"]
    rest = f'<div class="dim">and {exact(more)} more topics with less lag</div>' if more else ""
    if not cells and pipeline_status.problem:
        return '<div class="dim">Not known as long as the pipeline has the problem above.</div>'
    if not cells:
        return f'<div class="dim">No topics yet. Send a message: {command_html("echo hello | penstock send")}</div>'
    return table(heads, cells, {1, 2, 3, 4, 5}) + rest


def quarantined(receipt: Receipt | None) -> str:
    """Return quarantined messages by reason, with links to them."""
    counted: Counter[str] = Counter()
    for counts in receipt.quarantined.values() if receipt else ():
        counted.update(counts)
    links = [(name.partition(".")[2], count) for name, count in counted.most_common() if count]
    chips = "".join(_reason_chip(reason, count) for reason, count in links)
    all_link = '<div class="dim"><a href="/quarantine">Inspect, correct and send again</a></div>'
    return f'<div class="chips">{chips}</div>{all_link}' if links else '<div class="dim">No messages.</div>'


def _reason_chip(reason: str, count: int) -> str:
    label = escape(reason.replace("_", " "))
    return f'<a class="chip" href="{escape(page_address(Selection(reason)))}">{label} <small>{exact(count)}</small></a>'
