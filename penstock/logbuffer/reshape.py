"""Giving a log buffer file of the wrong size, or with garbage for metadata, its shape again."""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.errors import NotALogBuffer
from penstock.logbuffer.mapped import read_metadata

_TERMS: Final = tuple(1 << bits for bits in range(16, 31))
_PAGES: Final = tuple(1 << bits for bits in range(12, 31))
_USED: Final = 0x200
"""Bytes of the metadata that hold anything."""


def resize(path: Path) -> bool:
    """Gives a file its length again where the metadata are whole and in their place; whether they were."""
    with open(path, "r+b") as file:
        size = _size(file)
        lengths = {d.file_length(term, page) for term in _TERMS for page in _PAGES}
        for length in sorted(lengths, reverse=True):
            place = length - d.METADATA_LENGTH
            if place + _USED > size:
                continue
            block = os.pread(file.fileno(), d.METADATA_LENGTH, place).ljust(d.METADATA_LENGTH, b"\0")
            if read_metadata(block, length)[0]:
                os.ftruncate(file.fileno(), min(size, length))
                os.posix_fallocate(file.fileno(), 0, length)
                os.fsync(file.fileno())
                return True
    return False


def rebuild(path: Path, expected: d.Parameters | None, error: NotALogBuffer) -> None:
    """Makes the file what ``expected`` says, with what frames of this stream are in it.

    Raises ``error`` unchanged, and touches nothing, when there are none, or nothing is expected. The
    connected flag is set: nobody is left to know what it was.
    """
    if expected is None:
        raise error
    with open(path, "r+b") as file:
        slots = _slots(file, expected)
        count = newest_term(slots, expected)
        if count < 0:
            raise error
        cut = _cut_frames(slots, expected)
        del slots
        os.ftruncate(file.fileno(), min(_size(file) & -d.FRAME_ALIGNMENT, expected.file_length))
        for at in cut:
            os.pwrite(file.fileno(), bytes(4), at)
        os.posix_fallocate(file.fileno(), 0, expected.file_length)
        block = bytearray(expected.metadata(count * expected.term_length))
        block[d.IS_CONNECTED.offset] = 1
        os.pwrite(file.fileno(), block, expected.file_length - d.METADATA_LENGTH)
        os.fsync(file.fileno())


def derived(path: Path) -> d.Parameters | None:
    """What a file whose metadata are damaged must have been; None where too little is left to tell.

    Its size says how long terms are, its frames whose they are, and of the three places that tell the
    first term's id two have to agree. What has no second place is kept if it can be, else as by default.
    """
    with open(path, "rb") as file:
        size = _size(file)
        pages = [page for page in _PAGES if any(d.file_length(term, page) == size for term in _TERMS)]
        if not pages:
            return None
        term_length = next(term for term in _TERMS if d.file_length(term, pages[0]) == size)
        block = os.pread(file.fileno(), d.METADATA_LENGTH, size - d.METADATA_LENGTH)
        initial, owner = _initial_term_id(block), _owner(file, term_length)
    kind = _field(block, d.TYPE)
    if initial is None or owner is None or kind == d.Kind.IMAGE:
        return None
    mtu = _field(block, d.MTU_LENGTH)
    mtu = mtu if d.geometry_problem(term_length, pages[0], mtu) is None else term_length // 8
    window = _field(block, d.PUBLICATION_WINDOW)
    return d.Parameters(
        term_length,
        mtu,
        *owner,
        initial,
        kind=d.Kind(kind) if kind in tuple(d.Kind) else d.Kind.EXCLUSIVE,
        page_size=pages[0],
        correlation_id=_field(block, d.CORRELATION_ID),
        window=window if 0 <= window <= term_length else 0,
    )


def _field(block: bytes, field: d.Field) -> int:
    number: int = struct.unpack_from("<" + field.code, block, field.offset)[0]
    return number


def _initial_term_id(block: bytes) -> int | None:
    """What two agree on of the field, the default header and the tails, which count only if they fit each other."""
    told = Counter([_field(block, d.INITIAL_TERM_ID)])
    default = d.HEADER.unpack_from(block, d.DEFAULT_HEADER)
    if default[3] == d.DATA:
        told[default[7]] += 1
    count = _field(block, d.ACTIVE_TERM_COUNT)
    ids = [d.tail_term_id(_field(block, d.TAIL_COUNTERS[(count + ahead) % d.PARTITIONS])) for ahead in range(3)]
    if ids[1:] == [d.int32(ids[0] - 2), d.int32(ids[0] - 1)]:
        told[d.int32(ids[0] - count)] += 1
    initial, times = told.most_common(1)[0]
    return initial if times > 1 else None


def _owner(file: BinaryIO, term_length: int) -> tuple[int, int] | None:
    """The session and stream of most of what look like frames."""
    owners: Counter[tuple[int, int]] = Counter()
    size = term_length // d.FRAME_ALIGNMENT
    offsets = np.arange(size, dtype=np.int32) * d.FRAME_ALIGNMENT
    for index in range(d.PARTITIONS):
        slots = np.memmap(file, d.HEADER_DTYPE, "r", offset=index * term_length, shape=(size,))
        found = (slots["term_offset"] == offsets) & (slots["length"] >= d.HEADER_LENGTH)
        found &= (slots["type"] == d.DATA) & (slots["version"] == 0) & (slots["length"] <= term_length - offsets)
        owners.update(zip(slots["session_id"][found].tolist(), slots["stream_id"][found].tolist(), strict=True))
    return owners.most_common(1)[0][0] if owners else None


def newest_term(slots: np.ndarray, parameters: d.Parameters) -> int:
    """The highest term count of which ``slots`` (HEADER_DTYPE, from the start of a file) hold a frame; -1 for none."""
    return max((int(counts.max()) for _, _, counts in _frames(slots, parameters)), default=-1)


def _slots(file: BinaryIO, expected: d.Parameters) -> np.ndarray:
    count = min(_size(file), d.PARTITIONS * expected.term_length) // d.FRAME_ALIGNMENT
    return np.memmap(file, d.HEADER_DTYPE, "r", shape=(count,)) if count else np.empty(0, d.HEADER_DTYPE)


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _frames(slots: np.ndarray, p: d.Parameters) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each partition that has frames of any term: their offsets in the file, their headers, their term counts."""
    size = p.term_length // d.FRAME_ALIGNMENT
    for index in range(d.PARTITIONS):
        part = slots[index * size : (index + 1) * size]
        offsets = np.arange(len(part), dtype=np.int32) * d.FRAME_ALIGNMENT
        found = np.flatnonzero((part["term_offset"] == offsets) & (part["session_id"] == p.session_id))
        headers = part[found]
        counts = (headers["term_id"].astype(np.int64) - p.initial_term_id) % (1 << 32)
        good = (headers["stream_id"] == p.stream_id) & (headers["length"] >= d.HEADER_LENGTH)
        good &= (counts < (1 << 31)) & (counts % d.PARTITIONS == index)
        if good.any():
            yield index * p.term_length + offsets[found[good]].astype(np.int64), headers[good], counts[good]


def _cut_frames(slots: np.ndarray, p: d.Parameters) -> list[int]:
    """Where frames begin of which the end of the file has taken a part."""
    end = len(slots) * d.FRAME_ALIGNMENT
    if end == d.PARTITIONS * p.term_length:
        return []
    return [int(at) for begins, headers, _ in _frames(slots, p) for at in begins[begins + headers["length"] > end]]
