"""Messages that their sender compressed, by zlib or gzip; one is one stream, with nothing behind it."""

from __future__ import annotations

from enum import StrEnum

from penstock.wire.unpacking import Bomb, NotPacked, first_unpacked


class Refusal(StrEnum):
    """Why a message is refused, as its count says."""

    OVERSIZE = "oversize"
    DAMAGED = "damaged"


def is_compressed(head: bytes) -> bool:
    """Whether a message that begins so is compressed; JSON does not begin so."""
    if len(head) < 2:
        return False
    return head[:2] == b"\x1f\x8b" or (head[0] & 15 == 8 and (head[0] << 8 | head[1]) % 31 == 0 and head[0] >> 4 < 8)


def unpacked(message: bytes, most: int) -> bytes | Refusal:
    """What a compressed message holds, of ``most`` bytes; never more than that is unpacked."""
    try:
        text, rest = first_unpacked(message, most)
    except Bomb:
        return Refusal.OVERSIZE
    except NotPacked:
        return Refusal.DAMAGED
    return Refusal.DAMAGED if rest else text
