"""Types of PostgreSQL on the wire: DuckDB's types as PostgreSQL's, parameters as literals, rows as messages.

Whole columns are encoded at once, in Arrow. Only numeric, interval and array columns take a step per value, and only
if a client asks for them in binary.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError

TEXT_FORMAT, BINARY_FORMAT = 0, 1
EPOCH_US, EPOCH_DAYS = 946_684_800_000_000, 10_957
"""PostgreSQL counts from 2000-01-01."""
_MAX_US, _MAX_DAYS = (1 << 63) - 1, (1 << 31) - 1
_EPOCH = dt.datetime(2000, 1, 1)
NO_MODIFIER = -1
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_ARRAY_END = re.compile(r"\[\d*\]$")
_BASE = 10_000
"""PostgreSQL's numeric has digits of this base."""


class BadParameter(PenstockError, ValueError):
    """A parameter that is no value of its type."""


@dataclass(frozen=True, slots=True)
class PgType:
    """A type of PostgreSQL; ``duckdb`` is the type of the same values, ``size`` in bytes or -1."""

    name: str
    oid: int
    array_oid: int
    size: int
    category: str
    long_name: str
    duckdb: str
    element: PgType | None = None

    @property
    def array(self) -> PgType:
        """Return the type of arrays of this type."""
        return PgType(f"_{self.name}", self.array_oid, 0, -1, "A", "ARRAY", f"{self.duckdb}[]", self)


