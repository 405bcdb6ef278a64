"""Runs of many frames: made by whole arrays, written in one go, read without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.mapped import LogFile
from penstock.records import binary_array, from_numpy

Integers = np.ndarray[Any, np.dtype[np.int64]]
_NOTHING: Final = pa.scalar(b"", pa.binary())
_SMALL: Final = 4096
"""Longer frames are found one by one: the slots they cover are not worth looking at."""
_WINDOW: Final = 1 << 18
"""Bytes looked at in one go for the headers of small frames."""
_EQUAL_PART: Final = 1 << 19
"""Bytes of frames of equal length written in one go, about: they fit into a core's own cache."""
_JOINED_PART: Final = 1 << 21
"""The same for others: long copies are the fastest, but longer ones make the allocator give memory back."""


class Block(NamedTuple):
    """A run of whole frames of one term, or one padding frame.

    ``data`` is a view into the buffer, good as long as a frame's. ``starts`` (n + 1,) int64 says where the
    n frames begin in ``data``, and ends with its length; ``lengths`` (n,) int64 are those of the payloads,
    which begin 32 bytes after their frames.
    """

    data: memoryview
    begin: int
    end: int
    starts: Integers
    lengths: Integers
    padding: bool = False

    def headers(self) -> np.ndarray:
        """The frames' headers: (n,) HEADER_DTYPE."""
        slots = np.frombuffer(self.data, d.HEADER_DTYPE)
        headers: np.ndarray = slots[self.starts[:-1] // d.FRAME_ALIGNMENT]
        return headers

    def payloads(self) -> pa.Array[Any]:
        """The frames' payloads, copied once and at once."""
        begins = self.starts[:-1] + d.HEADER_LENGTH
        offsets = np.empty(2 * len(begins) + 1, np.int32)
        offsets[:-1:2], offsets[1::2], offsets[-1] = begins, begins + self.lengths, self.starts[-1]
        return binary_array(offsets, self.data).take(from_numpy(np.arange(len(begins)) * 2))


def scan(log: LogFile, position: int, limit: int) -> Block | None:
    """The block at ``position``, at most ``limit`` bytes and to the end of the term; see Image.block_poll."""
    length, _, kind = log.whole_frame(position)
    if not length:
        return None
    if kind == d.PAD:
        return _block(log, position, np.array([length]), True)
    lengths = _run(log, position, min(limit, log.term_end(position) - position))
    return _block(log, position, lengths, False) if len(lengths) else None


def _run(log: LogFile, position: int, room: int) -> Integers:
    """The lengths of the data frames from ``position`` on that fit into ``room`` bytes."""
    found: list[Integers] = []
    while room >= d.HEADER_LENGTH:
        length, _, kind = log.whole_frame(position)
        if not length or kind != d.DATA or d.align(length) > room:
            break
        many = length <= _SMALL and room > d.align(length)
        lengths = _chain(log, position, room) if many else np.array([length], np.int64)
        if not len(lengths):
            break  # overwritten meanwhile
        taken = int(((lengths + d.FRAME_ALIGNMENT - 1) & -d.FRAME_ALIGNMENT).sum())
        found.append(lengths)
        position, room = position + taken, room - taken
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _chain(log: LogFile, position: int, room: int) -> Integers:
    """The lengths of the frame at ``position`` and of those behind it, found by whole arrays.

    Payloads may hold what looks like a header; a frame is what begins where the frame before it ends.
    """
    count = min(room, _WINDOW) // d.FRAME_ALIGNMENT
    words = np.frombuffer(log.bytes, np.int64, 4 * count, log.offset_of(position)).reshape(count, 4)
    slots = np.flatnonzero(words[:, 2] == words[0, 2])  # stream and term
    headers = words[slots]
    lengths = headers[:, 0].astype(np.int32).astype(np.int64)
    good = (lengths >= d.HEADER_LENGTH) & (headers[:, 0] >> 48 == d.DATA)
    good &= headers[:, 1] == words[0, 1] + slots * d.FRAME_ALIGNMENT  # session and offset
    starts, lengths = slots[good] * d.FRAME_ALIGNMENT, lengths[good]
    ends = starts + ((lengths + d.FRAME_ALIGNMENT - 1) & -d.FRAME_ALIGNMENT)
    apart = np.flatnonzero(ends[:-1] != starts[1:])
    linked = int(apart[0]) + 1 if len(apart) else len(ends)
    fitting: Integers = lengths[: np.searchsorted(ends[:linked], room, "right")]
    return fitting


def _block(log: LogFile, position: int, lengths: Integers, padding: bool) -> Block:
    payloads = lengths - d.HEADER_LENGTH
    starts = frame_starts(payloads)
    at, size = log.offset_of(position), int(starts[-1])
    return Block(log.bytes[at : at + size], position, position + size, starts, payloads, padding)


def frame_starts(lengths: Integers) -> Integers:
    """Where the frames of payloads of ``lengths`` bytes begin, and where the last one ends: (n + 1,)."""
    if _equal(lengths):
        return np.arange(len(lengths) + 1, dtype=np.int64) * d.align(int(lengths[0]) + d.HEADER_LENGTH)
    starts = np.zeros(len(lengths) + 1, np.int64)
    aligned = lengths + (d.HEADER_LENGTH + d.FRAME_ALIGNMENT - 1)
    aligned &= -d.FRAME_ALIGNMENT
    np.cumsum(aligned, out=starts[1:])
    return starts


def _equal(lengths: Integers) -> bool:
    return len(lengths) > 0 and bool((lengths == lengths[0]).all())


def how_many(starts: Integers, room: int, limit: int) -> int:
    """How many of the frames fit into ``room`` bytes and begin before ``limit``."""
    fitting = int(np.searchsorted(starts[1:], room, "right"))
    return min(fitting, int(np.searchsorted(starts[:-1], limit, "left")))


def header_words(
    log: LogFile, position: int, lengths: Integers, starts: Integers, reserved_values: Any
) -> tuple[Integers, ...]:
    """The headers of unfragmented frames, the first at ``position``, as their four 8-byte words, each (n,)."""
    p, offset, count = log.parameters, position - log.term_begin(position), len(lengths)
    stream = np.int64((log.term_id(position) << 32) + (p.stream_id & 0xFFFFFFFF))
    return (
        lengths + (d.HEADER_LENGTH + (d.UNFRAGMENTED << 40) + (d.DATA << 48)),
        starts[:-1] + (offset + (p.session_id << 32)),
        np.broadcast_to(stream, count),
        np.broadcast_to(np.asarray(reserved_values, np.int64), count),
    )


def write(
    log: LogFile, at: int, words: tuple[Integers, ...], payload: np.ndarray, lengths: Integers, starts: Integers
) -> None:
    """Writes the frames of one run to file offset ``at``, which is zero but for the first length.

    ``payload`` is uint8, the messages end to end. Equal lengths go straight to their places, part by part:
    what belongs to one is still in the processor's cache when it is completed. Others are joined by Arrow,
    row by row, before they are copied.
    """
    write_part, size = (_write_equal, _EQUAL_PART) if _equal(lengths) else (_write_joined, _JOINED_PART)
    used, step = 0, max(1, size * len(lengths) // int(starts[-1]))
    for begin in range(0, len(lengths), step):
        rows = slice(begin, begin + step)
        size = int(lengths[rows].sum())
        part = [word[rows] for word in words], payload[used : used + size], lengths[rows]
        write_part(log, at + int(starts[begin]), *part)
        used += size


def _write_equal(log: LogFile, at: int, words: Sequence[Integers], payload: np.ndarray, lengths: Integers) -> None:
    length = int(lengths[0])
    stride = d.align(length + d.HEADER_LENGTH)
    log.copy_columns(at, stride, words)
    if length:
        log.copy_rows(at + d.HEADER_LENGTH, stride, payload.reshape(len(lengths), length))


def _write_joined(log: LogFile, at: int, words: Sequence[Integers], payload: np.ndarray, lengths: Integers) -> None:
    headers = np.empty((len(lengths), len(words)), np.int64)
    for index, word in enumerate(words):
        headers[:, index] = word
    gaps = -lengths & (d.FRAME_ALIGNMENT - 1)
    columns = (
        _binary(np.full(len(lengths), d.HEADER_LENGTH), headers),
        _binary(lengths, payload),
        _binary(gaps, np.zeros(int(gaps.sum()), np.uint8)),
    )
    rows = pc.binary_join_element_wise(*columns, _NOTHING)  # type: ignore[call-overload]  # the stub: no scalar
    size = headers.nbytes + len(payload) + int(gaps.sum())
    log.copy(at, memoryview(rows.buffers()[2]).cast("B")[:size])


def _binary(lengths: Integers, data: np.ndarray) -> pa.Array[Any]:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return binary_array(offsets, data)
