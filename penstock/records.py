"""The schema of messages, and functions on batches of them.

The unit of work is a batch (``pyarrow.RecordBatch``), never a message. Between processes a batch is one *encapsulated
Arrow message*: the IPC framing (8-byte prefix, metadata flatbuffer, body) without schema and without end-of-stream
marker, with one custom metadata entry, ``penstock``, that contains a JSON document. The same bytes serve as a frame of
the log buffer and as an entry of a segment.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import chain, groupby
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from penstock.compact_json import compact_json
from penstock.errors import PenstockError

ANNOTATIONS = pa.map_(pa.string(), pa.string())

_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "payload": pa.binary(),
    "type_url": pa.string(),
    "annotations": ANNOTATIONS,
}
BODY = pa.schema(_TYPES)
"""Columns that a stage hands to the log."""

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        *BODY,
    ]
)
"""Columns of a topic: BODY with offset and timestamp (microseconds, UTC), which the log assigns."""

METADATA_KEY = b"penstock"
CONTINUATION = 0xFFFFFFFF
"""First word of every encapsulated message, followed by the metadata length (int32)."""
_PREAMBLE = {id(schema): schema.serialize().size for schema in (BODY, SCHEMA)}

_PLAIN = pa.ipc.IpcWriteOptions()
"""Created once: the default options make pyarrow read the environment for each message."""

COPIED_ROWS, COPIED_BYTES = 256, 1 << 16
"""Limits of a small batch, which is copied faster than its buffers are handed over one by one."""

FEW_ROWS = 8
"""Limit below which a frame of rows with ten annotations is made without Arrow, and read as rows: one takes 32 us to
make and 25 to read, as columns 55 and 28; eight take the same either way.
"""

_Memory = bytes | memoryview | np.ndarray | pa.Buffer


class BadBatch(PenstockError, ValueError):
    """The bytes are not one encapsulated Arrow message of the expected schema."""


def body(
    payloads: pa.Array[Any] | Sequence[bytes | None],
    *,
    keys: pa.Array[Any] | None = None,
    type_urls: pa.Array[Any] | None = None,
    annotations: pa.Array[Any] | None = None,
) -> pa.RecordBatch:
    """Return a batch of BODY rows; omitted columns are null."""
    column = payloads if isinstance(payloads, pa.Array) else pa.array(payloads, pa.binary())
    rows = len(column)
    columns = (keys, column, type_urls, annotations)
    return pa.RecordBatch.from_arrays(
        [pa.nulls(rows, f.type) if c is None else c for c, f in zip(columns, BODY, strict=True)],
        schema=BODY,
    )


Row = tuple[bytes | None, bytes | None, str | None, list[tuple[str, str]] | None]
"""Key, payload, type URL and annotations; its texts contain no lone surrogates."""
_NULLS = [pa.nulls(64, field.type) for field in BODY]
"""Fast path: a slice of these costs a fifth of new null columns."""


class Rows(list[Row]):
    """A few rows that are not columns yet: columns of one row cost as much to create as columns of fifty."""

    __slots__ = ()

    @property
    def num_rows(self) -> int:
        """The number of rows, under the name that a batch uses."""
        return len(self)

    @property
    def size(self) -> int:
        """The bytes of all fields."""
        keys, payloads, types, annotations = zip(*self, strict=True) if self else ((), (), (), ())
        annotated = sum(len(name) + len(text) for pairs in annotations if pairs for name, text in pairs)
        return annotated + sum(map(len, filter(None, chain(keys, payloads, types))))

    def annotated(self, name: str, text: str) -> Rows:
        """Return the rows with an annotation appended to each."""
        pair = (name, text)
        return Rows((key, payload, type_url, [*(pairs or ()), pair]) for key, payload, type_url, pairs in self)

    def batch(self) -> pa.RecordBatch:
        """Return a batch of BODY rows."""
        if not self:
            return EMPTY_BODY
        columns = [_column(list(values), null) for values, null in zip(zip(*self, strict=True), _NULLS, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=BODY)


Body = pa.RecordBatch | Rows
"""Rows as a stage hands them to the log."""


def _column(values: list[Any], nulls: pa.Array[Any]) -> pa.Array[Any]:
    if values[0] is not None or values.count(None) < len(values):
        column: pa.Array[Any] = pa.array(values, nulls.type)
    elif len(values) <= len(nulls):
        column = nulls.slice(0, len(values))
    else:
        column = pa.nulls(len(values), nulls.type)
    return column


def as_batch(rows: Body) -> pa.RecordBatch:
    """Return rows as a batch."""
    return rows.batch() if isinstance(rows, Rows) else rows


EMPTY_BODY = body(pa.nulls(0, pa.binary()))
"""No rows. Workaround: pa.array of a list would import pandas, see ``process.tuning``."""


def annotated(payloads: pa.Array[Any], fields: Mapping[str, pa.Array[Any]]) -> pa.RecordBatch:
    """Return a batch of ``payloads`` with one annotation per column of ``fields`` (texts) that is not null."""
    rows, width = len(payloads), len(fields)
    if not width:
        return body(payloads)
    # All fields as one row-major matrix of presence flags, so that no statement runs per message.
    columns = [column.cast(pa.string()) for column in fields.values()]
    is_present = np.stack([column.is_valid().to_numpy(zero_copy_only=False) for column in columns], axis=1)
    indexes = np.arange(rows * width).reshape(width, rows).T[is_present]
    names = pa.array(list(fields)).take(from_numpy(indexes // max(rows, 1)))
    offsets = np.concatenate([[0], np.cumsum(is_present.sum(axis=1))])
    return body(
        payloads, annotations=annotation_maps(offsets, names, pa.concat_arrays(columns).take(from_numpy(indexes)))
    )


def concatenated(bodies: Sequence[Body]) -> pa.RecordBatch:
    """Return one batch with the rows of all; a single batch is returned without a copy."""
    batches: list[pa.RecordBatch] = []
    # Runs of Rows become one batch each: a batch per append would cost more than the rows.
    for _, run in groupby(bodies, type):
        batches += _batches(list(run))
    if len(batches) == 1:
        return batches[0]
    joined: pa.RecordBatch = pa.concat_batches(batches)  # type: ignore[attr-defined]  # the stub leaves it out
    return joined


def joined_rows(bodies: Sequence[Body]) -> Rows | None:
    """Return the rows of all bodies, or None if one of them is a batch."""
    if not all(isinstance(body, Rows) for body in bodies):
        return None
    return Rows(chain.from_iterable(bodies))  # type: ignore[arg-type]  # looked at above


def _batches(alike: list[Body]) -> list[pa.RecordBatch]:
    """Return the batches of a run of one type, or one batch for a run of rows."""
    rows = [row for body in alike if isinstance(body, Rows) for row in body]
    return [Rows(rows).batch()] if rows else [body for body in alike if isinstance(body, pa.RecordBatch)]


def annotation_column(batch: pa.RecordBatch) -> pa.MapArray[Any, Any]:
    """Return the annotations of a batch of BODY or SCHEMA rows."""
    return cast("pa.MapArray[Any, Any]", batch.column("annotations"))


def annotation_maps(
    offsets: np.ndarray, names: pa.Array[Any], texts: pa.Array[Any], nulls: np.ndarray | None = None
) -> pa.MapArray[Any, Any]:
    """Return a map column: row i has the entries [offsets[i], offsets[i + 1]); it is null where ``nulls``."""
    mask = np.append(nulls, False) if nulls is not None and nulls.any() else None
    bounded_offsets = from_numpy(offsets.astype(np.int32), mask)
    maps: pa.MapArray[Any, Any] = pa.MapArray.from_arrays(  # type: ignore[call-overload]  # the stub: int64, no type
        bounded_offsets, names, texts, type=ANNOTATIONS
    )
    return maps


def binary_array(offsets: np.ndarray, data: _Memory) -> pa.Array[Any]:
    """Return the bytes of ``data`` (C-contiguous) between each two ``offsets`` (int32) as a column, without a copy."""
    buffers = [None, buffer_of(offsets), buffer_of(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def buffer_of(data: _Memory) -> pa.Buffer:
    """Return the memory of ``data`` (C-contiguous) as a buffer, without a copy."""
    return pa.py_buffer(data)  # type: ignore[arg-type]  # the stub takes no numpy array before Python 3.12


def bounds(column: pa.Array[Any]) -> np.ndarray:
    """Return the start of each entry of a binary or string column in its data, and the end of the last one (int32)."""
    end = (column.offset + len(column) + 1) * 4
    # Senders of Arrow choose the size of the buffer: it may end within a number behind the last offset.
    offsets: np.ndarray = np.frombuffer(memoryview(column.buffers()[1])[:end], np.int32)  # type: ignore[arg-type]
    return offsets[column.offset :]


def from_numpy(values: np.ndarray, mask: np.ndarray | None = None) -> pa.Array[Any]:
    """Return an Arrow array, null where ``mask`` is set. Workaround: the stub types every pa.array as boolean."""
    array: pa.Array[Any] = pa.array(values, mask=mask)
    return array


def values_of(column: pa.Array[Any]) -> list[Any]:
    """Return a column without nulls as a list."""
    values: list[Any] = column.to_pylist()
    return values


def metadata_of(document: dict[str, Any]) -> dict[bytes, bytes]:
    """Return the custom metadata of a message with ``document``."""
    return {METADATA_KEY: compact_json(document)}


def encode(
    batch: pa.RecordBatch,
    document: dict[str, Any],
    extra: dict[bytes, bytes] | None = None,
    compression: Literal["zstd"] | None = None,
) -> pa.Buffer:
    """Return one encapsulated message of ``batch`` (schema BODY or SCHEMA) with its JSON ``document``.

    The length is a multiple of 8. ``extra`` adds metadata entries of the caller.
    """
    metadata = {**metadata_of(document), **(extra or {})}
    schema = SCHEMA if batch.num_columns == len(SCHEMA) else BODY
    sink = pa.BufferOutputStream()
    # The writer is never closed: close() would append an end-of-stream marker.
    options = pa.ipc.IpcWriteOptions(compression=compression) if compression else _PLAIN
    writer = pa.ipc.new_stream(sink, schema, options=options)
    writer.write_batch(batch, custom_metadata=metadata)
    return sink.getvalue()[_PREAMBLE[id(schema)] :]


def checksum(parts: Iterable[bytes | memoryview]) -> int:
    """Return the CRC32C of a message in parts."""
    return reduce(lambda crc, part: crc32c(part, crc), parts, 0)


class _PartSink:
    """A write-only file that keeps each part it receives; buffers of Arrow are not copied."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[bytes | pa.Buffer] = []

    def write(self, part: bytes | pa.Buffer) -> int:
        self.parts.append(part)
        return len(part)

    def flush(self) -> None:
        """Do nothing; Arrow requires the method."""


