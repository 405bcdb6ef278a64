"""Finding frames where nothing tells where they are: behind a gap, or where the metadata are damaged."""

from __future__ import annotations

import sys

import numpy as np

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.mapped import LogFile
from penstock.logbuffer.reshape import newest_term


def next_frame(log: LogFile, position: int, end: int = sys.maxsize) -> int | None:
    """The next whole frame at or behind ``position`` in its term, and before ``end``."""
    p = log.parameters
    slots = log.headers(position, max(position, min(log.term_end(position), end)))
    offset = position - log.term_begin(position)
    found = d.valid_headers(slots, offset, log.term_id(position), p.session_id, p.stream_id, p.term_length)
    index = int(found.argmax()) if len(found) else 0
    return position + index * d.FRAME_ALIGNMENT if len(found) and found[index] else None


def newest_by_frames(log: LogFile) -> int:
    """The highest term count of which there is a frame; -1 for none. Looks at the whole file."""
    count = d.PARTITIONS * log.term_length // d.FRAME_ALIGNMENT
    return newest_term(np.frombuffer(log.bytes, d.HEADER_DTYPE, count), log.parameters)
