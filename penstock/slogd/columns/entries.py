"""LogEntry messages to record batches and back.

An entry with raw bytes has a payload and no type URL, one with an Any has both, one with neither
has neither: so all three come back as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import records
from penstock.slogd.slogd_pb2 import GetLogsResponse, LogEntry

ENTRY_OVERHEAD = 64
"""Bytes that offset, timestamp and framing of an entry take in an answer, at most."""
_TYPES = [field.type for field in records.BODY]
_NULLS = [pa.nulls(64, kind) for kind in _TYPES]
"""A slice of these costs a fifth of making them: most requests have few entries, and of those most columns are null."""
_NO_KEY, _, _NO_URL, _NO_ANNOTATIONS = (column.slice(0, 1) for column in _NULLS)


def to_body(messages: Iterable[LogEntry]) -> pa.RecordBatch:
    """A BODY batch of the entries; their offsets and timestamps are left out, as the log gives them."""
    entries = list(messages)
    if not entries:
        return records.EMPTY_BODY
    if len(entries) == 1 and _is_plain(entries[0]):
        payload = pa.array([entries[0].raw_bytes], pa.binary())
        return pa.RecordBatch.from_arrays([_NO_KEY, payload, _NO_URL, _NO_ANNOTATIONS], schema=records.BODY)
    keys = [entry.key if entry.HasField("key") else None for entry in entries]
    maps = [entry.annotations for entry in entries]
    annotations = [[(name, pairs[name]) for name in pairs] if pairs else None for pairs in maps]
    given: tuple[list[Any], ...] = (keys, *_payloads(entries), annotations)
    columns = [_column(*column) for column in zip(given, _TYPES, _NULLS, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=records.BODY)


def _is_plain(entry: LogEntry) -> bool:
    """Whether it has raw bytes and nothing else: most requests of one entry are such, and pass in half of the time."""
    return entry.WhichOneof("entry") == "raw_bytes" and not entry.annotations and not entry.HasField("key")


def _payloads(entries: list[LogEntry]) -> tuple[list[bytes | None], list[str | None]]:
    """Payload and type URL of each entry."""
    payloads: list[bytes | None] = [entry.raw_bytes for entry in entries]
    type_urls: list[str | None] = [None] * len(entries)
    for row, entry in enumerate(entries):
        if not payloads[row]:
            kind = entry.WhichOneof("entry")
            if kind == "protobuf":
                payloads[row], type_urls[row] = entry.protobuf.value, entry.protobuf.type_url
            elif kind is None:
                payloads[row] = None
    return payloads, type_urls


def _column(values: list[Any], kind: pa.DataType, nulls: pa.Array[Any]) -> pa.Array[Any]:
    if values[0] is not None or values.count(None) < len(values):
        return pa.array(values, kind)
    if len(values) <= len(nulls):
        return nulls.slice(0, len(values))
    many: pa.Array[Any] = pa.nulls(len(values), kind)  # type: ignore[call-overload]  # the stub: known types only
    return many


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
        annotation_dicts(records.annotation_column(batch)),
    )
    return map(Row, *columns)


def annotation_dicts(column: pa.MapArray[Any, Any]) -> list[dict[str, str] | None]:
    """The maps of a column; a null value becomes an empty text, of equal keys the last counts."""
    if column.null_count == len(column):
        return [None] * len(column)
    bounds = column.offsets.to_numpy()
    first, last = int(bounds[0]), int(bounds[-1])
    names = records.values_of(column.keys[first:last])
    values = records.values_of(column.items[first:last].fill_null(""))
    pairs = list(zip(names, values, strict=True))
    edges = (bounds - first).tolist()
    return [dict(pairs[begin:end]) or None for begin, end in pairwise(edges)]


def to_response(batches: Iterable[pa.RecordBatch], next_offset: int = 0) -> GetLogsResponse:
    """The GetLogsResponse of the rows of SCHEMA batches."""
    answer = GetLogsResponse(next_offset=next_offset)
    for batch in batches:
        for row in rows(batch):
            _fill(answer.logs.add(), row)
    return answer


def _fill(entry: LogEntry, row: Row) -> None:
    """Set the fields one by one: a third of the time that a constructor with keywords takes."""
    entry.offset = row.offset
    stamp = entry.timestamp
    stamp.seconds, micros = divmod(row.timestamp, 1_000_000)
    stamp.nanos = micros * 1000
    if row.key is not None:
        entry.key = row.key
    if row.type_url is not None:
        entry.protobuf.type_url, entry.protobuf.value = row.type_url, row.payload or b""
    elif row.payload is not None:
        entry.raw_bytes = row.payload
    for name, text in (row.annotations or {}).items():
        entry.annotations[name] = text


def sizes(batch: pa.RecordBatch) -> np.ndarray:
    """The bytes that each entry of a SCHEMA batch takes in an answer, at most (int64, one a row)."""
    total = np.full(batch.num_rows, ENTRY_OVERHEAD, np.int64)
    for name in ("key", "payload", "type_url"):
        column = batch.column(name)
        if column.null_count < len(column):
            total += lengths(column)
    annotations = records.annotation_column(batch)
    if annotations.null_count < len(annotations):
        total += _annotation_sizes(annotations)
    return total


def lengths(column: pa.Array[Any]) -> np.ndarray:
    """The bytes of each value of a binary or string column, 0 where it is null (int64)."""
    if column.null_count == len(column):
        return np.zeros(len(column), np.int64)
    found = np.diff(records.bounds(column)).astype(np.int64)
    return found * valid(column) if column.null_count else found


def valid(column: pa.Array[Any]) -> np.ndarray:
    """Which rows are not null."""
    if not column.null_count:
        return np.ones(len(column), bool)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))


def _annotation_sizes(column: pa.MapArray[Any, Any]) -> np.ndarray:
    edges = column.offsets.to_numpy()
    first, last = int(edges[0]), int(edges[-1])
    pairs = np.full(last - first, 16, np.int64)
    for side in (column.keys, column.items):
        pairs += lengths(side[first:last])
    running = np.concatenate(([0], np.cumsum(pairs)))
    return np.asarray(np.diff(running[edges - first]))