def encode_parts(
    batch: pa.RecordBatch,
    document: dict[str, Any],
    extra: dict[bytes, bytes] | None = None,
    compression: Literal["zstd"] | None = None,
) -> list[memoryview]:
    """Return the bytes of ``encode`` as prefix with metadata and body; a large body consists of the batch's own
    buffers.
    """
    if compression or (batch.num_rows <= COPIED_ROWS and batch.column("payload").nbytes <= COPIED_BYTES):
        message = memoryview(encode(batch, document, extra, compression))
        body_begins = 8 + int.from_bytes(message[4:8], "little")
        return [message[:body_begins], message[body_begins:]]
    schema, sink = SCHEMA if batch.num_columns == len(SCHEMA) else BODY, _PartSink()
    file = pa.PythonFile(sink, mode="w")  # type: ignore[arg-type]  # a subset of a file suffices
    writer = pa.ipc.new_stream(file, schema, options=_PLAIN)
    writer.write_batch(batch, custom_metadata={**metadata_of(document), **(extra or {})})
    # Arrow writes the head as bytes and the body as its own buffers; the first buffer marks the border.
    begin = next(index for index, part in enumerate(sink.parts) if isinstance(part, pa.Buffer))
    head = memoryview(b"".join(sink.parts[:begin]))[_PREAMBLE[id(schema)] :]
    return [head, *(memoryview(part) for part in sink.parts[begin:])]


