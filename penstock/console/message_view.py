"""One message: the line that stands for it, and all that is in it, as HTML."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote

from penstock.console.theme import table
from penstock.console.wording import exact, size

SHOWN = 120
HEX_ROW = 16
MOST_HEX = 4096
LONGEST = 200_000
"""Characters of a message that are shown: more keeps a browser busy for minutes."""


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message as HTML: where it is, as JSON where it is some, as hex, and what stands beside it."""

    place: str
    text: str
    hex: str
    headers: str


def payload(entry: dict[str, Any]) -> bytes:
    """The bytes of an entry of the HTTP API; an Any as the JSON it is shown as."""
    raw = entry.get("rawBytes", entry.get("raw_bytes"))
    if raw is None:
        return json.dumps(entry.get("protobuf", {})).encode()
    return _decoded(raw)


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(str(text))
    except (binascii.Error, ValueError):
        return b""


def preview(entry: dict[str, Any]) -> str:
    """The beginning of a message, in one line."""
    text = payload(entry)[: SHOWN * 2].decode(errors="replace").replace("\n", " ")
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def line(entry: dict[str, Any]) -> str:
    """A message in one line: offset, time (UTC), its beginning."""
    return f"{entry['offset']}  {entry['timestamp'][11:23].rstrip('Z')}  {preview(entry)}"


def whole(topic: str, entry: dict[str, Any]) -> MessageView:
    """A message in all its forms."""
    data = payload(entry)
    return MessageView(_place(topic, entry, data), _text(data), _hex(data), _headers(entry))


def _place(topic: str, entry: dict[str, Any], data: bytes) -> str:
    offset = str(entry["offset"])
    told = f"offset {exact(int(offset))}, {entry['timestamp']}, {size(len(data))}"
    here, way = f"/topic/{quote(topic)}?offset={offset}", f"/find?q={quote(f'{topic}:{offset}')}"
    links = f'<a href="{here}">its address</a> &middot; <a href="{way}">where is it?</a>'
    return f'<div class="dim">{escape(told)} &middot; {links}</div>'


def _text(data: bytes) -> str:
    try:
        text = json.dumps(json.loads(data), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):  # no JSON, or deeper than anybody reads
        text = data.decode(errors="replace")
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n... and {exact(len(text) - LONGEST)} characters more"
    return f"<pre>{escape(text)}</pre>" if text else '<div class="dim">It is empty.</div>'


def _hex(data: bytes) -> str:
    more = f'<div class="dim">and {exact(len(data) - MOST_HEX)} bytes more</div>' if len(data) > MOST_HEX else ""
    return f"<pre>{escape(hexdump(data[:MOST_HEX]))}</pre>{more}"


def _headers(entry: dict[str, Any]) -> str:
    rows = [[escape(key), _value(value)] for key, value in sorted(entry.get("annotations", {}).items())]
    if "key" in entry:
        rows.insert(0, ["<i>key</i>", _value(_decoded(entry["key"]).decode(errors="replace"))])
    return table(["header", "value"], rows) if rows else '<div class="dim">It has neither a key nor annotations.</div>'


def _value(text: object) -> str:
    """A list that is joined by zero bytes, as plog's tags are, part by part."""
    return ", ".join(f"<code>{escape(part)}</code>" for part in str(text)[:LONGEST].split("\0"))


def hexdump(data: bytes) -> str:
    """Offset, bytes and characters, sixteen a line."""
    lines = []
    for begin in range(0, len(data), HEX_ROW):
        row = data[begin : begin + HEX_ROW]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{begin:08x}  {row.hex(' '):<{HEX_ROW * 3}} {shown}")
    return "\n".join(lines)
