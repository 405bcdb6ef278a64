"""Finds the records of a batch. Each record begins with its length, so one leads to the next.

Fast path: all records are found at once. The attributes of a record are a zero byte, so each zero byte behind a length
is a candidate. Candidates that no other one leads to, or that lead nowhere, are dropped until one chain remains. If
that fails, or records are few or large, the chain is followed record by record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.kafka.errors import BadRecords
from penstock.kafka.records.varints import MAX_BYTES_32, Bytes, Ints, read_one, zigzag

MIN_RECORD_BYTES = 6
"""Bytes of the smallest record without its length: attributes, two deltas, two sizes, number of headers."""
MAX_ZEROS_PER_RECORD = 16
"""Average up to which the fast path is faster."""
MAX_ROUNDS = 4
"""Limit: passes that drop candidates; batches that need more are followed record by record."""
FEW_RECORDS, LARGE_RECORD_BYTES = 200, 500
"""Up to this number of records, or from this average size on, following the chain is faster."""


@dataclass(frozen=True, slots=True)
class RecordSpans:
    """Position of each record's attributes, and its end."""

    begins: Ints
    ends: Ints


def find_records(data: Bytes, count: int) -> RecordSpans:
    """Return the spans of the ``count`` records that fill ``data``. Raises BadRecords."""
    if not 0 <= count * (MIN_RECORD_BYTES + 1) <= len(data):
        raise BadRecords(f"{count} records in {len(data)} bytes")
    if count <= FEW_RECORDS or len(data) > LARGE_RECORD_BYTES * count:
        return _follow(data, count)
    zeros = np.flatnonzero(data == 0)
    spans = _chain(data, zeros, count) if len(zeros) <= MAX_ZEROS_PER_RECORD * count else None
    return spans or _follow(data, count)


def _chain(data: Bytes, zeros: Ints, count: int) -> RecordSpans | None:
    """Return the only chain of candidates from start to end, or None if there is no such chain."""
    starts, begins, ends = _candidates(data, zeros)
    is_start, is_end = np.zeros((2, len(data) + 1), np.bool_)
    for _ in range(MAX_ROUNDS):
        # A candidate stays if it starts where another one ends, and ends where another one starts.
        is_start[starts], is_end[ends] = True, True
        is_start[-1] = is_end[0] = True
        linked = is_start[ends] & is_end[starts]
        is_start[starts], is_end[ends] = False, False
        if linked.all():
            break
        starts, begins, ends = starts[linked], begins[linked], ends[linked]
    if len(starts) != count or not count or starts[0] or ends[-1] != len(data) or (ends[:-1] != starts[1:]).any():
        return None
    return RecordSpans(begins, ends)


def _candidates(data: Bytes, zeros: Ints) -> tuple[Ints, Ints, Ints]:
    """Return possible records in order: where the length begins, where the attributes begin, and the end."""
    zeros = zeros[(zeros > 0)]
    # The byte before the attributes is the last one of a length, so its top bit is 0.
    zeros = zeros[data[zeros - 1] < 0x80]
    lengths_read = data[zeros - 1].astype(np.uint64)
    parts: list[tuple[Ints, Ints, Ints]] = []
    for width in range(1, MAX_BYTES_32 + 1):
        lengths = zigzag(lengths_read)
        fits = (lengths >= MIN_RECORD_BYTES) & (lengths <= len(data) - zeros)
        parts.append((zeros[fits] - width, zeros[fits], zeros[fits] + lengths[fits]))
        before = zeros - width - 1
        longer = (before >= 0) & (data[before] >= 0x80)
        zeros, lengths_read = zeros[longer], lengths_read[longer]
        lengths_read = (lengths_read << np.uint64(7)) | (data[zeros - width - 1] & 0x7F).astype(np.uint64)
    starts, begins, ends = (np.concatenate(side) for side in zip(*parts, strict=True))
    order = np.argsort(starts, kind="stable")
    return starts[order], begins[order], ends[order]


def _follow(data: Bytes, count: int) -> RecordSpans:
    """Return the spans, record by record."""
    octets, position = data.data, 0
    begins: list[int] = []
    raws: list[int] = []
    try:
        # Fast path: most lengths have two bytes. They are decoded inline, because a call costs as much as the rest of
        # the loop.
        for _ in range(count):
            low = octets[position]
            if low < 0x80:
                raw, position = low, position + 1
            elif (high := octets[position + 1]) < 0x80:
                raw, position = low & 0x7F | high << 7, position + 2
            else:
                raw, position = _read_raw_length(octets, position)
            begins.append(position)
            raws.append(raw)
            position += raw >> 1
    except IndexError:
        raise BadRecords("a record exceeds its batch, or has an invalid length") from None
    return _check_spans(np.array(begins, np.int64), np.array(raws, np.int64), position, len(octets))


def _read_raw_length(octets: memoryview, position: int) -> tuple[int, int]:
    """Return a length of up to 32 bits before zigzag decoding, and where it ends."""
    length, position = read_one(octets, position)
    return length << 1 ^ length >> 63, position


def _check_spans(begins: Ints, raws: Ints, end: int, size: int) -> RecordSpans:
    lengths = raws >> 1
    if (raws & 1).any() or (lengths < MIN_RECORD_BYTES).any():
        raise BadRecords(f"a record is shorter than {MIN_RECORD_BYTES} bytes")
    if end != size:
        raise BadRecords(f"the records end at {end} of {size} bytes")
    return RecordSpans(begins, begins + lengths)
