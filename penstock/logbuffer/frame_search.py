"""Search frames by their headers: behind a gap, or if the metadata are damaged."""

from __future__ import annotations

import sys

import numpy as np

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.mapped import LogFile
from penstock.logbuffer.reshape import newest_term


def next_frame(log: LogFile, position: int, end: int = sys.maxsize) -> int | None:
    """Return the position of the next whole frame at or after ``position``, in its term and before ``end``."""
    p = log.parameters
    slots = log.headers(position, max(position, min(log.term_end(position), end)))
    offset = position - log.term_begin(position)
    is_valid = d.valid_headers(slots, offset, log.term_id(position), p.session_id, p.stream_id, p.term_length)
    index = int(is_valid.argmax()) if len(is_valid) else 0
    return position + index * d.FRAME_ALIGNMENT if len(is_valid) and is_valid[index] else None


def newest_by_frames(log: LogFile) -> int:
    """Return the highest term count with a frame, or -1; reads the whole file."""
    count = d.PARTITIONS * log.term_length // d.FRAME_ALIGNMENT
    return newest_term(np.frombuffer(log.bytes, d.HEADER_DTYPE, count), log.parameters)
