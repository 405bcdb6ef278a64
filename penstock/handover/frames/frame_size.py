"""Sizes of frames. Without numpy and Arrow, because the supervisor uses them."""

from __future__ import annotations

from penstock.config import ListenerConfig
from penstock.wire.codecs import codec_of

MAX_DATAGRAM_BYTES = 65_535
MESSAGE_OVERHEAD_BYTES = 1024
"""Limit for one message in addition to twice its size: offsets, names of annotations."""
FRAME_OVERHEAD_BYTES = 32 << 10
"""Limit for a frame's own document and padding."""


def frame_length(term_length: int) -> int:
    """Return the limit of a frame's payload in bytes: an eighth of a term, as for any message of a log buffer."""
    # Limit: 16 MiB bound the memory of a group of frames; Aeron allows an eighth of a term.
    return min(term_length // 8, 16 << 20)


def min_frame_length(listener: ListenerConfig) -> int:
    """Bytes that one frame has to hold: the largest message, twice, as its annotations may repeat it."""
    largest = listener.max_line if listener.transport == "tcp" else MAX_DATAGRAM_BYTES + listener.most_beyond
    return 2 * largest + codec_of(listener.codec).growth + MESSAGE_OVERHEAD_BYTES + FRAME_OVERHEAD_BYTES
