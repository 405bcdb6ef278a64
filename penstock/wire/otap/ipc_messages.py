"""Checks of Arrow's encapsulated IPC messages before Arrow decodes them (Arrow Columnar Format, section IPC).

Limit: a message states how large its body and its decompressed buffers are, and Arrow allocates by these numbers.
Therefore they are compared with what has arrived and with a limit first. Only the fields that state sizes are read
from a message's metadata, which is a Flatbuffers table; Arrow verifies everything else.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from penstock.wire.protobuf import Malformed

SCHEMA, DICTIONARY, RECORDS = 1, 2, 3
"""Types of messages (format/Message.fbs, union MessageHeader)."""
MAX_METADATA_BYTES = 64 << 10
"""Limit: a schema stays in memory as long as its stream, in several times its size; that of logs takes 4 KB."""
_CONTINUATION = 0xFFFFFFFF
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3
_DICTIONARY_ID, _DICTIONARY_DATA, _IS_DELTA = range(3)
_ROWS, _BUFFERS, _COMPRESSION = 0, 2, 3
_PREFIX = struct.Struct("<II")
_LENGTH_BYTES = 8
"""Bytes in front of a compressed buffer, which state its decompressed length; -1 if it is not compressed."""


@dataclass(frozen=True, slots=True)
class IpcMessage:
    """Type of a message, its rows, and the bytes of its body once it is decompressed.

    Of a dictionary also its id, and whether it extends the dictionary that the stream has.
    """

    kind: int
    body_bytes: int
    rows: int = 0
    dictionary_id: int = 0
    is_delta: bool = False


def read_messages(data: bytes, max_bytes: int) -> list[IpcMessage]:
    """Return the messages in ``data``. Raises Malformed if one is damaged or is larger than ``max_bytes`` unpacked."""
    messages, position = list[IpcMessage](), 0
    try:
        while position < len(data):
            continuation, metadata_bytes = _PREFIX.unpack_from(data, position)
            if continuation != _CONTINUATION or not metadata_bytes:
                raise Malformed("no Arrow IPC message begins where one is expected")
            if metadata_bytes > MAX_METADATA_BYTES:
                raise Malformed(f"an Arrow IPC message has {metadata_bytes} bytes of metadata")
            begin = position + _PREFIX.size
            message, body_bytes = _read_message(data[begin : begin + metadata_bytes], data, begin + metadata_bytes)
            position = begin + metadata_bytes + body_bytes
            if position > len(data):
                raise Malformed("an Arrow IPC message is cut short")
            messages.append(message)
            if sum(each.body_bytes for each in messages) > max_bytes:
                raise Malformed(f"the Arrow data exceeds {max_bytes} bytes unpacked")
    except (struct.error, IndexError, ValueError) as error:
        raise error if isinstance(error, Malformed) else Malformed(f"not an Arrow IPC message: {error}") from None
    return messages


def _read_message(metadata: bytes, data: bytes, body_begin: int) -> tuple[IpcMessage, int]:
    """Return a message, and the bytes of its body as sent."""
    message = _Table(metadata, *struct.unpack_from("<I", metadata))
    kind, body_bytes = message.number(_HEADER_TYPE, "B"), message.number(_BODY_LENGTH, "q")
    header = message.table(_HEADER)
    if body_bytes < 0 or header is None:
        raise Malformed("an Arrow IPC message has no header")
    batch = header.table(_DICTIONARY_DATA) if kind == DICTIONARY else header if kind == RECORDS else None
    if batch is None:
        return IpcMessage(kind, body_bytes), body_bytes
    unpacked_bytes = body_bytes
    if batch.table(_COMPRESSION) is not None:
        unpacked_bytes = _unpacked_bytes(batch.structs(_BUFFERS), data, body_begin)
    rows = batch.number(_ROWS, "q")
    if rows < 0:
        raise Malformed("an Arrow IPC message has a negative number of rows")
    if kind == RECORDS:
        return IpcMessage(kind, unpacked_bytes, rows), body_bytes
    dictionary_id, is_delta = header.number(_DICTIONARY_ID, "q"), bool(header.number(_IS_DELTA, "B"))
    return IpcMessage(kind, unpacked_bytes, rows, dictionary_id, is_delta), body_bytes


def _unpacked_bytes(buffers: np.ndarray, data: bytes, body_begin: int) -> int:
    """Return the sum of the decompressed lengths that compressed buffers state."""
    total = 0
    for offset, length in buffers.tolist():
        if length:
            if offset < 0 or length < _LENGTH_BYTES:
                raise Malformed("a compressed buffer has no length")
            (stated,) = struct.unpack_from("<q", data, body_begin + offset)
            total += length if stated == -1 else stated
            if stated < -1:
                raise Malformed("a compressed buffer has a negative length")
    return total


class _Table:
    """A table of a Flatbuffers buffer. Reading outside of the buffer raises struct.error or ValueError."""

    def __init__(self, buffer: bytes, position: int) -> None:
        self._buffer, self._position = buffer, position
        (distance,) = struct.unpack_from("<i", buffer, position)
        self._fields = position - distance
        if self._fields < 0:
            raise Malformed("a Flatbuffers table begins before its buffer")

    def _offset(self, field: int) -> int:
        """Return the position of a field; 0 if it is absent."""
        (size,) = struct.unpack_from("<H", self._buffer, self._fields)
        slot = 4 + 2 * field
        if slot + 2 > size:
            return 0
        (offset,) = struct.unpack_from("<H", self._buffer, self._fields + slot)
        return self._position + int(offset) if offset else 0

    def number(self, field: int, code: str) -> int:
        """Return an integer of ``struct``'s type ``code``; 0 if it is absent."""
        offset = self._offset(field)
        return int(struct.unpack_from("<" + code, self._buffer, offset)[0]) if offset else 0

    def table(self, field: int) -> _Table | None:
        """Return a table; None if it is absent."""
        offset = self._offset(field)
        return _Table(self._buffer, offset + self.number(field, "I")) if offset else None

    def structs(self, field: int) -> np.ndarray:
        """Return a vector of pairs of 64-bit integers, with shape (n, 2)."""
        offset = self._offset(field)
        if not offset:
            return np.zeros((0, 2), np.int64)
        begin = offset + self.number(field, "I")
        (count,) = struct.unpack_from("<I", self._buffer, begin)
        return np.frombuffer(self._buffer, "<i8", 2 * count, begin + 4).reshape(-1, 2)
