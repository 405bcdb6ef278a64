"""The topics page: sizes, rates, retention, readers and their lag."""

from __future__ import annotations

from html import escape
from typing import Any
from urllib.parse import quote

from nicegui import ui

from penstock.config import Settings
from penstock.console.components.empty_states import first_message_html
from penstock.console.components.theme import Html, frame, panel, table
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.pages.panels.send_message import send_panel
from penstock.console.wording import exact, lasted, rate, size

PAGE_TOPICS = 25
"""Limit: describing a topic reads its files, and more rows are too long for a phone."""
REFRESH_INTERVAL_S = 3.0
NO_MATCH = '<div class="dim">No such topic. The first message creates it: send one below.</div>'


def build(daemon: Daemon, settings: Settings, begin: int = 0) -> None:
    """Build the page; ``begin`` topics are on earlier pages."""
    with frame("/topics", daemon):
        with panel("Topics"):
            search_box = ui.input(placeholder="find a topic").props("dense outlined clearable").classes("w-full")
            topics_html = Html()
        with panel("Readers", "named cursors of these topics, and their lag"):
            readers = Html()
        send_panel(daemon)

    async def refresh() -> None:
        try:
            names = [str(topic["name"]) for topic in (await daemon.get("/topics")).get("topic", ())]
            text = (search_box.value or "").strip().lower()
            names = [name for name in names if text in name.lower()]
            # The matches of a search begin on its first page, also if it was typed on a later one.
            start = 0 if text else begin
            names_of_page = names[start : start + PAGE_TOPICS]
            described = (
                (await daemon.request("GET", "/describe", params={"topic": names_of_page}))["topic"]
                if names_of_page
                else []
            )
        except DaemonUnavailable as error:
            topics_html.show(f'<div class="bad">{escape(str(error))}</div>')
            return
        if not described and not text:
            hint = (
                '<div class="dim">No topics yet: the first message creates one. Send it below, or to a listener:</div>'
            )
            topics_html.show(hint + first_message_html(settings))
        else:
            more = matches_note(len(names)) if text else page_links(start, len(names))
            topics_html.show(overview(daemon, described) + more)
        readers.show(cursors(described))

    topics_html.show('<div class="dim" role="status">Reading...</div>')
    search_box.on_value_change(refresh)
    ui.timer(REFRESH_INTERVAL_S, refresh)


def page_links(begin: int, count: int) -> str:
    """Return links to the neighbouring pages, as HTML."""
    links = []
    if begin > 0:
        links.append(f'<a href="/topics?begin={max(begin - PAGE_TOPICS, 0)}">previous</a>')
    if begin + PAGE_TOPICS < count:
        links.append(f'<a href="/topics?begin={begin + PAGE_TOPICS}">next</a>')
    range_text = f"{exact(min(begin + 1, count))} to {exact(min(begin + PAGE_TOPICS, count))} of {exact(count)}"
    return f'<div class="turn"><span class="dim">{range_text}</span>{" ".join(links)}</div>' if links else ""


def matches_note(count: int) -> str:
    """Return that a search has more matches than the page shows, as HTML."""
    text = f"the first {exact(PAGE_TOPICS)} of {exact(count)} topics with this text; type more of the name"
    return f'<div class="turn"><span class="dim">{text}</span></div>' if count > PAGE_TOPICS else ""


def overview(daemon: Daemon, described: list[dict[str, Any]]) -> str:
    """Return a row per topic."""
    rows = []
    for topic in described:
        name, settings = topic["name"], topic.get("settings", {})
        start, end = int(topic.get("start", 0)), int(topic.get("end", 0))
        rows.append(
            [
                f'<a class="long" href="/topic/{quote(name)}">{escape(name)}</a>',
                rate(daemon.rate(f"topic/{name}/logged")),
                exact(end - start),
                f"{exact(start)} - {exact(end - 1)}" if end > start else "",
                size(int(topic.get("bytes", 0))),
                exact(len(topic.get("gaps", []))),
                f"{lasted(float(settings.get('stale_after', 0)))}, {escape(str(settings.get('retention_policy', '')))}",
            ]
        )
    heads = ["topic", "rate", "entries", "offsets", "size", "gaps", "retention"]
    return f'<div class="short-rows">{table(heads, rows, {1, 2, 3, 4, 5}, stack=True)}</div>' if rows else NO_MATCH


def cursors(described: list[dict[str, Any]]) -> str:
    """Return a row per named cursor."""
    rows = [
        [
            escape(cursor["name"]),
            escape(topic["name"]),
            exact(int(cursor.get("offset", 0))),
            exact(int(cursor.get("lag_entries", 0))),
            size(int(cursor.get("lag_bytes", 0))),
            lasted(float(cursor.get("lag_seconds", 0))),
        ]
        for topic in described
        for cursor in topic.get("cursors", [])
    ]
    heads = ["reader", "topic", "offset", "entries behind", "bytes", "time"]
    return table(heads, rows, {2, 3, 4, 5}) if rows else '<div class="dim">No reader has committed a cursor.</div>'
