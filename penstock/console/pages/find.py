"""The page that finds a message: by uuid, by topic and offset, by time, or by a text in it; the address can be
shared.

Every lookup is limited to the topics that the user's token may read.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from html import escape
from urllib.parse import quote

from nicegui import ui

from penstock.config import Settings
from penstock.console.components.search_input import TIME_PATTERN, parse_time
from penstock.console.components.theme import Html, frame, panel, table
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.wording import exact
from penstock.errors import PenstockError
from penstock.landing.table_paths import Layout
from penstock.landing.topics.from_folder import FolderStore
from penstock.qualified_names import topic_of
from penstock.sql.configured import schemas_of, tables_of
from penstock.sql.search import Match, containing
from penstock.upkeep.trace.stations import Step
from penstock.upkeep.trace.tracer import (
    DELETED,
    DROPPED,
    DUPLICATE,
    MESSAGE_POSITION,
    NOT_READ,
    PENDING,
    PROMOTED,
    Trace,
    Tracer,
)

MAX_MATCHES = 50
SEARCH_TIMEOUT_S = 30.0
EXCERPT_CHARS = 160
STATIONS = ("received", "log buffer", "log", "micro-batch", "table", "proof")
EXPECTED_FATES = (PENDING, NOT_READ, PROMOTED, DUPLICATE, DROPPED, DELETED)
"""Fates of messages that are correctly in no table."""
Readable = frozenset[str] | None


def build(daemon: Daemon, settings: Settings, query: str) -> None:
    """Build the page."""
    with frame("/find", daemon, "Find"), panel("Find a message", query):
        result_html = Html()

    async def show_answer() -> None:
        try:
            readable = await daemon.readable_topics()
            result_html.show(await asyncio.to_thread(find_message, settings, query, readable))
        except (DaemonUnavailable, PenstockError, OSError) as error:
            result_html.show(f'<div class="bad">{escape(str(error))}</div>')

    if query:
        result_html.show('<div class="dim" role="status">Searching...</div>')
        ui.timer(0.01, show_answer, once=True)
    else:
        result_html.show(
            '<div class="dim">Enter a uuid, a position (topic:offset), a time (14:05, UTC) or any text '
            "in the box above.</div>"
        )


def find_message(settings: Settings, query: str, readable: Readable) -> str:
    """Return the matches of ``query`` in tables and log as HTML. Raises PenstockError, OSError."""
    # From Kafka nothing lands out of the built-in log, so no topic of it is expected in a table.
    patterns = () if settings.pipeline.source == "kafka" else settings.pipeline.topics
    tracer = Tracer(settings.topics, Layout.for_tables(settings.tables), patterns, schemas=schemas_of(settings))
    address = MESSAGE_POSITION.fullmatch(query)
    if address and tracer.has_topic(address["topic"]):
        return _trace_html(tracer, address["topic"], int(address["offset"]), readable)
    if TIME_PATTERN.fullmatch(query):
        time_asked = parse_time(query)
        return (
            messages_since(settings, time_asked, readable)
            if time_asked
            else f'<div class="bad">{escape(query)} is not a time</div>'
        )
    # Order: the index of landed uuids first; the scan of the unlanded log is slower.
    position = tracer.landed(query) or tracer.waiting(query)
    if position is not None and may_read(position[0], readable):
        return _trace_html(tracer, *position, readable)
    return listing(query, containing(tables_of(settings, readable=readable), query, MAX_MATCHES, SEARCH_TIMEOUT_S))


def may_read(topic: str, readable: Readable) -> bool:
    """Report whether a topic, or the topic of a Kafka partition, may be read."""
    return readable is None or topic in readable


def _trace_html(tracer: Tracer, topic: str, offset: int, readable: Readable) -> str:
    if not may_read(topic, readable):
        return '<div class="bad">This token may not read the topic.</div>'
    trace = tracer.trace(topic, offset)
    return stations(trace) + _neighbour_links(topic, offset)


def stations(trace: Trace) -> str:
    """Return the stations of a message as HTML: reached, current or final, and ahead."""
    steps = {step.step: step for step in trace.steps}
    last_station = _last_station(trace, steps)
    index = STATIONS.index(last_station)
    expected = trace.fate.startswith(EXPECTED_FATES)
    ahead = "here" if expected else "ended"
    kinds = ["reached"] * len(STATIONS) if _is_landed(trace) else ["reached"] * index + [ahead] + ["ahead"] * 9
    items = "".join(
        f'<li class="{kind}"><b>{name}</b>{escape(steps[name].text) if name in steps else ""}</li>'
        for name, kind in zip(STATIONS, kinds, strict=False)
    )
    css_class = "good" if _is_landed(trace) else "warn" if expected else "bad"
    uuid = f" (uuid {escape(trace.uuid)})" if trace.uuid else ""
    position = f"{escape(trace.topic)}:{trace.offset}"
    verdict = f'<div class="verdict {css_class}">{position}{uuid} {escape(trace.meaning)}</div>'
    return f'{verdict}<ol class="stations">{items}</ol>'


def _is_landed(trace: Trace) -> bool:
    return trace.fate.startswith("landed.")


def _last_station(trace: Trace, steps: dict[str, Step]) -> str:
    """Return the last station that the message reached."""
    if trace.fate.startswith(("quarantined.", "duplicate", "landed.", "deleted", "transformed.")):
        return "table"
    return "micro-batch" if "proof" in steps else "log"


def _neighbour_links(topic: str, offset: int) -> str:
    links = [(offset - 1, "previous message")] if offset else []
    links.append((offset + 1, "next message"))
    links_html = " &middot; ".join(
        f'<a href="/find?q={quote(f"{topic}:{neighbour}")}">{text}</a>' for neighbour, text in links
    )
    return f'<div class="dim">{links_html} &middot; <a href="/topic/{quote(topic_of(topic))}">topic</a></div>'


def messages_since(settings: Settings, moment: datetime, readable: Readable) -> str:
    """Return for each topic its first message from ``moment`` on, as HTML."""
    views = FolderStore(settings.topics).views(["*"])
    rows = []
    for name, view in views.items():
        offset = view.at_timestamp(round(moment.timestamp() * 1e6))
        if may_read(name, readable) and offset < view.end:
            rows.append(
                [f'<a href="/find?q={quote(f"{name}:{offset}")}">{escape(name)}:{offset}</a>', exact(view.end - offset)]
            )
    heads = ["first message from this time on", "messages since"]
    return table(heads, rows, {1}) if rows else '<div class="dim">No message was stored at or after this time.</div>'


def listing(query: str, matches: list[Match]) -> str:
    """Return the messages that contain ``query``, newest first, as HTML."""
    if not matches:
        return f'<div class="bad">No message in the log or the tables contains {escape(repr(query))}.</div>'
    rows = [
        [
            f'<a href="/find?q={quote(match.position)}">{escape(match.position)}</a>',
            f"{match.timestamp:%Y-%m-%d %H:%M:%S}",
            escape(match.kind),
            f"<code>{escape(_excerpt(match.payload, query))}</code>",
        ]
        for match in matches
    ]
    more = f'<div class="dim">Only the newest {MAX_MATCHES} are shown.</div>' if len(matches) == MAX_MATCHES else ""
    return table(["message", "stored", "kind", "payload"], rows, stack=True) + more


def _excerpt(payload: bytes, query: str) -> str:
    text = payload.decode(errors="replace")
    begin = max(0, text.find(query) - EXCERPT_CHARS // 2)
    return (
        ("..." if begin else "")
        + text[begin : begin + EXCERPT_CHARS]
        + ("..." if len(text) > begin + EXCERPT_CHARS else "")
    )
