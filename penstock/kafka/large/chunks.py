"""Segments: what a large message is cut into, as the value of a Kafka record.

The default format (specification B1): 33 bytes, big-endian: version u8 = 0, checksum (the low 32 bits of the sum
of the id's two halves), the id's high and low half, sequence i32, number of segments i32, message size i32; then
the payload. Any bytes that do not fit are not a segment, but a message of their own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from penstock.kafka.errors import InvalidChunk

Bytes = bytes | bytearray | memoryview

HEADER_SIZE = 33
LARGEST = (1 << 31) - 1
"""Sizes and counts are signed 32-bit numbers."""
_HEADER = struct.Struct(">bIQQiii")
_HALF = (1 << 64) - 1
_LOW = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Chunk:
    """Part ``sequence`` (from 0) of ``count`` of a message of ``message_size`` bytes. Nothing is checked by itself."""

    message_id: UUID
    sequence: int
    count: int
    message_size: int
    payload: Bytes

    def check(self) -> None:
        """Raises InvalidChunk where the segment contradicts itself."""
        if not isinstance(self.message_id, UUID):
            raise InvalidChunk("id", "Message Id can not be null")
        if self.payload is None:
            raise InvalidChunk("payload", "payload cannot be null")
        size = len(self.payload)
        if self.count <= 0:
            raise InvalidChunk("count", f"number of segments should be > 0, instead is {self.count}")
        if not 0 <= self.sequence < self.count:
            raise InvalidChunk("sequence", f"Sequence number {self.sequence} should fall between [0,{self.count - 1}].")
        if self.message_size < 0:
            raise InvalidChunk("size", f"message size ({self.message_size}) should be >= 0")
        if size > self.message_size:
            raise InvalidChunk(
                "size", f"segment size ({size}) should not be larger than message size ({self.message_size})"
            )


ChunkSerializer = Callable[[str, Chunk], Bytes]
"""Topic and segment -> value of the record."""
ChunkDeserializer = Callable[[str, Bytes], Chunk | None]
"""Topic and value of a record -> segment, or None where it is none (an ordinary message)."""


def encode_chunk(message_id: UUID, sequence: int, count: int, message_size: int, payload: Bytes) -> bytes:
    """The value of a segment's record: 33 bytes and the payload. Raises InvalidChunk for numbers beyond 32 bits."""
    high, low = message_id.int >> 64, message_id.int & _HALF
    try:
        header = _HEADER.pack(0, (high + low) & _LOW, high, low, sequence, count, message_size)
    except struct.error as error:
        raise InvalidChunk("range", f"not a segment's number: {error}") from None
    return b"".join((header, payload))


def decode_chunk(data: Bytes) -> Chunk | None:
    """The segment in a record's value; None where it is an ordinary message. The payload is a view of ``data``.

    A version byte from 0x80 on is taken for 0, as the Java library reads it signed.
    """
    if len(data) < HEADER_SIZE:
        return None
    version, checksum, high, low, sequence, count, size = _HEADER.unpack_from(data)
    if version > 0 or (high + low) & _LOW != checksum:
        return None
    if sequence < 0 or sequence >= count or size < len(data) - HEADER_SIZE:
        return None
    return Chunk(UUID(int=high << 64 | low), sequence, count, size, memoryview(data)[HEADER_SIZE:])


def serialize_chunk(topic: str, chunk: Chunk) -> bytes:
    """The default segment serializer."""
    return encode_chunk(chunk.message_id, chunk.sequence, chunk.count, chunk.message_size, chunk.payload)


def deserialize_chunk(topic: str, data: Bytes) -> Chunk | None:
    """The default segment deserializer."""
    return decode_chunk(data)