def decode(data: Any, schema: pa.Schema = SCHEMA) -> tuple[pa.RecordBatch, dict[str, Any]]:
    """Return the batch (zero-copy on ``data``, any buffer) and the JSON document of an encoded message.

    Raises BadBatch for anything else. Checksums are the caller's concern.
    """
    try:
        message = pa.ipc.read_message(data)
        entries = custom_metadata(memoryview(message.metadata))
        document = json.loads(entries[METADATA_KEY][1])
        batch = pa.ipc.read_record_batch(message, schema)
    except (pa.ArrowException, OSError, EOFError, ValueError, TypeError, KeyError) as error:
        raise BadBatch(f"not a batch: {error}") from None
    if not isinstance(document, dict):
        raise BadBatch("not a batch: its document is not an object")
    return batch, document


def read_document(data: Any) -> dict[str, Any]:
    """Return the JSON document of an encoded message without touching its body. Raises BadBatch."""
    view = memoryview(data)
    try:
        mark, length = struct.unpack_from("<Ii", view)
        if mark != CONTINUATION or not 0 < length <= len(view) - 8:
            raise BadBatch("not a batch: no continuation mark")
        document = json.loads(bytes(custom_metadata(view[8 : 8 + length])[METADATA_KEY][1]))
    except (struct.error, ValueError, KeyError) as error:
        raise BadBatch(f"not a batch: {error}") from None
    if not isinstance(document, dict):
        raise BadBatch("not a batch: its document is not an object")
    return document


