"""Record headers of large messages: ``_lm`` (which segment), ``_t`` (creation time), ``_so`` (safe offset).

``_lm`` is big-endian (specification B1): type i8, the id's low and then its high half (the reverse of the segment's
own header and of the key), segment number i32, number of segments i32, and with a type from 1 on the message's size
i32. ``_t`` and ``_so`` are one i64 each, milliseconds and offset.
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
"""The segment's numbers stand before the payload too, and those count."""
V3 = 2
"""The value is the bare payload; so it is with all higher types."""
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
    """What ``_lm`` says."""

    type: int
    message_id: UUID
    chunk: int
    count: int
    message_size: int = UNKNOWN_SIZE

    def is_in_header(self) -> bool:
        """Whether this header, and not the payload, says which segment the record is."""
        return self.type >= V3

    def chunk_of(self, value: Bytes) -> Chunk:
        """The segment, with ``value`` as its payload."""
        return Chunk(self.message_id, self.chunk, self.count, self.message_size, value)

    def assembled(self) -> LargeMessageHeader:
        """The header of the whole message as its reader sees it."""
        size = UNKNOWN_SIZE if self.type == LEGACY else self.message_size
        return LargeMessageHeader(self.type, NO_ID, NO_CHUNK, self.count, size)


def encode_large_message_header(header: LargeMessageHeader) -> bytes:
    """25 bytes for type 0, 29 for others; a negative type writes a size of 0. Raises InvalidChunk beyond 32 bits."""
    high, low = header.message_id.int >> 64, header.message_id.int & _HALF
    try:
        if header.type == LEGACY:
            return _SHORT_FORM.pack(header.type, low, high, header.chunk, header.count)
        size = header.message_size if header.type > 0 else 0
        return _LONG_FORM.pack(header.type, low, high, header.chunk, header.count, size)
    except struct.error as error:
        raise InvalidChunk("range", f"not a number of a large message's header: {error}") from None


def decode_large_message_header(data: str | Bytes | None) -> LargeMessageHeader:
    """What a header says; only one of exactly 29 bytes has a size. Raises InvalidChunk for less than 25 bytes."""
    data = data.encode() if isinstance(data, str) else data
    if data is None or len(data) < _SHORT_FORM.size:
        raise InvalidChunk("header", f"a large message's header has at least 25 bytes, not {len(data or b'')}")
    kind, low, high, chunk, count = _SHORT_FORM.unpack_from(data)
    size = _INT.unpack_from(data, _SHORT_FORM.size)[0] if len(data) == _LONG_FORM.size else UNKNOWN_SIZE
    return LargeMessageHeader(kind, UUID(int=high << 64 | low), chunk, count, size)


def encode_long(value: int) -> bytes:
    """A time in milliseconds or an offset, as ``_t`` and ``_so`` hold it. Raises ValueError beyond 64 bits."""
    try:
        return _LONG.pack(value)
    except struct.error:
        raise ValueError(f"{value!r} is not a number of 64 bits") from None


def decode_long(data: str | Bytes | None) -> int:
    """The reverse of ``encode_long``. Raises ValueError for other lengths."""
    data = data.encode() if isinstance(data, str) else data
    if data is None or len(data) != _LONG.size:
        raise ValueError(f"a number of 64 bits has 8 bytes, not {len(data or b'')}")
    return int(_LONG.unpack(data)[0])


def message_key(message_id: UUID) -> bytes:
    """The key that keeps the segments of a message without a key together: the id, high half first."""
    return message_id.bytes


def find_last(headers: Iterable[Header] | None, name: str) -> Header | None:
    """The last header of that name; None where there is none."""
    found = None
    for header in headers or ():
        if header[0] == name:
            found = header
    return found


def without(headers: Iterable[Header] | None, name: str) -> list[Header]:
    """A new list of the headers of other names, in order."""
    return [header for header in headers or () if header[0] != name]
