"""Restore the shape of a log buffer file with the wrong size or damaged metadata."""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from penstock.logbuffer import descriptor
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
        lengths = {descriptor.file_length(term, page) for term in _TERM_LENGTHS for page in _PAGE_SIZES}
        for length in sorted(lengths, reverse=True):
            metadata_offset = length - descriptor.METADATA_LENGTH
            if metadata_offset + _USED_METADATA_BYTES > size:
                continue
            block = os.pread(file.fileno(), descriptor.METADATA_LENGTH, metadata_offset).ljust(
                descriptor.METADATA_LENGTH, b"\0"
            )
            if read_metadata(block, length)[0]:
                # Order: cut first. Allocation then fills what is missing with zeros, and a full disk fails here and
                # not in a mapping.
                os.ftruncate(file.fileno(), min(size, length))
                os.posix_fallocate(file.fileno(), 0, length)
                os.fsync(file.fileno())
                return True
    return False


def rebuild(path: Path, expected: descriptor.Parameters | None, error: NotALogBuffer) -> None:
    """Rebuild the file as ``expected`` describes, keeping its frames of this stream.

    Raises ``error`` unchanged and touches nothing if there are no frames, or ``expected`` is None. The connected flag
    is set, because its former value is unknown.
    """
    if expected is None:
        raise error
    with open(path, "r+b") as file:
        slots = _map_slots(file, expected)
        count = newest_term_count(slots, expected)
        if count < 0:
            raise error
        truncated_frames = _truncated_frames(slots, expected)
        del slots
        # Order: frames that the file's end cut off are removed before the new metadata make the file valid.
        os.ftruncate(file.fileno(), min(_size(file) & -descriptor.FRAME_ALIGNMENT, expected.file_length))
        for file_offset in truncated_frames:
            os.pwrite(file.fileno(), bytes(4), file_offset)
        os.posix_fallocate(file.fileno(), 0, expected.file_length)
        block = bytearray(expected.metadata(count * expected.term_length))
        block[descriptor.IS_CONNECTED.offset] = 1
        os.pwrite(file.fileno(), block, expected.file_length - descriptor.METADATA_LENGTH)
        os.fsync(file.fileno())


def derive_parameters(path: Path) -> descriptor.Parameters | None:
    """Return the parameters of a file with damaged metadata, or None if too little remains.

    The size gives the term length and the frames give the owner. Of the three places with the initial term id two must
    agree. Fields without a second copy are kept if valid, else defaulted.
    """
    with open(path, "rb") as file:
        size = _size(file)
        page_sizes = [
            page for page in _PAGE_SIZES if any(descriptor.file_length(term, page) == size for term in _TERM_LENGTHS)
        ]
        if not page_sizes:
            return None
        term_length = next(term for term in _TERM_LENGTHS if descriptor.file_length(term, page_sizes[0]) == size)
        block = os.pread(file.fileno(), descriptor.METADATA_LENGTH, size - descriptor.METADATA_LENGTH)
        initial, owner = _initial_term_id(block), _most_frequent_owner(file, term_length)
    kind = _field(block, descriptor.TYPE)
    if initial is None or owner is None or kind == descriptor.Kind.IMAGE:
        return None
    mtu = _field(block, descriptor.MTU_LENGTH)
    # The longest message then fits into one frame, so none that fitted before is refused.
    mtu = mtu if descriptor.geometry_problem(term_length, page_sizes[0], mtu) is None else term_length // 8
    window = _field(block, descriptor.PUBLICATION_WINDOW)
    return descriptor.Parameters(
        term_length,
        mtu,
        *owner,
        initial,
        kind=descriptor.Kind(kind) if kind in tuple(descriptor.Kind) else descriptor.Kind.EXCLUSIVE,
        page_size=page_sizes[0],
        correlation_id=_field(block, descriptor.CORRELATION_ID),
        window=window if 0 <= window <= term_length else 0,
    )


def _field(block: bytes, field: descriptor.Field) -> int:
    number: int = struct.unpack_from("<" + field.code, block, field.offset)[0]
    return number


