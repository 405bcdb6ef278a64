"""Giving a log buffer file of the wrong size, or with garbage for metadata, its shape again."""

from __future__ import annotations

import os
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


def rebuild(path: Path, expected: d.Parameters, error: NotALogBuffer) -> None:
    """Makes the file what ``expected`` says, with what frames of this stream are in it.

    Raises ``error`` unchanged, and touches nothing, when there are none. The connected flag is set:
    nobody is left to know what it was.
    """
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
