"""What senders compressed, by zlib, gzip or deflate: unpacked within bounds, whatever it claims to hold."""

from __future__ import annotations

import zlib

from penstock.errors import PenstockError

ZLIB_OR_GZIP = zlib.MAX_WBITS | 32
"""zlib's window bits: either format, by its header."""
DEFLATE = -zlib.MAX_WBITS
"""Its window bits for bytes that have no header."""


class Bomb(PenstockError, ValueError):
    """It holds more bytes than may be."""


class NotPacked(PenstockError, ValueError):
    """It is damaged, or never was compressed; the text is zlib's."""


class CutShort(NotPacked):
    """Its end is missing."""


def first_unpacked(data: bytes, most: int, window: int = ZLIB_OR_GZIP) -> tuple[bytes, bytes]:
    """What the first stream in ``data`` holds, and the bytes behind it; never more than ``most`` + 1 are unpacked.

    Raises Bomb beyond ``most`` bytes, NotPacked, CutShort.
    """
    stream = zlib.decompressobj(window)
    try:
        found = stream.decompress(data, most + 1)
    except zlib.error as error:
        raise NotPacked(str(error)) from None
    if len(found) > most:
        raise Bomb(f"more than {most} bytes")
    if not stream.eof:
        raise CutShort("it is cut short")
    return found, stream.unused_data


def all_unpacked(data: bytes, most: int, window: int = ZLIB_OR_GZIP) -> bytes:
    """What all streams in ``data`` hold together, one behind the other; errors as ``first_unpacked``."""
    parts: list[bytes] = []
    while data:
        found, data = first_unpacked(data, most, window)
        most -= len(found)
        parts.append(found)
    return b"".join(parts)
