"""Bytes of senders as text, for annotations, which are Arrow strings and so must be valid UTF-8."""

from __future__ import annotations

import codecs
import re
from typing import Any

import pyarrow as pa

from penstock.wire.growth import MOST_GROWTH

QUESTION = "penstock.question"
REPLACE = "penstock.replace"
LATIN_1 = "penstock.latin1"
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def _question(error: UnicodeError) -> tuple[str, int]:
    """One "?" for what cannot be read: the text never takes more bytes than it had."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "?", error.end


def _replace(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for what cannot be read, as Java has it: Python has three for a surrogate's bytes."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    surrogate = _SURROGATE.match(error.object, error.start)
    return "\ufffd", surrogate.end() if surrogate else error.end


def _latin_1(error: UnicodeError) -> tuple[str, int]:
    """The characters of ISO 8859-1 for bytes that are no UTF-8: nothing of them is lost."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error(LATIN_1, _latin_1)
codecs.register_error(QUESTION, _question)
codecs.register_error(REPLACE, _replace)


def text(data: bytes) -> str:
    """``data`` as UTF-8, with U+FFFD where it is none, as plog reads tags; with "?" where that would grow too large."""
    readable = data.decode("utf-8", REPLACE)
    if len(readable.encode()) - len(data) > MOST_GROWTH:
        return data.decode("utf-8", QUESTION)
    return readable


def strings(column: pa.Array[Any]) -> pa.Array[Any]:
    """A binary column as strings, each as ``text`` reads it; nulls stay."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if value is None else text(value) for value in column.to_pylist()], pa.string())
