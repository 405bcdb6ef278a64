"""Decompresses record batches: gzip, snappy, lz4 and zstd, by Arrow."""

from __future__ import annotations

import struct
from typing import Literal

import pyarrow as pa

from penstock.kafka.errors import BadRecords, BatchTooLarge, UnknownCodec
from penstock.wire.unpacking import Bomb, ImpossibleSize, snappy_block

MAX_UNPACKED_BYTES = 64 << 20
"""Limit: bytes of a batch's records after decompression."""
_TOO_LARGE = (
    f"after decompression a batch exceeds {MAX_UNPACKED_BYTES} bytes, or its request exceeds the limit of requests"
)
CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_STREAMS: dict[int, Literal["gzip", "lz4", "zstd"]] = {1: "gzip", 3: "lz4", 4: "zstd"}
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16


def unpack(data: memoryview, codec: int, max_bytes: int = MAX_UNPACKED_BYTES) -> pa.Buffer:
    """Return the records of a batch, up to ``max_bytes``. Raises BadRecords, BatchTooLarge and UnknownCodec."""
    max_bytes = min(max_bytes, MAX_UNPACKED_BYTES)
    if codec == 0:
        return pa.py_buffer(data)
    if codec not in CODECS:
        raise UnknownCodec(f"unknown compression {codec}")
    try:
        return pa.py_buffer(_snappy(data, max_bytes) if codec == 2 else _stream(data, _STREAMS[codec], max_bytes))
    except (OSError, pa.ArrowException, ValueError, struct.error, MemoryError) as error:
        if isinstance(error, BadRecords):
            raise
        raise BadRecords(f"records cannot be decompressed as {CODECS[codec]}: {error}") from None


def _stream(data: memoryview, name: Literal["gzip", "lz4", "zstd"], max_bytes: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
        # Limit: one byte more than allowed is decompressed at most, so that a small batch cannot fill the memory.
        records: bytes = stream.read(max_bytes + 1)
    if len(records) > max_bytes:
        raise BatchTooLarge(_TOO_LARGE)
    return records


def _snappy(data: memoryview, max_bytes: int) -> bytes:
    """Decompress one block, or several in the frame of the Java library."""
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _block(data, max_bytes)
    blocks, position, room = [], _XERIAL_HEADER, max_bytes
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        if not 0 <= size <= len(data) - position - 4:
            raise BadRecords("a snappy block exceeds its batch")
        blocks.append(_block(data[position + 4 : position + 4 + size], room))
        room -= len(blocks[-1])
        position += 4 + size
    return b"".join(blocks)


def _block(data: memoryview, room: int) -> bytes:
    # Java's producer splits a batch that is too large and sends its parts again, but not a damaged one.
    try:
        return snappy_block(data, room)
    except ImpossibleSize as error:
        raise BadRecords(f"a snappy block is damaged: {error}") from None
    except Bomb:
        raise BatchTooLarge(_TOO_LARGE) from None
