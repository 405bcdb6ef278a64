"""Restore the shape of a log buffer file with the wrong size or damaged metadata."""

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

_TERM_LENGTHS: Final = tuple(1 << bits for bits in range(16, 31))
_PAGE_SIZES: Final = tuple(1 << bits for bits in range(12, 31))
_USED_METADATA_BYTES: Final = 0x200
"""Length of the part of the metadata that has fields."""


def resize(path: Path) -> bool:
    """Restore the length of a file whose metadata are intact and in place; report whether they are."""
    with open(path, "r+b") as file:
        size = _size(file)
        lengths = {d.file_length(term, page) for term in _TERM_LENGTHS for page in _PAGE_SIZES}
        for length in sorted(lengths, reverse=True):
            metadata_offset = length - d.METADATA_LENGTH
            if metadata_offset + _USED_METADATA_BYTES > size:
                continue
            block = os.pread(file.fileno(), d.METADATA_LENGTH, metadata_offset).ljust(d.METADATA_LENGTH, b"\0")
            if read_metadata(block, length)[0]:
                # Order: cut first. Allocation then fills what is missing with zeros, and a full disk fails here and
                # not in a mapping.
                os.ftruncate(file.fileno(), min(size, length))
                os.posix_fallocate(file.fileno(), 0, length)
                os.fsync(file.fileno())
                return True
    return False


def rebuild(path: Path, expected: d.Parameters | None, error: NotALogBuffer) -> None:
    """Rebuild the file as ``expected`` describes, keeping its frames of this stream.

    Raises ``error`` unchanged and touches nothing if there are no frames, or ``expected`` is None. The connected flag
    is set, because its former value is unknown.
    """
    if expected is None:
        raise error
    with open(path, "r+b") as file:
        slots = _map_slots(file, expected)
        count = newest_term(slots, expected)
        if count < 0:
            raise error
        cut = _truncated_frames(slots, expected)
        del slots
        # Order: frames that the file's end cut off are removed before the new metadata make the file valid.
        os.ftruncate(file.fileno(), min(_size(file) & -d.FRAME_ALIGNMENT, expected.file_length))
        for file_offset in cut:
            os.pwrite(file.fileno(), bytes(4), file_offset)
        os.posix_fallocate(file.fileno(), 0, expected.file_length)
        block = bytearray(expected.metadata(count * expected.term_length))
        block[d.IS_CONNECTED.offset] = 1
        os.pwrite(file.fileno(), block, expected.file_length - d.METADATA_LENGTH)
        os.fsync(file.fileno())


def derived(path: Path) -> d.Parameters | None:
    """Return the parameters of a file with damaged metadata, or None if too little remains.

    The size gives the term length and the frames give the owner. Of the three places with the initial term id two must
    agree. Fields without a second copy are kept if valid, else defaulted.
    """
    with open(path, "rb") as file:
        size = _size(file)
        page_sizes = [page for page in _PAGE_SIZES if any(d.file_length(term, page) == size for term in _TERM_LENGTHS)]
        if not page_sizes:
            return None
        term_length = next(term for term in _TERM_LENGTHS if d.file_length(term, page_sizes[0]) == size)
        block = os.pread(file.fileno(), d.METADATA_LENGTH, size - d.METADATA_LENGTH)
        initial, owner = _initial_term_id(block), _most_frequent_owner(file, term_length)
    kind = _field(block, d.TYPE)
    if initial is None or owner is None or kind == d.Kind.IMAGE:
        return None
    mtu = _field(block, d.MTU_LENGTH)
    # The longest message then fits into one frame, so none that fitted before is refused.
    mtu = mtu if d.geometry_problem(term_length, page_sizes[0], mtu) is None else term_length // 8
    window = _field(block, d.PUBLICATION_WINDOW)
    return d.Parameters(
        term_length,
        mtu,
        *owner,
        initial,
        kind=d.Kind(kind) if kind in tuple(d.Kind) else d.Kind.EXCLUSIVE,
        page_size=page_sizes[0],
        correlation_id=_field(block, d.CORRELATION_ID),
        window=window if 0 <= window <= term_length else 0,
    )


