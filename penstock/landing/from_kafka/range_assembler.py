"""Assemble large Kafka messages from whole Arrow batches, one task's range of a partition at a time.

A task reads its range in order of offsets; ``penstock.kafka.large.incomplete_messages`` decides as in a consumer which
chunks make a message. Chunks missing from before the range are read again from Kafka, at most the expiry gap back
(``read_back``). Invariant: nothing is remembered between micro-batches, so a repeated batch gives the same rows; a
message belongs to the batch that contains its last chunk.

A message that a producer sent twice as a whole, with the same id and in two micro-batches, lands twice: the second is
a record of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kafka.errors import InvalidChunk
from penstock.kafka.large.chunks import CHUNK_HEADER_BYTES, Chunk, decode_chunk
from penstock.kafka.large.headers import LARGE_MESSAGE, decode_large_message_header, message_key
from penstock.kafka.large.incomplete_messages import BufferPool
from penstock.kafka.large.safe_offsets import TopicAndPartition
from penstock.kafka.origin_header import OriginReader
from penstock.landing.from_kafka.rows import RECORD, Rows, rows_from_records
from penstock.records import bounds


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """A chunk with the columns of its record."""

    partition: TopicAndPartition
    offset: int
    chunk: Chunk
    record: Mapping[str, Any]


EXPIRY_GAP = 1000
"""Offsets that a large message may span; the consumers' default of message.assembler.expiration.offset.gap."""
TARGET_BATCH_BYTES = 4 << 20
"""Limit: assembled messages are handed on once they have this many bytes, so that memory does not grow with a range."""
AssembledMessage = tuple[ChunkRecord, bytes]
"""The chunk that completed a message, and the message."""
LookBack = Callable[[TopicAndPartition, int, Mapping[UUID, Collection[int]]], Iterable[ChunkRecord]]
"""Read the chunks before an offset of a partition; for each wanted message, the sequences of its chunks are passed."""


