"""One batch as bytes of a segment: an encapsulated Arrow message that carries its own checksum.

The custom metadata has ``penstock`` (a JSON document: v, base, rows, ts, at, producers with their checksums, and the
batch's origin) and ``crc32c``: eight hex digits, the CRC32C of the whole encapsulated message with this field read as
zeros. ``at`` is the message's own position in its file, so that a copy inside a payload is never taken for a batch.
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
from penstock.log.store.producers import UNKNOWN, ProducerEntry
from penstock.records import BadBatch

VERSION = 1
CRC_KEY = b"crc32c"
CRC_BLANK = b"00000000"
_CRC_FIELD = struct.pack("<I", len(CRC_BLANK)) + CRC_BLANK
"""As it stands in the metadata, with its length: found by its bytes, which cannot be part of a JSON document."""
_THIS_VERSION = b'{"v":%d,' % VERSION
"""How the document of a batch begins."""
PREFIX = 8
PREAMBLE: pa.Buffer = records.SCHEMA.serialize()
"""The schema message every segment begins with."""
_PREAMBLE = PREAMBLE.to_pybytes()
_FAILURES = (pa.ArrowException, OSError, EOFError, ValueError, TypeError, KeyError, AttributeError, struct.error)


@dataclass(frozen=True, slots=True)
class Message:
    """A message found in a segment, its checksum verified: bytes [position, position + length), rows [base, end)."""

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


@dataclass(frozen=True, slots=True)
class Framed:
    """A message ready to be written: ``parts`` one after the other are its ``length`` bytes."""

    parts: tuple[Bytes, ...]
    length: int
    crc: int


def document(
    origin: Origin, base: int, rows: int, times: tuple[int, int], position: int, producers: Iterable[ProducerEntry] = ()
) -> dict[str, Any]:
    """The JSON document of a batch; ``times`` are its first and last timestamp in microseconds."""
    told = {"v": VERSION, "base": base, "rows": rows, "ts": list(times), "at": position, **origin.document()}
    many = list(producers)
    if many:  # the checksums beside them: older versions read the others
        told |= {"producers": [entry[:-1] for entry in many], "checksums": [entry[-1] for entry in many]}
    return told


def frame(batch: pa.RecordBatch, described: Mapping[str, Any], compression: Literal["zstd"] | None = None) -> Framed:
    """``batch`` (SCHEMA) as a message with its checksum, without copying it."""
    message = records.encode_parts(batch, dict(described), {CRC_KEY: CRC_BLANK}, compression)
    head, *body = message
    at = bytes(head).index(_CRC_FIELD) + len(_CRC_FIELD) - len(CRC_BLANK)
    crc = records.checksum(message)
    parts = (head[:at], b"%08x" % crc, head[at + len(CRC_BLANK) :], *body)
    return Framed(parts, sum(map(len, parts)), crc)


def parse(data: pa.Buffer, position: int) -> Message:
    """The message at ``position`` of a segment's bytes.

    Raises BadBatch unless checksum and place are right, UnknownFormat when it is one of another version.
    """
    try:
        return _parse(data, position)
    except _FAILURES as error:
        raise BadBatch(f"no batch at {position}: {error}") from None


def _parse(data: pa.Buffer, position: int) -> Message:
    view = memoryview(data)[position:]
    mark, size = struct.unpack_from("<Ii", view)
    if mark != records.CONTINUATION or not 0 < size <= len(view) - PREFIX:
        raise BadBatch("no continuation mark")
    entries = records.custom_metadata(view[PREFIX : PREFIX + size])
    at, stated = entries[CRC_KEY]
    body = pa.ipc.read_message(data.slice(position)).body
    length = PREFIX + size + (body.size if body else 0)
    crc = _checksum(view[:length], PREFIX + at)
    if stated != b"%08x" % crc:
        raise BadBatch("checksum differs")
    described = json.loads(entries[records.METADATA_KEY][1])
    if described.get("at", position) != position:
        raise BadBatch("another place")
    if described["v"] != VERSION:
        raise UnknownFormat(f"a batch has format version {described['v']}, this version of Penstock reads {VERSION}")
    first, last = map(int, described["ts"])
    base, rows = int(described["base"]), int(described["rows"])
    return Message(
        position, length, base, rows, first, last, crc, Origin.from_document(described), _producers(described)
    )


def _producers(described: Mapping[str, Any]) -> tuple[ProducerEntry, ...]:
    many = described.get("producers", ())
    sums = described.get("checksums") or [UNKNOWN] * len(many)
    return tuple(
        (str(n), int(s), int(first), int(c), int(t), int(told))
        for (n, s, first, c, t), told in zip(many, sums, strict=True)
    )


def _checksum(view: memoryview, at: int) -> int:
    """CRC32C of a message whose checksum field is at ``at``."""
    head = crc32c(CRC_BLANK, crc32c(view[:at]))
    crc: int = crc32c(view[at + len(CRC_BLANK) :], head)
    return crc


def load(data: pa.Buffer, message: Message) -> pa.RecordBatch:
    """The batch of a parsed message, zero-copy on ``data``. Raises BadBatch."""
    try:
        found = pa.ipc.read_message(data.slice(message.position, message.length))
        batch = pa.ipc.read_record_batch(found, records.SCHEMA)
    except _FAILURES as error:
        raise BadBatch(f"no batch at {message.position}: {error}") from None
    if batch.num_rows != message.rows:
        raise BadBatch(f"batch at {message.position} has {batch.num_rows} rows, not {message.rows}")
    return batch


def load_many(data: pa.Buffer, places: Iterable[tuple[int, int, int]], most: int) -> list[pa.RecordBatch]:
    """The batches at ``places`` (position, length, CRC32C as the index has it), up to the first that differs.

    For many small batches: nothing but their columns is looked at. Zero-copy where they are not compressed. It ends
    behind ``most`` bytes of columns, also where they are. Raises BadBatch where the file does not begin as a segment.
    """
    view, found, size = memoryview(data), [], 0
    try:
        source = pa.BufferReader(data)
        stream = pa.ipc.open_stream(source)
        if not stream.schema.equals(records.SCHEMA):
            raise BadBatch("another schema")
        reached = source.tell()
        for position, length, crc in places:
            if size >= most or not _is_as_told(view[position : position + length], crc):
                break
            if position != reached:  # to seek where it stands costs as much as to read
                source.seek(position)
            reached = position + length
            found.append(stream.read_next_batch())
            size += found[-1].get_total_buffer_size()
    except _FAILURES as error:
        raise BadBatch(f"no batches: {error}") from None
    return found


def _is_as_told(view: memoryview, crc: int) -> bool:
    """Whether a message has this CRC32C, says so, and is of the version that is known."""
    size = struct.unpack_from("<i", view, 4)[0] if len(view) >= PREFIX else 0
    head = bytes(view[: PREFIX + max(size, 0)])
    at = head.find(b"%08x" % crc)
    return at >= 0 and _THIS_VERSION in head and _checksum(view, at) == crc


def preamble_length(data: pa.Buffer) -> int:
    """The length of the schema message that ``data`` begins with. Raises BadBatch when it is not SCHEMA's."""
    if memoryview(data)[: len(_PREAMBLE)] == _PREAMBLE:  # as nearly always
        return len(_PREAMBLE)
    try:
        found = pa.ipc.read_message(data)
        if not pa.ipc.read_schema(found).equals(records.SCHEMA):
            raise BadBatch("another schema")
        return PREFIX + int(found.metadata.size)
    except _FAILURES as error:
        raise BadBatch(f"no schema: {error}") from None


def start(data: pa.Buffer) -> int:
    """Where the first batch of a segment begins; where it should when the schema message is damaged."""
    try:
        return preamble_length(data)
    except BadBatch:
        return int(PREAMBLE.size)
