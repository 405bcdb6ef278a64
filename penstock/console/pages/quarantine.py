"""The quarantine page: messages by reason and shape, newest first, and a panel that sends a selection back.

The selection is in the address: what is listed, counted and sent back is one and the same.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from html import escape
from urllib.parse import urlencode

from nicegui import ui

from penstock.config import Settings
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.pages.send_back import SendBackPanel
from penstock.console.theme import Html, frame, panel, table
from penstock.console.wording import clock, counted, exact
from penstock.errors import PenstockError
from penstock.sql.configured import tables_of
from penstock.sql.quarantined import MAX_GROUPED_ROWS, Group, RowPosition, Selection, check, groups, newest
from penstock.sql.tables import Tables
from penstock.upkeep.quarantine.send_back import Row

PAGE_ROWS = 25
PREVIEW_CHARS = 140
MAX_GROUPS = 12
EMPTY_QUARANTINE = '<div class="dim">Quarantine is empty: every message that looks like an event is valid.</div>'


def build(daemon: Daemon, settings: Settings, selection: Selection, before: str) -> None:
    """Build the page of a selection; ``before`` is the position below which its messages begin."""
    with frame("/pipeline", daemon, "Quarantine"):
        with panel(
            "Quarantine", "messages that look like events but are invalid; select some to inspect and send again"
        ):
            grouped = Html()
        sending = SendBackPanel(daemon, settings, selection)
        with panel("Messages", f"newest first: {selection.words()}"):
            listed = Html()

    async def load() -> None:
        try:
            readable = await daemon.readable_topics()
            tables = await asyncio.to_thread(tables_of, settings, readable=readable)
            # Order: the check first, so that a bad selection shows its error instead of an empty list.
            await asyncio.to_thread(check, tables, selection)
            sending.enable(tables)
            listed.show(await asyncio.to_thread(_load_listing, tables, selection, before))
            grouped.show(groups_html(await asyncio.to_thread(groups, tables), selection))
        except (DaemonUnavailable, PenstockError, OSError, ValueError) as error:
            grouped.show("")
            listed.show(f'<div class="bad" role="alert">{escape(str(error))}</div>')

    for panel_html in (grouped, listed):
        panel_html.show('<div class="dim" role="status">Reading...</div>')
    ui.timer(0.01, load, once=True)


def _load_listing(tables: Tables, selection: Selection, before: str) -> str:
    rows = newest(tables, selection, PAGE_ROWS + 1, parse_position(before))
    return listing(rows, selection, bool(before))


def page_address(selection: Selection, before: str = "") -> str:
    """Return the address of the page of a selection."""
    parameters = {"reason": selection.reason, "topic": selection.topic, "shape": selection.shape, "before": before}
    query = urlencode({name: text for name, text in parameters.items() if text})
    return f"/quarantine?{query}" if query else "/quarantine"


def parse_position(text: str) -> RowPosition | None:
    """Return the position that an address names; None if it names none. Raises ValueError."""
    if not text:
        return None
    moment, partition, offset, topic = text.split(" ", 3)
    return RowPosition(datetime.fromisoformat(moment), topic, int(partition), int(offset))


def _position_text(row: Row) -> str:
    position = RowPosition.from_row(row)
    return f"{position.timestamp.isoformat()} {position.partition} {position.offset} {position.topic}"


def groups_html(quarantine_groups: list[Group], selection: Selection) -> str:
    """Return a row per group, with a link to its messages, as HTML."""
    if not quarantine_groups:
        return EMPTY_QUARANTINE
    cells = []
    for group in quarantine_groups[:MAX_GROUPS]:
        group_selection = Selection(group.reason, shape=group.shape)
        mark = "<b>&rarr;</b> " if replace(selection, topic="") == group_selection else ""
        cells.append(
            [
                f'{mark}<a class="nw" href="{escape(page_address(Selection(group.reason)))}">'
                f"{escape(group.reason.replace('_', ' '))}</a>",
                f'<a class="shape" href="{escape(page_address(group_selection))}">'
                f"{escape(group.shape) or '(empty)'}</a>",
                exact(group.messages),
                "<br>".join(f'<span class="nw">{escape(name)}</span>' for name in sorted(filter(None, group.sources))),
                " ".join(_topic_link(group, topic) for topic in sorted(group.topics)),
                f'<span class="nw">{clock(group.newest.timestamp())}</span>',
            ]
        )
    total = sum(group.messages for group in quarantine_groups)
    limit_note = f"Only the newest {exact(MAX_GROUPED_ROWS)} are grouped. " if total >= MAX_GROUPED_ROWS else ""
    more = (
        f"{counted(len(quarantine_groups) - MAX_GROUPS, 'more group')}. " if len(quarantine_groups) > MAX_GROUPS else ""
    )
    all_link = f'<a href="{page_address(Selection())}">all messages</a>' if selection != Selection() else ""
    heads = ["reason", "looks like", "messages", "source", "topic", "newest"]
    return f'{table(heads, cells, {2}, stack=True)}<div class="dim">{limit_note}{more}{all_link}</div>'


def _topic_link(group: Group, topic: str) -> str:
    return f'<a href="{escape(page_address(Selection(group.reason, topic, group.shape)))}">{escape(topic)}</a>'


def listing(rows: list[Row], selection: Selection, is_older_page: bool) -> str:
    """Return a page of messages, with links to its neighbours, as HTML."""
    if not rows:
        return '<div class="dim">No messages.</div>'
    cells = [
        [
            f'<span class="nw" title="{row.timestamp.isoformat()}">{row.timestamp.astimezone():%b %d %H:%M:%S}</span>',
            f'<span class="nw">{escape(row.source or "")}</span>',
            f'<a class="nw" href="/find?{urlencode({"q": row.position})}">{escape(row.position)}</a>',
            f'<span class="nw">{escape(row.reason.replace("_", " "))}</span>',
            f"<code>{escape(preview(row.payload))}</code>",
        ]
        for row in rows[:PAGE_ROWS]
    ]
    links = [f'<a href="{escape(page_address(selection))}">newest</a>'] if is_older_page else []
    if len(rows) > PAGE_ROWS:
        links.append(f'<a href="{escape(page_address(selection, _position_text(rows[PAGE_ROWS - 1])))}">older</a>')
    heads = ["received", "source", "message", "reason", "payload"]
    return f'{table(heads, cells, stack=True)}<div class="turn">{" ".join(links)}</div>'


def preview(payload: bytes) -> str:
    """Return the beginning of a payload."""
    # Four bytes per character at most, so the cut text has at least the characters that are shown.
    text = payload[: 4 * PREVIEW_CHARS].decode(errors="replace")
    return text if len(text) <= PREVIEW_CHARS else f"{text[:PREVIEW_CHARS]}..."
