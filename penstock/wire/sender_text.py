"""Senders' bytes as text, for annotations: Arrow strings must be valid UTF-8."""

from __future__ import annotations

import codecs
import re
from typing import Any

import pyarrow as pa

from penstock.wire.growth import MAX_GROWTH_BYTES

QUESTION = "penstock.question"
REPLACE = "penstock.replace"
LATIN_1 = "penstock.latin1"
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def _question(error: UnicodeError) -> tuple[str, int]:
    """Replace an unreadable sequence by one "?": the text never becomes longer than its bytes."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "?", error.end


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Replace an unreadable sequence by one U+FFFD, as Java does; Python writes three for a surrogate."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    surrogate = _SURROGATE.match(error.object, error.start)
    return "\ufffd", surrogate.end() if surrogate else error.end


def _latin_1(error: UnicodeError) -> tuple[str, int]:
    """Read bytes that are not UTF-8 as ISO 8859-1: none of them is lost."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error(LATIN_1, _latin_1)
codecs.register_error(QUESTION, _question)
codecs.register_error(REPLACE, _replace)


def text(raw: bytes) -> str:
    """Decode UTF-8 with U+FFFD for unreadable bytes, as plog reads tags; with "?" if that would grow too much."""
    decoded = raw.decode("utf-8", REPLACE)
    # Limit: U+FFFD takes three bytes, so a hostile tag could triple its size and exceed its frame.
    if len(decoded.encode()) - len(raw) > MAX_GROWTH_BYTES:
        return raw.decode("utf-8", QUESTION)
    return decoded


def strings(column: pa.Array[Any]) -> pa.Array[Any]:
    """Convert a binary column to strings, each as ``text`` reads it; nulls stay."""
    try:
        # Fast path: Arrow validates the whole column at once; Python reads texts only after it fails.
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if raw is None else text(raw) for raw in column.to_pylist()], pa.string())
