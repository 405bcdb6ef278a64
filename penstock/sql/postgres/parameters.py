"""Parameters of statements, in text or in binary, as literals of DuckDB.

Invariant: each parameter becomes one literal or raises BadParameter; its bytes never end the literal early.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
import uuid
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from penstock.errors import PenstockError
from penstock.sql.postgres.types import (
    BINARY_FORMAT,
    BOOL,
    BY_OID,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    NUMERIC,
    NUMERIC_BASE,
    TEXT_FORMAT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    PgType,
)

_EPOCH = dt.datetime(2000, 1, 1)
"""Zero of PostgreSQL's binary dates and times."""
_DAY_US = 24 * 3600 * 1_000_000
_BYTE = re.compile(rb"\\(\\|[0-3][0-7]{2})")
"""A byte of a text with escapes."""


class BadParameter(PenstockError, ValueError):
    """A parameter that is not a value of its type."""


def literal(oid: int, form: int, field: bytes | None) -> str:
    """Return a parameter as a literal of DuckDB. Raises BadParameter.

    A parameter without a declared type is a text literal, which DuckDB converts to the type that the statement needs.
    """
    kind = BY_OID.get(oid)
    if field is None:
        return "NULL" if kind is None else f"CAST(NULL AS {kind.duckdb})"
    text = _text_of_binary(kind, field) if form == BINARY_FORMAT else _decode(field)
    if kind is None or kind.duckdb == "VARCHAR":
        return quoted(text)
    if kind.element is not None and form == TEXT_FORMAT:
        elements = [literal(kind.element.oid, TEXT_FORMAT, element) for element in split_array(text)]
        text = f"[{', '.join(elements)}]"
        return f"CAST({text} AS {kind.duckdb})"
    if kind.element is not None:
        return text
    if kind is BYTEA:
        return f"unhex({quoted(text if form == BINARY_FORMAT else bytes_of_text(text).hex())})"
    if kind is NUMERIC:
        return _numeric_literal(text)
    return f"CAST({quoted(text)} AS {kind.duckdb})"


def _numeric_literal(text: str) -> str:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise BadParameter(f"{text[:40]!r} is not numeric") from None
    _, digits, exponent = number.as_tuple()
    # A number with an exponent, or with more digits than a decimal of DuckDB, is compared as a double.
    if not isinstance(exponent, int) or len(digits) > 38 or not -38 <= exponent <= 0:
        return f"CAST({quoted(text)} AS DOUBLE)"
    return f"({number:f})"


def bytes_of_text(text: str) -> bytes:
    """Return the bytes of a text in hexadecimal digits or with escapes (PostgreSQL, 8.4).

    Raises BadParameter.
    """
    try:
        if text.startswith("\\x"):
            return bytes.fromhex(text[2:])
        pieces = _BYTE.split(text.encode())
        if b"\\" in b"".join(pieces[::2]):
            raise ValueError
        octal = [b"\\" if escape == b"\\" else bytes([int(escape, 8)]) for escape in pieces[1::2]]
        return b"".join(piece for pair in zip(pieces[::2], (*octal, b""), strict=True) for piece in pair)
    except ValueError:
        raise BadParameter(f"{text[:40]!r} is not bytea") from None


def quoted(text: str) -> str:
    """Return a text literal. Raises BadParameter."""
    if "\0" in text:
        raise BadParameter("a text has a zero byte")
    return "'" + text.replace("'", "''") + "'"


def _decode(field: bytes) -> str:
    try:
        return field.decode()
    except UnicodeDecodeError:
        raise BadParameter("a parameter is not UTF-8") from None


_OID, _REGCLASS = 26, 2205
_BINARY_FORMS = {
    INT2.oid: "!h",
    INT4.oid: "!i",
    _OID: "!I",
    _REGCLASS: "!I",
    **dict.fromkeys((INT8.oid, TIME.oid, TIMESTAMP.oid, TIMESTAMPTZ.oid), "!q"),
    FLOAT4.oid: "!f",
    FLOAT8.oid: "!d",
    DATE.oid: "!i",
    BOOL.oid: "!?",
    INTERVAL.oid: "!qii",
}
"""Formats of ``struct`` for parameters in binary, by the oid of their type."""


