"""A record batch as a producer sends it: its header, and its rows as Arrow columns."""

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
from penstock.kafka.records.compression import MOST, unpacked
from penstock.kafka.records.record_places import record_places
from penstock.kafka.records.varints import Bytes, Ints
from penstock.records import Body, binary_array, body
from penstock.server.kafka.errors import BadChecksum, TakesLong
from penstock.server.kafka.records.few_records import few_rows
from penstock.server.kafka.records.headers import build_annotations

HEADER = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset, first and last timestamp,
producer, its epoch, first sequence number, number of records."""
MAGIC = 2
MAGIC_AT, CHECKED_FROM, LENGTH_FROM = 16, 21, 12
CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
"""Of the attributes."""
MOST_OF_FEW = 64 << 10
"""Bytes of a few records, which are copied once more than those of many."""
QUICK_BYTES, QUICK_RECORDS, QUICK_HEADERS = 1 << 20, 2048, 256
"""Of batches that are quickly decoded, at most; headers of one batch: those that are no text take 2 us each."""
MAX_RECORDS = 1 << 19
MAX_HEADERS = 1000
MAX_ALL_HEADERS = 1 << 20
"""Records of a batch, headers of a record and of a batch, at most: each takes more memory than it may have bytes."""
RECORD_BYTES = 32
"""Bytes that a record takes in memory beside its own."""
NO_PRODUCER = -1


@dataclass(frozen=True, slots=True)
class ProducedBatch:
    """What a producer sent: rows (BODY), and which of its batches this is (``producer`` -1: it does not say)."""

    rows: Body
    producer: int
    epoch: int
    sequence: int
    transactional: bool
    memory_bytes: int = 0
    """Memory that its rows take, about."""


def are_quick(batches: Sequence[bytes | memoryview]) -> bool:
    """Whether to decode all of them takes no more than to hand them to a thread, and to take turns with it.

    They are not packed, and there is not much in them: 1,000 records of 1 KB take 0.3 ms. Of headers it is not known.
    """
    whole = [batch for batch in batches if len(batch) >= HEADER.size]
    if sum(map(len, batches)) > QUICK_BYTES or any(batch[CHECKED_FROM + 1] & CODEC for batch in whole):
        return False
    return sum(max(int(HEADER.unpack_from(batch)[-1]), 0) for batch in whole) <= QUICK_RECORDS


def decode(data: bytes | memoryview, *, quickly: bool = False, most: int = MOST) -> ProducedBatch:
    """The one batch that ``data`` is, of ``most`` bytes unpacked. Timestamps are left out, as the log gives its own.

    Raises BadRecords, BadChecksum for damage, UnknownCodec for a format that is not taken, BatchTooLarge; ``quickly``
    TakesLong where there are many headers.
    """
    view = memoryview(data)
    if len(view) > MAGIC_AT and view[MAGIC_AT] != MAGIC:
        raise UnknownCodec(f"record batches are of version {MAGIC}, not {view[MAGIC_AT]}")
    if len(view) < HEADER.size:
        raise BadRecords("no record batch")
    _, length, _, _, checksum, attributes, last, _, _, producer, epoch, sequence, count = HEADER.unpack_from(view)
    if length != len(view) - LENGTH_FROM:
        raise BadRecords("not exactly one record batch")
    if crc32c(view[CHECKED_FROM:]) != checksum:
        raise BadChecksum("the checksum of a record batch does not hold")
    if attributes & CONTROL or not 1 <= count <= MAX_RECORDS or last != count - 1:
        raise BadRecords("a record batch without records, or not as producers send them")
    octets = unpacked(view[HEADER.size :], attributes & CODEC, most)
    few = few_rows(octets.to_pybytes(), count) if octets.size <= MOST_OF_FEW else None
    headers = QUICK_HEADERS if quickly else None
    rows: Body = _rows(np.frombuffer(octets, np.uint8), count, headers) if few is None else few  # type: ignore[call-overload]
    return ProducedBatch(
        rows, producer, epoch, sequence, bool(attributes & TRANSACTIONAL), octets.size + RECORD_BYTES * count
    )


def _rows(data: Bytes, count: int, most_headers: int | None = None) -> pa.RecordBatch:
    places = record_places(data, count)
    _, at = varints.read(data, places.begins + 1)  # the producer's timestamp
    numbers, at = varints.read(data, at)
    if (numbers != np.arange(count)).any():
        raise BadRecords("records are not numbered one after the other")
    keys, at = _field(data, at)
    values, at = _field(data, at)
    counts, at = varints.read(data, at)
    if most_headers is not None and np.maximum(counts, 0).sum() > most_headers:
        raise TakesLong
    if counts.any():
        annotations, at = _headers(data, counts, at)
    else:
        annotations = None
    if (at != places.ends).any():
        raise BadRecords("a record is longer or shorter than what is in it")
    return body(_column(data, *values), keys=_column(data, *keys), annotations=annotations)


Field = tuple[Ints, Ints]
"""Where each value begins, and its length; -1 for none."""


def _field(data: Bytes, at: Ints) -> tuple[Field, Ints]:
    """The bytes behind a length, and where they end."""
    lengths, begins = varints.read(data, at)
    if ((lengths < -1) | (lengths > len(data) - begins)).any():
        raise BadRecords("a field is longer than its record")
    return (begins, lengths), begins + np.maximum(lengths, 0)


def _column(data: Bytes, begins: Ints, lengths: Ints) -> pa.Array[Any]:
    """The values as a column: one copy in C++."""
    rows, none = len(begins), lengths < 0
    if none.all():
        return pa.nulls(rows, pa.binary())
    places = np.empty(2 * rows, np.int32)
    places[0::2], places[1::2] = begins, begins + np.maximum(lengths, 0)
    even: Any = pa.array(np.arange(0, 2 * rows, 2), mask=none if none.any() else None)
    return binary_array(places, data).take(even)


def _headers(data: Bytes, counts: Ints, at: Ints) -> tuple[pa.Array[Any], Ints]:
    """The annotations of each record, and where it ends: all first headers, then all second ones, and so on."""
    most = int(counts.max())
    if counts.min() < 0 or most > MAX_HEADERS or counts.sum() > MAX_ALL_HEADERS:
        raise BadRecords(f"a record has 0 to {MAX_HEADERS} headers, a batch up to {MAX_ALL_HEADERS}")
    at, rows, found = at.copy(), [], []
    for number in range(most):
        row = np.flatnonzero(counts > number)
        name, ends = _field(data, at[row])
        value, at[row] = _field(data, ends)
        rows.append(row)
        found.append((*name, *value))
    order = np.argsort(np.concatenate(rows), kind="stable")
    name_at, name_size, value_at, value_size = (np.concatenate(side)[order] for side in zip(*found, strict=True))
    if (name_size < 0).any() or (value_at + np.maximum(value_size, 0) > len(data)).any():
        raise BadRecords("a header without a name")
    names, values = _column(data, name_at, name_size), _column(data, value_at, value_size)
    return build_annotations(counts, names, values), at
