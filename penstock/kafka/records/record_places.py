"""Where each record of a batch begins. Each says how long it is, so that one leads to the next.

They are found all at once: the attributes of a record are a zero byte, and so each zero byte with a length before it
is a candidate. Those that no other one leads to, or that lead nowhere, are left out until a single chain is left. Where
bytes are such that this does not come about, or records are few or large, the chain is followed record by record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.kafka.errors import BadRecords
from penstock.kafka.records.varints import WIDEST, Bytes, Ints, read_one, zigzag

SMALLEST = 6
"""Bytes of a record behind its length."""
CANDIDATES = 16
"""So many zero bytes a record are looked at, on average; with more it is quicker to follow the chain."""
ROUNDS = 4
FEW, LARGE = 200, 500
"""Of so many records, or of such many bytes each, it is quicker to follow the chain."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the attributes of each record stand, and where it ends."""

    begins: Ints
    ends: Ints


def record_places(data: Bytes, count: int) -> Places:
    """The places of ``count`` records, of which ``data`` consists. Raises BadRecords."""
    if not 0 <= count * (SMALLEST + 1) <= len(data):
        raise BadRecords(f"{count} records in {len(data)} bytes")
    if count <= FEW or len(data) > LARGE * count:
        return _followed(data, count)
    zeros = np.flatnonzero(data == 0)
    found = _chain(data, zeros, count) if len(zeros) <= CANDIDATES * count else None
    return found or _followed(data, count)


def _chain(data: Bytes, zeros: Ints, count: int) -> Places | None:
    """The one chain of candidates from the beginning to the end, where it can be seen at once."""
    starts, begins, ends = _candidates(data, zeros)
    here, wanted = np.zeros((2, len(data) + 1), np.bool_)
    for _ in range(ROUNDS):
        here[starts], wanted[ends] = True, True
        here[-1] = wanted[0] = True
        kept = here[ends] & wanted[starts]
        here[starts], wanted[ends] = False, False
        if kept.all():
            break
        starts, begins, ends = starts[kept], begins[kept], ends[kept]
    if len(starts) != count or not count or starts[0] or ends[-1] != len(data) or (ends[:-1] != starts[1:]).any():
        return None
    return Places(begins, ends)


def _candidates(data: Bytes, zeros: Ints) -> tuple[Ints, Ints, Ints]:
    """Where a record may begin with its length, with its attributes, and where it would end; in order."""
    zeros = zeros[(zeros > 0)]
    zeros = zeros[data[zeros - 1] < 0x80]
    found = data[zeros - 1].astype(np.uint64)
    parts: list[tuple[Ints, Ints, Ints]] = []
    for width in range(1, WIDEST + 1):
        lengths = zigzag(found)
        fits = (lengths >= SMALLEST) & (lengths <= len(data) - zeros)
        parts.append((zeros[fits] - width, zeros[fits], zeros[fits] + lengths[fits]))
        before = zeros - width - 1
        longer = (before >= 0) & (data[before] >= 0x80)
        zeros, found = zeros[longer], found[longer]
        found = (found << np.uint64(7)) | (data[zeros - width - 1] & 0x7F).astype(np.uint64)
    starts, begins, ends = (np.concatenate(side) for side in zip(*parts, strict=True))
    order = np.argsort(starts, kind="stable")
    return starts[order], begins[order], ends[order]


def _followed(data: Bytes, count: int) -> Places:
    """The places, record by record."""
    octets, at = data.data, 0
    begins: list[int] = []
    raws: list[int] = []
    try:
        for _ in range(count):  # most lengths have two bytes: written out, as a call costs as much as all the rest
            low = octets[at]
            if low < 0x80:
                raw, at = low, at + 1
            elif (high := octets[at + 1]) < 0x80:
                raw, at = low & 0x7F | high << 7, at + 2
            else:
                raw, at = _raw(octets, at)
            begins.append(at)
            raws.append(raw)
            at += raw >> 1
    except IndexError:
        raise BadRecords("a record is not within its batch, or has no length") from None
    return _places(np.array(begins, np.int64), np.array(raws, np.int64), at, len(octets))


def _raw(octets: memoryview, at: int) -> tuple[int, int]:
    """A length of up to 32 bits as it stands there, twice as large as it is (odd where it is negative)."""
    length, at = read_one(octets, at)
    return length << 1 ^ length >> 63, at


def _places(begins: Ints, raws: Ints, end: int, size: int) -> Places:
    lengths = raws >> 1
    if (raws & 1).any() or (lengths < SMALLEST).any():
        raise BadRecords("a record is shorter than one can be")
    if end != size:
        raise BadRecords(f"the records end at {end} of {size} bytes")
    return Places(begins, begins + lengths)
