"""The topics page: sizes, rates, retention, readers and their lag."""

from __future__ import annotations

from html import escape
from typing import Any
from urllib.parse import quote

from nicegui import ui

from penstock.config import Settings
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.empty_states import first_message_html
from penstock.console.pages.send_message import send_panel
from penstock.console.theme import Html, frame, panel, table
from penstock.console.wording import exact, lasted, rate, size

PAGE_TOPICS = 50
"""Limit: describing a topic reads its files, so a page describes at most 50."""
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
            names = [name for name in names if (search_box.value or "").strip().lower() in name.lower()]
            names_of_page = names[begin : begin + PAGE_TOPICS]
            described = (
                (await daemon.request("GET", "/describe", params={"topic": names_of_page}))["topic"]
                if names_of_page
                else []
            )
        except DaemonUnavailable as error:
            topics_html.show(f'<div class="bad">{escape(str(error))}</div>')
            return
        is_searched = bool((search_box.value or "").strip())
        if not described and not is_searched:
            hint = (
                '<div class="dim">No topics yet: the first message creates one. Send it below, or to a listener:</div>'
            )
            topics_html.show(hint + first_message_html(settings))
        else:
            topics_html.show(overview(daemon, described) + page_links(begin, len(names)))
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
    return table(heads, rows, {1, 2, 3, 4, 5}, stack=True) if rows else NO_MATCH


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
