"""Decompression of what senders send, within bounds: gzip, zlib, deflate, zstd, LZ4 frames and snappy."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
from crc32c import crc32c

from penstock.errors import PenstockError

ZLIB_OR_GZIP = zlib.MAX_WBITS | 32
"""zlib's window bits: either format, by its header."""
DEFLATE = -zlib.MAX_WBITS
"""Its window bits for bytes that have no header."""


PART_BYTES = 256 << 10
"""Bytes that are unpacked at once: about 1 ms."""
INPUT_BYTES = 64 << 10
MAX_STREAMS = 100_000
"""Limit: streams one behind the other, or chunks of framed snappy; each costs some 10 us, also if it holds nothing."""
SNAPPY_MAGIC = b"\xff\x06\0\0sNaPpY"
"""The first chunk of framed snappy."""
SNAPPY_CHUNK_BYTES = 64 << 10
"""Limit of the format: bytes that one chunk holds."""
MAX_SNAPPY_RATIO = 32
"""By how much snappy compresses at most (64 bytes into 3 of a copy, and what the block's own rules add)."""
_COMPRESSED, _PLAIN, _FIRST_SKIPPABLE, _STREAM_BEGIN = 0x00, 0x01, 0x80, 0xFF


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


def arrow_parts(data: bytes, most: int, compression: Literal["zstd", "lz4"]) -> Iterator[bytes]:
    """Yield what zstd or LZ4 frames hold together in parts, as ``unpacked_parts`` does; errors likewise."""
    # Limit: the window that a frame's head announces is allocated, and touched only as far as it is filled.
    try:
        with pa.input_stream(pa.py_buffer(data), compression=compression) as stream:
            while part := stream.read(PART_BYTES):
                most -= len(part)
                if most < 0:
                    raise Bomb("more bytes than may be")
                yield part
    except OSError as error:
        if "Truncated" in str(error):
            raise CutShort("it is cut short") from None
        raise NotPacked(str(error)) from None


def snappy_block(data: bytes | memoryview, most: int) -> bytes:
    """Return what one block of snappy holds; errors as ``first_unpacked``."""
    size, shift = 0, 0
    for octet in data[:5]:
        size |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            break
    # Limit: the head says how many bytes are allocated, so it is compared with what the block can hold.
    if size > min(most, MAX_SNAPPY_RATIO * len(data)):
        raise Bomb(f"it says that it has {size} bytes unpacked")
    if not size:
        return b""
    try:
        return bytes(pa.decompress(data, decompressed_size=size, codec="snappy", asbytes=True))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise NotPacked(str(error)) from None


def framed_snappy_parts(data: bytes, most: int) -> Iterator[bytes]:
    """Yield what the chunks of framed snappy hold; errors as ``unpacked_parts``, also for a wrong checksum."""
    if not data.startswith(SNAPPY_MAGIC):
        raise NotPacked("it does not begin with the name of framed snappy")
    view, position, chunks = memoryview(data), len(SNAPPY_MAGIC), 0
    while position < len(view):
        chunks += 1
        if chunks > MAX_STREAMS:
            raise Bomb(f"more than {MAX_STREAMS} chunks")
        kind, size = view[position], int.from_bytes(view[position + 1 : position + 4], "little")
        content = view[position + 4 : position + 4 + size]
        position += 4 + size
        if position > len(view):
            raise CutShort("it is cut short")
        if kind >= _FIRST_SKIPPABLE and (kind != _STREAM_BEGIN or bytes(content) == SNAPPY_MAGIC[4:]):
            continue
        if kind not in (_COMPRESSED, _PLAIN) or size < 4:
            raise NotPacked(f"a chunk of kind {kind} and {size} bytes is unknown")
        limit = min(SNAPPY_CHUNK_BYTES, most)
        if kind == _PLAIN and size - 4 > limit:
            raise Bomb("more bytes than may be")
        part = snappy_block(content[4:], limit) if kind == _COMPRESSED else bytes(content[4:])
        if int.from_bytes(content[:4], "little") != _masked_crc(part):
            raise NotPacked("incorrect data check")
        most -= len(part)
        yield part


def _masked_crc(part: bytes) -> int:
    crc = int(crc32c(part))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
