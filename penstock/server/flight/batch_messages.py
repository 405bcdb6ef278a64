"""Record batches as FlightData messages: encoded and cut to size for readers, decoded from writers.

FlightData is one protobuf message per Arrow IPC message: the metadata (a flatbuffer) in ``data_header``, the buffers in
``data_body``. The fields are written and read here by hand, because protobuf's own classes copy the body twice more.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.slogd.columns.ipc_message import is_uncompressed_message

MAX_PART_BYTES = 3 << 20
"""Limit: of the rows of one message. Clients in Go, Rust and Java refuse messages over 4 MiB by default; the difference
leaves room for metadata and padding. A single larger row is sent whole.
"""
MAX_DICTIONARY_BYTES = 16 << 20
"""Limit: of all dictionaries of one put, which are retained until it ends."""
MAX_ROWS_WITHOUT_BYTES = 1 << 16
"""Limit: of rows that a batch states without a byte for each, as of the type null: columns of the log take bytes."""
_CONTINUATION = b"\xff\xff\xff\xff"
_ALIGNED = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)  # type: ignore[call-arg, attr-defined]
"""A body begins at any byte of a request; only what needs an alignment, such as offsets, is copied for it."""
_PREFIX_BYTES = 8
"""Bytes before the metadata of an encapsulated IPC message: continuation mark and length."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
_DESCRIPTOR, _HEADER, _BODY = 1, 2, 1000


class BadFlightData(PenstockError, ValueError):
    """A message that is not FlightData, or no Arrow IPC message."""


def bytes_field(number: int, content: Any) -> bytes:
    """Return a protobuf field of wire type 2, tag and length included."""
    return b"".join((_varint(number << 3 | _BYTES), _varint(len(content)), content))


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class BatchEncoder:
    """Encoder for batches of one schema. For one thread at a time."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._sink = _PieceSink()
        self._writer = pa.ipc.new_stream(self._sink, schema)
        self._has_written = False

    def schema_message(self) -> bytes:
        """Return the schema as a message, which must be sent before all batches."""
        return bytes_field(_HEADER, memoryview(self._schema.serialize())[_PREFIX_BYTES:])

    def batch_messages(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Yield the messages of a batch, each within MAX_PART_BYTES unless a single row is larger."""
        if batch.nbytes > MAX_PART_BYTES and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self.batch_messages(batch.slice(0, half))
            yield from self.batch_messages(batch.slice(half))
        else:
            yield self._message(batch)

    def _message(self, batch: pa.RecordBatch) -> bytes:
        # Fast path: Arrow hands over its buffers as they are, so they are copied once, by join, which lets other
        # threads run where there is more than 1 MiB. batch.serialize() would copy them again (measured: 559 us
        # of CPU per MiB sent instead of 440).
        self._writer.write_batch(batch)
        pieces = self._sink.take_pieces()
        # A message is written as: continuation mark, length of the header, header, body.
        if not self._has_written:  # Arrow writes the schema with the first batch
            self._has_written = True
            _, pieces = _split(pieces[2:], _length(pieces[1]))
        header, body = _split(pieces[2:], _length(pieces[1]))
        header_length, body_length = sum(map(len, header)), sum(map(len, body))
        return b"".join(
            (
                _varint(_HEADER << 3 | _BYTES),
                _varint(header_length),
                *header,
                _varint(_BODY << 3 | _BYTES),
                _varint(body_length),
                *body,
            )
        )


def _length(piece: Any) -> int:
    return int.from_bytes(piece, "little")


def _split(pieces: list[Any], length: int) -> tuple[list[Any], list[Any]]:
    """Split a list of pieces after its first ``length`` bytes, which end where a piece ends."""
    count = 0
    while length > 0:
        length -= len(pieces[count])
        count += 1
    return pieces[:count], pieces[count:]


class _PieceSink(io.RawIOBase):
    """Sink for Arrow's writes: bytes for metadata and padding, Arrow's own buffers for the columns."""

    def __init__(self) -> None:
        self._pieces: list[Any] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self._pieces.append(piece)
        return len(piece)

    def take_pieces(self) -> list[Any]:
        pieces, self._pieces = self._pieces, []
        return pieces


