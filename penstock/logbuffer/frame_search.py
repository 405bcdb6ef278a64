"""Finding frames where nothing tells where they are: behind a gap, or in an image's buffer, which has no tails."""

from __future__ import annotations

import numpy as np

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.mapped import LogFile
from penstock.logbuffer.reshape import newest_term


def next_frame(log: LogFile, position: int) -> int | None:
    """The next whole frame behind ``position`` in its term."""
    p = log.parameters
    slots = log.headers(position, log.term_end(position))
    offset = position - log.term_begin(position)
    found = d.valid_headers(slots, offset, log.term_id(position), p.session_id, p.stream_id, p.term_length)
    index = int(found.argmax()) if len(found) else 0
    return position + index * d.FRAME_ALIGNMENT if len(found) and found[index] else None


def newest_by_frames(log: LogFile) -> int:
    """The highest term count of which there is a frame; -1 for none. Looks at the whole file."""
    count = d.PARTITIONS * log.term_length // d.FRAME_ALIGNMENT
    return newest_term(np.frombuffer(log.bytes, d.HEADER_DTYPE, count), log.parameters)


def newest_count(log: LogFile) -> int:
    """The count of the newest term: by the metadata, or by the frames of an image, whose metadata do not tell."""
    if log.parameters.kind is not d.Kind.IMAGE:
        return log.load(d.ACTIVE_TERM_COUNT)
    return max(newest_by_frames(log), 0)


def tail_position(log: LogFile) -> int:
    """Where the writer stands; in an image where the last frame ends that was received."""
    count = newest_count(log)
    if log.parameters.kind is d.Kind.IMAGE:
        return _last_end(log, count * log.term_length)
    raw = log.load(d.TAIL_COUNTERS[count % d.PARTITIONS])
    return count * log.term_length + d.align(d.tail_offset(raw, log.term_length))


def _last_end(log: LogFile, begin: int) -> int:
    position: int | None = begin
    last = begin
    while position is not None and position < begin + log.term_length:
        length = log.whole_frame(position)[0]
        if length:
            position += d.align(length)
            last = position
        else:
            position = next_frame(log, position)
    return last
