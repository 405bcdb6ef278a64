"""Decompression of GELF messages: one zlib or gzip stream each, with nothing after it."""

from __future__ import annotations

from enum import StrEnum

from penstock.wire.unpacking import Bomb, NotPacked, first_unpacked


class Refusal(StrEnum):
    """Reason of a refusal, as in the name of its count."""

    OVERSIZE = "oversize"
    DAMAGED = "damaged"


def is_compressed(head: bytes) -> bool:
    """Return whether a message that begins with ``head`` is compressed; JSON does not begin so."""
    if len(head) < 2:
        return False
    # RFC 1950: method 8, window below 8, and a check that makes the first two bytes a multiple of 31.
    return head[:2] == b"\x1f\x8b" or (head[0] & 15 == 8 and (head[0] << 8 | head[1]) % 31 == 0 and head[0] >> 4 < 8)


def unpack(message: bytes, max_bytes: int) -> bytes | Refusal:
    """Decompress a message; never more than ``max_bytes`` are decompressed."""
    try:
        content, remainder = first_unpacked(message, max_bytes)
    except Bomb:
        return Refusal.OVERSIZE
    except NotPacked:
        return Refusal.DAMAGED
    return Refusal.DAMAGED if remainder else content
