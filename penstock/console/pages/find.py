"""Where a message is: by its uuid, its place, a time, or a text that is in it. The address can be shared."""

from __future__ import annotations

import asyncio
from datetime import datetime
from html import escape
from urllib.parse import quote

from nicegui import ui

from penstock.config import Settings
from penstock.console.asked import TIME, time_of
from penstock.console.daemon_poll import Away, Daemon
from penstock.console.readable import readable_topics
from penstock.console.theme import Html, frame, panel, table
from penstock.console.wording import exact
from penstock.errors import PenstockError
from penstock.landing.table_paths import Layout
from penstock.landing.topics.from_folder import FolderStore
from penstock.sql.configured import tables_of
from penstock.sql.search import Match, containing
from penstock.upkeep.trace.stations import Step
from penstock.upkeep.trace.tracer import DELETED, DROPPED, DUPLICATE, KEPT, PENDING, PLACE, PROMOTED, Trace, Tracer

MOST = 50
SECONDS = 30.0
SHOWN = 160
STATIONS = ("received", "log buffer", "log", "micro-batch", "table", "proof")
AS_MEANT = (PENDING, KEPT, PROMOTED, DUPLICATE, DROPPED, DELETED)
"""Fates of messages that are in no table, and should not be."""
Readable = frozenset[str] | None


def build(daemon: Daemon, settings: Settings, asked: str) -> None:
    """The page."""
    with frame("/find", daemon), panel("Where is it?", asked):
        shown = Html()

    async def look() -> None:
        try:
            readable = await readable_topics(daemon)
            shown.show(await asyncio.to_thread(answer, settings, asked, readable))
        except (Away, PenstockError, OSError) as error:
            shown.show(f'<div class="bad">{escape(str(error))}</div>')

    if asked:
        shown.show('<div class="dim" role="status">Searching...</div>')
        ui.timer(0.01, look, once=True)
    else:
        shown.show('<div class="dim">Type a uuid, a place (topic:offset), a time (14:05, UTC) or any text above.</div>')


def answer(settings: Settings, asked: str, readable: Readable) -> str:
    """What is known, as HTML. Raises PenstockError, OSError."""
    patterns = () if settings.pipeline.source == "kafka" else settings.pipeline.topics
    tracer = Tracer(settings.topics, Layout.for_tables(settings.tables), patterns)
    place = PLACE.fullmatch(asked)
    if place and tracer.has_topic(place["topic"]):
        return _traced(tracer, place["topic"], int(place["offset"]), readable)
    if TIME.fullmatch(asked):
        moment = time_of(asked)
        return at_time(settings, moment, readable) if moment else f'<div class="bad">{escape(asked)} is no time</div>'
    at = tracer.landed(asked) or tracer.waiting(asked)
    if at is not None and may_read(at[0], readable):
        return _traced(tracer, *at, readable)
    return listing(asked, containing(tables_of(settings, readable=readable), asked, MOST, SECONDS))


def may_read(topic: str, readable: Readable) -> bool:
    """Whether a topic, or the topic of a partition of Kafka, may be read."""
    return readable is None or topic in readable


def _traced(tracer: Tracer, topic: str, offset: int, readable: Readable) -> str:
    if not may_read(topic, readable):
        return '<div class="bad">This token may not read that topic.</div>'
    found = tracer.trace(topic, offset)
    return stations(found) + _neighbours(topic, offset)


def stations(found: Trace) -> str:
    """The way of a message: where it was, where it is or ended, and what lies ahead; HTML."""
    steps = {step.step: step for step in found.steps}
    end = _end_of(found, steps)
    at = STATIONS.index(end)
    as_meant = found.fate.startswith(AS_MEANT)
    ahead = "here" if as_meant else "ended"
    kinds = ["reached"] * len(STATIONS) if _is_landed(found) else ["reached"] * at + [ahead] + ["ahead"] * 9
    items = "".join(
        f'<li class="{kind}"><b>{name}</b>{escape(steps[name].text) if name in steps else ""}</li>'
        for name, kind in zip(STATIONS, kinds, strict=False)
    )
    mood = "good" if _is_landed(found) else "warn" if as_meant else "bad"
    uuid = f" (uuid {escape(found.uuid)})" if found.uuid else ""
    place = f"{escape(found.topic)}:{found.offset}"
    return f'<div class="verdict {mood}">{place}{uuid} {escape(found.meaning)}</div><ol class="stations">{items}</ol>'


def _is_landed(found: Trace) -> bool:
    return found.fate.startswith("landed.")


def _end_of(found: Trace, steps: dict[str, Step]) -> str:
    """The station that it came to last."""
    if found.fate.startswith(("quarantined.", "duplicate", "landed.", "deleted", "transformed.")):
        return "table"
    return "micro-batch" if "proof" in steps else "log"


def _neighbours(topic: str, offset: int) -> str:
    links = [(offset - 1, "the one before")] if offset else []
    links.append((offset + 1, "the next one"))
    words = " &middot; ".join(f'<a href="/find?q={quote(f"{topic}:{at}")}">{text}</a>' for at, text in links)
    return f'<div class="dim">{words} &middot; <a href="/topic/{quote(topic.partition("/")[0])}">the topic</a></div>'


def at_time(settings: Settings, moment: datetime, readable: Readable) -> str:
    """For each topic the first message from a time on."""
    views = FolderStore(settings.topics).views(["*"])
    rows = []
    for name, view in views.items():
        at = view.at_timestamp(round(moment.timestamp() * 1e6))
        if may_read(name, readable) and at < view.end:
            rows.append([f'<a href="/find?q={quote(f"{name}:{at}")}">{escape(name)}:{at}</a>', exact(view.end - at)])
    heads = ["first message from then on", "since then"]
    return table(heads, rows, {1}) if rows else '<div class="dim">No message was stored then or later.</div>'


def listing(asked: str, found: list[Match]) -> str:
    """Messages with a text in them, newest first; HTML."""
    if not found:
        return f'<div class="bad">No message in the log or the tables has {escape(repr(asked))} in it.</div>'
    rows = [
        [
            f'<a href="/find?q={quote(one.place)}">{escape(one.place)}</a>',
            f"{one.timestamp:%Y-%m-%d %H:%M:%S}",
            escape(one.kind),
            f"<code>{escape(_around(one.payload, asked))}</code>",
        ]
        for one in found
    ]
    more = f'<div class="dim">The newest {MOST}; there may be more.</div>' if len(found) == MOST else ""
    return table(["message", "stored", "kind", "payload"], rows, stack=True) + more


def _around(payload: bytes, asked: str) -> str:
    """What stands around the text."""
    text = payload.decode(errors="replace")
    begin = max(0, text.find(asked) - SHOWN // 2)
    return ("..." if begin else "") + text[begin : begin + SHOWN] + ("..." if len(text) > begin + SHOWN else "")
