"""LogEntry messages to record batches and back.

An entry with raw bytes has a payload and no type URL, one with an Any has both, one with neither
has neither: so all three come back as they were. Columns are made and read whole; what runs once
per entry is the construction of the protobuf message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.any_pb2 import Any as ProtobufAny
from google.protobuf.timestamp_pb2 import Timestamp

from penstock import records
from penstock.server.slogd_pb2 import LogEntry

ENTRY_OVERHEAD = 64
"""Bytes that offset, timestamp and framing of an entry take in an answer, at most."""


def to_body(entries: Sequence[LogEntry]) -> pa.RecordBatch:
    """A BODY batch of the entries; their offsets and timestamps are left out, as the log gives them."""
    kinds = [entry.WhichOneof("entry") for entry in entries]
    payloads = [_payload(entry, kind) for entry, kind in zip(entries, kinds, strict=True)]
    type_urls = [e.protobuf.type_url if kind == "protobuf" else None for e, kind in zip(entries, kinds, strict=True)]
    keys = [entry.key if entry.HasField("key") else None for entry in entries]
    annotations = [list(entry.annotations.items()) or None for entry in entries]
    return records.body(
        payloads,
        keys=pa.array(keys, pa.binary()),
        type_urls=pa.array(type_urls, pa.string()),
        annotations=pa.array(annotations, records.ANNOTATIONS),
    )


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
        total += pc.fill_null(pc.binary_length(batch.column(name)), 0).to_numpy()
    column = batch.column("annotations")
    if column.null_count < len(column):
        total += _annotation_sizes(column)
    return total


def _annotation_sizes(column: pa.MapArray) -> np.ndarray:
    bounds = column.offsets.to_numpy()
    first, last = int(bounds[0]), int(bounds[-1])
    pairs = np.full(last - first, 16, np.int64)
    for side in (column.keys, column.items):
        pairs += pc.fill_null(pc.binary_length(side[first:last]), 0).to_numpy()
    running = np.concatenate(([0], np.cumsum(pairs)))
    return np.asarray(np.diff(running[bounds - first]))
