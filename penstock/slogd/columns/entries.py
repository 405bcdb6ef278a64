"""LogEntry messages to record batches and back.

An entry with raw bytes has a payload and no type URL, one with an Any has both, one with neither
has neither: so all three come back as they were. Columns are made and read whole; what runs once
per entry is the construction of the protobuf message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.any_pb2 import Any as ProtobufAny
from google.protobuf.timestamp_pb2 import Timestamp

from penstock import records
from penstock.slogd.slogd_pb2 import LogEntry

ENTRY_OVERHEAD = 64
"""Bytes that offset, timestamp and framing of an entry take in an answer, at most."""


def to_body(entries: Sequence[LogEntry]) -> pa.RecordBatch:
    """A BODY batch of the entries; their offsets and timestamps are left out, as the log gives them."""
    if len(entries) == 1 and _is_plain(entries[0]):
        return pa.RecordBatch.from_arrays(_around(pa.array([entries[0].raw_bytes], _TYPES[1])), schema=records.BODY)
    kinds = [entry.WhichOneof("entry") for entry in entries]
    payloads = [_payload(entry, kind) for entry, kind in zip(entries, kinds, strict=True)]
    type_urls = [e.protobuf.type_url if kind == "protobuf" else None for e, kind in zip(entries, kinds, strict=True)]
    keys = [entry.key if entry.HasField("key") else None for entry in entries]
    annotations = [list(entry.annotations.items()) or None for entry in entries]
    given: tuple[list[Any], ...] = (keys, payloads, type_urls, annotations)
    columns = [_column(values, number) for number, values in enumerate(given)]
    return pa.RecordBatch.from_arrays(columns, schema=records.BODY)


_TYPES = [field.type for field in records.BODY]
_NULLS = [pa.nulls(64, kind) for kind in _TYPES]
"""A slice of these costs a fifth of making them: most requests have few entries, and of those most columns are null."""


_NO_KEY, _, _NO_URL, _NO_ANNOTATIONS = (column.slice(0, 1) for column in _NULLS)


def _is_plain(entry: LogEntry) -> bool:
    """Whether it has raw bytes and nothing else: most requests of one entry are such."""
    return entry.WhichOneof("entry") == "raw_bytes" and not entry.annotations and not entry.HasField("key")


def _around(payload: pa.Array) -> list[pa.Array]:
    return [_NO_KEY, payload, _NO_URL, _NO_ANNOTATIONS]


def _column(values: list[Any], number: int) -> pa.Array:
    """The values as a column of BODY."""
    if any(value is not None for value in values):
        return pa.array(values, _TYPES[number])
    return _NULLS[number].slice(0, len(values)) if len(values) <= 64 else pa.nulls(len(values), _TYPES[number])


def _payload(entry: LogEntry, kind: str | None) -> bytes | None:
    if kind is None:
        return None
    return entry.raw_bytes if kind == "raw_bytes" else entry.protobuf.value


@dataclass(slots=True)
class Row:
    """One entry as plain values: ``timestamp`` in microseconds since the epoch."""

    offset: int
    timestamp: int
    key: bytes | None
    payload: bytes | None
    type_url: str | None
    annotations: dict[str, str] | None


def rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """The rows of a SCHEMA batch, column by column turned into plain values."""
    columns = (
        batch.column("offset").to_pylist(),
        batch.column("timestamp").cast(pa.int64()).to_pylist(),
        batch.column("key").to_pylist(),
        batch.column("payload").to_pylist(),
        batch.column("type_url").to_pylist(),
        annotation_dicts(batch.column("annotations")),
    )
    return map(Row, *columns)


def annotation_dicts(column: pa.MapArray) -> list[dict[str, str] | None]:
    """The maps of a column; a null value becomes an empty text, of equal keys the last counts."""
    if column.null_count == len(column):
        return [None] * len(column)
    bounds = column.offsets.to_numpy()
    first, last = int(bounds[0]), int(bounds[-1])
    names = column.keys[first:last].to_pylist()
    values = pc.fill_null(column.items[first:last], "").to_pylist()
    pairs = list(zip(names, values, strict=True))
    edges = (bounds - first).tolist()
    return [dict(pairs[begin:end]) or None for begin, end in pairwise(edges)]


def from_batch(batch: pa.RecordBatch) -> list[LogEntry]:
    """The messages of a SCHEMA batch."""
    return [_message(row) for row in rows(batch)]


def from_batches(batches: Iterable[pa.RecordBatch]) -> list[LogEntry]:
    """The messages of several SCHEMA batches."""
    return [message for batch in batches for message in from_batch(batch)]


def _message(row: Row) -> LogEntry:
    seconds, micros = divmod(row.timestamp, 1_000_000)
    given = row.payload or b"" if row.type_url is not None else None
    return LogEntry(
        offset=row.offset,
        timestamp=Timestamp(seconds=seconds, nanos=micros * 1000),
        key=row.key,
        raw_bytes=row.payload if given is None else None,
        protobuf=None if given is None else ProtobufAny(type_url=row.type_url, value=given),
        annotations=row.annotations,
    )


def sizes(batch: pa.RecordBatch) -> np.ndarray:
    """The bytes that each entry of a SCHEMA batch takes in an answer, at most (int64, one a row)."""
    total = np.full(batch.num_rows, ENTRY_OVERHEAD, np.int64)
    for name in ("key", "payload", "type_url"):
        column = batch.column(name)
        if column.null_count < len(column):
            total += lengths(column)
    column = batch.column("annotations")
    if column.null_count < len(column):
        total += _annotation_sizes(column)
    return total


def bounds(column: pa.Array) -> np.ndarray:
    """Where each value of a binary or string column begins in its data, and where the last one ends (int32)."""
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


def lengths(column: pa.Array) -> np.ndarray:
    """The bytes of each value of a binary or string column, 0 where it is null (int64)."""
    if column.null_count == len(column):
        return np.zeros(len(column), np.int64)
    found = np.diff(bounds(column)).astype(np.int64)
    return found * valid(column) if column.null_count else found


def valid(column: pa.Array) -> np.ndarray:
    """Which rows are not null."""
    if not column.null_count:
        return np.ones(len(column), bool)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))


def _annotation_sizes(column: pa.MapArray) -> np.ndarray:
    edges = column.offsets.to_numpy()
    first, last = int(edges[0]), int(edges[-1])
    pairs = np.full(last - first, 16, np.int64)
    for side in (column.keys, column.items):
        pairs += lengths(side[first:last])
    running = np.concatenate(([0], np.cumsum(pairs)))
    return np.asarray(np.diff(running[edges - first]))