@dataclass(frozen=True, slots=True)
class FlightData:
    """The fields of one received message; views into it."""

    descriptor: memoryview
    header: memoryview
    body: memoryview

    @classmethod
    def parse(cls, message: bytes) -> FlightData:
        """Parse one message. Raises BadFlightData."""
        view, offset = memoryview(message), 0
        fields = dict.fromkeys((_DESCRIPTOR, _HEADER, _BODY), view[:0])
        while offset < len(view):
            tag, offset = _read_varint(view, offset)
            number, kind = tag >> 3, tag & 7
            if kind == _BYTES:
                length, offset = _read_varint(view, offset)
                end = offset + length
                fields[number] = view[offset:end]
            elif kind == _VARINT:
                _, end = _read_varint(view, offset)
            elif kind in (_FIXED64, _FIXED32):
                end = offset + (8 if kind == _FIXED64 else 4)
            else:
                raise BadFlightData("the message is not FlightData")
            if end > len(view):
                raise BadFlightData("the message is not FlightData: it is cut off")
            offset = end
        return cls(fields[_DESCRIPTOR], fields[_HEADER], fields[_BODY])


def _read_varint(view: memoryview, offset: int) -> tuple[int, int]:
    """Return the number at ``offset`` and the offset behind it. Raises BadFlightData."""
    number = 0
    for index in range(_MAX_VARINT_BYTES):
        if offset + index >= len(view):
            break
        octet = view[offset + index]
        number |= (octet & 0x7F) << 7 * index
        if octet < 0x80:
            return number, offset + index + 1
    raise BadFlightData("the message is not FlightData: a number is cut off")


class BatchDecoder:
    """Decoder of one put's messages, in their order. For one thread at a time."""

    def __init__(self) -> None:
        self._schema = b""
        self._dictionaries: list[bytes] = []

    def decode(self, message: FlightData) -> pa.RecordBatch | None:
        """Return the valid batch of a message; None if it holds a schema, a dictionary or no Arrow message.

        Raises BadFlightData and pa.ArrowException.
        """
        if not message.header:
            return None
        padding = bytes(-len(message.header) % 8)
        length = len(message.header) + len(padding)
        head = b"".join((_CONTINUATION, length.to_bytes(4, "little"), message.header, padding))
        try:
            return self._decode(head, message.body)
        except (OSError, EOFError, StopIteration, MemoryError) as error:  # what Arrow raises for damaged messages
            raise BadFlightData(f"a message is not an Arrow IPC message: {error}") from None

    def _decode(self, head: bytes, body: memoryview) -> pa.RecordBatch | None:
        message = pa.ipc.read_message(pa.PythonFile(_Views(head, body), mode="r"))
        if not is_uncompressed_message(message):
            raise BadFlightData("a put is compressed, or of a format before V5: send it without compression")
        if message.type == "schema":
            self._schema, self._dictionaries = head, []
        elif message.type == "dictionary":
            # Limit: without bytes behind the stated body: they may be another message, and compressed.
            self._dictionaries.append(b"".join((head, message.body or b"")))
            if sum(map(len, self._dictionaries)) > MAX_DICTIONARY_BYTES:
                raise BadFlightData(f"the dictionaries of a put have at most {MAX_DICTIONARY_BYTES} bytes")
        elif message.type == "record batch" and self._schema:
            batch = self._read(head, body, pa.ipc.IpcReadOptions())
            # Limit: columns that share bytes would be stored with all of them, and copied for their alignment.
            # Order: lengths of buffers first, because `nbytes` follows offsets that nothing has validated yet.
            sizes = (buffer.size for column in batch.columns for buffer in column.buffers() if buffer is not None)
            if sum(sizes) > len(body):
                raise BadFlightData("the columns of a put share bytes")
            if batch.num_rows > max(len(body), MAX_ROWS_WITHOUT_BYTES):
                raise BadFlightData(f"a put states {batch.num_rows} rows in {len(body)} bytes")
            # Full validation: wrong offsets in a client's columns would let casts and reads leave their buffers.
            batch.validate(full=True)
            # Dictionaries are shared by columns, and each would have a copy.
            return batch if self._dictionaries else self._read(head, body, _ALIGNED)
        else:
            raise BadFlightData(f"a put has a schema and record batches, not a {message.type}")
        return None

    def _read(self, head: bytes, body: memoryview, options: pa.ipc.IpcReadOptions) -> pa.RecordBatch:
        earlier = b"".join((self._schema, *self._dictionaries, head))
        return pa.ipc.open_stream(_Views(earlier, body), options=options).read_next_batch()


class _Views(io.RawIOBase):
    """Consecutive parts of a stream. Fast path: Arrow keeps the views that it reads, so a body, which it reads at once,
    is not copied (measured: 2.1 ms for a batch of 2.8 MB with two copies, most of it page faults, and 0.1 without).
    """

    def __init__(self, *parts: bytes | memoryview) -> None:
        self._parts = [memoryview(part) for part in parts]

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> memoryview:
        while len(self._parts) > 1 and not self._parts[0]:
            del self._parts[0]
        view = self._parts[0][: len(self._parts[0]) if size < 0 else size]
        self._parts[0] = self._parts[0][len(view) :]
        return view
