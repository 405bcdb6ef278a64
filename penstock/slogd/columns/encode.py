"""Entries from record batches to protobuf's bytes, whole columns at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import SCHEMA, annotation_column, binary_array, bounds, concatenated
from penstock.slogd.columns.entries import lengths, to_response, valid
from penstock.slogd.columns.wire_columns import Block, Values, literal, number, packed, size_of, varint, widths
from penstock.slogd.slogd_pb2 import AppendRequest, GetLogsResponse

SMALL = 160
"""Rows up to which protobuf is faster than some sixty numpy calls."""
_LOGS = 0x12
_OFFSET, _TIMESTAMP, _ANY, _RAW, _ANNOTATION, _KEY = 0x08, 0x12, 0x1A, 0x22, 0x2A, 0x32
_SECONDS, _NANOS = 0x08, 0x10
_FIRST, _SECOND = 0x0A, 0x12


def response(batches: Sequence[pa.RecordBatch], next_offset: int = 0) -> bytes:
    """The GetLogsResponse of the rows of SCHEMA batches."""
    rows = sum(batch.num_rows for batch in batches)
    if rows <= SMALL:
        return to_response(batches, next_offset).SerializeToString()
    encoded = logs(concatenated(batches))
    return encoded + GetLogsResponse(next_offset=next_offset).SerializeToString() if next_offset else encoded


def responses(batches: Sequence[pa.RecordBatch], rows: int) -> list[bytes]:
    """As ``response``, for each ``rows`` of them: many at once take a third of the time."""
    encoded = _rows(concatenated(batches))
    places = bounds(encoded)[np.r_[0 : len(encoded) : rows, len(encoded)]].tolist()
    data = memoryview(encoded.buffers()[2] or b"")
    return [data[begin:end].tobytes() for begin, end in pairwise(places)]


def append_request(topic: str, body: pa.RecordBatch, **fields: str | int) -> bytes:
    """The AppendRequest with the rows of a BODY batch as its entries; ``fields`` are its other fields."""
    rest = AppendRequest(topic=topic, **fields)  # type: ignore[arg-type]
    return rest.SerializeToString() + (logs(body) if body.num_rows else b"")


def logs(batch: pa.RecordBatch) -> bytes:
    """The rows of a SCHEMA or BODY batch as the repeated field ``logs``. Timestamps from 1970 on."""
    encoded = _rows(batch)
    places = bounds(encoded)
    return memoryview(encoded.buffers()[2] or b"")[places[0] : places[-1]].tobytes()


def _rows(batch: pa.RecordBatch) -> pa.Array[Any]:
    """Each of them as one element of the field."""
    head = _stamps(batch) if batch.num_columns == len(SCHEMA) else []
    columns = [*_payloads(batch), *_annotations(batch), *_keys(batch)]
    size = np.broadcast_to(size_of(head), batch.num_rows)
    for column in columns:
        size = size + lengths(column)
    front = packed([literal(_LOGS, batch.num_rows), varint(size.astype(np.uint64)), *head])
    return _joined(front, *columns)


def _stamps(batch: pa.RecordBatch) -> list[Block]:
    """Offset and timestamp."""
    offsets = batch.column("offset").to_numpy().view(np.uint64)
    seconds, rest = np.divmod(batch.column("timestamp").cast(pa.int64()).to_numpy(), 1_000_000)
    times = [*number(_SECONDS, seconds.view(np.uint64)), *number(_NANOS, (rest * 1000).view(np.uint64))]
    inside = np.broadcast_to(size_of(times), batch.num_rows).astype(np.uint64)
    return [*number(_OFFSET, offsets), literal(_TIMESTAMP, batch.num_rows), varint(inside), *times]


def _payloads(batch: pa.RecordBatch) -> list[pa.Array[Any]]:
    """Raw bytes with their head; or, where there are type URLs, an Any's head, type URL, value's head and value."""
    payload, type_url = batch.column("payload"), batch.column("type_url")
    rows, given, size = len(payload), valid(payload), lengths(payload).astype(np.uint64)
    if type_url.null_count == rows:
        return [packed([literal(_RAW, rows, given), varint(size, given)]), _filled(payload)]
    any_ = valid(type_url)
    raw, url = given & ~any_, lengths(type_url).astype(np.uint64)
    has_url, has_value = any_ & (url > 0), any_ & (size > 0)
    inside = has_url * _framed(url) + has_value * _framed(size)
    heads = [literal(_ANY, rows, any_), varint(inside, any_), literal(_FIRST, rows, has_url), varint(url, has_url)]
    front = packed([*heads, literal(_RAW, rows, raw), varint(size, raw)])
    value = packed([literal(_SECOND, rows, has_value), varint(size, has_value)])
    return [front, _filled(type_url.cast(pa.binary())), value, _filled(payload)]


def _framed(size: Values) -> Values:
    """The bytes that a field of ``size`` bytes takes, its tag and length included."""
    return np.asarray(size + widths(size).astype(np.uint64) + np.uint64(1))


def _annotations(batch: pa.RecordBatch) -> list[pa.Array[Any]]:
    """The pairs of each row, one behind the other."""
    column = annotation_column(batch)
    if column.null_count == len(column):
        return []
    rows_at = column.offsets.to_numpy()
    first, last = int(rows_at[0]), int(rows_at[-1])
    names, texts = (_filled(side[first:last].cast(pa.binary())) for side in (column.keys, column.items))
    name, text = (lengths(side).astype(np.uint64) for side in (names, texts))
    rows, inside = last - first, _framed(name) + _framed(text)
    front = packed([literal(_ANNOTATION, rows), varint(inside), literal(_FIRST, rows), varint(name)])
    second = packed([literal(_SECOND, rows), varint(text)])
    joined = _joined(front, names, second, texts)
    edges = bounds(joined)[rows_at - first].astype(np.int32)
    return [binary_array(edges, joined.buffers()[2] or b"")]


def _keys(batch: pa.RecordBatch) -> list[pa.Array[Any]]:
    column = batch.column("key")
    if column.null_count == len(column):
        return []
    there = valid(column)
    return [
        packed([literal(_KEY, len(column), there), varint(lengths(column).astype(np.uint64), there)]),
        _filled(column),
    ]


def _filled(column: pa.Array[Any]) -> pa.Array[Any]:
    return column.fill_null(b"") if column.null_count else column


def _joined(*columns: pa.Array[Any]) -> pa.Array[Any]:
    """The values of each row, one behind the other."""
    joined: pa.Array[Any] = pc.binary_join_element_wise(*columns, b"")  # type: ignore[call-overload]  # the stub: no scalar
    return joined