def _field(block: bytes, field: d.Field) -> int:
    number: int = struct.unpack_from("<" + field.code, block, field.offset)[0]
    return number


def _initial_term_id(block: bytes) -> int | None:
    """Return the initial term id that two of its field, the default header and consistent tails agree on."""
    votes = Counter([_field(block, d.INITIAL_TERM_ID)])
    default = d.HEADER.unpack_from(block, d.DEFAULT_HEADER)
    if default[3] == d.DATA:
        votes[default[7]] += 1
    count = _field(block, d.ACTIVE_TERM_COUNT)
    ids = [d.tail_term_id(_field(block, d.TAIL_COUNTERS[(count + ahead) % d.PARTITIONS])) for ahead in range(3)]
    if ids[1:] == [d.int32(ids[0] - 2), d.int32(ids[0] - 1)]:
        votes[d.int32(ids[0] - count)] += 1
    initial, times = votes.most_common(1)[0]
    return initial if times > 1 else None


def _most_frequent_owner(file: BinaryIO, term_length: int) -> tuple[int, int] | None:
    """Return the session and stream of most slots that look like frames."""
    owners: Counter[tuple[int, int]] = Counter()
    size = term_length // d.FRAME_ALIGNMENT
    offsets = np.arange(size, dtype=np.int32) * d.FRAME_ALIGNMENT
    for index in range(d.PARTITIONS):
        slots = np.memmap(file, d.HEADER_DTYPE, "r", offset=index * term_length, shape=(size,))
        is_frame = (slots["term_offset"] == offsets) & (slots["length"] >= d.HEADER_LENGTH)
        is_frame &= (slots["type"] == d.DATA) & (slots["version"] == 0) & (slots["length"] <= term_length - offsets)
        owners.update(zip(slots["session_id"][is_frame].tolist(), slots["stream_id"][is_frame].tolist(), strict=True))
    return owners.most_common(1)[0][0] if owners else None


def newest_term(slots: np.ndarray, parameters: d.Parameters) -> int:
    """Return the highest term count with a frame in ``slots`` (HEADER_DTYPE, from the start of a file), or -1."""
    return max((int(counts.max()) for _, _, counts in _frames_by_partition(slots, parameters)), default=-1)


def _map_slots(file: BinaryIO, expected: d.Parameters) -> np.ndarray:
    count = min(_size(file), d.PARTITIONS * expected.term_length) // d.FRAME_ALIGNMENT
    return np.memmap(file, d.HEADER_DTYPE, "r", shape=(count,)) if count else np.empty(0, d.HEADER_DTYPE)


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _frames_by_partition(slots: np.ndarray, p: d.Parameters) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, per partition with frames of any term, their file offsets, headers and term counts."""
    size = p.term_length // d.FRAME_ALIGNMENT
    for index in range(d.PARTITIONS):
        part = slots[index * size : (index + 1) * size]
        offsets = np.arange(len(part), dtype=np.int32) * d.FRAME_ALIGNMENT
        candidates = np.flatnonzero((part["term_offset"] == offsets) & (part["session_id"] == p.session_id))
        headers = part[candidates]
        counts = (headers["term_id"].astype(np.int64) - p.initial_term_id) % (1 << 32)
        is_frame = (headers["stream_id"] == p.stream_id) & (headers["length"] >= d.HEADER_LENGTH)
        is_frame &= (counts < (1 << 31)) & (counts % d.PARTITIONS == index)
        if is_frame.any():
            yield (
                index * p.term_length + offsets[candidates[is_frame]].astype(np.int64),
                headers[is_frame],
                counts[is_frame],
            )


def _truncated_frames(slots: np.ndarray, p: d.Parameters) -> list[int]:
    """Return the file offsets of frames that the end of the file cuts off."""
    end = len(slots) * d.FRAME_ALIGNMENT
    if end == d.PARTITIONS * p.term_length:
        return []
    return [
        int(file_offset)
        for begins, headers, _ in _frames_by_partition(slots, p)
        for file_offset in begins[begins + headers["length"] > end]
    ]
