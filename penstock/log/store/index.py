"""The index of a segment: a 64-byte header, then a record of fixed size for each batch.

The header has the segment's fingerprint, so that the index of another segment is not used. Records are dense: each
starts where its predecessor ends, in bytes and in offsets, and a damaged range has a record too. ``check`` is a
weighted sum of the other fields, so that a flipped bit in the index is not blamed on the data.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from operator import mul
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.log.store.batch_format import IpcMessage

MAGIC = b"PENSTIDX"
VERSION = 1
HEADER_SIZE = 64
RECORD = np.dtype(
    [
        ("base", "<i8"),  # first offset
        ("first", "<i8"),  # timestamps, microseconds
        ("last", "<i8"),
        ("position", "<i8"),  # of the message in the segment, bytes
        ("length", "<i8"),
        ("rows", "<i8"),
        ("bucket", "<i8"),  # seconds
        ("crc", "<u4"),  # CRC32C of the message
        ("check", "<u4"),
        ("source", "S32"),
    ]
)
AS_WRITTEN, MERGED, ZSTD = _FORMS = range(3)
"""Forms of a segment: as appended, or rewritten in larger batches, plain or compressed."""


_HEADER = struct.Struct("<8sIIII40s")
_BLANK = bytes(40)


def header(fingerprint: int, form: int = AS_WRITTEN) -> bytes:
    """Return the header of the index of a segment with this form and fingerprint."""
    return _HEADER.pack(MAGIC, VERSION, RECORD.itemsize, form, fingerprint, _BLANK)


IndexRecords = npt.NDArray[Any]
"""An array of RECORD."""
_CHECK_WORD = 15
_RECORD = struct.Struct("<7qII32s")
_WORDS = struct.Struct(f"<{RECORD.itemsize // 4}I")
_WEIGHTS = (np.arange(1, 2 * RECORD.itemsize // 4, 2, dtype=np.uint32) * np.uint32(0x9E3779B1)) | np.uint32(1)
_WEIGHTS[_CHECK_WORD] = 0
# The salt makes a record of zeros invalid, as preallocated or lost blocks are.
_SALT = np.uint32(0x5045_4E53)
_PLAIN_WEIGHTS, _PLAIN_SALT = _WEIGHTS.tolist(), int(_SALT)

EMPTY: IndexRecords = np.empty(0, RECORD)


class Record(NamedTuple):
    """The fields of RECORD; ``check`` is filled by ``packed``."""

    base: int
    first: int
    last: int
    position: int
    length: int
    rows: int
    bucket: int
    crc: int
    check: int
    source: bytes

    def packed(self) -> bytes:
        """Return the record's bytes with its check.

        Fast path: the same sum as `_checks`, without numpy, whose calls cost more than one record.
        """
        data = _RECORD.pack(*self)
        check: int = sum(map(mul, _WORDS.unpack(data), _PLAIN_WEIGHTS), _PLAIN_SALT) & 0xFFFF_FFFF
        return data[: 4 * _CHECK_WORD] + check.to_bytes(4, "little") + data[4 * _CHECK_WORD + 4 :]


def record(message: IpcMessage) -> Record:
    """Return the index record of a message."""
    m = message
    source = m.origin.source.encode()[:32]
    return Record(m.base, m.first, m.last, m.position, m.length, m.rows, m.origin.bucket, m.crc, 0, source)


def find_record(descriptor: int, offset: int) -> Record | None:
    """Return the record of the batch with ``offset`` in an open index file; None if it is missing or damaged."""
    low, high = 0, (os.fstat(descriptor).st_size - HEADER_SIZE) // RECORD.itemsize
    data, middle = b"", high - 1
    # Fast path: the newest record first, which is nearly always the right one.
    while low < high:
        candidate = os.pread(descriptor, RECORD.itemsize, HEADER_SIZE + middle * RECORD.itemsize)
        if int.from_bytes(candidate[:8], "little", signed=True) <= offset:
            low, data = middle + 1, candidate
        else:
            high = middle
        middle = (low + high) // 2
    if len(data) < RECORD.itemsize:
        return None
    record = Record(*_RECORD.unpack(data))
    return record if record.packed() == data and record.base <= offset < record.base + record.rows else None


def bad_record(base: int, rows: int, position: int, length: int, time: int) -> tuple[Any, ...]:
    """Return the record of an unreadable range with unknown origin."""
    return (base, time, time, position, length, rows, 0, 0, 0, b"")


def pack(rows: Iterable[tuple[Any, ...]]) -> IndexRecords:
    """Return an array of records with their checks."""
    packed = np.array(list(rows), RECORD)
    packed["check"] = _checks(packed)
    return packed


def unpack(data: bytes | memoryview) -> IndexRecords:
    """Return the whole records in ``data``, which has no header; they may be invalid."""
    return np.frombuffer(data, RECORD, len(data) // RECORD.itemsize)


def read(data: bytes, fingerprint: int) -> IndexRecords:
    """Return the records of an index file; none if the header is invalid or another segment's."""
    return unpack(data[HEADER_SIZE:]) if form(data, fingerprint) is not None else EMPTY


def form(data: bytes, fingerprint: int) -> int | None:
    """Return the form in an index file's header; None if the header is invalid or another segment's."""
    if len(data) < HEADER_SIZE:
        return None
    magic, version, size, stored_form, stored_fingerprint, rest = _HEADER.unpack_from(data)
    if (magic, version, size, rest) != (MAGIC, VERSION, RECORD.itemsize, _BLANK) or stored_form not in _FORMS:
        return None
    return int(stored_form) if stored_fingerprint == fingerprint else None


def valid(records: IndexRecords) -> npt.NDArray[np.bool_]:
    """Return a mask of the undamaged records."""
    sound: npt.NDArray[np.bool_] = records["check"] == _checks(records)
    return sound


def _checks(records: IndexRecords) -> npt.NDArray[np.uint32]:
    words = np.ascontiguousarray(records).view("<u4").reshape(len(records), len(_WEIGHTS))
    sums: npt.NDArray[np.uint32] = (words * _WEIGHTS).sum(axis=1, dtype=np.uint32) + _SALT
    return sums


def dense(records: IndexRecords, first: int, position: int) -> bool:
    """Report whether the records are valid and contiguous from offset ``first`` and byte ``position`` on."""
    if not len(records):
        return True
    ends = records["position"] + records["length"], records["base"] + records["rows"]
    return bool(
        valid(records).all()
        and records["position"][0] == position
        and records["base"][0] == first
        and (records["position"][1:] == ends[0][:-1]).all()
        and (records["base"][1:] == ends[1][:-1]).all()
        and (records["rows"] >= 0).all()
        and (records["length"] >= 0).all()
    )


def end_of(records: IndexRecords, first: int, position: int) -> tuple[int, int]:
    """Return the offset and the byte position behind the last record."""
    if not len(records):
        return first, position
    last = records[-1]
    # Python integers: a damaged index may have numbers whose sums overflow int64, and numpy would warn.
    base, rows, begin, length = (int(last[name]) for name in ("base", "rows", "position", "length"))
    return base + rows, begin + length
