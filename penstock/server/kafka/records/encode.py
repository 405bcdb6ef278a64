"""Encodes rows of a topic as record batches.

A batch has one type of timestamp. Of the log's (LogAppendTime) it has exactly one, so rows of another millisecond start
a new batch; producers' times (CreateTime) are kept for each record.
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
from penstock.server.kafka.records.creation_times import split_creation_times
from penstock.server.kafka.records.decode import CHECKED_FROM, HEADER, LENGTH_FROM, LOG_APPEND_TIME, MAGIC, NO_PRODUCER
from penstock.server.kafka.records.headers import headers_of, joined, lengths

_NO_HEADERS = b"\x00"
CREATE_TIME = 0
_ATTRIBUTES = b"\x00"
_ATTRIBUTES_AND_TIME = b"\x00\x00"
"""No attributes, and a time delta of 0."""


def encode(batch: pa.RecordBatch) -> memoryview:
    """Encode the rows of ``batch`` (SCHEMA, one or more) with the log's offsets, which may have gaps."""
    offsets = batch.column("offset").to_numpy()
    millis = batch.column("timestamp").view(pa.int64()).to_numpy() // 1000
    annotations, created = split_creation_times(batch.column("annotations"))
    if created is None:
        changes, is_created = np.diff(millis) != 0, np.zeros(len(millis), np.bool_)
    else:
        is_created = created >= 0
        changes = (np.diff(is_created) != 0) | (np.diff(millis) != 0) & ~is_created[1:]
        millis = np.where(is_created, created, millis)
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1, [len(millis)]])
    firsts, sizes = starts[:-1], np.diff(starts)
    deltas = None if created is None else millis - np.repeat(millis[firsts], sizes)
    records, positions = _encode_records(
        batch, annotations, offsets - np.repeat(offsets[firsts], sizes), deltas, firsts
    )
    latest = np.maximum.reduceat(millis, firsts)
    for number, (begin, end) in enumerate(itertools.pairwise(starts.tolist())):
        record_batch = records[int(positions[begin]) : int(positions[end])]
        attributes = CREATE_TIME if is_created[begin] else LOG_APPEND_TIME
        times = int(millis[begin]), int(latest[number])
        _write_header(record_batch, int(offsets[begin]), int(offsets[end - 1]), times, end - begin, attributes)
    return records.toreadonly()


def empty(first: int, end: int) -> memoryview:
    """Return a batch without records for the offsets [first, end) of a gap."""
    frame = memoryview(bytearray(HEADER.size))
    _write_header(frame, first, end - 1, (0, 0), 0)
    return frame.toreadonly()


def _write_header(
    frame: memoryview, first: int, last: int, times: tuple[int, int], count: int, attributes: int = LOG_APPEND_TIME
) -> None:
    """Write the header in front of a batch's records."""
    values = (first, len(frame) - LENGTH_FROM, 0, MAGIC)
    rest = (attributes, last - first, *times, NO_PRODUCER, -1, -1, count)
    # Order: the checksum covers what follows it in the header, so the header is written first without it.
    HEADER.pack_into(frame, 0, *values, 0, *rest)
    HEADER.pack_into(frame, 0, *values, crc32c(frame[CHECKED_FROM:]), *rest)


def _encode_records(
    batch: pa.RecordBatch, annotations: pa.Array[Any], offsets: Ints, deltas: Ints | None, starts: Ints
) -> tuple[memoryview, Ints]:
    """Return all records in a row, and where each begins, with space for a batch header before the ``starts``.

    ``deltas``: differences to the first time of each batch; None if all are 0. The memory is new and belongs to the
    caller, so the headers can be written into it.
    """
    keys, values = batch.column("key"), batch.column("payload")
    key_sizes, value_sizes = lengths(keys), lengths(values)
    headers = headers_of(batch, annotations)
    header_sizes = np.int64(1) if headers is None else headers[1]
    start: list[Ints | bytes] = [_ATTRIBUTES_AND_TIME] if deltas is None else [_ATTRIBUTES, deltas]
    start_sizes = len(_ATTRIBUTES_AND_TIME) if deltas is None else len(_ATTRIBUTES) + varints.sizes(deltas)
    sizes = start_sizes + varints.sizes(offsets) + header_sizes
    for each in (key_sizes, value_sizes):
        sizes = sizes + varints.sizes(each) + np.maximum(each, 0)
    head: list[Ints | bytes] = [sizes, *start, offsets, key_sizes]
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
