"""Text that is safe to print: control characters in messages are escaped and do not reach the terminal."""

from __future__ import annotations

import re

_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except the tab, line ends, characters that turn the direction of text, and surrogates."""


def visible(text: str) -> str:
    """Return ``text`` with control characters escaped (``\\x1b``)."""
    return _CONTROLS.sub(_escape, text)


def visible_bytes(data: bytes) -> bytes:
    """Escape UTF-8 likewise; bytes that are not UTF-8 become ``\\xff`` and the like."""
    return visible(data.decode(errors="surrogateescape")).encode()


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape represents a byte that is not UTF-8 as U+DC00 plus the byte
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
