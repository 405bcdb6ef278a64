"""Runs of many frames: built from whole arrays, written at once, read without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.files import memory_order
from penstock.logbuffer import descriptor
from penstock.logbuffer.mapped import LogFile
from penstock.records import binary_array, from_numpy

Integers = np.ndarray[Any, np.dtype[np.int64]]
_NO_SEPARATOR: Final = pa.scalar(b"", pa.binary())
_MAX_SMALL_FRAME_BYTES: Final = 4096
"""Limit: longer frames are found one by one; scanning the many slots that they cover would be slower."""
_SEARCH_WINDOW_BYTES: Final = 1 << 18
"""Bytes scanned at once for the headers of small frames."""
_EQUAL_PART_BYTES: Final = 1 << 19
"""Approximate bytes of equally long frames written at once: they fit the cache of one core."""
_JOINED_PART_BYTES: Final = 1 << 21
"""Bytes of other frames written at once: longer copies are faster, but the allocator returns larger ones."""


class Block(NamedTuple):
    """A run of whole frames of one term, or one padding frame.

    ``data`` is a view into the buffer, valid as long as a frame's. ``starts`` (n + 1,) int64 are the offsets of the n
    frames in ``data``, and its length; ``lengths`` (n,) int64 are the payload lengths. A payload begins 32 bytes after
    its frame.
    """

    data: memoryview
    begin: int
    end: int
    starts: Integers
    lengths: Integers
    padding: bool = False

    def headers(self) -> np.ndarray:
        """Return the headers of the frames: (n,) HEADER_DTYPE."""
        slots = np.frombuffer(self.data, descriptor.HEADER_DTYPE)
        headers: np.ndarray = slots[self.starts[:-1] // descriptor.FRAME_ALIGNMENT]
        return headers

    def payloads(self) -> pa.Array[Any]:
        """Return the payloads of the frames, copied once for all."""
        begins = self.starts[:-1] + descriptor.HEADER_LENGTH
        offsets = np.empty(2 * len(begins) + 1, np.int32)
        offsets[:-1:2], offsets[1::2], offsets[-1] = begins, begins + self.lengths, self.starts[-1]
        return binary_array(offsets, self.data).take(from_numpy(np.arange(len(begins)) * 2))


def scan(log: LogFile, position: int, limit: int) -> Block | None:
    """Return the block at ``position``, up to ``limit`` bytes and the end of the term; see ``Image.block_poll``."""
    length, _, kind = log.whole_frame(position)
    if not length:
        return None
    if kind == descriptor.PAD:
        return _create_block(log, position, np.array([length]), True)
    lengths = _run_lengths(log, position, min(limit, log.term_end(position) - position))
    # Order: all lengths before the payloads, which the caller reads.
    memory_order.barrier()
    return _create_block(log, position, lengths, False) if len(lengths) else None


def _run_lengths(log: LogFile, position: int, room: int) -> Integers:
    """Return the lengths of the data frames from ``position`` on that fit ``room`` bytes."""
    parts: list[Integers] = []
    while room >= descriptor.HEADER_LENGTH:
        length, _, kind = log.whole_frame(position)
        if not length or kind != descriptor.DATA or descriptor.align(length) > room:
            break
        many = length <= _MAX_SMALL_FRAME_BYTES and room > descriptor.align(length)
        lengths = _chain_lengths(log, position, room) if many else np.array([length], np.int64)
        if not len(lengths):
            break  # overwritten during the scan
        run_bytes = int(((lengths + descriptor.FRAME_ALIGNMENT - 1) & -descriptor.FRAME_ALIGNMENT).sum())
        parts.append(lengths)
        position, room = position + run_bytes, room - run_bytes
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _chain_lengths(log: LogFile, position: int, room: int) -> Integers:
    """Return the lengths of the frame at ``position`` and its successors, found by whole arrays."""
    count = min(room, _SEARCH_WINDOW_BYTES) // descriptor.FRAME_ALIGNMENT
    words = np.frombuffer(log.bytes, np.int64, 4 * count, log.offset_of(position)).reshape(count, 4)
    slots = np.flatnonzero(words[:, 2] == words[0, 2])  # stream and term
    headers = words[slots]
    lengths = headers[:, 0].astype(np.int32).astype(np.int64)
    is_header = (lengths >= descriptor.HEADER_LENGTH) & (headers[:, 0] >> 48 == descriptor.DATA)
    is_header &= headers[:, 1] == words[0, 1] + slots * descriptor.FRAME_ALIGNMENT  # session and offset
    starts, lengths = slots[is_header] * descriptor.FRAME_ALIGNMENT, lengths[is_header]
    # A payload may contain bytes like a header; only a header at the end of the previous frame counts.
    ends = starts + ((lengths + descriptor.FRAME_ALIGNMENT - 1) & -descriptor.FRAME_ALIGNMENT)
    apart = np.flatnonzero(ends[:-1] != starts[1:])
    linked = int(apart[0]) + 1 if len(apart) else len(ends)
    fitting: Integers = lengths[: np.searchsorted(ends[:linked], room, "right")]
    return fitting


def _create_block(log: LogFile, position: int, lengths: Integers, padding: bool) -> Block:
    payloads = lengths - descriptor.HEADER_LENGTH
    starts = frame_starts(payloads)
    file_offset, size = log.offset_of(position), int(starts[-1])
    return Block(log.bytes[file_offset : file_offset + size], position, position + size, starts, payloads, padding)


def frame_starts(lengths: Integers) -> Integers:
    """Return the offsets of frames with payloads of ``lengths`` bytes, and the end of the last: (n + 1,)."""
    if _are_equal(lengths):
        return np.arange(len(lengths) + 1, dtype=np.int64) * descriptor.align(
            int(lengths[0]) + descriptor.HEADER_LENGTH
        )
    starts = np.zeros(len(lengths) + 1, np.int64)
    aligned = lengths + (descriptor.HEADER_LENGTH + descriptor.FRAME_ALIGNMENT - 1)
    aligned &= -descriptor.FRAME_ALIGNMENT
    np.cumsum(aligned, out=starts[1:])
    return starts


def _are_equal(lengths: Integers) -> bool:
    return len(lengths) > 0 and bool((lengths == lengths[0]).all())


def count_fitting(starts: Integers, room: int, limit: int) -> int:
    """Return the number of frames that fit ``room`` bytes and begin before ``limit``."""
    fitting = int(np.searchsorted(starts[1:], room, "right"))
    return min(fitting, int(np.searchsorted(starts[:-1], limit, "left")))


def header_words(
    log: LogFile, position: int, lengths: Integers, starts: Integers, reserved_values: Any
) -> tuple[Integers, ...]:
    """Return the headers of unfragmented frames from ``position`` on as their four 8-byte words, each (n,)."""
    p, offset, count = log.parameters, position - log.term_begin(position), len(lengths)
    stream = np.int64((log.term_id(position) << 32) + (p.stream_id & 0xFFFFFFFF))
    return (
        lengths + (descriptor.HEADER_LENGTH + (descriptor.UNFRAGMENTED << 40) + (descriptor.DATA << 48)),
        starts[:-1] + (offset + (p.session_id << 32)),
        np.broadcast_to(stream, count),
        np.broadcast_to(np.asarray(reserved_values, np.int64), count),
    )


def write_frames(
    log: LogFile,
    file_offset: int,
    words: tuple[Integers, ...],
    payload: np.ndarray,
    lengths: Integers,
    starts: Integers,
) -> None:
    """Write the frames of one run to ``file_offset``, which is zero except for the first length.

    ``payload`` is uint8, the messages end to end.
    """
    # Fast path: equal lengths are copied in place, part by part, while a part is in the processor's cache. Others are
    # joined by Arrow row by row before the copy.
    write_part, size = (_write_equal, _EQUAL_PART_BYTES) if _are_equal(lengths) else (_write_joined, _JOINED_PART_BYTES)
    used, step = 0, max(1, size * len(lengths) // int(starts[-1]))
    for begin in range(0, len(lengths), step):
        rows = slice(begin, begin + step)
        size = int(lengths[rows].sum())
        part = [word[rows] for word in words], payload[used : used + size], lengths[rows]
        write_part(log, file_offset + int(starts[begin]), *part)
        used += size


def _write_equal(
    log: LogFile, file_offset: int, words: Sequence[Integers], payload: np.ndarray, lengths: Integers
) -> None:
    length = int(lengths[0])
    stride = descriptor.align(length + descriptor.HEADER_LENGTH)
    log.copy_columns(file_offset, stride, words)
    if length:
        log.copy_rows(file_offset + descriptor.HEADER_LENGTH, stride, payload.reshape(len(lengths), length))


def _write_joined(
    log: LogFile, file_offset: int, words: Sequence[Integers], payload: np.ndarray, lengths: Integers
) -> None:
    headers = np.empty((len(lengths), len(words)), np.int64)
    for index, word in enumerate(words):
        headers[:, index] = word
    gaps = -lengths & (descriptor.FRAME_ALIGNMENT - 1)
    columns = (
        _binary_column(np.full(len(lengths), descriptor.HEADER_LENGTH), headers),
        _binary_column(lengths, payload),
        _binary_column(gaps, np.zeros(int(gaps.sum()), np.uint8)),
    )
    rows = pc.binary_join_element_wise(*columns, _NO_SEPARATOR)  # type: ignore[call-overload]  # the stub: no scalar
    size = headers.nbytes + len(payload) + int(gaps.sum())
    log.copy(file_offset, memoryview(rows.buffers()[2]).cast("B")[:size])


def _binary_column(lengths: Integers, data: np.ndarray) -> pa.Array[Any]:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return binary_array(offsets, data)