BOOL = PgType("bool", 16, 1000, 1, "B", "boolean", "BOOLEAN")
BYTEA = PgType("bytea", 17, 1001, -1, "U", "bytea", "BLOB")
INT8 = PgType("int8", 20, 1016, 8, "N", "bigint", "BIGINT")
INT2 = PgType("int2", 21, 1005, 2, "N", "smallint", "SMALLINT")
INT4 = PgType("int4", 23, 1007, 4, "N", "integer", "INTEGER")
TEXT = PgType("text", 25, 1009, -1, "S", "text", "VARCHAR")
JSON = PgType("json", 114, 199, -1, "U", "json", "JSON")
FLOAT4 = PgType("float4", 700, 1021, 4, "N", "real", "FLOAT")
FLOAT8 = PgType("float8", 701, 1022, 8, "N", "double precision", "DOUBLE")
DATE = PgType("date", 1082, 1182, 4, "D", "date", "DATE")
TIME = PgType("time", 1083, 1183, 8, "D", "time without time zone", "TIME")
TIMESTAMP = PgType("timestamp", 1114, 1115, 8, "D", "timestamp without time zone", "TIMESTAMP")
TIMESTAMPTZ = PgType("timestamptz", 1184, 1185, 8, "D", "timestamp with time zone", "TIMESTAMPTZ")
INTERVAL = PgType("interval", 1186, 1187, 16, "T", "interval", "INTERVAL")
NUMERIC = PgType("numeric", 1700, 1231, -1, "N", "numeric", "DECIMAL(38,9)")
UUID = PgType("uuid", 2950, 2951, 16, "U", "uuid", "UUID")
ANSWERED = (
    *(BOOL, BYTEA, INT8, INT2, INT4, TEXT, JSON, FLOAT4, FLOAT8, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL),
    *(NUMERIC, UUID),
)
"""Types of columns."""
DECLARED = (
    PgType("char", 18, 1002, 1, "Z", '"char"', "VARCHAR"),
    PgType("name", 19, 1003, 64, "S", "name", "VARCHAR"),
    PgType("oid", 26, 1028, 4, "N", "oid", "BIGINT"),
    PgType("bpchar", 1042, 1014, -1, "S", "character", "VARCHAR"),
    PgType("varchar", 1043, 1015, -1, "S", "character varying", "VARCHAR"),
    PgType("jsonb", 3802, 3807, -1, "U", "jsonb", "JSON"),
    PgType("regclass", 2205, 2210, 4, "N", "regclass", "BIGINT"),
)
"""Types that clients declare for parameters in addition."""
BY_OID = {kind.oid: kind for scalar in (*ANSWERED, *DECLARED) for kind in (scalar, scalar.array)}
_BY_DUCKDB = {
    **{kind.duckdb: kind for kind in ANSWERED if kind is not NUMERIC},
    **dict.fromkeys(("TINYINT", "UTINYINT"), INT2),
    "USMALLINT": INT4,
    "UINTEGER": INT8,
    **dict.fromkeys(("UBIGINT", "HUGEINT", "UHUGEINT", "BIGNUM"), NUMERIC),
    "TIMESTAMP WITH TIME ZONE": TIMESTAMPTZ,
    "TIMESTAMPTZ_NS": TIMESTAMPTZ,
    **dict.fromkeys(("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), TIMESTAMP),
    "TIME_NS": TIME,
    **dict.fromkeys(('"NULL"', "NULL", "BIT", "TIME WITH TIME ZONE", "TIMETZ"), TEXT),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an answer; ``modifier`` is precision and scale of a numeric."""

    name: str
    kind: PgType
    modifier: int = NO_MODIFIER


def column(name: str, duckdb_type: str) -> Column:
    """Return a column of a type of DuckDB. Types that PostgreSQL lacks become json."""
    if scalar := _BY_DUCKDB.get(duckdb_type):
        return Column(name, scalar)
    if match := _DECIMAL.fullmatch(duckdb_type):
        return Column(name, NUMERIC, (int(match[1]) << 16 | int(match[2])) + 4)
    if duckdb_type.startswith("ENUM("):
        return Column(name, TEXT)
    element = _BY_DUCKDB.get(_ARRAY_END.sub("", duckdb_type))
    if element is not None and element is not JSON and duckdb_type.endswith("]"):
        return Column(name, element.array)
    return Column(name, JSON)


def expression(column: Column, reference: str, duckdb_type: str, form: int) -> str:
    """Return an expression whose value ``data_rows`` takes; ``reference`` is a column of type ``duckdb_type``."""
    kind = column.kind
    if kind is JSON:
        return f"CAST({'' if duckdb_type == 'JSON' else 'to_json'}({reference}) AS VARCHAR)"
    if kind is not NUMERIC and duckdb_type != kind.duckdb:
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


def data_rows(batch: pa.RecordBatch, columns: Sequence[Column], formats: Sequence[int]) -> memoryview:
    """Return a message for each row. The columns of ``batch`` are the values of ``expression``."""
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
    head["kind"], head["size"], head["columns"] = b"D", size, len(columns)
    rows = pc.binary_join_element_wise(_fixed(head, 7), *parts, pa.scalar(b"", pa.large_binary()))
    # The values of an array of bytes lie behind each other, without gaps: they are the messages.
    offsets = np.frombuffer(rows.buffers()[1], np.int64, count + 1, rows.offset * 8)
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
        number, group = divmod(number, _BASE)
        groups.insert(0, group)
    weight = len(groups) - 1 - (scale + 3) // 4
    while groups and not groups[-1]:
        groups.pop()
    return struct.pack(f"!HhHh{len(groups)}H", len(groups), weight, 0x4000 if sign else 0, scale, *groups)


def literal(oid: int, form: int, field: bytes | None) -> str:
    """Return a parameter as DuckDB's literal. One without a declared type is a plain text literal, which takes the type
    that its place needs. Raises BadParameter.
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
    if kind is BYTEA and form == TEXT_FORMAT and text.startswith("\\x"):
        return f"unhex({quoted(text[2:])})"
    if kind is BYTEA:
        return f"unhex({quoted(text)})" if form == BINARY_FORMAT else f"encode({quoted(text)})"
    if kind is NUMERIC:
        return _numeric_literal(text)
    return f"CAST({quoted(text)} AS {kind.duckdb})"


def _numeric_literal(text: str) -> str:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise BadParameter(f"{text[:40]!r} is not numeric") from None
    _, digits, exponent = number.as_tuple()
    # A number with more digits than DuckDB's decimals have, and one with an exponent, is compared as a double.
    if not isinstance(exponent, int) or len(digits) > 38 or not -38 <= exponent <= 0:
        return f"CAST({quoted(text)} AS DOUBLE)"
    return f"({number:f})"


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


_FORMS = {
    **dict.fromkeys((INT2.oid,), "!h"),
    **dict.fromkeys((INT4.oid,), "!i"),
    **dict.fromkeys((26, 2205), "!I"),
    **dict.fromkeys((INT8.oid, TIME.oid, TIMESTAMP.oid, TIMESTAMPTZ.oid), "!q"),
    FLOAT4.oid: "!f",
    FLOAT8.oid: "!d",
    DATE.oid: "!i",
    BOOL.oid: "!?",
    INTERVAL.oid: "!qii",
}


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
    form = _FORMS.get(kind.oid)
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
                return (_EPOCH + dt.timedelta(microseconds=numbers[0])).time().isoformat()
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
        raise BadParameter("a numeric is not finite, or has not the digits that it announces")
    groups = struct.unpack(f"!{count}H", field[8:])
    # Limit: 131,072 digits before the point are allowed in PostgreSQL, and no decimal of DuckDB has more than 38.
    if not -20 <= weight <= 20 or count > 20 or scale > 80:
        raise BadParameter("a numeric has more than 38 digits")
    number = 0
    for group in groups:
        number = number * _BASE + group
    digits = tuple(map(int, str(number)))
    return format(Decimal((1 if sign else 0, digits, 4 * (weight - count + 1))), "f")


def _literal_of_array(field: bytes) -> str:
    if len(field) < 12:
        raise BadParameter("an array is incomplete")
    dimensions, _, oid = struct.unpack("!iII", field[:12])
    element = BY_OID.get(oid)
    if element is None or element.element is not None or dimensions not in (0, 1):
        raise BadParameter("an array has one dimension, of a type that exists here")
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
            raise BadParameter("an array has one dimension, with commas between its elements")
        position += 1
    return elements
