"""Many small messages as one block of frames, made by whole arrays and copied in one go."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.mapped import LogFile

Integers = np.ndarray[Any, np.dtype[np.int64]]


def frame_starts(lengths: Integers) -> Integers:
    """Where the frames of payloads of ``lengths`` bytes begin, and where the last one ends: (n + 1,)."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum((lengths + d.HEADER_LENGTH + d.FRAME_ALIGNMENT - 1) & -d.FRAME_ALIGNMENT, out=starts[1:])
    return starts


def how_many(starts: Integers, room: int, limit: int) -> int:
    """How many of the frames fit into ``room`` bytes and begin before ``limit``."""
    fitting = int(np.searchsorted(starts[1:], room, "right"))
    return min(fitting, int(np.searchsorted(starts[:-1], limit, "left")))


def build_block(
    log: LogFile, position: int, data: memoryview, offsets: Integers, starts: Integers, reserved_values: Any
) -> memoryview:
    """The frames of the messages ``data[offsets[i]:offsets[i + 1]]``, the first at ``position``.

    ``reserved_values`` is one integer or n of them.
    """
    lengths = np.diff(offsets)
    block = np.zeros(int(starts[-1]), np.uint8)
    headers = np.zeros(len(lengths), d.HEADER_DTYPE)
    p = log.parameters
    headers["length"] = lengths + d.HEADER_LENGTH
    headers["flags"], headers["type"] = d.UNFRAGMENTED, d.DATA
    headers["term_offset"] = position - log.term_begin(position) + starts[:-1]
    headers["session_id"], headers["stream_id"] = p.session_id, p.stream_id
    headers["term_id"], headers["reserved_value"] = log.term_id(position), reserved_values
    block.view(d.HEADER_DTYPE)[starts[:-1] // d.FRAME_ALIGNMENT] = headers
    payload = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    _fill(block, payload, lengths, starts)
    return block.data.cast("B")


def _fill(block: np.ndarray, payload: np.ndarray, lengths: Integers, starts: Integers) -> None:
    first = int(lengths[0])
    if bool((lengths == first).all()):
        rows = block.reshape(len(lengths), int(starts[1]))
        rows[:, d.HEADER_LENGTH : d.HEADER_LENGTH + first] = payload.reshape(len(lengths), first)
        return
    before = np.cumsum(lengths) - lengths
    block[np.arange(len(payload)) + np.repeat(starts[:-1] + d.HEADER_LENGTH - before, lengths)] = payload
