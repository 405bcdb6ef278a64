"""Topics: sizes, rates, retention, readers and their lag."""

from __future__ import annotations

from html import escape
from typing import Any
from urllib.parse import quote

from nicegui import ui

from penstock.console.daemon_poll import Away, Daemon
from penstock.console.pages.send_message import send_panel
from penstock.console.theme import Html, frame, panel, table
from penstock.console.wording import exact, lasted, rate, size

PAGE = 50
"""Topics of a page: to describe one takes a look at its files."""
EVERY = 3.0
NONE = '<div class="dim">There is no such topic. One is made by its first message: send one below.</div>'


def build(daemon: Daemon, begin: int = 0) -> None:
    """The page of all topics, ``begin`` of which are on the pages before."""
    with frame("/topics", daemon):
        with panel("Topics"):
            wanted = ui.input(placeholder="find a topic").props("dense outlined clearable").classes("w-full")
            shown = Html()
        with panel("Readers", "named cursors of these topics: how far each has come"):
            readers = Html()
        send_panel(daemon)

    async def refresh() -> None:
        try:
            names = [str(one["name"]) for one in (await daemon.get("/topics")).get("topic", ())]
            names = [name for name in names if (wanted.value or "").strip().lower() in name.lower()]
            here = names[begin : begin + PAGE]
            found = (await daemon.ask("GET", "/describe", params={"topic": here}))["topic"] if here else []
        except Away as error:
            shown.show(f'<div class="bad">{escape(str(error))}</div>')
            return
        shown.show(overview(daemon, found) + turns(begin, len(names)))
        readers.show(cursors(found))

    shown.show('<div class="dim" role="status">Reading...</div>')
    wanted.on_value_change(refresh)
    ui.timer(EVERY, refresh)


def turns(begin: int, count: int) -> str:
    """Links to the pages before and after; HTML."""
    links = []
    if begin > 0:
        links.append(f'<a href="/topics?begin={max(begin - PAGE, 0)}">before</a>')
    if begin + PAGE < count:
        links.append(f'<a href="/topics?begin={begin + PAGE}">after</a>')
    here = f"{exact(min(begin + 1, count))} to {exact(min(begin + PAGE, count))} of {exact(count)}"
    return f'<div class="turn"><span class="dim">{here}</span>{" ".join(links)}</div>' if links else ""


def overview(daemon: Daemon, found: list[dict[str, Any]]) -> str:
    """A row for each topic."""
    rows = []
    for one in found:
        name, settings = one["name"], one.get("settings", {})
        start, end = int(one.get("start", 0)), int(one.get("end", 0))
        rows.append(
            [
                f'<a href="/topic/{quote(name)}">{escape(name)}</a>',
                rate(daemon.rate(f"topic/{name}/logged")),
                exact(end - start),
                f"{exact(start)} - {exact(end - 1)}" if end > start else "",
                size(int(one.get("bytes", 0))),
                exact(len(one.get("gaps", []))),
                f"{lasted(float(settings.get('stale_after', 0)))}, {escape(str(settings.get('retention_policy', '')))}",
            ]
        )
    heads = ["topic", "rate", "entries", "offsets", "size", "gaps", "retention"]
    return table(heads, rows, {1, 2, 3, 4, 5}, stack=True) if rows else NONE


def cursors(found: list[dict[str, Any]]) -> str:
    """A row for each named cursor."""
    rows = [
        [
            escape(cursor["name"]),
            escape(topic["name"]),
            exact(int(cursor.get("offset", 0))),
            exact(int(cursor.get("lag_entries", 0))),
            size(int(cursor.get("lag_bytes", 0))),
            lasted(float(cursor.get("lag_seconds", 0))),
        ]
        for topic in found
        for cursor in topic.get("cursors", [])
    ]
    heads = ["reader", "topic", "offset", "entries behind", "bytes", "time"]
    return table(heads, rows, {2, 3, 4, 5}) if rows else '<div class="dim">Nobody has committed a cursor.</div>'
