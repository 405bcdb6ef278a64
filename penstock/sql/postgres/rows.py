"""Rows of answers as messages on the wire, in text and in binary.

Fast path: whole columns are encoded at once, in Arrow. Only numeric, interval and array columns take a step per value,
and only if a client asks for them in binary.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.sql.postgres.types import (
    BINARY_FORMAT,
    BOOL,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSON,
    NUMERIC,
    NUMERIC_BASE,
    OID,
    TEXT,
    TEXT_FORMAT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    Column,
    PgType,
)

EPOCH_US, EPOCH_DAYS = 946_684_800_000_000, 10_957
"""PostgreSQL counts from 2000-01-01."""
_MAX_US, _MAX_DAYS = (1 << 63) - 1, (1 << 31) - 1


def expression(column: Column, reference: str, duckdb_type: str, form: int) -> str:
    """Return an expression whose value ``data_rows`` takes; ``reference`` is a column of type ``duckdb_type``."""
    kind = column.kind
    if kind is JSON:
        return f"CAST({'' if duckdb_type == 'JSON' else 'to_json'}({reference}) AS VARCHAR)"
    if kind.element is NUMERIC:
        # As texts: a common type of all decimals would round some of them.
        reference = f"CAST({reference} AS VARCHAR[])"
    elif kind is not NUMERIC and duckdb_type != kind.duckdb:
        reference = f"CAST({reference} AS {kind.duckdb})"
    if form == BINARY_FORMAT:
        return _BINARY_EXPRESSIONS.get(kind.oid, "{}").format(reference)
    if kind.element is not None:
        return _array_text(kind.element, reference)
    return _TEXT_EXPRESSIONS.get(kind.oid, "CAST({} AS VARCHAR)").format(reference)


_FLOAT_TEXT = (
    "CASE WHEN isnan({0}) THEN 'NaN' WHEN isinf({0}) THEN if({0} > 0, 'Infinity', '-Infinity') "
    "ELSE regexp_replace(CAST({0} AS VARCHAR), '\\.0$', '') END"
)
_TEXT_EXPRESSIONS = {
    BOOL.oid: "CASE WHEN {0} THEN 't' WHEN NOT {0} THEN 'f' END",
    BYTEA.oid: "'\\x' || lower(hex({0}))",
    FLOAT4.oid: _FLOAT_TEXT,
    FLOAT8.oid: _FLOAT_TEXT,
    INTERVAL.oid: "replace(CAST({0} AS VARCHAR), ' month', ' mon')",
}
_BINARY_EXPRESSIONS = {
    UUID.oid: "unhex(replace(CAST({0} AS VARCHAR), '-', ''))",
    NUMERIC.oid: "CAST({0} AS VARCHAR)",
}


def _array_text(element: PgType, reference: str) -> str:
    text = expression(Column("", element), "x", element.duckdb, TEXT_FORMAT)
    if element in (TEXT, BYTEA, TIMESTAMP, TIMESTAMPTZ, INTERVAL):
        text = f"'\"' || replace(replace({text}, '\\', '\\\\'), '\"', '\\\"') || '\"'"
    return f"'{{' || array_to_string(list_transform({reference}, lambda x: coalesce({text}, 'NULL')), ',') || '}}'"


def data_rows(
    batch: pa.RecordBatch, columns: Sequence[Column], formats: Sequence[int], kind: bytes = b"D"
) -> memoryview:
    """Return a message for each row. The columns of ``batch`` are the values of ``expression``; a row in binary is the
    same within a COPY, whose messages have the kind ``d``.
    """
    count = batch.num_rows
    if not count:
        return memoryview(b"")
    size, parts = np.full(count, 6, np.int64), list[Any]()
    for values, answer_column, form in zip(batch.columns, columns, formats, strict=True):
        field = _field(values, answer_column.kind, form)
        lengths = pc.fill_null(pc.binary_length(field), -1).to_numpy(zero_copy_only=False)
        size += 4 + np.maximum(lengths, 0)
        parts += [_fixed(lengths.astype(">i4"), 4), pc.fill_null(field, b"")]
    head = np.empty(count, np.dtype([("kind", "S1"), ("size", ">i4"), ("columns", ">i2")]))
    head["kind"], head["size"], head["columns"] = kind, size, len(columns)
    return _joined(_fixed(head, 7), parts)


def line_messages(lines: pa.LargeBinaryArray) -> memoryview:
    """Return a message of a COPY for each line."""
    head = np.empty(len(lines), np.dtype([("kind", "S1"), ("size", ">i4")]))
    head["kind"], head["size"] = b"d", 4 + pc.binary_length(lines).to_numpy(zero_copy_only=False)
    return _joined(_fixed(head, 5), [lines]) if len(lines) else memoryview(b"")


def _joined(heads: Any, parts: Sequence[Any]) -> memoryview:
    rows = pc.binary_join_element_wise(heads, *parts, pa.scalar(b"", pa.large_binary()))
    # The values of an array of bytes lie behind each other, without gaps: they are the messages.
    offsets = np.frombuffer(rows.buffers()[1], np.int64, len(rows) + 1, rows.offset * 8)
    return memoryview(rows.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def _fixed(values: np.ndarray[Any, Any], width: int) -> Any:
    content = pa.py_buffer(np.ascontiguousarray(values).tobytes())
    array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(values), [None, content])
    return array.cast(pa.large_binary())


def _field(values: Any, kind: PgType, form: int) -> Any:
    """Return the bytes of a column's values, null where a value is null."""
    if form == BINARY_FORMAT:
        if layout := _LAYOUTS.get(kind.oid):
            numbers = layout.numbers(values)
            field = _fixed(numbers.astype(layout.form), layout.width)
            return pc.if_else(pc.is_valid(values), field, pa.scalar(None, pa.large_binary()))
        if kind in (NUMERIC, INTERVAL) or kind.element is not None:
            encoded = [None if entry is None else binary_value(kind, entry) for entry in values.to_pylist()]
            return pa.array(encoded, pa.large_binary())
    return values.cast(pa.large_binary())


