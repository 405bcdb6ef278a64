"""Topics: sizes, rates, retention, readers and their lag; one topic with its live tail."""

from __future__ import annotations

import base64
import binascii
import json
from html import escape
from typing import Any
from urllib.parse import quote

from nicegui import ui

from penstock.console.daemon_poll import Away, Daemon
from penstock.console.theme import Html, frame, live, panel, table
from penstock.console.wording import exact, lasted, rate, size

TAIL = 50
SHOWN = 120
HEX_ROW = 16
LONGEST = 200_000
"""Characters of a message that are shown: more keeps a browser busy for minutes."""


def build(daemon: Daemon) -> None:
    """The page of all topics."""
    with frame("/topics", daemon):
        with panel("Topics"):
            shown = Html()
        with panel("Readers", "named cursors: how far each has come"):
            readers = Html()

    async def refresh() -> None:
        try:
            found = (await daemon.get("/describe")).get("topic", [])
        except Away as error:
            shown.show(f'<div class="bad">{escape(str(error))}</div>')
            return
        shown.show(overview(daemon, found))
        readers.show(cursors(found))

    live(refresh)


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
    return table(heads, rows, {1, 2, 3, 4, 5}) if rows else '<div class="dim">There is no topic yet.</div>'


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


def build_topic(daemon: Daemon, name: str) -> None:
    """The page of one topic: its newest messages as they come, and one of them whole."""
    with frame("/topics", daemon):
        with panel(name, "the newest messages, as they come"):
            with ui.row().classes("items-center w-full").style("gap:14px"):
                wanted = ui.input(placeholder="filter, such as k:pk v:vip-.*").props("dense outlined clearable")
                wanted.style("min-width:320px")
                going = ui.switch("follow", value=True)
            wrong = ui.label().classes("bad")
            tail = ui.element("div").classes("wide tail")
        with panel("The message", "click on one above, or Tab and Enter") as chosen:
            message = Html()
        seen: list[str] | None = None

    def choose(entry: dict[str, Any]) -> None:
        message.show(whole(entry))
        ui.run_javascript(f"getHtmlElement({chosen.id}).scrollIntoView({{block: 'nearest'}})")

    def fill(entries: list[dict[str, Any]]) -> None:
        tail.clear()
        with tail:
            if not entries:
                ui.label("No message.").classes("dim")
            for entry in reversed(entries):
                text = f"{entry['offset']}  {entry['timestamp'][11:23]}  {preview(entry)}"
                line = ui.label(text).classes("tail-line").props('tabindex=0 role="button"')
                line.on("click", lambda entry=entry: choose(entry))
                line.on("keydown.enter", lambda entry=entry: choose(entry))

    async def refresh() -> None:
        nonlocal seen
        if not going.value:
            return
        try:
            given = {"filter": wanted.value} if wanted.value else {}
            path = f"/topic/{quote(name)}/logs"
            answer = await daemon.get(path, position="LATEST", max_messages=TAIL, **given)
        except Away as error:
            wrong.set_text(str(error))
            return
        wrong.set_text("")
        entries = [{"offset": "0", **entry} for entry in answer.get("logs", [])]
        offsets = [entry["offset"] for entry in entries]
        if offsets != seen:
            seen = offsets
            fill(entries)

    live(refresh)


def payload(entry: dict[str, Any]) -> bytes:
    """The bytes of an entry of the HTTP API; an Any as the JSON it is shown as."""
    raw = entry.get("rawBytes", entry.get("raw_bytes"))
    if raw is None:
        return json.dumps(entry.get("protobuf", {})).encode()
    try:
        return base64.b64decode(str(raw))
    except (binascii.Error, ValueError):
        return b""


def preview(entry: dict[str, Any]) -> str:
    """The beginning of a message, in one line."""
    text = payload(entry)[: SHOWN * 2].decode(errors="replace").replace("\n", " ")
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def whole(entry: dict[str, Any]) -> str:
    """A message as JSON where it is some, as hex, and with its annotations; HTML."""
    data = payload(entry)
    try:
        text = json.dumps(json.loads(data), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):  # no JSON, or deeper than anybody reads
        text = data.decode(errors="replace")
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n... and {exact(len(text) - LONGEST)} characters more"
    marks = [[escape(key), escape(value)] for key, value in sorted(entry.get("annotations", {}).items())]
    place = f"offset {entry['offset']}, {entry['timestamp']}, {size(len(data))}"
    parts = [
        f'<div class="dim">{escape(place)}</div>',
        f"<pre>{escape(text)}</pre>",
        table(["annotation", "value"], marks) if marks else "",
        f'<details><summary class="dim">hex</summary><pre>{escape(hexdump(data[:4096]))}</pre></details>',
    ]
    return "".join(parts)


def hexdump(data: bytes) -> str:
    """Offset, bytes and characters, sixteen a line."""
    lines = []
    for begin in range(0, len(data), HEX_ROW):
        row = data[begin : begin + HEX_ROW]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{begin:08x}  {row.hex(' '):<{HEX_ROW * 3}} {shown}")
    return "\n".join(lines)
