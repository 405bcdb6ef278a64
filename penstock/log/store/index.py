"""The index beside a segment: a 64-byte header, then one fixed-size record for every batch.

The header has the segment's mark (``Files.mark``), so that the index of another one in its place is none; 0 in files
of before.

Records are dense: each begins where the one before it ends, in bytes and in offsets, so that a bad range has its
record too. ``check`` is a sum over the other fields: a flipped bit in the index is not blamed on the data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from operator import mul
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.log.store.batch_format import Message

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
"""What a segment's data are: as they were appended, or rewritten in larger batches, plain or compressed."""


_HEADER = struct.Struct("<8sIIII40s")
_BLANK = bytes(40)


def header(form: int = AS_WRITTEN, fingerprint: int = 0) -> bytes:
    """The header of an index whose segment has this form and mark."""
    return _HEADER.pack(MAGIC, VERSION, RECORD.itemsize, form, fingerprint, _BLANK)


HEADER = header()
IndexRecords = npt.NDArray[Any]
"""An array of RECORD."""
_CHECK_WORD = 15
_RECORD = struct.Struct("<7qII32s")
_WORDS = struct.Struct(f"<{RECORD.itemsize // 4}I")
_WEIGHTS = (np.arange(1, 2 * RECORD.itemsize // 4, 2, dtype=np.uint32) * np.uint32(0x9E3779B1)) | np.uint32(1)
_WEIGHTS[_CHECK_WORD] = 0
_SALT = np.uint32(0x5045_4E53)  # so that a record of zeros is not valid
_PLAIN_WEIGHTS, _PLAIN_SALT = _WEIGHTS.tolist(), int(_SALT)

EMPTY: IndexRecords = np.empty(0, RECORD)


class Record(NamedTuple):
    """The fields of RECORD, still without the check."""

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
        """Its bytes, with the check."""
        data = _RECORD.pack(*self)
        check: int = sum(map(mul, _WORDS.unpack(data), _PLAIN_WEIGHTS), _PLAIN_SALT) & 0xFFFF_FFFF
        return data[: 4 * _CHECK_WORD] + check.to_bytes(4, "little") + data[4 * _CHECK_WORD + 4 :]


def record(message: Message) -> Record:
    """The index record of a message."""
    m = message
    source = m.origin.source.encode()[:32]
    return Record(m.base, m.first, m.last, m.position, m.length, m.rows, m.origin.bucket, m.crc, 0, source)


def bad_record(base: int, rows: int, position: int, length: int, time: int) -> tuple[Any, ...]:
    """The record of a range that cannot be read and of which no more is known."""
    return (base, time, time, position, length, rows, 0, 0, 0, b"")


def pack(many: Iterable[tuple[Any, ...]]) -> IndexRecords:
    """Many records with their checks."""
    packed = np.array(list(many), RECORD)
    packed["check"] = _checks(packed)
    return packed


def unpack(data: bytes | memoryview) -> IndexRecords:
    """The whole records in ``data`` (without header), valid or not."""
    return np.frombuffer(data, RECORD, len(data) // RECORD.itemsize)


def read(data: bytes, fingerprint: int = 0) -> IndexRecords:
    """The records of an index file; none when its header is not ours, or of a segment with another mark."""
    return unpack(data[HEADER_SIZE:]) if form(data, fingerprint) is not None else EMPTY


def form(data: bytes, fingerprint: int = 0) -> int | None:
    """The form of the segment that an index file tells; None when its header is not ours, or of another ``mark``."""
    if len(data) < HEADER_SIZE:
        return None
    magic, version, size, stored_form, stored_fingerprint, rest = _HEADER.unpack_from(data)
    if (magic, version, size, rest) != (MAGIC, VERSION, RECORD.itemsize, _BLANK) or stored_form not in _FORMS:
        return None
    return int(stored_form) if not fingerprint or stored_fingerprint in (0, fingerprint) else None


def valid(many: IndexRecords) -> npt.NDArray[np.bool_]:
    """Which records are as they were written."""
    sound: npt.NDArray[np.bool_] = many["check"] == _checks(many)
    return sound


def _checks(many: IndexRecords) -> npt.NDArray[np.uint32]:
    words = np.ascontiguousarray(many).view("<u4").reshape(len(many), len(_WEIGHTS))
    sums: npt.NDArray[np.uint32] = (words * _WEIGHTS).sum(axis=1, dtype=np.uint32) + _SALT
    return sums


def dense(many: IndexRecords, first: int, position: int) -> bool:
    """Whether the records are valid and follow each other from offset ``first`` and byte ``position`` on."""
    if not len(many):
        return True
    ends = many["position"] + many["length"], many["base"] + many["rows"]
    return bool(
        valid(many).all()
        and many["position"][0] == position
        and many["base"][0] == first
        and (many["position"][1:] == ends[0][:-1]).all()
        and (many["base"][1:] == ends[1][:-1]).all()
        and (many["rows"] >= 0).all()
        and (many["length"] >= 0).all()
    )


def end_of(many: IndexRecords, first: int, position: int) -> tuple[int, int]:
    """Offset and byte that follow the last record."""
    if not len(many):
        return first, position
    last = many[-1]
    base, rows, begin, length = (int(last[name]) for name in ("base", "rows", "position", "length"))
    return base + rows, begin + length  # not numpy's sums, which warn where a damaged index has numbers too large
