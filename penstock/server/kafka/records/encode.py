"""Encodes rows of a topic as record batches.

Timestamps are the log's (LogAppendTime), of which a batch has exactly one, so rows of another millisecond start a new
batch.
"""

from __future__ import annotations

import itertools
from typing import Any, cast

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from penstock.kafka.records import varints
from penstock.kafka.records.varints import Ints
from penstock.records import binary_array, bounds
from penstock.server.kafka.records.decode import CHECKED_FROM, HEADER, LENGTH_FROM, LOG_APPEND_TIME, MAGIC, NO_PRODUCER
from penstock.server.kafka.records.headers import headers_of, joined, lengths

_NO_HEADERS = b"\x00"
_ATTRIBUTES_AND_TIME = b"\x00\x00"
"""No attributes, and a time delta of 0."""


def encode(batch: pa.RecordBatch) -> memoryview:
    """Encode the rows of ``batch`` (SCHEMA, one or more) with the log's offsets, which may have gaps."""
    offsets = batch.column("offset").to_numpy()
    millis = batch.column("timestamp").view(pa.int64()).to_numpy() // 1000
    starts = np.concatenate([[0], np.flatnonzero(np.diff(millis)) + 1, [len(millis)]])
    records, positions = _encode_records(batch, offsets - np.repeat(offsets[starts[:-1]], np.diff(starts)), starts[:-1])
    for begin, end in itertools.pairwise(starts.tolist()):
        record_batch = records[int(positions[begin]) : int(positions[end])]
        _write_header(record_batch, int(offsets[begin]), int(offsets[end - 1]), int(millis[begin]), end - begin)
    return records.toreadonly()


def empty(first: int, end: int) -> memoryview:
    """Return a batch without records for the offsets [first, end) of a gap."""
    frame = memoryview(bytearray(HEADER.size))
    _write_header(frame, first, end - 1, 0, 0)
    return frame.toreadonly()


def _write_header(frame: memoryview, first: int, last: int, millis: int, count: int) -> None:
    """Write the header in front of a batch's records."""
    values = (first, len(frame) - LENGTH_FROM, 0, MAGIC)
    rest = (LOG_APPEND_TIME, last - first, millis, millis, NO_PRODUCER, -1, -1, count)
    # Order: the checksum covers what follows it in the header, so the header is written first without it.
    HEADER.pack_into(frame, 0, *values, 0, *rest)
    HEADER.pack_into(frame, 0, *values, crc32c(frame[CHECKED_FROM:]), *rest)


def _encode_records(batch: pa.RecordBatch, offsets: Ints, starts: Ints) -> tuple[memoryview, Ints]:
    """Return all records in a row, and where each begins, with space for a batch header before the ``starts``.

    The memory is new and belongs to the caller, so the headers can be written into it.
    """
    keys, values = batch.column("key"), batch.column("payload")
    key_sizes, value_sizes = lengths(keys), lengths(values)
    headers = headers_of(batch)
    header_sizes = np.int64(1) if headers is None else headers[1]
    sizes = len(_ATTRIBUTES_AND_TIME) + varints.sizes(offsets) + header_sizes
    for each in (key_sizes, value_sizes):
        sizes = sizes + varints.sizes(each) + np.maximum(each, 0)
    head: list[Ints | bytes] = [sizes, _ATTRIBUTES_AND_TIME, offsets, key_sizes]
    parts: list[Any] = [varints.joined([*head, value_sizes])]
    if keys.null_count < len(keys):
        parts = [varints.joined(head), keys.fill_null(b""), varints.joined([value_sizes])]
    rest = values.fill_null(b""), _NO_HEADERS if headers is None else headers[0]
    records = joined(_header_space(len(batch), starts), *parts, *rest)
    return memoryview(cast("pa.Buffer", records.buffers()[2])).cast("B"), bounds(records)


def _header_space(rows: int, starts: Ints) -> pa.Array[Any]:
    """For each row the room for a batch's header, where one begins with it."""
    ends = np.zeros(rows + 1, np.int32)
    ends[starts + 1] = HEADER.size
    return binary_array(np.cumsum(ends, dtype=np.int32), np.zeros(len(starts) * HEADER.size, np.uint8))
