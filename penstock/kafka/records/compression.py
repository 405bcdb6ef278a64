"""Compressed record batches: gzip, snappy, lz4 and zstd, all of them in Arrow."""

from __future__ import annotations

import struct
from typing import Literal

import pyarrow as pa

from penstock.kafka.errors import BadRecords, BatchTooLarge, UnknownCodec

MOST = 64 << 20
"""Bytes that the records of a batch may have when they are unpacked."""
_TOO_LARGE = f"unpacked, a batch has more than {MOST} bytes, or its request more than a request may have"
CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_STREAMS: dict[int, Literal["gzip", "lz4", "zstd"]] = {1: "gzip", 3: "lz4", 4: "zstd"}
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16


def unpacked(data: memoryview, codec: int, most: int = MOST) -> pa.Buffer:
    """The records of a batch, ``most`` bytes of them. Raises BadRecords, BatchTooLarge and UnknownCodec."""
    most = min(most, MOST)
    if codec == 0:
        return pa.py_buffer(data)
    if codec not in CODECS:
        raise UnknownCodec(f"there is no compression {codec}")
    try:
        return pa.py_buffer(_snappy(data, most) if codec == 2 else _stream(data, _STREAMS[codec], most))
    except (OSError, pa.ArrowException, ValueError, struct.error, MemoryError) as error:
        if isinstance(error, BadRecords):
            raise
        raise BadRecords(f"the records cannot be unpacked as {CODECS[codec]}: {error}") from None


def _stream(data: memoryview, name: Literal["gzip", "lz4", "zstd"], most: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
        found: bytes = stream.read(most + 1)
    if len(found) > most:
        raise BatchTooLarge(_TOO_LARGE)
    return found


def _snappy(data: memoryview, most: int) -> bytes:
    """One block as it is, or several in the frame of the Java library."""
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _block(data, most)
    blocks, at, room = [], _XERIAL_HEADER, most
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if not 0 <= size <= len(data) - at - 4:
            raise BadRecords("a block of snappy is not within its batch")
        blocks.append(_block(data[at + 4 : at + 4 + size], room))
        room -= len(blocks[-1])
        at += 4 + size
    return b"".join(blocks)


def _block(data: memoryview, room: int) -> bytes:
    """One block, which begins with its unpacked size."""
    size = shift = 0
    for byte in bytes(data[:5]):
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > room:
        raise BatchTooLarge(_TOO_LARGE)
    return bytes(pa.decompress(data, size, "snappy", asbytes=True))