def _initial_term_id(block: bytes) -> int | None:
    """Return the initial term id that two of its field, the default header and consistent tails agree on."""
    votes = Counter([_field(block, descriptor.INITIAL_TERM_ID)])
    default = descriptor.HEADER.unpack_from(block, descriptor.DEFAULT_HEADER)
    if default[3] == descriptor.DATA:
        votes[default[7]] += 1
    count = _field(block, descriptor.ACTIVE_TERM_COUNT)
    ids = [
        descriptor.tail_term_id(_field(block, descriptor.TAIL_COUNTERS[(count + ahead) % descriptor.PARTITIONS]))
        for ahead in range(3)
    ]
    if ids[1:] == [descriptor.int32(ids[0] - 2), descriptor.int32(ids[0] - 1)]:
        votes[descriptor.int32(ids[0] - count)] += 1
    initial, times = votes.most_common(1)[0]
    return initial if times > 1 else None


def _most_frequent_owner(file: BinaryIO, term_length: int) -> tuple[int, int] | None:
    """Return the session and stream of most slots that look like frames."""
    owners: Counter[tuple[int, int]] = Counter()
    size = term_length // descriptor.FRAME_ALIGNMENT
    offsets = np.arange(size, dtype=np.int32) * descriptor.FRAME_ALIGNMENT
    for index in range(descriptor.PARTITIONS):
        slots = np.memmap(file, descriptor.HEADER_DTYPE, "r", offset=index * term_length, shape=(size,))
        is_frame = (slots["term_offset"] == offsets) & (slots["length"] >= descriptor.HEADER_LENGTH)
        is_frame &= (
            (slots["type"] == descriptor.DATA) & (slots["version"] == 0) & (slots["length"] <= term_length - offsets)
        )
        owners.update(zip(slots["session_id"][is_frame].tolist(), slots["stream_id"][is_frame].tolist(), strict=True))
    return owners.most_common(1)[0][0] if owners else None


def newest_term_count(slots: np.ndarray, parameters: descriptor.Parameters) -> int:
    """Return the highest term count with a frame in ``slots`` (HEADER_DTYPE, from the start of a file), or -1."""
    return max((int(counts.max()) for _, _, counts in _frames_by_partition(slots, parameters)), default=-1)


def _map_slots(file: BinaryIO, expected: descriptor.Parameters) -> np.ndarray:
    count = min(_size(file), descriptor.PARTITIONS * expected.term_length) // descriptor.FRAME_ALIGNMENT
    return (
        np.memmap(file, descriptor.HEADER_DTYPE, "r", shape=(count,)) if count else np.empty(0, descriptor.HEADER_DTYPE)
    )


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _frames_by_partition(
    slots: np.ndarray, p: descriptor.Parameters
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, per partition with frames of any term, their file offsets, headers and term counts."""
    size = p.term_length // descriptor.FRAME_ALIGNMENT
    for index in range(descriptor.PARTITIONS):
        part = slots[index * size : (index + 1) * size]
        offsets = np.arange(len(part), dtype=np.int32) * descriptor.FRAME_ALIGNMENT
        candidates = np.flatnonzero((part["term_offset"] == offsets) & (part["session_id"] == p.session_id))
        headers = part[candidates]
        counts = (headers["term_id"].astype(np.int64) - p.initial_term_id) % (1 << 32)
        is_frame = (headers["stream_id"] == p.stream_id) & (headers["length"] >= descriptor.HEADER_LENGTH)
        is_frame &= (counts < (1 << 31)) & (counts % descriptor.PARTITIONS == index)
        if is_frame.any():
            yield (
                index * p.term_length + offsets[candidates[is_frame]].astype(np.int64),
                headers[is_frame],
                counts[is_frame],
            )


def _truncated_frames(slots: np.ndarray, p: descriptor.Parameters) -> list[int]:
    """Return the file offsets of frames that the end of the file cuts off."""
    end = len(slots) * descriptor.FRAME_ALIGNMENT
    if end == descriptor.PARTITIONS * p.term_length:
        return []
    return [
        int(file_offset)
        for begins, headers, _ in _frames_by_partition(slots, p)
        for file_offset in begins[begins + headers["length"] > end]
    ]