def custom_metadata(flatbuffer: memoryview) -> dict[bytes, tuple[int, bytes]]:
    """Return the custom metadata of a message: key -> (position of the text in ``flatbuffer``, text).

    ``flatbuffer`` is the message's metadata without the 8-byte prefix. The layout is that of Arrow's Message.fbs, whose
    fifth field is ``custom_metadata: [KeyValue]``. Raises BadBatch if an offset points outside of its buffer.
    """
    try:
        vector = field_of(flatbuffer, target_of(flatbuffer, 0), 4)
        if vector is None:
            return {}
        (count,) = struct.unpack_from("<I", flatbuffer, vector)
        # Limit: an entry takes at least 4 bytes, so a count from outside cannot make this loop long.
        if count > len(flatbuffer) // 4:
            raise BadBatch("custom metadata runs past its end")
        return dict(_key_value(flatbuffer, target_of(flatbuffer, vector + 4 + 4 * i)) for i in range(count))
    except struct.error as error:
        raise BadBatch(f"custom metadata: {error}") from None


def _key_value(data: memoryview, table: int) -> tuple[bytes, tuple[int, bytes]]:
    key, value = (_string(data, field_of(data, table, slot)) for slot in (0, 1))
    return key[1], value


def target_of(data: memoryview, position: int) -> int:
    """Return the position to which the flatbuffer's offset at ``position`` leads. Raises BadBatch, struct.error."""
    if position < 0:
        raise BadBatch("an offset points outside of its buffer")
    target: int = position + struct.unpack_from("<I", data, position)[0]
    return target


def field_of(data: memoryview, table: int, slot: int) -> int | None:
    """Return the position of the vector, string or table that field ``slot`` of ``table`` refers to; None when absent.

    Raises BadBatch, struct.error.
    """
    # A table starts with the distance back to its vtable, which lists the offsets of its fields.
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0:
        raise BadBatch("an offset points outside of its buffer")
    (size,) = struct.unpack_from("<H", data, vtable)
    if 4 + 2 * slot >= size:
        return None
    (offset,) = struct.unpack_from("<H", data, vtable + 4 + 2 * slot)
    return target_of(data, table + offset) if offset else None


def _string(data: memoryview, position: int | None) -> tuple[int, bytes]:
    if position is None:
        return 0, b""
    (length,) = struct.unpack_from("<I", data, position)
    # Invariant: every length is compared with the buffer before bytes are copied.
    if position + 4 + length > len(data):
        raise BadBatch("a string runs past its end")
    return position + 4, bytes(data[position + 4 : position + 4 + length])