class RangeAssembler:
    """The assembler of one task's range; used by one thread. ``gap`` is the number of offsets a message may span."""

    def __init__(self, look_back: LookBack, gap: int) -> None:
        self._look_back, self._gap = look_back, gap
        self._incomplete, self._origins = _new_buffer(gap), OriginReader()
        self._open_chunks: dict[TopicAndPartition, dict[UUID, list[ChunkRecord]]] = {}
        self._first_offsets: dict[TopicAndPartition, int] = {}

    def add_batch(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows (ROW) of plain records and of messages that the batch completes."""
        chunks = find_chunks(batch)
        if batch.num_rows:
            self._record_first_offset(batch)
        # Fast path: without chunks, the usual case, the batch becomes rows without a copy.
        if not chunks:
            yield rows_from_records(batch, self._origins)
            return
        is_plain = np.ones(batch.num_rows, bool)
        is_plain[list(chunks)] = False
        yield rows_from_records(batch.filter(pa.array(is_plain)), self._origins)
        chunk_records = (chunk_of_row(batch, row, chunk) for row, chunk in chunks.items())
        yield from self._to_rows(self._assemble(chunk_records))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield messages whose earlier chunks had to be read again. Unfinished messages belong to a later batch."""
        for partition, messages in self._open_chunks.items():
            unfinished = {uuid: parts for uuid, parts in messages.items() if _lacks_earlier_chunks(parts)}
            if unfinished:
                first = self._first_offsets[partition]
                earlier = self._look_back(
                    partition, first, {uuid: _sequences(parts) for uuid, parts in unfinished.items()}
                )
                parts = [*earlier, *chain.from_iterable(unfinished.values())]
                yield from self._to_rows(self._assemble_reread(parts, first))

    def _record_first_offset(self, batch: pa.RecordBatch) -> None:
        partition = (batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
        self._first_offsets.setdefault(partition, batch.column("offset")[0].as_py())

    def _assemble(self, parts: Iterable[ChunkRecord]) -> Iterator[AssembledMessage]:
        for part in parts:
            messages = self._open_chunks.setdefault(part.partition, {})
            message, is_buffered = _add_chunk(self._incomplete, part)
            if message is not None:
                messages.pop(part.chunk.message_id, None)
                yield part, message
            elif is_buffered:
                messages.setdefault(part.chunk.message_id, []).append(part)

    def _assemble_reread(self, parts: list[ChunkRecord], first: int) -> Iterator[AssembledMessage]:
        # A new buffer, fed in order of offsets, decides as a consumer that reads from the first earlier chunk on.
        incomplete = _new_buffer(self._gap)
        for part in sorted(parts, key=attrgetter("offset")):
            message, _ = _add_chunk(incomplete, part)
            # A message completed before the range belongs to the batch before.
            if message is not None and part.offset >= first:
                yield part, message

    def _to_rows(self, messages: Iterable[AssembledMessage]) -> Iterator[pa.RecordBatch]:
        records: list[dict[str, Any]] = []
        size = 0
        for last, message in messages:
            records.append(_to_record(last, message))
            size += len(message)
            if size >= TARGET_BATCH_BYTES:
                yield rows_from_records(pa.RecordBatch.from_pylist(records, schema=RECORD), self._origins)
                records, size = [], 0
        if records:
            yield rows_from_records(pa.RecordBatch.from_pylist(records, schema=RECORD), self._origins)


def _new_buffer(gap: int) -> BufferPool:
    # Limit: the task's range bounds it. A capacity would evict, and the pipeline would lose the evicted message.
    return BufferPool(sys.maxsize, gap)


def _add_chunk(buffer: BufferPool, part: ChunkRecord) -> tuple[bytes | None, bool]:
    """Return the message that a chunk completes, and whether the chunk is buffered."""
    # The buffer refuses empty chunks, but a message of a single chunk may be empty; and each repeat is a message.
    if part.chunk.count == 1:
        return bytes(part.chunk.payload), False
    buffer.expire(part.partition, part.offset)
    try:
        outcome = buffer.add(part.partition, part.offset, part.chunk)
    except InvalidChunk:
        # The record makes no row; the proof rereads it and counts it as a chunk.
        return None, False
    return outcome.message, outcome.bytes_added > 0


def _lacks_earlier_chunks(parts: list[ChunkRecord]) -> bool:
    sequences = _sequences(parts)
    # The chunks of the range are all those from the first on only if their sequences are 0 to n - 1.
    return len(sequences) <= max(sequences)


def _sequences(parts: Iterable[ChunkRecord]) -> set[int]:
    return {part.chunk.sequence for part in parts}


def find_chunks(batch: pa.RecordBatch) -> dict[int, Chunk]:
    """Return the chunks of a batch of records (RECORD) by row. Any bytes are accepted."""
    chunks = {
        row: chunk_of_header
        for row in _rows_with_chunk_header(batch)
        if (chunk_of_header := _chunk_of_header(batch, row)) is not None
    }
    values = batch.column("value")
    for row in _rows_with_chunk_prefix(values).tolist():
        chunk = decode_chunk(values[row].as_buffer()) if row not in chunks else None
        if chunk is not None:
            chunks[row] = chunk
    return dict(sorted(chunks.items()))


def _rows_with_chunk_prefix(values: pa.Array[Any]) -> Rows:
    if not len(values):
        return np.zeros(0, np.int64)
    offsets = bounds(values)
    value_bytes = np.frombuffer(values.buffers()[2] or b"", np.uint8)  # type: ignore[arg-type]  # takes buffers
    # Fast path: two numpy conditions on length and version byte leave few values to decode in Python.
    long_enough = np.flatnonzero(np.diff(offsets) >= CHUNK_HEADER_BYTES)
    version_bytes = value_bytes[offsets[long_enough]]
    candidates: Rows = long_enough[(version_bytes == 0) | (version_bytes >= 0x80)]
    return candidates


def _rows_with_chunk_header(batch: pa.RecordBatch) -> list[int]:
    headers = batch.column("headers")
    names = pc.struct_field(headers.flatten(), "key")  # type: ignore[attr-defined]  # it is a ListArray
    rows = pc.list_parent_indices(headers)
    rows_with_header = rows.filter(pc.equal(names, pa.scalar(LARGE_MESSAGE))).to_pylist()
    return sorted(set(rows_with_header))  # type: ignore[arg-type]  # indices are never null


def _chunk_of_header(batch: pa.RecordBatch, row: int) -> Chunk | None:
    """Return the chunk that the record's header describes; None if the chunk header is in the payload or invalid."""
    header_values = {header["key"]: header["value"] for header in batch.column("headers")[row].as_py()}
    try:
        header = decode_large_message_header(header_values[LARGE_MESSAGE])
        if not header.is_in_header():
            return None
        chunk = header.to_chunk(memoryview(batch.column("value")[row].as_buffer() or b""))
        chunk.check()
        return chunk
    except InvalidChunk:
        # An invalid header makes no chunk: the record lands as a message of its own.
        return None


def chunk_of_row(batch: pa.RecordBatch, row: int, chunk: Chunk) -> ChunkRecord:
    """Return a row as a chunk with the columns of its record."""
    record = {name: batch.column(name)[row].as_py() for name in ("topic", "partition", "timestamp", "key", "headers")}
    # The payload is copied: a view would keep the whole record batch in memory until its message is complete.
    own_chunk = Chunk(chunk.message_id, chunk.sequence, chunk.count, chunk.message_size, bytes(chunk.payload))
    return ChunkRecord((record["topic"], record["partition"]), batch.column("offset")[row].as_py(), own_chunk, record)


def _to_record(last: ChunkRecord, message: bytes) -> dict[str, Any]:
    # As in a consumer, the record of the chunk that arrived last gives offset, time and headers. A key that is only
    # the message id was set by the splitter and is not the sender's.
    key = last.record["key"]
    own_key = None if key == message_key(last.chunk.message_id) else key
    return {**last.record, "offset": last.offset, "key": own_key, "value": message}
