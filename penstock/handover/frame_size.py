"""How large frames may be, and must be able to be. Without numpy and Arrow: the supervisor asks."""

from __future__ import annotations

from penstock.config import ListenerConfig
from penstock.wire.codecs import codec_of

LARGEST_DATAGRAM = 65_535
MESSAGE_COST = 1024
"""Bytes of a frame that one message takes at most beyond twice its own: offsets, names of annotations."""
FRAME_COST = 32 << 10
"""Bytes of a frame for its own document and padding."""


def frame_length(term_length: int) -> int:
    """Bytes of one frame's payload at most: an eighth of a term, as for any message of a log buffer."""
    return min(term_length // 8, 16 << 20)


def least_frame(listener: ListenerConfig) -> int:
    """Bytes that one frame has to hold: the largest message, twice, as its annotations may repeat it."""
    largest = listener.max_line if listener.transport == "tcp" else LARGEST_DATAGRAM + listener.most_beyond
    return 2 * largest + codec_of(listener.codec).growth + MESSAGE_COST + FRAME_COST
