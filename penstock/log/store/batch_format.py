"""The bytes of one batch: an encapsulated Arrow message with its own checksum.

The custom metadata has ``penstock`` (a JSON document: v, base, rows, ts, at, producers, and the
batch's origin) and ``crc32c``: eight hexadecimal digits, the CRC32C of the whole message with this field as zeros.
``at`` is the message's position in its file, so that a copy of a batch inside a payload is never taken for a batch.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from crc32c import crc32c

from penstock import records
from penstock.counts import Origin
from penstock.files.file_system import Bytes
from penstock.log.errors import UnknownFormat
from penstock.log.store.producers import ProducerEntry
from penstock.records import BadBatch

VERSION = 1
CRC_KEY = b"crc32c"
CRC_BLANK = b"00000000"
_CRC_FIELD = struct.pack("<I", len(CRC_BLANK)) + CRC_BLANK
"""The field in the metadata with its length; its zero bytes cannot occur in a JSON document, so a search finds it."""
_THIS_VERSION = b'{"v":%d,' % VERSION
"""First bytes of a batch's document."""
PREFIX = 8
PREAMBLE: pa.Buffer = records.SCHEMA.serialize()
"""The schema message at the start of every segment."""
_PREAMBLE = PREAMBLE.to_pybytes()
_FAILURES = (pa.ArrowException, OSError, EOFError, ValueError, TypeError, KeyError, AttributeError, struct.error)


@dataclass(frozen=True, slots=True)
class IpcMessage:
    """The Arrow IPC message of one stored batch, with a verified checksum; ``first`` and ``last`` are microseconds.

    It is in bytes [position, position + length) of its segment, and has rows [base, end).
    """

    position: int
    length: int
    base: int
    rows: int
    first: int
    last: int
    crc: int
    origin: Origin
    producers: tuple[ProducerEntry, ...] = ()

    @property
    def end(self) -> int:
        return self.base + self.rows


def document(
    origin: Origin, base: int, rows: int, times: tuple[int, int], position: int, producers: Iterable[ProducerEntry] = ()
) -> dict[str, Any]:
    """Return the JSON document of a batch; ``times`` are its first and last timestamp in microseconds."""
    fields = {"v": VERSION, "base": base, "rows": rows, "ts": list(times), "at": position, **origin.document()}
    entries = list(producers)
    return {**fields, "producers": entries} if entries else fields


def frame(
    batch: pa.RecordBatch, described: Mapping[str, Any], compression: Literal["zstd"] | None = None
) -> tuple[tuple[Bytes, ...], int]:
    """Return the parts of the message of ``batch`` (SCHEMA), without copying its columns, and its checksum."""
    message = records.encode_parts(batch, dict(described), {CRC_KEY: CRC_BLANK}, compression)
    head, *body = message
    crc_position = bytes(head).index(_CRC_FIELD) + len(_CRC_FIELD) - len(CRC_BLANK)
    crc = records.checksum(message)
    parts = (head[:crc_position], b"%08x" % crc, head[crc_position + len(CRC_BLANK) :], *body)
    return parts, crc


def parse(data: pa.Buffer, position: int) -> IpcMessage:
    """Return the message at ``position`` of a segment's bytes.

    Raises BadBatch if checksum or position is wrong, UnknownFormat for another format version.
    """
    try:
        return _parse(data, position)
    except _FAILURES as error:
        raise BadBatch(f"no batch at {position}: {error}") from None


def _parse(data: pa.Buffer, position: int) -> IpcMessage:
    view = memoryview(data)[position:]
    continuation, size = struct.unpack_from("<Ii", view)
    if continuation != records.CONTINUATION or not 0 < size <= len(view) - PREFIX:
        raise BadBatch("no continuation mark")
    entries = records.custom_metadata(view[PREFIX : PREFIX + size])
    crc_position, stated = entries[CRC_KEY]
    body = pa.ipc.read_message(data.slice(position)).body
    length = PREFIX + size + (body.size if body else 0)
    # Order: the checksum is verified before the document is parsed. Nothing in a damaged message is believed but its
    # length, which is bounded by the file.
    crc = _checksum(view[:length], PREFIX + crc_position)
    if stated != b"%08x" % crc:
        raise BadBatch("checksum differs")
    described = json.loads(entries[records.METADATA_KEY][1])
    if described["at"] != position:
        raise BadBatch("position differs")
    if described["v"] != VERSION:
        raise UnknownFormat(f"a batch has format version {described['v']}, this version of Penstock reads {VERSION}")
    first, last = map(int, described["ts"])
    base, rows = int(described["base"]), int(described["rows"])
    return IpcMessage(
        position, length, base, rows, first, last, crc, Origin.from_document(described), _producers(described)
    )


