"""Headers of stored record batches: which offsets a batch covers, and which of them still have a record.

A broker hands out whole batches. The log cleaner removes records but keeps the batch's range of offsets, and leaves out
batches that became empty, so that both kinds of hole can be seen here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.kafka.errors import BadRecords
from penstock.kafka.records import varints
from penstock.kafka.records.compression import unpack
from penstock.kafka.records.record_spans import find_records
from penstock.kafka.records.varints import Ints

HEADER = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, epoch, magic, checksum, attributes, last offset delta, two times, producer, its epoch, sequence,
number of records.
"""
LENGTH_END = 12
"""Bytes before the part of a batch that its length counts."""
MAGIC_INDEX, OLD_ATTRIBUTES_INDEX, OLD_HEADER_BYTES = 16, 17, 18
CODEC, TRANSACTIONAL, CONTROL = 0x07, 0x10, 0x20
ABORT_MARKER = 0
_MARKER_KEY = struct.Struct(">hh")


@dataclass(frozen=True, slots=True)
class StoredRecordBatch:
    """A record batch with offsets [first, end), of which ``count`` have a record; ``data`` is the whole batch."""

    first: int
    end: int
    count: int
    attributes: int
    producer: int
    data: memoryview

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    def offsets(self) -> Ints:
        """Return the offsets that have a record, ascending. Raises BadRecords, UnknownCodec, BatchTooLarge."""
        if self.count == self.end - self.first:
            return np.arange(self.first, self.end, dtype=np.int64)
        if not self.count:
            return np.zeros(0, np.int64)
        octets = np.frombuffer(unpack(self.data[HEADER.size :], self.attributes & CODEC), np.uint8)  # type: ignore[call-overload]  # takes buffers
        spans = find_records(octets, self.count)
        _, indexes = varints.read(octets, spans.begins + 1)  # behind the attributes: the delta of the time
        deltas, _ = varints.read(octets, indexes)
        if (np.diff(deltas) <= 0).any() or deltas[0] < 0 or deltas[-1] >= self.end - self.first:
            raise BadRecords(f"records of the batch at offset {self.first} are not in order or not within its range")
        return self.first + deltas

    def is_abort(self) -> bool:
        """Report whether this is the marker that ends an aborted transaction. Control batches are not compressed."""
        if not self.count:
            return False  # the cleaner has removed the marker and keeps the batch for the producer's sequence
        octets = np.frombuffer(self.data[HEADER.size :], np.uint8)
        begin = find_records(octets, self.count).begins[:1]
        _, index = varints.read(octets, begin + 1)
        _, index = varints.read(octets, index)
        size, index = varints.read(octets, index)
        if int(size[0]) < _MARKER_KEY.size or int(index[0]) + _MARKER_KEY.size > len(octets):
            raise BadRecords(f"the control record at offset {self.first} has no type")
        return bool(_MARKER_KEY.unpack_from(octets.data, int(index[0]))[1] == ABORT_MARKER)


def split_batches(data: bytes | memoryview) -> Iterator[StoredRecordBatch]:
    """Yield the complete batches of a fetch response; brokers cut the last one. Raises BadRecords.

    A message of the formats before Kafka 0.11 (magic 0 and 1) counts as a batch; of a compressed one the offsets in
    front of its last one are unknown, so it covers that one only.
    """
    view = memoryview(data)
    begin = 0
    while begin + OLD_HEADER_BYTES <= len(view):
        base, length = struct.unpack_from(">qi", view, begin)
        end = begin + LENGTH_END + length
        if length < OLD_HEADER_BYTES - LENGTH_END:
            raise BadRecords(f"the batch at offset {base} has a length of {length}")
        if end > len(view):
            return
        batch = view[begin:end]
        if batch[MAGIC_INDEX] < 2:
            yield StoredRecordBatch(base, base + 1, 1, batch[OLD_ATTRIBUTES_INDEX] & CODEC, -1, batch)
        else:
            yield _split_batch(batch)
        begin = end


def _split_batch(batch: memoryview) -> StoredRecordBatch:
    if len(batch) < HEADER.size:
        raise BadRecords("a batch is shorter than its header")
    base, _, _, magic, _, attributes, last, _, _, producer, _, _, count = HEADER.unpack_from(batch)
    if magic != 2:
        raise BadRecords(f"the batch at offset {base} has the unknown format {magic}")
    if last < 0 or not 0 <= count <= last + 1:
        raise BadRecords(f"the batch at offset {base} has {count} records for {last + 1} offsets")
    return StoredRecordBatch(base, base + last + 1, count, attributes, producer, batch)
