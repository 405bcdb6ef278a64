"""Text that is safe to print: control characters in messages are escaped and do not reach the terminal, and characters
that the encoding of the output lacks end no command.
"""

from __future__ import annotations

import codecs
import io
import re
import sys

_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except the tab, line ends, characters that turn the direction of text, and surrogates."""

_ASCII = str.maketrans({"█": "#", "▓": "=", "░": ".", "·": ".", "…": "..."})
"""Similar ASCII characters for the characters of bars and tables."""
_ESCAPED = "penstock.escaped"


def tolerate_encoding() -> None:
    """Let standard output and error escape what their encoding lacks, as in a Latin-1 locale (``\\u2603``)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors=_ESCAPED)


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_ASCII)
    return text.encode("ascii", "backslashreplace").decode(), error.end


codecs.register_error(_ESCAPED, _escape_unencodable)


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
