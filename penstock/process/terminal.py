"""What messages may do to a terminal: nothing. Their control characters are shown, not sent."""

from __future__ import annotations

import re

_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""All but the tab, and what turns the direction of text or ends lines; bytes that are no UTF-8 come as surrogates."""


def visible(text: str) -> str:
    """``text`` with ``\\x1b`` and the like in the place of control characters."""
    return _CONTROLS.sub(_escaped, text)


def visible_bytes(data: bytes) -> bytes:
    """Likewise, of UTF-8; bytes that are none become ``\\xff`` and the like."""
    return visible(data.decode(errors="surrogateescape")).encode()


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
