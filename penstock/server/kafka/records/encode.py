"""Rows of a topic as record batches.

Their time is the log's (LogAppendTime), of which a batch has one: rows of another millisecond are another batch.
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
_HEAD = b"\x00\x00"
"""No attributes, and no time that is not that of the batch."""


def encode(batch: pa.RecordBatch) -> memoryview:
    """The rows of ``batch`` (SCHEMA, one or more), with the log's offsets and timestamps; offsets may leave gaps."""
    offsets = batch.column("offset").to_numpy()
    millis = batch.column("timestamp").view(pa.int64()).to_numpy() // 1000
    starts = np.concatenate([[0], np.flatnonzero(np.diff(millis)) + 1, [len(millis)]])
    found, places = _records(batch, offsets - np.repeat(offsets[starts[:-1]], np.diff(starts)), starts[:-1])
    for begin, end in itertools.pairwise(starts.tolist()):
        whole = found[int(places[begin]) : int(places[end])]
        _frame(whole, int(offsets[begin]), int(offsets[end - 1]), int(millis[begin]), end - begin)
    return found.toreadonly()


def empty(first: int, end: int) -> memoryview:
    """A batch without records in the place of offsets [first, end), which are in a gap."""
    found = memoryview(bytearray(HEADER.size))
    _frame(found, first, end - 1, 0, 0)
    return found.toreadonly()


def _frame(whole: memoryview, first: int, last: int, millis: int, count: int) -> None:
    """Write the header before a batch's records."""
    values = (first, len(whole) - LENGTH_FROM, 0, MAGIC)
    rest = (LOG_APPEND_TIME, last - first, millis, millis, NO_PRODUCER, -1, -1, count)
    HEADER.pack_into(whole, 0, *values, 0, *rest)
    HEADER.pack_into(whole, 0, *values, crc32c(whole[CHECKED_FROM:]), *rest)


def _records(batch: pa.RecordBatch, offsets: Ints, starts: Ints) -> tuple[memoryview, Ints]:
    """All records one after the other, and where each begins; all have the time of their batch.

    Those at ``starts`` have room for a batch's header before them. The memory is Arrow's, new, and may be written to.
    """
    keys, values = batch.column("key"), batch.column("payload")
    key_sizes, value_sizes = lengths(keys), lengths(values)
    headers = headers_of(batch)
    header_sizes = np.int64(1) if headers is None else headers[1]
    sizes = len(_HEAD) + varints.sizes(offsets) + header_sizes
    for each in (key_sizes, value_sizes):
        sizes = sizes + varints.sizes(each) + np.maximum(each, 0)
    head: list[Ints | bytes] = [sizes, _HEAD, offsets, key_sizes]
    parts: list[Any] = [varints.joined([*head, value_sizes])]
    if keys.null_count < len(keys):
        parts = [varints.joined(head), keys.fill_null(b""), varints.joined([value_sizes])]
    rest = values.fill_null(b""), _NO_HEADERS if headers is None else headers[0]
    found = joined(_room(len(batch), starts), *parts, *rest)
    return memoryview(cast("pa.Buffer", found.buffers()[2])).cast("B"), bounds(found)


def _room(rows: int, starts: Ints) -> pa.Array[Any]:
    """For each row the room for a batch's header, where one begins with it."""
    ends = np.zeros(rows + 1, np.int32)
    ends[starts + 1] = HEADER.size
    return binary_array(np.cumsum(ends, dtype=np.int32), np.zeros(len(starts) * HEADER.size, np.uint8))
