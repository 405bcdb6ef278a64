"""HTML of one message: its line in a list, and its JSON, hex and headers.

Invariant: payloads are untrusted; every text of a message is escaped, and the length of each view is limited.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote

from penstock.console.components.theme import table
from penstock.console.wording import exact, size

PREVIEW_CHARS = 120
HEX_ROW_BYTES = 16
MAX_HEX_BYTES = 4096
MAX_CHARS = 200_000
"""Characters of a message that are shown: a longer text keeps a browser busy for minutes."""


@dataclass(frozen=True, slots=True)
class MessageView:
    """HTML of a message: location and links, text or JSON, hex dump, headers."""

    location: str
    text: str
    hex: str
    headers: str


def payload(entry: dict[str, Any]) -> bytes:
    """Return the payload bytes of an entry of the HTTP API; an Any as JSON."""
    raw = entry.get("rawBytes", entry.get("raw_bytes"))
    if raw is None:
        return json.dumps(entry.get("protobuf", {})).encode()
    return _decode_base64(raw)


def _decode_base64(text: object) -> bytes:
    try:
        return base64.b64decode(str(text))
    except (binascii.Error, ValueError):
        return b""


def preview(entry: dict[str, Any]) -> str:
    """Return the beginning of a message in one line."""
    # Cut before decoding: a message may have megabytes, a list shows fifty of them every second.
    text = payload(entry)[: PREVIEW_CHARS * 2].decode(errors="replace").replace("\n", " ")
    return text if len(text) <= PREVIEW_CHARS else f"{text[:PREVIEW_CHARS]}..."


def line(entry: dict[str, Any]) -> str:
    """Return a message in one line: offset, time (UTC), preview."""
    return f"{entry['offset']}  {entry['timestamp'][11:23].rstrip('Z')}  {preview(entry)}"


def view_message(topic: str, entry: dict[str, Any]) -> MessageView:
    """Return all views of a message."""
    raw = payload(entry)
    return MessageView(_location(topic, entry, raw), _text_view(raw), _hex_view(raw), _headers_view(entry))


def _location(topic: str, entry: dict[str, Any], raw: bytes) -> str:
    offset = str(entry["offset"])
    text = f"offset {exact(int(offset))}, {entry['timestamp']}, {size(len(raw))}"
    address, trace_address = f"/topic/{quote(topic)}?offset={offset}", f"/find?q={quote(f'{topic}:{offset}')}"
    links = f'<a href="{address}">link to this message</a> &middot; <a href="{trace_address}">where is it?</a>'
    return f'<div class="dim">{escape(text)} &middot; {links}</div>'


def _text_view(raw: bytes) -> str:
    try:
        text = json.dumps(json.loads(raw), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):  # not JSON, or nested deeper than Python's parser allows
        text = raw.decode(errors="replace")
    if len(text) > MAX_CHARS:
        text = f"{text[:MAX_CHARS]}\n... and {exact(len(text) - MAX_CHARS)} more characters"
    return f'<pre tabindex="0">{escape(text)}</pre>' if text else '<div class="dim">Empty message.</div>'


def _hex_view(raw: bytes) -> str:
    rest = (
        f'<div class="dim">and {exact(len(raw) - MAX_HEX_BYTES)} more bytes</div>' if len(raw) > MAX_HEX_BYTES else ""
    )
    return f'<pre tabindex="0">{escape(hexdump(raw[:MAX_HEX_BYTES]))}</pre>{rest}'


def _headers_view(entry: dict[str, Any]) -> str:
    rows = [[escape(key), _header_value(text)] for key, text in sorted(entry.get("annotations", {}).items())]
    if "key" in entry:
        rows.insert(0, ["<i>key</i>", _header_value(_decode_base64(entry["key"]).decode(errors="replace"))])
    return table(["header", "value"], rows) if rows else '<div class="dim">No key and no annotations.</div>'


def _header_value(header: object) -> str:
    """Return a header's value; a list joined by zero bytes, such as plog's tags, part by part."""
    return ", ".join(f"<code>{escape(part)}</code>" for part in str(header)[:MAX_CHARS].split("\0"))


def hexdump(data: bytes) -> str:
    """Return lines of offset, bytes and characters."""
    lines = []
    for begin in range(0, len(data), HEX_ROW_BYTES):
        row = data[begin : begin + HEX_ROW_BYTES]
        characters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{begin:08x}  {row.hex(' '):<{HEX_ROW_BYTES * 3}} {characters}")
    return "\n".join(lines)
