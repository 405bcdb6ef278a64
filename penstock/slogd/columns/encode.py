"""Encodes record batches as protobuf messages, whole columns at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import SCHEMA, annotation_column, binary_array, bounds, concatenated
from penstock.slogd import slogd_pb2 as pb
from penstock.slogd.columns.entries import lengths, non_null_rows, to_response
from penstock.slogd.columns.wire_columns import Block, Values, literal, number, packed, size_of, varint, widths
from penstock.slogd.slogd_pb2 import AppendRequest, GetLogsResponse

MAX_PROTOBUF_ROWS = 160
"""Number of rows up to which protobuf is faster than about sixty numpy calls."""
_LOGS = 0x12
# Tag bytes of LogEntry's fields: the field number shifted by 3, and the wire type.
_OFFSET, _TIMESTAMP, _ANY, _RAW, _ANNOTATION, _KEY = 0x08, 0x12, 0x1A, 0x22, 0x2A, 0x32
_SECONDS, _NANOS = 0x08, 0x10
_FIRST, _SECOND = 0x0A, 0x12


def response(batches: Sequence[pa.RecordBatch], next_offset: int = 0) -> bytes:
    """Return the GetLogsResponse of the rows of SCHEMA batches."""
    rows = sum(batch.num_rows for batch in batches)
    # Fast path for small answers, see MAX_PROTOBUF_ROWS.
    if rows <= MAX_PROTOBUF_ROWS:
        return to_response(batches, next_offset).SerializeToString()
    encoded = logs(concatenated(batches))
    return encoded + GetLogsResponse(next_offset=next_offset).SerializeToString() if next_offset else encoded


def responses(batches: Sequence[pa.RecordBatch], rows: int) -> list[bytes]:
    """Return a ``response`` for each group of ``rows`` rows. Encoding all at once takes a third of the time."""
    encoded = _encode_rows(concatenated(batches))
    edges = bounds(encoded)[np.r_[0 : len(encoded) : rows, len(encoded)]].tolist()
    data = memoryview(encoded.buffers()[2] or b"")
    return [data[begin:end].tobytes() for begin, end in pairwise(edges)]


def append_request(topic: str, body: pa.RecordBatch, **fields: str | int | pb.Origin) -> bytes:
    """Return the AppendRequest with the rows of a BODY batch as its entries; ``fields`` are its other fields."""
    rest = AppendRequest(topic=topic, **fields)  # type: ignore[arg-type]
    return rest.SerializeToString() + (logs(body) if body.num_rows else b"")


def columns_request(topic: str, body: pa.RecordBatch, **fields: str | int | pb.Origin) -> bytes:
    """Return the AppendRequest with a BODY batch as its columns; ``fields`` are its other fields."""
    columns = body.serialize().to_pybytes()
    return AppendRequest(topic=topic, columns=columns, **fields).SerializeToString()  # type: ignore[arg-type]


def logs(batch: pa.RecordBatch) -> bytes:
    """Return the rows of a SCHEMA or BODY batch as the repeated field ``logs``. Timestamps must not be before 1970."""
    encoded = _encode_rows(batch)
    edges = bounds(encoded)
    return memoryview(encoded.buffers()[2] or b"")[edges[0] : edges[-1]].tobytes()


def _encode_rows(batch: pa.RecordBatch) -> pa.Array[Any]:
    """Return the encoded row of each entry, with the field's tag and length."""
    head = _encode_stamps(batch) if batch.num_columns == len(SCHEMA) else []
    columns = [*_encode_payloads(batch), *_encode_annotations(batch), *_encode_keys(batch)]
    size = np.broadcast_to(size_of(head), batch.num_rows)
    for column in columns:
        # The length precedes the row, so all sizes are needed before anything is written.
        size = size + lengths(column)
    front = packed([literal(_LOGS, batch.num_rows), varint(size.astype(np.uint64)), *head])
    return _concatenate(front, *columns)


