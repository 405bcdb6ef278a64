"""Record batches as a broker stores them, made by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from penstock.kafka.records.batch_headers import CONTROL, HEADER, LENGTH_END, TRANSACTIONAL


def varint(number: int) -> bytes:
    raw, octets = number << 1 ^ number >> 63, bytearray()
    while raw > 0x7F:
        octets.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*octets, raw])


def record(delta: int, key: bytes | None = None, value: bytes = b"v") -> bytes:
    """Return a record at ``delta`` offsets behind the base of its batch."""
    named = varint(-1) if key is None else varint(len(key)) + key
    body = b"\0" + varint(0) + varint(delta) + named + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def framed(base: int, records: bytes, count: int, last: int, attributes: int = 0, producer: int = -1) -> bytes:
    size = HEADER.size - LENGTH_END + len(records)
    return HEADER.pack(base, size, 0, 2, 0, attributes, last, 0, 0, producer, 0, 0, count) + records


def batch(base: int, deltas: Sequence[int], *, last: int | None = None, producer: int | None = None) -> bytes:
    """Return a batch with records at these deltas; ``producer`` is that of a transaction."""
    end = max(deltas, default=0) if last is None else last
    attributes = 0 if producer is None else TRANSACTIONAL
    records = b"".join(map(record, deltas))
    return framed(base, records, len(deltas), end, attributes, -1 if producer is None else producer)


def control_batch(base: int, producer: int, *, commit: bool) -> bytes:
    marker = record(0, struct.pack(">hh", 0, int(commit)), bytes(6))
    return framed(base, marker, 1, 0, TRANSACTIONAL | CONTROL, producer)
