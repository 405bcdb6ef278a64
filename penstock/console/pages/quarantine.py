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
from penstock.console.components.theme import Html, frame, panel, table, viewer_note
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.pages.panels.send_back import SendBackPanel
from penstock.console.wording import clock, counted, exact
from penstock.errors import PenstockError
from penstock.landing.rows.payload_fault import Fault
from penstock.sql.configured import tables_of
from penstock.sql.quarantine_states import Action, State
from penstock.sql.quarantined import MAX_GROUPED_ROWS, Group, RowPosition, Selection, check, groups, history, newest
from penstock.sql.tables import Tables
from penstock.upkeep.quarantine.send_back import Row

PAGE_ROWS = 25
PREVIEW_BYTES = 140
MAX_ACTIONS = 20
"""Limit of actions in the history; the command prints more."""
MAX_GROUPS = 12
EMPTY_QUARANTINE = '<div class="dim">Quarantine is empty: every message that looks like an event is valid.</div>'


def build(daemon: Daemon, settings: Settings, selection: Selection, before: str, state: State) -> None:
    """Build the page of the messages of a selection in a state, from below the position ``before`` on."""

    async def load() -> None:
        try:
            readable = await daemon.readable_topics()
            tables = await asyncio.to_thread(tables_of, settings, readable=readable)
            # Order: the check first, so that a bad selection shows its error instead of an empty list.
            await asyncio.to_thread(check, tables, selection)
            if sending:
                sending.enable(tables)
            listed.show(await asyncio.to_thread(_load_listing, tables, selection, before, state))
            grouped.show(groups_html(await asyncio.to_thread(groups, tables), selection))
            done.show(history_html((await asyncio.to_thread(history, tables))[:MAX_ACTIONS]))
        except (DaemonUnavailable, PenstockError, OSError, ValueError) as error:
            grouped.show("")
            listed.show(f'<div class="bad" role="alert">{escape(str(error))}</div>')

    with frame("/pipeline", daemon, "Quarantine"):
        with panel(
            "Quarantine", "messages that look like events but are invalid; select some to inspect and send again"
        ):
            grouped = Html()
        sending = SendBackPanel(daemon, settings, selection, load) if daemon.person.is_operator else None
        if not sending:
            viewer_note(daemon.person, "send messages back")
        with panel("Messages", f"newest first: {selection.words()}"):
            listed = Html()
        with panel("History", "what was sent back and deleted, and what became of it; newest first"):
            done = Html()

    for panel_html in (grouped, listed):
        panel_html.show('<div class="dim" role="status">Reading...</div>')
    ui.timer(0.01, load, once=True)


def _load_listing(tables: Tables, selection: Selection, before: str, state: State) -> str:
    if state == State.DELETED:
        deletions = [action for action in history(tables) if action.state == state]
        return state_links(selection, state) + history_html(deletions[:MAX_ACTIONS])
    rows = newest(tables, selection, PAGE_ROWS + 1, parse_position(before), state)
    return state_links(selection, state) + listing(rows, selection, bool(before), state)


def state_links(selection: Selection, state: State) -> str:
    """Return links to the messages of a selection in each state, as HTML."""
    links = (
        f"<b>{shown.replace('_', ' ')}</b>"
        if shown == state
        else f'<a href="{escape(page_address(selection, state=shown))}">{shown.replace("_", " ")}</a>'
        for shown in State
    )
    return f'<div class="turn">{" ".join(links)}</div>'


def history_html(actions: list[Action]) -> str:
    """Return the history of quarantined messages that were sent back or deleted, as HTML."""
    if not actions:
        return '<div class="dim">Nothing was sent back or deleted.</div>'
    cells = [
        [
            f'<span class="nw" title="{action.at.isoformat()}">{action.at.astimezone():%b %d %H:%M:%S}</span>',
            action.state.replace("_", " "),
            escape(action.topic),
            exact(action.messages),
            escape(action.how),
            escape(action.outcome_text()),
        ]
        for action in actions
    ]
    return table(["when", "action", "topic", "messages", "how", "outcome"], cells, {3}, stack=True)


def page_address(selection: Selection, before: str = "", state: State = State.OPEN) -> str:
    """Return the address of the page of a selection."""
    parameters = {"reason": selection.reason, "topic": selection.topic, "shape": selection.shape, "before": before}
    parameters["state"] = "" if state == State.OPEN else state.value
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
        sources = "<br>".join(f'<span class="nw">{escape(name)}</span>' for name in sorted(filter(None, group.sources)))
        mark = "<b>&rarr;</b> " if replace(selection, topic="") == group_selection else ""
        cells.append(
            [
                f'{mark}<a class="nw" href="{escape(page_address(Selection(group.reason)))}">'
                f"{escape(group.reason.replace('_', ' '))}</a>",
                f'<a class="shape" href="{escape(page_address(group_selection))}">'
                f"{escape(group.shape) or '(empty)'}</a>",
                exact(group.messages),
                f"<div>{sources}</div>" if sources else "",
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
    groups_table = f'<div class="short-rows shapes">{table(heads, cells, {2}, stack=True)}</div>'
    return f'{groups_table}<div class="dim">{limit_note}{more}{all_link}</div>'


def _topic_link(group: Group, topic: str) -> str:
    return f'<a href="{escape(page_address(Selection(group.reason, topic, group.shape)))}">{escape(topic)}</a>'


def listing(rows: list[Row], selection: Selection, is_older_page: bool, state: State = State.OPEN) -> str:
    """Return a page of messages, with links to its neighbours, as HTML."""
    if not rows:
        return '<div class="dim">No messages.</div>'
    cells = [
        [
            f'<span class="nw" title="{row.timestamp.isoformat()}">{row.timestamp.astimezone():%b %d %H:%M:%S}</span>',
            f'<span class="nw">{escape(row.source or "")}</span>',
            f'<a class="nw" href="/find?{urlencode({"q": row.position})}">{escape(row.position)}</a>',
            f'<div><b class="nw">{escape(row.reason.replace("_", " "))}</b>'
            f"<br>{escape(row.fault.details(row.reason))}</div>",
            f"<code>{marked_payload(row.payload, row.fault)}</code>",
        ]
        for row in rows[:PAGE_ROWS]
    ]
    links = [f'<a href="{escape(page_address(selection, state=state))}">newest</a>'] if is_older_page else []
    if len(rows) > PAGE_ROWS:
        older = page_address(selection, _position_text(rows[PAGE_ROWS - 1]), state)
        links.append(f'<a href="{escape(older)}">older</a>')
    heads = ["received", "source", "message", "reason", "payload"]
    messages_table = f'<div class="short-rows faults">{table(heads, cells, stack=True)}</div>'
    return f'{messages_table}<div class="turn">{" ".join(links)}</div>'


def marked_payload(payload: bytes, fault: Fault) -> str:
    """Return the part of a payload around its fault, or its beginning, with the fault marked, as HTML."""
    begin, end = fault.begin or 0, min(fault.end or 0, (fault.begin or 0) + PREVIEW_BYTES)
    first = max(0, begin - PREVIEW_BYTES // 2)
    last = max(first + PREVIEW_BYTES, end)
    parts = (payload[first:begin], payload[begin:end], payload[end:last])
    texts = [escape(part.decode(errors="replace")) for part in parts]
    if fault.begin is not None:
        # A payload that ends too early has its fault behind the last byte.
        texts[1] = f'<mark class="bad">{texts[1] or "&#9251;"}</mark>'
    return f"{'...' if first else ''}{''.join(texts)}{'...' if last < len(payload) else ''}"