def _text_of_binary(kind: PgType | None, field: bytes) -> str:
    """Return a parameter in binary as text; of an array, as DuckDB's literal. Raises BadParameter."""
    if kind is None:
        return _decode(field)
    if kind.element is not None:
        return _literal_of_array(field)
    if kind is BYTEA:
        return field.hex()
    if kind is UUID:
        if len(field) != 16:
            raise BadParameter("a uuid has 16 bytes")
        return str(uuid.UUID(bytes=field))
    if kind is NUMERIC:
        return _text_of_numeric(field)
    if kind.name == "jsonb":
        return _decode(field[1:])
    form = _BINARY_FORMS.get(kind.oid)
    if form is None:
        return _decode(field)
    try:
        numbers = struct.unpack(form, field)
    except struct.error:
        raise BadParameter(f"{kind.name} has {struct.calcsize(form)} bytes, not {len(field)}") from None
    return _text_of_numbers(kind, numbers)


def _text_of_numbers(kind: PgType, numbers: Sequence[Any]) -> str:
    try:
        match kind.name:
            case "date":
                return (_EPOCH + dt.timedelta(days=numbers[0])).date().isoformat()
            case "timestamp":
                return (_EPOCH + dt.timedelta(microseconds=numbers[0])).isoformat(" ")
            case "timestamptz":
                return (_EPOCH + dt.timedelta(microseconds=numbers[0])).isoformat(" ") + "+00"
            case "time":
                if not 0 <= numbers[0] <= _DAY_US:
                    raise BadParameter("a time is between 00:00:00 and 24:00:00")
                # The end of a day is another time than its beginning.
                clock = (_EPOCH + dt.timedelta(microseconds=numbers[0])).time().isoformat()
                return "24:00:00" if numbers[0] == _DAY_US else clock
            case "interval":
                return f"{numbers[2]} months {numbers[1]} days {numbers[0]} microseconds"
    except OverflowError:
        raise BadParameter(f"a {kind.name} is outside of the years 1 to 9999") from None
    return str(numbers[0])


def _text_of_numeric(field: bytes) -> str:
    if len(field) < 8 or len(field) % 2:
        raise BadParameter("a numeric is incomplete")
    count, weight, sign, scale = struct.unpack("!HhHH", field[:8])
    if len(field) != 8 + 2 * count or sign not in (0, 0x4000):
        raise BadParameter("a numeric is not finite, or its length does not match its number of digits")
    groups = struct.unpack(f"!{count}H", field[8:])
    # Limit: PostgreSQL allows 131,072 digits before the point, and a decimal of DuckDB has at most 38.
    if not -20 <= weight <= 20 or count > 20 or scale > 80:
        raise BadParameter("a numeric has more than 38 digits")
    if any(group >= NUMERIC_BASE for group in groups):
        raise BadParameter("a group of digits of a numeric is at most 9999")
    number = 0
    for group in groups:
        number = number * NUMERIC_BASE + group
    digits = tuple(map(int, str(number)))
    return format(Decimal((1 if sign else 0, digits, 4 * (weight - count + 1))), "f")


def _literal_of_array(field: bytes) -> str:
    if len(field) < 12:
        raise BadParameter("an array is incomplete")
    dimensions, _, oid = struct.unpack("!iII", field[:12])
    element = BY_OID.get(oid)
    if element is None or element.element is not None or dimensions not in (0, 1):
        raise BadParameter("only arrays of one dimension and of a supported type can be parameters")
    literals, position = [], 20
    while dimensions and position < len(field):
        size = int.from_bytes(field[position : position + 4], "big", signed=True)
        end = position + 4 + max(size, 0)
        if end > len(field):
            raise BadParameter("an array is incomplete")
        literals.append(literal(oid, BINARY_FORMAT, None if size < 0 else field[position + 4 : end]))
        position = end
    return f"CAST([{', '.join(literals)}] AS {element.duckdb}[])"


_ELEMENT = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*+)"|([^,{}"\\]*+))\s*', re.DOTALL)


def split_array(text: str) -> list[bytes | None]:
    """Return the elements of an array of one dimension such as ``{1,NULL,"a b"}``. Raises BadParameter."""
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        raise BadParameter("an array begins with { and ends with }")
    elements: list[bytes | None] = []
    position, end = 1, len(text) - 1
    while position < end or elements:
        match = _ELEMENT.match(text, position, end)
        assert match is not None  # an element may be empty
        if match[1] is not None:
            elements.append(re.sub(r"\\(.)", r"\1", match[1], flags=re.DOTALL).encode())
        else:
            bare = match[2].strip()
            elements.append(None if bare.upper() == "NULL" else bare.encode())
        position = match.end()
        if position >= end:
            break
        if text[position] != ",":
            raise BadParameter("only arrays of one dimension, with commas between their elements, can be parameters")
        position += 1
    return elements
