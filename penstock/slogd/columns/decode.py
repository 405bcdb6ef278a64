"""Entries from protobuf's bytes to record batches, whole columns at a time.

Requests and answers of any size come out exactly as protobuf reads them: what these columns cannot take (fields
given twice, fields that are not known, texts that are not UTF-8) is read by protobuf itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from penstock import records
from penstock.slogd.columns.entries import to_body
from penstock.slogd.columns.wire_columns import Bytes, Found, Irregular, Places, chain, fields, gather
from penstock.slogd.errors import BadRequest
from penstock.slogd.slogd_pb2 import AppendRequest, GetLogsResponse

SMALL = 12 << 10
"""Bytes up to which protobuf is faster than some fifty numpy calls."""

LOGS = 0x12
"""Tag of AppendRequest.logs and of GetLogsResponse.logs."""
_TOPIC = 0x0A
_OFFSET, _TIMESTAMP, _ANY, _RAW, _ANNOTATION, _KEY = 0x08, 0x12, 0x1A, 0x22, 0x2A, 0x32
_ENTRY = (_OFFSET, _TIMESTAMP, _ANY, _RAW, _ANNOTATION, _KEY)
_SECONDS, _NANOS = 0x08, 0x10
_FIRST, _SECOND = 0x0A, 0x12
"""Both fields of an Any (type URL, value) and of a map's entry (key, value)."""


@dataclass(frozen=True, slots=True)
class Append:
    """An AppendRequest: its plain fields, and the BODY batch of its entries."""

    topic: str
    body: pa.RecordBatch
    transaction_id: str = ""
    producer_id: str = ""
    sequence: int = 0
    unknown: str = ""
    """Name of a field that was passed over (JSON alone)."""


def topic_of(data: bytes) -> str:
    """The topic that an AppendRequest names in its first field, where encoders put it; else ""."""
    begin, end = _topic(data)
    return data[begin:end].decode(errors="replace")


def _topic(data: bytes) -> tuple[int, int]:
    """Where the topic stands; (0, 0) when the request does not begin with it."""
    if len(data) < 3 or data[0] != _TOPIC:
        return 0, 0
    if data[1] < 0x80:
        return 2, 2 + data[1]
    return (3, 3 + (data[1] & 0x7F | data[2] << 7)) if data[2] < 0x80 else (0, 0)


def parse_append(data: bytes) -> Append:
    """The request in ``data``. Raises BadRequest when it is not one."""
    if len(data) > SMALL:
        try:
            return _columnar(data)
        except Irregular:
            pass
    try:
        request = AppendRequest.FromString(data)
    except DecodeError as error:
        raise BadRequest(f"error unmarshalling request: {error}") from None
    return _with(request, to_body(request.logs))


def _with(request: AppendRequest, body: pa.RecordBatch) -> Append:
    return Append(request.topic, body, request.transaction_id, request.producer_id, request.sequence)


def _columnar(data: bytes) -> Append:
    """The entries by columns; what stands before and behind them is a small AppendRequest of its own."""
    array = np.frombuffer(data, np.uint8)
    _, first = _topic(data)
    begin, end, after = chain(array, first, LOGS)
    try:
        request = AppendRequest.FromString(data[:first] + data[after:])
    except DecodeError:
        raise Irregular("not entries only") from None
    if request.logs:
        raise Irregular("entries at several places")
    return _with(request, _body(_entries(data, array, begin, end)))