def _producers(described: Mapping[str, Any]) -> tuple[ProducerEntry, ...]:
    return tuple(
        (str(producer), int(sequence), int(first), int(count), int(time), int(checksum))
        for producer, sequence, first, count, time, checksum in described.get("producers", ())
    )


def _checksum(view: memoryview, crc_position: int) -> int:
    """Return the CRC32C of a message whose checksum field is at ``crc_position``, counted as zeros."""
    head = crc32c(CRC_BLANK, crc32c(view[:crc_position]))
    crc: int = crc32c(view[crc_position + len(CRC_BLANK) :], head)
    return crc


def load(data: pa.Buffer, message: IpcMessage) -> pa.RecordBatch:
    """Return the batch of a parsed message, zero-copy on ``data``. Raises BadBatch."""
    try:
        encoded = pa.ipc.read_message(data.slice(message.position, message.length))
        batch = pa.ipc.read_record_batch(encoded, records.SCHEMA)
    except _FAILURES as error:
        raise BadBatch(f"no batch at {message.position}: {error}") from None
    if batch.num_rows != message.rows:
        raise BadBatch(f"batch at {message.position} has {batch.num_rows} rows, not {message.rows}")
    return batch


def load_many(data: pa.Buffer, messages: Iterable[tuple[int, int, int]], max_bytes: int) -> list[pa.RecordBatch]:
    """Return the batches at ``messages`` (position, length, CRC32C as in the index), up to the first that differs.

    Fast path for many small batches: only their columns are decoded, not their documents. Zero-copy unless compressed.
    Limit: stops after ``max_bytes`` of columns, compressed or not. Raises BadBatch if the file does not start as a
    segment.
    """
    view, batches, size = memoryview(data), [], 0
    try:
        source = pa.BufferReader(data)
        stream = pa.ipc.open_stream(source)
        if not stream.schema.equals(records.SCHEMA):
            raise BadBatch("another schema")
        reached = source.tell()
        for position, length, crc in messages:
            if size >= max_bytes or not _has_checksum(view[position : position + length], crc):
                break
            if position != reached:  # a seek costs as much as the read of a small batch
                source.seek(position)
            reached = position + length
            batches.append(stream.read_next_batch())
            size += batches[-1].get_total_buffer_size()
    except _FAILURES as error:
        raise BadBatch(f"no batches: {error}") from None
    return batches


def _has_checksum(view: memoryview, crc: int) -> bool:
    """Report whether a message has this CRC32C, states it, and has the supported version."""
    size = struct.unpack_from("<i", view, 4)[0] if len(view) >= PREFIX else 0
    head = bytes(view[: PREFIX + max(size, 0)])
    crc_position = head.find(b"%08x" % crc)
    return crc_position >= 0 and _THIS_VERSION in head and _checksum(view, crc_position) == crc


def preamble_length(data: pa.Buffer) -> int:
    """Return the length of the schema message at the start of ``data``. Raises BadBatch for another schema."""
    if memoryview(data)[: len(_PREAMBLE)] == _PREAMBLE:  # fast path: compares bytes instead of parsing a schema
        return len(_PREAMBLE)
    try:
        message = pa.ipc.read_message(data)
        if not pa.ipc.read_schema(message).equals(records.SCHEMA):
            raise BadBatch("another schema")
        return PREFIX + int(message.metadata.size)
    except _FAILURES as error:
        raise BadBatch(f"no schema: {error}") from None


def first_batch_position(data: pa.Buffer) -> int:
    """Return the position of the first batch; with a damaged schema message, where it should be."""
    try:
        return preamble_length(data)
    except BadBatch:
        return int(PREAMBLE.size)
