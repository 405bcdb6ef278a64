"""Bytes of senders as text, for annotations, which are Arrow strings and so must be valid UTF-8."""

from __future__ import annotations

import codecs

import pyarrow as pa

ERRORS = "penstock.question"


def _question(error: UnicodeError) -> tuple[str, int]:
    """One "?" for what cannot be read: the text never takes more bytes than it had."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "?", error.end


codecs.register_error(ERRORS, _question)


def text(data: bytes) -> str:
    """``data`` as UTF-8, with "?" where it is none."""
    return data.decode("utf-8", ERRORS)


def strings(column: pa.Array) -> pa.Array:
    """A binary column as strings, with "?" where a value is not UTF-8; nulls stay."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if value is None else text(value) for value in column.to_pylist()], pa.string())