def parse_logs(data: bytes) -> tuple[pa.RecordBatch, int]:
    """The SCHEMA batch of a GetLogsResponse, and its next_offset. Raises ValueError when it is not one."""
    if len(data) > SMALL:
        try:
            return _columnar_logs(data)
        except Irregular:
            pass
    try:
        answer = GetLogsResponse.FromString(data)
    except DecodeError as error:
        raise ValueError(f"not a GetLogsResponse: {error}") from None
    offsets = np.array([entry.offset for entry in answer.logs], np.int64)
    micros = np.array([e.timestamp.seconds * 10**6 + e.timestamp.nanos // 1000 for e in answer.logs], np.int64)
    return _stamped(offsets, micros, to_body(answer.logs)), answer.next_offset


def _columnar_logs(data: bytes) -> tuple[pa.RecordBatch, int]:
    array = np.frombuffer(data, np.uint8)
    begin, end, after = chain(array, 0, LOGS)
    try:
        rest = GetLogsResponse.FromString(data[after:])
    except DecodeError:
        raise Irregular("not entries only") from None
    if rest.logs:
        raise Irregular("entries at several places")
    entries = _entries(data, array, begin, end)
    micros = np.zeros(len(begin), np.int64)
    if (stamps := entries.found.get(_TIMESTAMP)) is not None:
        inner = fields(array, stamps.begin, stamps.end, (_SECONDS, _NANOS))
        seconds, nanos = (_numbers(inner.get(tag), len(stamps.rows)) for tag in (_SECONDS, _NANOS))
        micros[stamps.rows] = seconds * 10**6 + nanos // 1000
    return _stamped(_numbers(entries.found.get(_OFFSET), len(begin)), micros, _body(entries)), rest.next_offset


def _numbers(found: Found | None, rows: int) -> Places:
    """One number for each row, 0 where it is not given."""
    numbers = np.zeros(rows, np.int64)
    if found is not None:
        _once(found.rows)
        numbers[found.rows] = found.value.view(np.int64)
    return numbers


def _stamped(offsets: Places, micros: Places, body: pa.RecordBatch) -> pa.RecordBatch:
    stamps = pa.array(micros).view(records.SCHEMA.field("timestamp").type)
    return pa.RecordBatch.from_arrays([pa.array(offsets), stamps, *body.columns], schema=records.SCHEMA)


@dataclass(slots=True)
class _Entries:
    buffer: pa.Buffer
    array: Bytes
    begin: Places
    found: dict[int, Found]


def _entries(data: bytes, array: Bytes, begin: Places, end: Places) -> _Entries:
    found = fields(array, begin, end, _ENTRY)
    for tag, field in found.items():
        if tag != _ANNOTATION:
            _once(field.rows)
    if _ANY in found and _RAW in found and len(np.intersect1d(found[_ANY].rows, found[_RAW].rows)):
        raise Irregular("both of a oneof")
    return _Entries(pa.py_buffer(data), array, begin, found)


def _once(rows: Places) -> None:
    if len(rows) > 1 and (np.diff(rows) == 0).any():
        raise Irregular("a field is given twice")


def _body(entries: _Entries) -> pa.RecordBatch:
    payload, type_url = _payload(entries)
    return records.body(payload, keys=_keys(entries), type_urls=type_url, annotations=_annotations(entries))


def _keys(entries: _Entries) -> pa.Array | None:
    found = entries.found.get(_KEY)
    return None if found is None else _column(entries, found, pa.binary())


def _payload(entries: _Entries) -> tuple[pa.Array, pa.Array | None]:
    raw, any_ = entries.found.get(_RAW), entries.found.get(_ANY)
    if any_ is None:
        return _column(entries, raw, pa.binary()), None
    inner = fields(entries.array, any_.begin, any_.end, (_FIRST, _SECOND))
    for field in inner.values():
        _once(field.rows)
    url, value = (_inside(any_, inner.get(tag)) for tag in (_FIRST, _SECOND))
    return _column(entries, _both(raw, value), pa.binary()), _column(entries, url, pa.string())


def _inside(outer: Found, inner: Found | None) -> Found:
    """A field of the messages in ``outer``; where it is not given, an empty span."""
    begin, end = outer.begin.copy(), outer.begin.copy()
    if inner is not None:
        begin[inner.rows], end[inner.rows] = inner.begin, inner.end
    return Found(outer.rows, begin, end, outer.value)


def _both(one: Found | None, other: Found) -> Found:
    if one is None:
        return other
    rows = np.concatenate((one.rows, other.rows))
    order = np.argsort(rows)
    begin, end = np.concatenate((one.begin, other.begin)), np.concatenate((one.end, other.end))
    return Found(rows[order], begin[order], end[order], rows[order].astype(np.uint64))


def _column(entries: _Entries, found: Found | None, kind: pa.DataType) -> pa.Array:
    """One value for each entry, null where it has none."""
    rows = len(entries.begin)
    if found is None:
        return pa.nulls(rows, kind)
    if len(found.rows) == rows:
        return gather(entries.buffer, found.begin, found.end, kind, np.zeros(rows, bool))
    # Where there is none, an empty span at the entry's own place: spans must ascend.
    begin, end, missing = entries.begin.copy(), entries.begin.copy(), np.ones(rows, bool)
    begin[found.rows], end[found.rows], missing[found.rows] = found.begin, found.end, False
    return gather(entries.buffer, begin, end, kind, missing)


def _annotations(entries: _Entries) -> pa.Array | None:
    found = entries.found.get(_ANNOTATION)
    if found is None:
        return None
    inner = fields(entries.array, found.begin, found.end, (_FIRST, _SECOND))
    for field in inner.values():
        _once(field.rows)
    pairs = Found(np.arange(len(found.rows)), found.begin, found.end, found.value)
    names, texts = (_texts(entries, _inside(pairs, inner.get(tag))) for tag in (_FIRST, _SECOND))
    _unlike(found.rows, names)
    count = np.bincount(found.rows, minlength=len(entries.begin))
    bounds = np.concatenate(([0], np.cumsum(count))).astype(np.int32)
    none = count == 0
    return pa.MapArray.from_arrays(pa.array(bounds), names, texts, mask=pa.array(none) if none.any() else None)


def _texts(entries: _Entries, found: Found) -> pa.Array:
    return gather(entries.buffer, found.begin, found.end, pa.string(), np.zeros(len(found.rows), bool))


def _unlike(rows: Places, names: pa.Array) -> None:
    """Raise Irregular when an entry has two annotations of one name: the last of them would count."""
    if not (np.diff(rows) == 0).any():
        return
    codes = names.dictionary_encode().indices.to_numpy().astype(np.int64)
    pairs = rows * (int(codes.max()) + 1) + codes
    if len(np.unique(pairs)) < len(pairs):
        raise Irregular("an annotation is given twice")
