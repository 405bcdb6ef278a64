"""Parse payloads that begin with a brace as events: their fields as columns, or the reason why one is not an event.

The rules, in order; the first broken one is the reason: UTF-8; strict JSON to the last byte (``strict_json``);
``type`` a string of 1 to MAX_TYPE_BYTES bytes without control characters; ``uuid`` a string of 1 to MAX_UUID_BYTES
bytes; ``timestamp`` a number of milliseconds within the years 1 to 9999. The first of several keys with one name
counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.landing.event_rules import (
    MAX_TIMESTAMP,
    MAX_TYPE_BYTES,
    MAX_UUID_BYTES,
    MIN_TIMESTAMP,
    UNSAFE_IN_TYPE,
    Event,
    Reason,
)
from penstock.landing.rows.data_text import as_sent, ends_with_data
from penstock.landing.rows.engine import Mask, as_mask, compute, pc, text_bytes
from penstock.landing.rows.strict_json import loads, not_strict
from penstock.landing.rows.type_schemas import Schema, find_violations, is_of_contract
from penstock.landing.table_schema import MICROS

FIELDS = ("type", "uuid", "host", "timestamp", "data")
_PATHS = ", ".join(f"'$.{name}'" for name in FIELDS)
_FIELD_TEXTS, _TIMED_FIELD_TEXTS = (
    {"fields": f"CASE WHEN json_valid(text) THEN json_extract(text, [{paths}]) END"}
    for paths in (_PATHS, f"{_PATHS}, '$.\"@timestamp\"'")
)
DOCUMENT_TIME = "document_time"
_EVENT_COLUMNS = {name: f"fields[{number}]" for number, name in enumerate(FIELDS, 1)}
_EVENT_COLUMNS |= {"is_json": "fields IS NOT NULL", "at_end": ends_with_data(f"{_EVENT_COLUMNS['data']}::VARCHAR")}
_PLAIN_NUMBER, _MAX_CAST_MILLIS = r"^-?[0-9]{1,15}$", 10**15
_DECIMAL_NUMBER = r"^-?[0-9]{1,15}\.[0-9]{1,9}$"
_TIMESTAMP_MEMBER = r'"timestamp"\s*:\s*(?P<number>[-+.0-9eE]+)'
_MICRO_IN_MILLIS = Decimal("0.001")
_MILLIS_WITH_NANOS = pa.decimal128(30, 9)


@dataclass(frozen=True, slots=True)
class EventRules:
    """The rules for accepted events: ``event_types`` (empty: all), and the schemas of the data of some types."""

    event_types: tuple[str, ...] = ()
    schemas: tuple[Schema, ...] = field(default=())


def event_columns(
    payloads: pa.Array[Any], rules: EventRules, has_document_time: bool = False
) -> dict[str, pa.Array[Any]]:
    """Return the columns ``type``, ``uuid``, ``host``, ``data`` (JSON text), ``event_time`` (MICROS) and ``reason``.

    ``payloads`` are binary and begin with a brace. Where ``reason`` is set, the other columns are null.
    With ``has_document_time`` there is also ``DOCUMENT_TIME``: the text or number in ``@timestamp``, of any JSON.
    """
    texts = decode_payloads(payloads)
    fields = _extract(texts, has_document_time)
    strings = {name: json_strings(fields[name]) for name in ("type", "uuid", "host")}
    micros, bad_time = _micros(fields["timestamp"], texts)
    broken: dict[str, Mask] = {
        Reason.BAD_JSON: ~as_mask(fields["is_json"]),
        Reason.MISSING_TYPE: _is_absent(fields["type"]),
        Reason.BAD_TYPE: _is_bad_type(strings["type"]),
        Reason.MISSING_UUID: _is_absent(fields["uuid"]),
        Reason.BAD_UUID: _has_bad_length(strings["uuid"], MAX_UUID_BYTES),
        Reason.BAD_TIMESTAMP: bad_time,
    }
    if rules.event_types:
        is_allowed = pc.is_in(strings["type"], value_set=pa.array(rules.event_types, pa.string()))
        broken[Reason.TYPE_NOT_ALLOWED] = ~as_mask(is_allowed)
    if rules.schemas:
        violations = find_violations(strings["type"], fields["data"], rules.schemas)
        # Order: a field that does not fit its type before contracts, which its table judges by values that fit.
        broken |= {reason: violations[reason] for reason in sorted(violations, key=is_of_contract)}
    reason = _first_reasons(broken, len(payloads))
    columns = {**strings, "data": fields["data"], "event_time": micros}
    is_valid = pc.is_null(reason)
    valid_columns = (
        columns if pc.all(is_valid).as_py() is not False else {n: mask_invalid(is_valid, c) for n, c in columns.items()}
    )
    if has_document_time:
        document_time = fields[DOCUMENT_TIME]
        valid_columns = {**valid_columns, DOCUMENT_TIME: pc.coalesce(json_strings(document_time), document_time)}
    return {**valid_columns, "reason": reason}


def mask_invalid(is_valid: pa.Array[Any], column: pa.Array[Any]) -> pa.Array[Any]:
    """Return a column with null in place of invalid values."""
    masked: pa.Array[Any] = pc.if_else(is_valid, column, pa.scalar(None, column.type))
    return masked


def decode_payloads(payloads: pa.Array[Any]) -> pa.Array[Any]:
    """Convert to strings; null where a payload is not UTF-8."""
    try:
        return payloads.cast(pa.string())
    except pa.ArrowInvalid:
        if len(payloads) == 1:
            return pa.nulls(1, pa.string())
        # A cast fails for a whole column: halving finds the few invalid payloads in a logarithmic number of casts.
        half = len(payloads) // 2
        return pa.concat_arrays([decode_payloads(payloads[:half]), decode_payloads(payloads[half:])])


def _extract(texts: pa.Array[Any], has_document_time: bool) -> dict[str, pa.Array[Any]]:
    """Return the JSON text of each field, null if absent; ``is_json`` is whether the payload is JSON."""
    is_refused = not_strict(texts)
    if is_refused.any():
        texts = pc.if_else(pa.array(is_refused), pa.scalar(None, pa.string()), texts)
    # Fast path: one more field of the same parse costs 0.07 us a message.
    if has_document_time:
        expressions = {**_EVENT_COLUMNS, DOCUMENT_TIME: f"fields[{len(FIELDS) + 1}]"}
        columns = compute(expressions, _TIMED_FIELD_TEXTS, text=texts)
    else:
        columns = compute(_EVENT_COLUMNS, _FIELD_TEXTS, text=texts)
    return {**columns, "data": as_sent(texts, columns["data"], columns["at_end"])}


def json_strings(json_texts: pa.Array[Any]) -> pa.Array[Any]:
    """Return the values of JSON texts that are strings, else null."""
    is_string = pc.starts_with(json_texts, '"')
    raw = pc.binary_slice(json_texts.cast(pa.binary()), 1, -1).cast(pa.string(), safe=False)
    unescaped: pa.Array[Any] = pc.if_else(is_string, raw, pa.scalar(None, pa.string()))
    # Fast path: without any backslash, the usual case, the quotes are cut off and no text is parsed.
    if not (text_bytes(json_texts)[1] == ord("\\")).any():
        return unescaped
    is_escaped = pc.and_(is_string, pc.match_substring(json_texts, "\\"))
    parsed = compute({"value": "json_extract_string(text, '$')"}, text=json_texts.filter(is_escaped))
    strings: pa.Array[Any] = pc.replace_with_mask(
        unescaped, pc.fill_null(is_escaped, pa.scalar(False)), parsed["value"]
    )
    return strings


def _micros(numbers: pa.Array[Any], texts: pa.Array[Any]) -> tuple[pa.Array[Any], Mask]:
    """Convert milliseconds to times, rounded to the microsecond; return times and a mask of invalid ones."""
    micros, is_plain = _plain_micros(numbers)
    is_other = as_mask(pc.is_valid(numbers)) & ~is_plain
    if is_other.any():
        is_other &= _matches(numbers, r"^[-0-9]")
        _fill(micros, is_other, texts, _written_micros)
    is_bad = ~is_plain & ~is_other
    is_bad |= (micros < MIN_TIMESTAMP * 1000) | (micros > MAX_TIMESTAMP * 1000)
    return pa.array(micros, mask=is_bad).cast(MICROS), is_bad


def _plain_micros(numbers: pa.Array[Any]) -> tuple[np.ndarray[Any, Any], Mask]:
    """Convert integers of up to 15 digits; return microseconds and a mask of the converted rows."""
    # Fast path: one cast, if all numbers are such integers, which is the usual case.
    with contextlib.suppress(pa.ArrowInvalid):
        millis = numbers.cast(pa.int64()).fill_null(0).to_numpy()
        if millis.min(initial=0) > -_MAX_CAST_MILLIS and millis.max(initial=0) < _MAX_CAST_MILLIS:
            return millis * 1000, as_mask(pc.is_valid(numbers))
    is_plain, micros = _matches(numbers, _PLAIN_NUMBER), np.zeros(len(numbers), np.int64)
    _fill(micros, is_plain, numbers, _whole_millis)
    return micros, is_plain


def _fill(micros: np.ndarray[Any, Any], rows: Mask, texts: pa.Array[Any], read: Callable[[pa.Array[Any]], Any]) -> None:
    if rows.any():
        micros[rows] = read(texts.filter(pa.array(rows)))


def _matches(texts: pa.Array[Any], pattern: str) -> Mask:
    return as_mask(pc.match_substring_regex(texts, pattern))


def _whole_millis(texts: pa.Array[Any]) -> Any:
    return texts.cast(pa.int64()).to_numpy() * 1000


def _written_micros(texts: pa.Array[Any]) -> Any:
    """Convert timestamps with a point or exponent, read from the payload: DuckDB rounds them to doubles."""
    has_single_key = as_mask(pc.equal(pc.count_substring(texts, '"timestamp"'), pa.scalar(1, pa.int32())))
    has_single_key &= ~as_mask(pc.match_substring(texts, "\\u"))
    number_texts = pc.if_else(
        pa.array(has_single_key), pc.struct_field(pc.extract_regex(texts, _TIMESTAMP_MEMBER), "number"), texts
    )
    is_decimal = has_single_key & _matches(number_texts, _DECIMAL_NUMBER)
    micros = np.zeros(len(texts), np.int64)
    _fill(micros, is_decimal, number_texts, _decimal_micros)
    remaining = number_texts.filter(pa.array(~is_decimal)).to_pylist()
    numbers = (
        text if is_number else _first_timestamp(text)
        for text, is_number in zip(remaining, has_single_key[~is_decimal], strict=True)
    )
    micros[~is_decimal] = [_exact_micros(number) for number in numbers]
    return micros


def _first_timestamp(text: str) -> str:
    """Parse a payload whose timestamp key is escaped or repeated; the first one counts."""
    return str(loads(text, object_pairs_hook=lambda pairs: dict(reversed(pairs)))["timestamp"])


def _decimal_micros(texts: pa.Array[Any]) -> Any:
    rounded = pc.round(texts.cast(_MILLIS_WITH_NANOS), ndigits=3, round_mode="half_towards_infinity")
    return pc.multiply(rounded, pa.scalar(Decimal(1000))).cast(pa.decimal128(38, 12)).cast(pa.int64(), safe=False)


def _exact_micros(text: str) -> int:
    """Convert numbers with exponents and long ones; all that are out of bounds become one value out of bounds."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        # Decimal refuses an exponent of twenty digits; as a float such a number is 0 or infinite.
        number = Decimal(float(text))
    if not MIN_TIMESTAMP - 1 <= number <= MAX_TIMESTAMP + 1:
        return MAX_TIMESTAMP * 1000 + 1
    return int(number.quantize(_MICRO_IN_MILLIS, ROUND_HALF_UP) * 1000)