def _encode_stamps(batch: pa.RecordBatch) -> list[Block]:
    """Encode offset and timestamp."""
    offsets = batch.column("offset").to_numpy().view(np.uint64)
    seconds, rest = np.divmod(batch.column("timestamp").cast(pa.int64()).to_numpy(), 1_000_000)
    times = [*number(_SECONDS, seconds.view(np.uint64)), *number(_NANOS, (rest * 1000).view(np.uint64))]
    inside = np.broadcast_to(size_of(times), batch.num_rows).astype(np.uint64)
    return [*number(_OFFSET, offsets), literal(_TIMESTAMP, batch.num_rows), varint(inside), *times]


def _encode_payloads(batch: pa.RecordBatch) -> list[pa.Array[Any]]:
    """Encode raw bytes; for rows with a type URL an Any: head, type URL, head of the value, value."""
    payload, type_url = batch.column("payload"), batch.column("type_url")
    rows, has_payload, size = len(payload), non_null_rows(payload), lengths(payload).astype(np.uint64)
    if type_url.null_count == rows:
        return [packed([literal(_RAW, rows, has_payload), varint(size, has_payload)]), _fill_nulls(payload)]
    any_ = non_null_rows(type_url)
    raw, url = has_payload & ~any_, lengths(type_url).astype(np.uint64)
    has_url, has_value = any_ & (url > 0), any_ & (size > 0)
    inside = has_url * _framed_size(url) + has_value * _framed_size(size)
    heads = [literal(_ANY, rows, any_), varint(inside, any_), literal(_FIRST, rows, has_url), varint(url, has_url)]
    front = packed([*heads, literal(_RAW, rows, raw), varint(size, raw)])
    value = packed([literal(_SECOND, rows, has_value), varint(size, has_value)])
    return [front, _fill_nulls(type_url.cast(pa.binary())), value, _fill_nulls(payload)]


def _framed_size(size: Values) -> Values:
    """Return the bytes of a field of ``size`` bytes with its tag and length."""
    return np.asarray(size + widths(size).astype(np.uint64) + np.uint64(1))


def _encode_annotations(batch: pa.RecordBatch) -> list[pa.Array[Any]]:
    """Encode the pairs of each row in sequence."""
    column = annotation_column(batch)
    if column.null_count == len(column):
        return []
    row_edges = column.offsets.to_numpy()
    # A slice of a batch shares the pairs of its parent: only these belong to its rows.
    first, last = int(row_edges[0]), int(row_edges[-1])
    names, texts = (_fill_nulls(side[first:last].cast(pa.binary())) for side in (column.keys, column.items))
    name, text = (lengths(side).astype(np.uint64) for side in (names, texts))
    pairs, inside = last - first, _framed_size(name) + _framed_size(text)
    front = packed([literal(_ANNOTATION, pairs), varint(inside), literal(_FIRST, pairs), varint(name)])
    second = packed([literal(_SECOND, pairs), varint(text)])
    joined = _concatenate(front, names, second, texts)
    edges = bounds(joined)[row_edges - first].astype(np.int32)
    return [binary_array(edges, joined.buffers()[2] or b"")]


def _encode_keys(batch: pa.RecordBatch) -> list[pa.Array[Any]]:
    column = batch.column("key")
    if column.null_count == len(column):
        return []
    present = non_null_rows(column)
    return [
        packed([literal(_KEY, len(column), present), varint(lengths(column).astype(np.uint64), present)]),
        _fill_nulls(column),
    ]


def _fill_nulls(column: pa.Array[Any]) -> pa.Array[Any]:
    return column.fill_null(b"") if column.null_count else column


def _concatenate(*columns: pa.Array[Any]) -> pa.Array[Any]:
    """Concatenate the values of each row."""
    joined: pa.Array[Any] = pc.binary_join_element_wise(*columns, b"")  # type: ignore[call-overload]  # pyarrow's stub does not accept the separator
    return joined
