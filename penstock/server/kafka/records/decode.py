"""Decodes the record batch of a producer: its header, and its rows as Arrow columns.

Order: length and checksum first, then decompression, then records, so that damaged bytes are never parsed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from penstock.kafka.errors import BadRecords, UnknownCodec
from penstock.kafka.records import varints
from penstock.kafka.records.compression import MAX_UNPACKED_BYTES, unpack
from penstock.kafka.records.record_spans import find_records
from penstock.kafka.records.varints import Bytes, Ints
from penstock.records import Body, binary_array, body
from penstock.server.kafka.errors import BadChecksum, InvalidTimestamp, TakesLong
from penstock.server.kafka.records.creation_times import NO_TIME, add_creation_times
from penstock.server.kafka.records.few_records import few_rows
from penstock.server.kafka.records.headers import build_annotations

HEADER = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset, first and last timestamp,
producer, its epoch, first sequence number, number of records."""
MAGIC = 2
MAGIC_POSITION, CHECKED_FROM, LENGTH_FROM = 16, 21, 12
CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
"""Bits of a batch's attributes."""
MAX_FEW_BYTES = 64 << 10
"""Limit: bytes up to which ``few_rows`` is tried; it copies the records again."""
QUICK_BYTES, QUICK_RECORDS, QUICK_HEADERS = 1 << 20, 2048, 256
"""Limit: batches that are decoded on the event loop. Headers that are not text take 2 us each."""
MAX_RECORDS = 1 << 19
MAX_HEADERS = 1000
MAX_ALL_HEADERS = 1 << 20
"""Limit: records of a batch, headers of a record, headers of a batch. Each may take more memory than it has bytes."""
RECORD_BYTES = 32
"""Memory of a record in addition to its own bytes."""
NO_PRODUCER = -1


@dataclass(frozen=True, slots=True)
class ProducedBatch:
    """A producer's rows (BODY), with its id, epoch and sequence. ``producer`` -1: not idempotent."""

    rows: Body
    producer: int
    epoch: int
    sequence: int
    transactional: bool
    memory_bytes: int = 0
    """Approximate memory of the rows."""


def are_quick(batches: Sequence[bytes | memoryview]) -> bool:
    """Return whether decoding takes no longer than handing the batches to a thread and taking turns with it.

    True for small uncompressed batches: 1,000 records of 1 KB take 0.3 ms. Headers are not looked at here.
    """
    complete = [batch for batch in batches if len(batch) >= HEADER.size]
    if sum(map(len, batches)) > QUICK_BYTES or any(batch[CHECKED_FROM + 1] & CODEC for batch in complete):
        return False
    return sum(max(int(HEADER.unpack_from(batch)[-1]), 0) for batch in complete) <= QUICK_RECORDS


def read_producer(data: bytes | memoryview) -> tuple[int, int, int]:
    """Return producer, epoch and sequence of a batch that is refused; a damaged one may have any. Raises BadRecords."""
    if len(data) < HEADER.size:
        raise BadRecords("not a record batch: too short")
    producer, epoch, sequence = HEADER.unpack_from(data)[-4:-1]
    return producer, epoch, sequence


def decode(
    data: bytes | memoryview,
    *,
    quickly: bool = False,
    max_bytes: int = MAX_UNPACKED_BYTES,
    latest_time: int | None = None,
) -> ProducedBatch:
    """Decode exactly one batch, of up to ``max_bytes`` after decompression.

    ``latest_time``: keep the producer's timestamps, which may be up to this one (milliseconds); None ignores them, as
    the log sets its own. Raises BadRecords, BadChecksum, BatchTooLarge, InvalidTimestamp, UnknownCodec; with
    ``quickly`` TakesLong if there are many headers.
    """
    view = memoryview(data)
    if len(view) > MAGIC_POSITION and view[MAGIC_POSITION] != MAGIC:
        raise UnknownCodec(f"record batches must have version {MAGIC}, not {view[MAGIC_POSITION]}")
    if len(view) < HEADER.size:
        raise BadRecords("not a record batch: too short")
    header = HEADER.unpack_from(view)
    _, length, _, _, checksum, attributes, last, first_time, last_time, producer, epoch, sequence, count = header
    if length != len(view) - LENGTH_FROM:
        raise BadRecords("not exactly one record batch")
    if crc32c(view[CHECKED_FROM:]) != checksum:
        raise BadChecksum("checksum of a record batch does not match")
    if attributes & CONTROL or not 1 <= count <= MAX_RECORDS or last != count - 1:
        raise BadRecords("a record batch has no records, or a header that producers do not send")
    octets = unpack(view[HEADER.size :], attributes & CODEC, max_bytes)
    # Fast path: few records are decoded in Python, many as columns.
    keeps_times = latest_time is not None and first_time >= NO_TIME and max(first_time, last_time) >= 0
    few = few_rows(octets.to_pybytes(), count) if octets.size <= MAX_FEW_BYTES and not keeps_times else None
    headers = QUICK_HEADERS if quickly else None
    times = (first_time, latest_time) if latest_time is not None and keeps_times else None
    rows: Body = _decode_rows(np.frombuffer(octets, np.uint8), count, headers, times) if few is None else few  # type: ignore[call-overload]
    return ProducedBatch(
        rows, producer, epoch, sequence, bool(attributes & TRANSACTIONAL), octets.size + RECORD_BYTES * count
    )


