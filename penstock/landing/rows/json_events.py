"""Payloads that begin with a brace, as events: their fields as columns, or the reason why one is none.

The rules, the first that is broken being the reason: UTF-8; JSON to the last byte (``strict_json``); ``type`` a string
of 1 to MAX_TYPE_BYTES bytes without control characters; ``uuid`` a string of 1 to MAX_UUID_BYTES bytes; ``timestamp`` a
number of milliseconds within the years 1 to 9999. Of a key that stands there twice the first counts.
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
from penstock.landing.rows.data_text import as_sent, stands_last
from penstock.landing.rows.engine import Mask, as_mask, compute, contents, pc
from penstock.landing.rows.strict_json import loads, not_strict
from penstock.landing.rows.type_schemas import Schema, not_met
from penstock.landing.table_schema import MICROS

FIELDS = ("type", "uuid", "host", "timestamp", "data")
_PATHS = ", ".join(f"'$.{name}'" for name in FIELDS)
_PARSED = {"found": f"CASE WHEN json_valid(text) THEN json_extract(text, [{_PATHS}]) END"}
_COLUMNS = {name: f"found[{number}]" for number, name in enumerate(FIELDS, 1)}
_COLUMNS |= {"whole": "found IS NOT NULL", "stands": stands_last(f"{_COLUMNS['data']}::VARCHAR")}
_PLAIN_NUMBER, _LONG = r"^-?[0-9]{1,15}$", 10**15
_DECIMAL_NUMBER = r"^-?[0-9]{1,15}\.[0-9]{1,9}$"
_WRITTEN = r'"timestamp"\s*:\s*(?P<number>[-+.0-9eE]+)'
_MICRO = Decimal("0.001")
_NANOS = pa.decimal128(30, 9)


@dataclass(frozen=True, slots=True)
class EventRules:
    """Which events are let in: ``event_types`` (empty: all), and what the data of some types has to be."""

    event_types: tuple[str, ...] = ()
    schemas: tuple[Schema, ...] = field(default=())


def event_columns(payloads: pa.Array[Any], rules: EventRules) -> dict[str, pa.Array[Any]]:
    """Of payloads (binary, each beginning with a brace): ``type``, ``uuid``, ``host``, ``data`` (JSON text; of
    strings), ``event_time`` (MICROS) and ``reason``; all but the reason null where there is one, and that null where
    there is none.
    """
    texts = _texts(payloads)
    found = _extracted(texts)
    values = {name: _strings(found[name]) for name in ("type", "uuid", "host")}
    micros, bad_time = _micros(found["timestamp"], texts)
    broken = {
        Reason.BAD_JSON: ~as_mask(found["whole"]),
        Reason.MISSING_TYPE: _absent(found["type"]),
        Reason.BAD_TYPE: _bad_type(values["type"]),
        Reason.MISSING_UUID: _absent(found["uuid"]),
        Reason.BAD_UUID: _bad_length(values["uuid"], MAX_UUID_BYTES),
        Reason.BAD_TIMESTAMP: bad_time,
    }
    if rules.event_types:
        allowed = pc.is_in(values["type"], value_set=pa.array(rules.event_types, pa.string()))
        broken[Reason.TYPE_NOT_ALLOWED] = ~as_mask(allowed)
    if rules.schemas:
        broken[Reason.SCHEMA_NOT_MET] = not_met(values["type"], found["data"], rules.schemas)
    reason = _first_broken(broken, len(payloads))
    columns = {**values, "data": found["data"], "event_time": micros}
    valid = pc.is_null(reason)
    kept = columns if pc.all(valid).as_py() is not False else {n: _only(valid, c) for n, c in columns.items()}
    return {**kept, "reason": reason}


def _only(valid: pa.Array[Any], column: pa.Array[Any]) -> pa.Array[Any]:
    kept: pa.Array[Any] = pc.if_else(valid, column, pa.scalar(None, column.type))
    return kept


def _texts(payloads: pa.Array[Any]) -> pa.Array[Any]:
    """As strings; null where a payload is not UTF-8."""
    try:
        return payloads.cast(pa.string())
    except pa.ArrowInvalid:
        if len(payloads) == 1:
            return pa.nulls(1, pa.string())
        half = len(payloads) // 2
        return pa.concat_arrays([_texts(payloads[:half]), _texts(payloads[half:])])


def _extracted(texts: pa.Array[Any]) -> dict[str, pa.Array[Any]]:
    """By field its JSON text, null where it is not there; ``whole`` says whether the text is JSON."""
    refused = not_strict(texts)
    if refused.any():
        texts = pc.if_else(pa.array(refused), pa.scalar(None, pa.string()), texts)
    found = compute(_COLUMNS, _PARSED, text=texts)
    return {**found, "data": as_sent(texts, found["data"], found["stands"])}


def _strings(found: pa.Array[Any]) -> pa.Array[Any]:
    """The values of JSON texts that are strings, else null. Only escaped ones need a parser again."""
    quoted = pc.starts_with(found, '"')
    inner = pc.binary_slice(found.cast(pa.binary()), 1, -1).cast(pa.string(), safe=False)
    unescaped: pa.Array[Any] = pc.if_else(quoted, inner, pa.scalar(None, pa.string()))
    if not (contents(found)[1] == ord("\\")).any():  # nearly always, and soon seen
        return unescaped
    escaped = pc.and_(quoted, pc.match_substring(found, "\\"))
    values = compute({"value": "json_extract_string(text, '$')"}, text=found.filter(escaped))
    replaced: pa.Array[Any] = pc.replace_with_mask(unescaped, pc.fill_null(escaped, pa.scalar(False)), values["value"])
    return replaced


def _micros(found: pa.Array[Any], texts: pa.Array[Any]) -> tuple[pa.Array[Any], Mask]:
    """Numbers of milliseconds as times, rounded to the microsecond; and which are none."""
    micros, plain = _plain_micros(found)
    others = as_mask(pc.is_valid(found)) & ~plain
    if others.any():
        others &= _matching(found, r"^[-0-9]")
        _put(micros, others, texts, _written_micros)
    bad = ~plain & ~others
    bad |= (micros < MIN_TIMESTAMP * 1000) | (micros > MAX_TIMESTAMP * 1000)
    return pa.array(micros, mask=bad).cast(MICROS), bad


def _plain_micros(found: pa.Array[Any]) -> tuple[np.ndarray[Any, Any], Mask]:
    """Of those that are whole and not long; and which are. Nearly always all, which a cast shows at once."""
    with contextlib.suppress(pa.ArrowInvalid):
        millis = found.cast(pa.int64()).fill_null(0).to_numpy()
        if millis.min(initial=0) > -_LONG and millis.max(initial=0) < _LONG:
            return millis * 1000, as_mask(pc.is_valid(found))
    plain, micros = _matching(found, _PLAIN_NUMBER), np.zeros(len(found), np.int64)
    _put(micros, plain, found, _whole_millis)
    return micros, plain


def _put(micros: np.ndarray[Any, Any], rows: Mask, texts: pa.Array[Any], read: Callable[[pa.Array[Any]], Any]) -> None:
    if rows.any():
        micros[rows] = read(texts.filter(pa.array(rows)))


def _matching(found: pa.Array[Any], pattern: str) -> Mask:
    return as_mask(pc.match_substring_regex(found, pattern))


def _whole_millis(texts: pa.Array[Any]) -> Any:
    return texts.cast(pa.int64()).to_numpy() * 1000


def _written_micros(texts: pa.Array[Any]) -> Any:
    """Of events whose timestamp has a point or an exponent: DuckDB makes doubles of those."""
    once = as_mask(pc.equal(pc.count_substring(texts, '"timestamp"'), pa.scalar(1, pa.int32())))
    once &= ~as_mask(pc.match_substring(texts, "\\u"))
    written = pc.if_else(pa.array(once), pc.struct_field(pc.extract_regex(texts, _WRITTEN), "number"), texts)
    decimals = once & _matching(written, _DECIMAL_NUMBER)
    micros = np.zeros(len(texts), np.int64)
    _put(micros, decimals, written, _decimal_micros)
    found = written.filter(pa.array(~decimals)).to_pylist()
    numbers = (one if known else _first_timestamp(one) for one, known in zip(found, once[~decimals], strict=True))
    micros[~decimals] = [_exact_micros(number) for number in numbers]
    return micros


def _first_timestamp(text: str) -> str:
    """Where a key may be escaped, or be there several times."""
    return str(loads(text, object_pairs_hook=lambda pairs: dict(reversed(pairs)))["timestamp"])


def _decimal_micros(texts: pa.Array[Any]) -> Any:
    rounded = pc.round(texts.cast(_NANOS), ndigits=3, round_mode="half_towards_infinity")
    return pc.multiply(rounded, pa.scalar(Decimal(1000))).cast(pa.decimal128(38, 12)).cast(pa.int64(), safe=False)


def _exact_micros(text: str) -> int:
    """Numbers with exponents, and long ones; those that are out of bounds all become the same."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal(float(text))  # an exponent of twenty digits: nothing, or infinite
    if not MIN_TIMESTAMP - 1 <= number <= MAX_TIMESTAMP + 1:
        return MAX_TIMESTAMP * 1000 + 1
    return int(number.quantize(_MICRO, ROUND_HALF_UP) * 1000)