def _is_absent(json_texts: pa.Array[Any]) -> Mask:
    return as_mask(pc.is_null(json_texts)) | as_mask(pc.equal(json_texts, pa.scalar("null")))


def _is_bad_type(types: pa.Array[Any]) -> Mask:
    # Fast path: each distinct type is checked once; batches have few.
    encoded = types.dictionary_encode()
    names = encoded.dictionary
    is_bad_name = _has_bad_length(names, MAX_TYPE_BYTES) | as_mask(pc.match_substring_regex(names, UNSAFE_IN_TYPE))
    has_type = as_mask(pc.is_valid(types))
    is_bad = np.ones(len(types), bool)
    is_bad[has_type] = is_bad_name[encoded.indices.drop_null().to_numpy()]
    return is_bad


def _has_bad_length(texts: pa.Array[Any], max_bytes: int) -> Mask:
    size = pc.fill_null(pc.binary_length(texts), pa.scalar(0, pa.int32())).to_numpy()
    is_bad: Mask = (size == 0) | (size > max_bytes)
    return is_bad


def _first_reasons(broken: dict[str, Mask], rows: int) -> pa.Array[Any]:
    names: Sequence[str] = list(broken)
    reason_index = np.full(rows, -1, np.int32)
    # Order: from the last rule to the first, so that the first broken rule wins.
    for number in reversed(range(len(names))):
        reason_index[broken[names[number]]] = number
    reasons = pa.array([str(name) for name in names], pa.string())
    first_reasons: pa.Array[Any] = pc.take(reasons, pa.array(reason_index, mask=reason_index < 0))
    return first_reasons


def parse_events(payloads: pa.Array[Any], rules: EventRules | None = None) -> list[Event | None]:
    """Return the valid event in each payload (binary), or None."""
    events: list[Event | None] = [None] * len(payloads)
    rows = np.flatnonzero(as_mask(pc.starts_with(payloads, "{")))
    if len(rows):
        columns = event_columns(pc.take(payloads, pa.array(rows)), rules or EventRules())
        texts = (columns[name].to_pylist() for name in ("type", "uuid", "reason"))
        for row, kind, uuid, reason in zip(rows.tolist(), *texts, strict=True):
            events[row] = Event(kind, uuid) if reason is None else None
    return events
