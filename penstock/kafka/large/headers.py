"""Record headers of large messages: ``_lm`` (position in the message), ``_t`` (creation time), ``_so`` (safe
offset).

``_lm`` is big-endian (LargeMessageHeaderValue of li-apache-kafka-clients): type i8, the low and then the high half of
the id (the reverse of the chunk's own header and of the key), chunk number i32, number of chunks i32, and from type 1
on the message size i32. ``_t`` and ``_so`` are one i64 each: milliseconds, and an offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from penstock.kafka.errors import InvalidChunk
from penstock.kafka.large.chunks import Bytes, Chunk

LARGE_MESSAGE = "_lm"
TIMESTAMP = "_t"
SAFE_OFFSET = "_so"

LEGACY = 0
LEGACY_V2 = 1
"""The chunk's own header precedes the payload, and its numbers take precedence over ``_lm``."""
V3 = 2
"""The value is the bare payload, also with all higher types."""
NO_ID = UUID(int=0)
NO_CHUNK = -1
UNKNOWN_SIZE = -1

Header = tuple[str, str | bytes | None]

_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_SHORT_FORM = struct.Struct(">bQQii")
_LONG_FORM = struct.Struct(">bQQiii")
_HALF = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class LargeMessageHeader:
    """The fields of an ``_lm`` header."""

    type: int
    message_id: UUID
    chunk: int
    count: int
    message_size: int = UNKNOWN_SIZE

    def is_in_header(self) -> bool:
        """Report whether this header, and not the payload, describes the chunk."""
        return self.type >= V3

    def to_chunk(self, value: Bytes) -> Chunk:
        """Return the chunk with ``value`` as its payload."""
        return Chunk(self.message_id, self.chunk, self.count, self.message_size, value)

    def for_whole_message(self) -> LargeMessageHeader:
        """Return the header of the assembled message as its reader sees it."""
        size = UNKNOWN_SIZE if self.type == LEGACY else self.message_size
        return LargeMessageHeader(self.type, NO_ID, NO_CHUNK, self.count, size)


def encode_large_message_header(header: LargeMessageHeader) -> bytes:
    """Return 25 bytes for type 0, else 29; a negative type has a size of 0. Raises InvalidChunk beyond 32 bits."""
    high, low = header.message_id.int >> 64, header.message_id.int & _HALF
    try:
        if header.type == LEGACY:
            return _SHORT_FORM.pack(header.type, low, high, header.chunk, header.count)
        size = header.message_size if header.type > 0 else 0
        return _LONG_FORM.pack(header.type, low, high, header.chunk, header.count, size)
    except struct.error as error:
        raise InvalidChunk("range", f"large message header: a number does not fit its field: {error}") from None


def decode_large_message_header(encoded: str | Bytes | None) -> LargeMessageHeader:
    """Parse an ``_lm`` header; only one of exactly 29 bytes has a size. Raises InvalidChunk for less than 25 bytes."""
    encoded = encoded.encode() if isinstance(encoded, str) else encoded
    if encoded is None or len(encoded) < _SHORT_FORM.size:
        raise InvalidChunk("header", f"large message header: {len(encoded or b'')} bytes, must be at least 25")
    kind, low, high, chunk, count = _SHORT_FORM.unpack_from(encoded)
    size = _INT.unpack_from(encoded, _SHORT_FORM.size)[0] if len(encoded) == _LONG_FORM.size else UNKNOWN_SIZE
    return LargeMessageHeader(kind, UUID(int=high << 64 | low), chunk, count, size)


def encode_long(number: int) -> bytes:
    """Encode milliseconds or an offset as ``_t`` and ``_so`` hold it. Raises ValueError beyond 64 bits."""
    try:
        return _LONG.pack(number)
    except struct.error:
        raise ValueError(f"{number!r} does not fit 64 bits") from None


def decode_long(encoded: str | Bytes | None) -> int:
    """Decode the value of ``_t`` or ``_so``. Raises ValueError for other lengths than 8 bytes."""
    encoded = encoded.encode() if isinstance(encoded, str) else encoded
    if encoded is None or len(encoded) != _LONG.size:
        raise ValueError(f"{len(encoded or b'')} bytes, must be 8 for a 64-bit number")
    return int(_LONG.unpack(encoded)[0])


def message_key(message_id: UUID) -> bytes:
    """Return the key that keeps the chunks of an unkeyed message in one partition: the id, high half first."""
    return message_id.bytes


def find_last(headers: Iterable[Header] | None, name: str) -> Header | None:
    """Return the last header of that name, or None."""
    last = None
    for header in headers or ():
        if header[0] == name:
            last = header
    return last


def drop_header(headers: Iterable[Header] | None, name: str) -> list[Header]:
    """Return the headers of other names, in order, as a new list."""
    return [header for header in headers or () if header[0] != name]