def _decode_rows(
    data: Bytes, count: int, max_headers: int | None = None, times: tuple[int, int] | None = None
) -> pa.RecordBatch:
    """Return the rows. ``times``: the batch's first time, and the latest one that is allowed; None: without times."""
    spans = find_records(data, count)
    time_deltas, positions = varints.read(data, spans.begins + 1)
    numbers, positions = varints.read(data, positions)
    if (numbers != np.arange(count)).any():
        raise BadRecords("records of a batch are not numbered consecutively")
    keys, positions = _read_field(data, positions)
    values, positions = _read_field(data, positions)
    counts, positions = varints.read(data, positions)
    if max_headers is not None and np.maximum(counts, 0).sum() > max_headers:
        raise TakesLong
    if counts.any():
        annotations, positions = _read_headers(data, counts, positions)
    else:
        annotations = None
    if (positions != spans.ends).any():
        raise BadRecords("a record's length differs from its content")
    if times is not None:
        annotations = add_creation_times(annotations, _check_times(times[0], time_deltas, times[1]))
    return body(_build_column(data, *values), keys=_build_column(data, *keys), annotations=annotations)


def _check_times(first: int, deltas: Ints, latest: int) -> Ints:
    # Limit: deltas are up to 64 bits wide, so they are compared before they are added.
    if first > latest or (deltas > latest - first).any():
        raise InvalidTimestamp("the timestamp of a record is more than an hour ahead of the log's clock")
    return np.where(deltas < -first, NO_TIME, first + np.maximum(deltas, -first))


Field = tuple[Ints, Ints]
"""Begin of each value, and its length; -1 for null."""


def _read_field(data: Bytes, positions: Ints) -> tuple[Field, Ints]:
    """Return the fields that follow a length, and where they end."""
    lengths, begins = varints.read(data, positions)
    if ((lengths < -1) | (lengths > len(data) - begins)).any():
        raise BadRecords("a field exceeds its record")
    return (begins, lengths), begins + np.maximum(lengths, 0)


def _build_column(data: Bytes, begins: Ints, lengths: Ints) -> pa.Array[Any]:
    """Return fields as an Arrow column, with one copy in C++."""
    rows, is_null = len(begins), lengths < 0
    if is_null.all():
        return pa.nulls(rows, pa.binary())
    edges = np.empty(2 * rows, np.int32)
    # Every second value of the array are the bytes between two fields; ``take`` drops them.
    edges[0::2], edges[1::2] = begins, begins + np.maximum(lengths, 0)
    even: Any = pa.array(np.arange(0, 2 * rows, 2), mask=is_null if is_null.any() else None)
    return binary_array(edges, data).take(even)


def _read_headers(data: Bytes, counts: Ints, positions: Ints) -> tuple[pa.Array[Any], Ints]:
    """Return the annotations of each record, and where its headers end."""
    most_headers = int(counts.max())
    if counts.min() < 0 or most_headers > MAX_HEADERS or counts.sum() > MAX_ALL_HEADERS:
        raise BadRecords(f"a record has 0 to {MAX_HEADERS} headers, a batch up to {MAX_ALL_HEADERS}")
    positions, rows, fields = positions.copy(), [], []
    # Columns again: first headers of all records, then second ones, and so on.
    for number in range(most_headers):
        row = np.flatnonzero(counts > number)
        name, ends = _read_field(data, positions[row])
        value, positions[row] = _read_field(data, ends)
        rows.append(row)
        fields.append((*name, *value))
    order = np.argsort(np.concatenate(rows), kind="stable")
    name_begins, name_size, value_begins, value_size = (
        np.concatenate(side)[order] for side in zip(*fields, strict=True)
    )
    if (name_size < 0).any() or (value_begins + np.maximum(value_size, 0) > len(data)).any():
        raise BadRecords("a header without a name")
    names, values = _build_column(data, name_begins, name_size), _build_column(data, value_begins, value_size)
    return build_annotations(counts, names, values), positions
