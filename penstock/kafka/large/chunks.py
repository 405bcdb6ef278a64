"""Chunks of a large message: the values of its Kafka records ("segments" in li-apache-kafka-clients).

The default format (DefaultSegmentSerializer of li-apache-kafka-clients) has 33 bytes, big-endian: version u8 = 0,
checksum (the low 32 bits of the sum of the id's two halves), the high and the low half of the id, sequence i32, number
of chunks i32, message size i32; then the payload. Bytes that do not fit this format are a message of their own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from penstock.kafka.errors import InvalidChunk

Bytes = bytes | bytearray | memoryview

CHUNK_HEADER_BYTES = 33
MAX_MESSAGE_BYTES = (1 << 31) - 1
"""Limit: sizes and counts are signed 32-bit numbers on the wire."""
_HEADER = struct.Struct(">bIQQiii")
_LOW_64_BITS = (1 << 64) - 1
_LOW_32_BITS = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Chunk:
    """Part ``sequence`` (from 0) of ``count`` of a message of ``message_size`` bytes; validated only by ``check``."""

    message_id: UUID
    sequence: int
    count: int
    message_size: int
    payload: Bytes

    def check(self) -> None:
        """Raise InvalidChunk if the numbers of the chunk contradict each other."""
        # Texts as in the Java library: the recorded compatibility cases compare them.
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
"""Maps topic and chunk to the value of the record."""
ChunkDeserializer = Callable[[str, Bytes], Chunk | None]
"""Maps topic and value of a record to its chunk, or to None for an ordinary message."""


def encode_chunk(message_id: UUID, sequence: int, count: int, message_size: int, payload: Bytes) -> bytes:
    """Return the value of a chunk's record. Raises InvalidChunk for numbers beyond 32 bits."""
    high, low = message_id.int >> 64, message_id.int & _LOW_64_BITS
    try:
        header = _HEADER.pack(0, (high + low) & _LOW_32_BITS, high, low, sequence, count, message_size)
    except struct.error as error:
        raise InvalidChunk("range", f"chunk: a number does not fit 32 bits: {error}") from None
    return b"".join((header, payload))


def decode_chunk(value: Bytes) -> Chunk | None:
    """Return the chunk in a record's value, or None for an ordinary message. The payload is a view of ``value``."""
    if len(value) < CHUNK_HEADER_BYTES:
        return None
    version, checksum, high, low, sequence, count, size = _HEADER.unpack_from(value)
    # A version byte from 0x80 on passes as 0: the Java library reads it signed.
    if version > 0 or (high + low) & _LOW_32_BITS != checksum:
        return None
    if sequence < 0 or sequence >= count or size < len(value) - CHUNK_HEADER_BYTES:
        return None
    return Chunk(UUID(int=high << 64 | low), sequence, count, size, memoryview(value)[CHUNK_HEADER_BYTES:])


def serialize_chunk(topic: str, chunk: Chunk) -> bytes:
    """Serialize a chunk in the default format."""
    return encode_chunk(chunk.message_id, chunk.sequence, chunk.count, chunk.message_size, chunk.payload)


def deserialize_chunk(topic: str, value: Bytes) -> Chunk | None:
    """Deserialize a chunk in the default format."""
    return decode_chunk(value)