@dataclass(frozen=True, slots=True)
class _Layout:
    """A fixed number of bytes per value: ``form`` is numpy's type on the wire."""

    form: str
    numbers: Callable[[Any], np.ndarray[Any, Any]]

    @property
    def width(self) -> int:
        return np.dtype(self.form).itemsize


def _plain(values: Any) -> np.ndarray[Any, Any]:
    return np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False))


def _since_2000(unit: pa.DataType, epoch: int, largest: int) -> Callable[[Any], np.ndarray[Any, Any]]:
    def numbers(values: Any) -> np.ndarray[Any, Any]:
        counted = _plain(values.cast(unit)) if values.type != unit else _plain(values)
        # Infinity, and times so early that they would wrap around, which PostgreSQL cannot represent.
        shifted = np.where(counted < epoch - largest, -largest - 1, counted - epoch)
        return np.where(counted == largest, largest, shifted)

    return numbers


_MICROSECONDS = _since_2000(pa.int64(), EPOCH_US, _MAX_US)
_LAYOUTS = {
    BOOL.oid: _Layout("i1", lambda values: _plain(values.cast(pa.int8()))),
    INT2.oid: _Layout(">i2", _plain),
    INT4.oid: _Layout(">i4", _plain),
    INT8.oid: _Layout(">i8", _plain),
    OID.oid: _Layout(">u4", _plain),
    FLOAT4.oid: _Layout(">f4", _plain),
    FLOAT8.oid: _Layout(">f8", _plain),
    DATE.oid: _Layout(">i4", _since_2000(pa.int32(), EPOCH_DAYS, _MAX_DAYS)),
    TIME.oid: _Layout(">i8", lambda values: _plain(values.cast(pa.int64()))),
    TIMESTAMP.oid: _Layout(">i8", _MICROSECONDS),
    TIMESTAMPTZ.oid: _Layout(">i8", _MICROSECONDS),
}


def binary_value(kind: PgType, value: Any) -> bytes:
    """Return one value in binary."""
    if kind.element is not None:
        return _binary_array(kind.element, value)
    match kind.name:
        case "numeric":
            return _binary_numeric(str(value))
        case "interval":
            months, days, nanoseconds = value
            return struct.pack("!qii", nanoseconds // 1000, days, months)
        case "text":
            return str(value).encode()
        case "bytea":
            return bytes(value)
        case "uuid":
            return uuid.UUID(str(value)).bytes
    array = pa.array([value], _ARROW.get(kind.oid))
    return bytes(_field(array, kind, BINARY_FORMAT)[0].as_py())


_ARROW: dict[int, Any] = {
    INT2.oid: pa.int16(),
    INT4.oid: pa.int32(),
    INT8.oid: pa.int64(),
    OID.oid: pa.uint32(),
    FLOAT4.oid: pa.float32(),
    FLOAT8.oid: pa.float64(),
    TIME.oid: pa.time64("us"),
    TIMESTAMP.oid: pa.timestamp("us"),
    TIMESTAMPTZ.oid: pa.timestamp("us", "UTC"),
}


def _binary_array(element: PgType, values: Sequence[Any]) -> bytes:
    head = struct.pack("!iII", 1 if values else 0, int(None in values), element.oid)
    if not values:
        return head
    fields = [struct.pack("!ii", len(values), 1)]
    for value in values:
        encoded = b"" if value is None else binary_value(element, value)
        fields += [struct.pack("!i", -1 if value is None else len(encoded)), encoded]
    return head + b"".join(fields)


def _binary_numeric(text: str) -> bytes:
    sign, digits, exponent = Decimal(text).as_tuple()
    if not isinstance(exponent, int):
        return struct.pack("!HhHh", 0, 0, 0xC000, 0)
    scale = max(-exponent, 0)
    number = int("".join(map(str, digits))) * 10 ** (max(exponent, 0) + -scale % 4)
    groups: list[int] = []
    while number:
        number, group = divmod(number, NUMERIC_BASE)
        groups.insert(0, group)
    weight = len(groups) - 1 - (scale + 3) // 4
    while groups and not groups[-1]:
        groups.pop()
    return struct.pack(f"!HhHh{len(groups)}H", len(groups), weight, 0x4000 if sign else 0, scale, *groups)