def _absent(found: pa.Array[Any]) -> Mask:
    return as_mask(pc.is_null(found)) | as_mask(pc.equal(found, pa.scalar("null")))


def _bad_type(values: pa.Array[Any]) -> Mask:
    """Looked at once for each different type."""
    encoded = values.dictionary_encode()
    names = encoded.dictionary
    bad = _bad_length(names, MAX_TYPE_BYTES) | as_mask(pc.match_substring_regex(names, UNSAFE_IN_TYPE))
    known = as_mask(pc.is_valid(values))
    found = np.ones(len(values), bool)
    found[known] = bad[encoded.indices.drop_null().to_numpy()]
    return found


def _bad_length(values: pa.Array[Any], most: int) -> Mask:
    size = pc.fill_null(pc.binary_length(values), pa.scalar(0, pa.int32())).to_numpy()
    bad: Mask = (size == 0) | (size > most)
    return bad


def _first_broken(broken: dict[Reason, Mask], rows: int) -> pa.Array[Any]:
    names: Sequence[Reason] = list(broken)
    code = np.full(rows, -1, np.int32)
    for number in reversed(range(len(names))):
        code[broken[names[number]]] = number
    reasons = pa.array([str(name) for name in names], pa.string())
    found: pa.Array[Any] = pc.take(reasons, pa.array(code, mask=code < 0))
    return found


def events_in(payloads: pa.Array[Any], rules: EventRules | None = None) -> list[Event | None]:
    """The valid event that each payload (binary) is; None where it is none."""
    found: list[Event | None] = [None] * len(payloads)
    rows = np.flatnonzero(as_mask(pc.starts_with(payloads, "{")))
    if len(rows):
        columns = event_columns(pc.take(payloads, pa.array(rows)), rules or EventRules())
        texts = (columns[name].to_pylist() for name in ("type", "uuid", "reason"))
        for row, kind, uuid, reason in zip(rows.tolist(), *texts, strict=True):
            found[row] = Event(kind, uuid) if reason is None else None
    return found
