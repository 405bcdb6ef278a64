"""Search frames by their headers: behind a gap, or if the metadata are damaged."""

from __future__ import annotations

import sys

import numpy as np

from penstock.logbuffer import descriptor
from penstock.logbuffer.mapped import LogFile
from penstock.logbuffer.reshape import newest_term_count

SEARCH_CHUNK_BYTES = 1 << 20


def next_frame(log: LogFile, position: int, end: int = sys.maxsize) -> int | None:
    """Return the position of the next whole frame at or after ``position``, in its term and before ``end``."""
    p, term_id, term_begin = log.parameters, log.term_id(position), log.term_begin(position)
    end = min(log.term_end(position), end)
    while position < end:
        # Fast path: the next frame is usually near, and arrays of a chunk stay in the processor's cache.
        chunk_end = min(position + SEARCH_CHUNK_BYTES, end)
        slots = log.headers(position, chunk_end)
        is_valid = descriptor.valid_headers(
            slots, position - term_begin, term_id, p.session_id, p.stream_id, p.term_length
        )
        index = int(is_valid.argmax())
        if is_valid[index]:
            return position + index * descriptor.FRAME_ALIGNMENT
        position = chunk_end
    return None


def first_used(log: LogFile, position: int, end: int) -> int:
    """Return the position of the first slot with a byte that is not zero, or ``end``; both lie in one term."""
    while position < end:
        chunk_end = min(position + SEARCH_CHUNK_BYTES, end)
        words = np.frombuffer(log.bytes, np.int64, (chunk_end - position) // 8, log.offset_of(position))
        is_used = words != 0
        index = int(is_used.argmax())
        if is_used[index]:
            return (position + 8 * index) & -descriptor.FRAME_ALIGNMENT
        position = chunk_end
    return end


def newest_by_frames(log: LogFile) -> int:
    """Return the highest term count with a frame, or -1; reads the whole file."""
    count = descriptor.PARTITIONS * log.term_length // descriptor.FRAME_ALIGNMENT
    return newest_term_count(np.frombuffer(log.bytes, descriptor.HEADER_DTYPE, count), log.parameters)
