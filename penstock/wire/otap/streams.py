"""State of one gRPC stream of OTAP: an Arrow IPC stream for each type of payload, with its dictionaries.

Messages: opentelemetry/proto/experimental/arrow/v1/arrow_service.proto. A payload whose ``schema_id`` differs from the
previous one of its type begins a new IPC stream (OTAP, section 4.4).
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessages

from penstock.wire.otap.ipc_messages import DICTIONARY, RECORDS, SCHEMA, read_messages
from penstock.wire.protobuf import Malformed

RESOURCE_ATTRIBUTES, SCOPE_ATTRIBUTES, LOGS, LOG_ATTRIBUTES = 1, 2, 30, 31
"""Types of payloads that a batch of logs has (enum ArrowPayloadType)."""
PAYLOAD_TYPES = (RESOURCE_ATTRIBUTES, SCOPE_ATTRIBUTES, LOGS, LOG_ATTRIBUTES)
MAX_DICTIONARY_BYTES = 16 << 20
"""Limit: dictionaries of one gRPC stream. They stay in memory until the sender resets their schema."""
OK, INVALID_ARGUMENT, INTERNAL, UNAVAILABLE = 0, 3, 13, 14
"""Codes of a BatchStatus (enum StatusCode), as in gRPC."""

# proto2, because proto3 of the original has the same wire format, and absent fields need no default here.
_FILE = FileDescriptorProto(name="penstock_arrow_service.proto", package="otap", syntax="proto2")


def _add_message(name: str, **fields: tuple[int, Field.Type.ValueType]) -> None:
    message = _FILE.message_type.add(name=name)
    for field, (number, kind) in fields.items():
        is_message = kind == Field.TYPE_MESSAGE
        label = Field.LABEL_REPEATED if is_message else Field.LABEL_OPTIONAL
        type_name = ".otap.ArrowPayload" if is_message else None
        message.field.add(name=field, number=number, label=label, type=kind, type_name=type_name)


_add_message("ArrowPayload", schema_id=(1, Field.TYPE_BYTES), type=(2, Field.TYPE_INT32), record=(3, Field.TYPE_BYTES))
_add_message("BatchArrowRecords", batch_id=(1, Field.TYPE_INT64), arrow_payloads=(2, Field.TYPE_MESSAGE))
_add_message(
    "BatchStatus",
    batch_id=(1, Field.TYPE_INT64),
    status_code=(2, Field.TYPE_INT32),
    status_message=(3, Field.TYPE_STRING),
)
_MESSAGE_CLASSES: dict[str, Any] = GetMessages([_FILE], pool=DescriptorPool())
BatchArrowRecords: Any = _MESSAGE_CLASSES["otap.BatchArrowRecords"]
BatchStatus: Any = _MESSAGE_CLASSES["otap.BatchStatus"]


def parse_batch(data: bytes) -> Any:
    """Parse a BatchArrowRecords. Raises Malformed."""
    try:
        return BatchArrowRecords.FromString(data)
    except DecodeError as error:
        raise Malformed(str(error)) from None


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one batch by type of payload, and the limit of the bytes of a batch."""

    by_type: Mapping[int, pa.RecordBatch]
    max_bytes: int


class OtapStream:
    """The IPC streams of one gRPC stream. Owned by one thread at a time.

    After Malformed the dictionaries are unknown, so the caller ends the stream.
    """

    def __init__(self, max_batch_bytes: int) -> None:
        self._max_batch_bytes = max_batch_bytes
        self._ipc_streams: dict[int, _IpcStream] = {}

    def read(self, payloads: Any) -> Tables:
        """Decode the payloads of a BatchArrowRecords. Raises Malformed."""
        tables, remaining_bytes = dict[int, pa.RecordBatch](), self._max_batch_bytes
        for payload in payloads:
            if payload.type not in PAYLOAD_TYPES:
                raise Malformed(f"payload type {payload.type} is not one of logs")
            if payload.type in tables:
                raise Malformed(f"payload type {payload.type} occurs twice in a batch")
            ipc_stream = self._ipc_streams.get(payload.type)
            if ipc_stream is None or ipc_stream.schema_id != payload.schema_id:
                ipc_stream = self._ipc_streams[payload.type] = _IpcStream(payload.schema_id)
            tables[payload.type], size = ipc_stream.read(payload.record, remaining_bytes)
            remaining_bytes -= size
            if sum(ipc.dictionary_bytes for ipc in self._ipc_streams.values()) > MAX_DICTIONARY_BYTES:
                raise Malformed(f"the dictionaries of the stream exceed {MAX_DICTIONARY_BYTES} bytes")
        return Tables(tables, self._max_batch_bytes)


class _IpcStream:
    """An Arrow IPC stream that arrives in parts of one record batch each."""

    def __init__(self, schema_id: bytes) -> None:
        self.schema_id = schema_id
        self._dictionaries: dict[int, int] = {}
        """Bytes of each dictionary by its id."""
        self._parts = _Parts()
        self._reader: pa.RecordBatchStreamReader | None = None

    @property
    def dictionary_bytes(self) -> int:
        """Bytes of all dictionaries of the stream."""
        return sum(self._dictionaries.values())

    def read(self, data: bytes, max_bytes: int) -> tuple[pa.RecordBatch, int]:
        """Decode the next part; return it and its decompressed bytes. Raises Malformed."""
        messages = read_messages(data, max_bytes)
        kinds = [message.kind for message in messages]
        expected = [SCHEMA] if self._reader is None else []
        if kinds != expected + [DICTIONARY] * (len(kinds) - len(expected) - 1) + [RECORDS]:
            raise Malformed("a payload is not a schema for a new stream, dictionaries, and one record batch")
        # Limit: a batch of empty columns states any number of rows in few bytes, so rows are bounded like bytes.
        if messages[-1].rows > max_bytes:
            raise Malformed(f"a record batch states {messages[-1].rows} rows")
        for message in messages:
            if message.kind == DICTIONARY:
                previous_bytes = self._dictionaries.get(message.dictionary_id, 0) if message.is_delta else 0
                self._dictionaries[message.dictionary_id] = previous_bytes + message.body_bytes
        self._parts.data = memoryview(data)
        try:
            if self._reader is None:
                self._reader = pa.ipc.open_stream(pa.PythonFile(self._parts, "r"))
            batch = self._reader.read_next_batch()
            # Arrow does not check offsets and indices of dictionaries while it reads: they could point outside the
            # buffers.
            batch.validate(full=True)
        except (pa.ArrowException, OSError, StopIteration) as error:
            raise Malformed(f"a payload cannot be decoded: {str(error).partition(chr(10))[0]}") from None
        return batch, sum(message.body_bytes for message in messages)


class _Parts(io.RawIOBase):
    """A file whose content arrives in parts, for Arrow's reader."""

    def __init__(self) -> None:
        super().__init__()
        self.data = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        size = len(self.data) if size < 0 else size
        part, self.data = self.data[:size], self.data[size:]
        return bytes(part)
