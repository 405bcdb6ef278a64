"""Quarantine: by reason and shape, the newest first, and the way back: seen before, confirmed, and watched."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from html import escape
from urllib.parse import urlencode

from nicegui import ui

from penstock.config import Settings
from penstock.console.daemon_poll import Away, Daemon
from penstock.console.pages.send_back import SendBackPanel
from penstock.console.readable import readable_topics
from penstock.console.theme import Html, frame, panel, table
from penstock.console.wording import clock, exact
from penstock.errors import PenstockError
from penstock.sql.configured import tables_of
from penstock.sql.quarantined import MAX_GROUPED_ROWS, Group, RowPosition, Selection, check, groups, newest
from penstock.sql.tables import Tables
from penstock.upkeep.quarantine.send_back import Row

PAGE = 25
SHOWN = 140
MOST_GROUPS = 12
NOTHING = '<div class="dim">Nothing is in quarantine: every message that looks like an event is one.</div>'


def build(daemon: Daemon, settings: Settings, chosen: Selection, before: str) -> None:
    """The page of a selection; ``before``: the place that its messages begin below."""
    with frame("/pipeline", daemon):
        with panel("Quarantine", "messages that are not valid events; select some to inspect and send again"):
            grouped = Html()
        sending = SendBackPanel(daemon, settings, chosen)
        with panel("Messages", f"the newest first: {chosen.words()}"):
            listed = Html()

    async def look() -> None:
        try:
            readable = await readable_topics(daemon)
            tables = await asyncio.to_thread(tables_of, settings, readable=readable)
            await asyncio.to_thread(check, tables, chosen)
            sending.of(tables)
            listed.show(await asyncio.to_thread(_listing, tables, chosen, before))
            grouped.show(by_group(await asyncio.to_thread(groups, tables), chosen))
        except (Away, PenstockError, OSError, ValueError) as error:
            grouped.show("")
            listed.show(f'<div class="bad" role="alert">{escape(str(error))}</div>')

    for one in (grouped, listed):
        one.show('<div class="dim" role="status">Reading...</div>')
    ui.timer(0.01, look, once=True)


def _listing(tables: Tables, chosen: Selection, before: str) -> str:
    found = newest(tables, chosen, PAGE + 1, place_of(before))
    return listing(found, chosen, bool(before))


def address(chosen: Selection, before: str = "") -> str:
    """Of the page of a selection."""
    asked = {"reason": chosen.reason, "topic": chosen.topic, "shape": chosen.shape, "before": before}
    named = urlencode({name: value for name, value in asked.items() if value})
    return f"/quarantine?{named}" if named else "/quarantine"


def place_of(text: str) -> RowPosition | None:
    """The place that a page's address names. Raises ValueError."""
    if not text:
        return None
    moment, partition, offset, topic = text.split(" ", 3)
    return RowPosition(datetime.fromisoformat(moment), topic, int(partition), int(offset))


def _text_of(row: Row) -> str:
    place = RowPosition.of(row)
    return f"{place.timestamp.isoformat()} {place.partition} {place.offset} {place.topic}"


def by_group(found: list[Group], chosen: Selection) -> str:
    """A row for each group, with a link to its messages; HTML."""
    if not found:
        return NOTHING
    cells = []
    for one in found[:MOST_GROUPS]:
        meant = Selection(one.reason, shape=one.shape)
        mark = "<b>&rarr;</b> " if replace(chosen, topic="") == meant else ""
        cells.append(
            [
                f'{mark}<a class="nw" href="{escape(address(Selection(one.reason)))}">'
                f"{escape(one.reason.replace('_', ' '))}</a>",
                f'<a class="shape" href="{escape(address(meant))}">{escape(one.shape) or "(empty)"}</a>',
                exact(one.messages),
                "<br>".join(f'<span class="nw">{escape(name)}</span>' for name in sorted(filter(None, one.sources))),
                " ".join(_topic(one, topic) for topic in sorted(one.topics)),
                f'<span class="nw">{clock(one.newest.timestamp())}</span>',
            ]
        )
    whole = sum(one.messages for one in found)
    told = f"The newest {exact(MAX_GROUPED_ROWS)} are grouped. " if whole >= MAX_GROUPED_ROWS else ""
    more = f"And {exact(len(found) - MOST_GROUPS)} groups more. " if len(found) > MOST_GROUPS else ""
    everything = f'<a href="{address(Selection())}">all of them</a>' if chosen != Selection() else ""
    heads = ["reason", "looks like", "messages", "source", "topic", "newest"]
    return f'{table(heads, cells, {2}, stack=True)}<div class="dim">{told}{more}{everything}</div>'


def _topic(group: Group, topic: str) -> str:
    return f'<a href="{escape(address(Selection(group.reason, topic, group.shape)))}">{escape(topic)}</a>'


def listing(found: list[Row], chosen: Selection, later: bool) -> str:
    """A page of messages, with links to the pages beside it; HTML."""
    if not found:
        return '<div class="dim">No message.</div>'
    cells = [
        [
            f'<span class="nw" title="{row.timestamp.isoformat()}">{row.timestamp.astimezone():%b %d %H:%M:%S}</span>',
            f'<span class="nw">{escape(row.source or "")}</span>',
            f'<a class="nw" href="/find?{urlencode({"q": row.place})}">{escape(row.place)}</a>',
            f'<span class="nw">{escape(row.reason.replace("_", " "))}</span>',
            f"<code>{escape(shown(row.payload))}</code>",
        ]
        for row in found[:PAGE]
    ]
    links = [f'<a href="{escape(address(chosen))}">newest</a>'] if later else []
    if len(found) > PAGE:
        links.append(f'<a href="{escape(address(chosen, _text_of(found[PAGE - 1])))}">older</a>')
    heads = ["received", "source", "message", "reason", "payload"]
    return f'{table(heads, cells, stack=True)}<div class="turn">{" ".join(links)}</div>'


def shown(payload: bytes) -> str:
    """The beginning of a payload."""
    text = payload[: 4 * SHOWN].decode(errors="replace")
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
