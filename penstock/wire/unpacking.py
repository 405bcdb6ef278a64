"""What senders compressed, by zlib, gzip or deflate: unpacked within bounds, whatever it claims to hold."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from penstock.errors import PenstockError

ZLIB_OR_GZIP = zlib.MAX_WBITS | 32
"""zlib's window bits: either format, by its header."""
DEFLATE = -zlib.MAX_WBITS
"""Its window bits for bytes that have no header."""


PART_BYTES = 256 << 10
"""Bytes that are unpacked at once: about 1 ms."""
INPUT_BYTES = 64 << 10
MAX_STREAMS = 100_000
"""Limit: streams one behind the other; each costs some 10 us, also if it holds nothing."""


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
    return b"".join(unpacked_parts(data, most, window))


def unpacked_parts(data: bytes, most: int, window: int = ZLIB_OR_GZIP) -> Iterator[bytes]:
    """Yield what ``all_unpacked`` returns in parts of at most PART_BYTES, so that a caller may pause between them."""
    view, position, streams = memoryview(data), 0, 0
    while position < len(view):
        streams += 1
        if streams > MAX_STREAMS:
            raise Bomb(f"more than {MAX_STREAMS} streams")
        stream = zlib.decompressobj(window)
        while not stream.eof:
            packed: bytes | memoryview = stream.unconsumed_tail
            if not packed:
                # Limit: zlib copies what stands behind a stream, which is all the rest if it is handed in at once.
                packed = view[position : position + INPUT_BYTES]
                position += len(packed)
            try:
                part = stream.decompress(packed, min(PART_BYTES, most + 1))
            except zlib.error as error:
                raise NotPacked(str(error)) from None
            most -= len(part)
            if most < 0:
                raise Bomb("more bytes than may be")
            if part:
                yield part
            elif not len(packed) and not stream.eof:
                raise CutShort("it is cut short")
        position -= len(stream.unused_data)
