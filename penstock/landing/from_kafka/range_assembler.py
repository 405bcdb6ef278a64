"""Large messages of Kafka put together from whole Arrow batches, one task's range of a partition at a time.

A task reads its range in order of offsets, and which segments make a message is decided as in a consumer, by
``penstock.kafka.large.incomplete_messages``. Where segments before the range are missing they are read again from
Kafka, no further back than the expiry gap (``read_back``). So nothing has to be remembered from one micro-batch to the
next, and a batch done again gives the same rows: a message belongs to the batch that holds its last segment. (Of a
message that a producer sent twice whole, under the same id and in two micro-batches, both land: the second is a record
of its own.)
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
from penstock.landing.from_kafka.rows import RECORD, Rows, rows_of


@dataclass(frozen=True, slots=True)
class Part:
    """A segment as a record brought it, with the record's own columns."""

    place: TopicAndPartition
    offset: int
    segment: Chunk
    record: Mapping[str, Any]


AT_ONCE = 4 << 20
"""Bytes of whole messages that make a batch of rows."""
Whole = tuple[Part, bytes]
"""The last segment of a message to arrive, and the message."""
LookBack = Callable[[TopicAndPartition, int, Mapping[UUID, Collection[int]]], Iterable[Part]]
"""Place, offset, and for each wanted message the numbers of the segments at hand -> its segments before the offset."""


class RangeAssembler:
    """Puts the messages of one task's range together. ``gap``: how many offsets a message may span."""

    def __init__(self, look_back: LookBack, gap: int) -> None:
        self._look_back, self._gap = look_back, gap
        self._incomplete = _buffer(gap)
        self._parts: dict[TopicAndPartition, dict[UUID, list[Part]]] = {}
        self._first: dict[TopicAndPartition, int] = {}

    def take(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows (as ``rows_of``) of a batch of records that are messages now."""
        segments = find_segments(batch)
        if batch.num_rows:
            self._note_first(batch)
        if not segments:
            yield rows_of(batch)
            return
        plain = np.ones(batch.num_rows, bool)
        plain[list(segments)] = False
        yield rows_of(batch.filter(pa.array(plain)))
        yield from _as_rows(self._whole(part_of(batch, row, segment) for row, segment in segments.items()))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The messages whose earlier segments had to be read again. What is still open belongs to a later batch."""
        for place, messages in self._parts.items():
            wanted = {uuid: parts for uuid, parts in messages.items() if _begun_before(parts)}
            if wanted:
                first = self._first[place]
                earlier = self._look_back(place, first, {uuid: _numbers(parts) for uuid, parts in wanted.items()})
                yield from _as_rows(self._again([*earlier, *chain.from_iterable(wanted.values())], first))

    def _note_first(self, batch: pa.RecordBatch) -> None:
        place = (batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
        self._first.setdefault(place, batch.column("offset")[0].as_py())

    def _whole(self, parts: Iterable[Part]) -> Iterator[Whole]:
        for part in parts:
            messages = self._parts.setdefault(part.place, {})
            message, held = _added(self._incomplete, part)
            if message is not None:
                messages.pop(part.segment.message_id, None)
                yield part, message
            elif held:
                messages.setdefault(part.segment.message_id, []).append(part)

    def _again(self, parts: list[Part], first: int) -> Iterator[Whole]:
        """What ``parts``, with those before the range, complete in the range, as who read them all would see it."""
        incomplete = _buffer(self._gap)
        for part in sorted(parts, key=attrgetter("offset")):
            message, _ = _added(incomplete, part)
            if message is not None and part.offset >= first:
                yield part, message


def _buffer(gap: int) -> BufferPool:
    """Bounded by the task's range: a message that is evicted for want of room would be lost."""
    return BufferPool(sys.maxsize, gap)


def _added(buffer: BufferPool, part: Part) -> tuple[bytes | None, bool]:
    """The message that a segment completes, and whether the segment waits for others."""
    if part.segment.count == 1:
        return bytes(part.segment.payload), False
    buffer.expire(part.place, part.offset)
    try:
        added = buffer.add(part.place, part.offset, part.segment)
    except InvalidChunk:
        return None, False  # the proof finds the record, and that it is no message
    return added.message, added.bytes_added > 0


def _begun_before(parts: list[Part]) -> bool:
    """Whether earlier segments are missing: what is there is not simply the beginning."""
    numbers = _numbers(parts)
    return len(numbers) <= max(numbers)


def _numbers(parts: Iterable[Part]) -> set[int]:
    return {part.segment.sequence for part in parts}


def find_segments(batch: pa.RecordBatch) -> dict[int, Chunk]:
    """The rows of a batch of records (topic, partition, offset, timestamp, key, value, headers) that are segments."""
    found = {row: decoded for row in _with_header(batch) if (decoded := _header_segment(batch, row)) is not None}
    values = batch.column("value")
    for row in _candidates(values).tolist():
        segment = decode_chunk(values[row].as_buffer()) if row not in found else None
        if segment is not None:
            found[row] = segment
    return dict(sorted(found.items()))


def _candidates(values: pa.Array[Any]) -> Rows:
    """Rows whose value may begin with a segment's own header: long enough, and the version byte fits."""
    if not len(values):
        return np.zeros(0, np.int64)
    _, starts, contents = values.buffers()
    offsets = np.frombuffer(starts, np.int32)  # type: ignore[call-overload]  # takes buffers
    offsets = offsets[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(contents or b"", np.uint8)  # type: ignore[arg-type]  # as above
    long_enough = np.flatnonzero(np.diff(offsets) >= CHUNK_HEADER_BYTES)
    first = data[offsets[long_enough]]
    likely: Rows = long_enough[(first == 0) | (first >= 0x80)]
    return likely


def _with_header(batch: pa.RecordBatch) -> list[int]:
    """Rows with a header that says which segment they are."""
    headers = batch.column("headers")
    names = pc.struct_field(headers.flatten(), "key")  # type: ignore[attr-defined]  # it is a ListArray
    rows = pc.list_parent_indices(headers)
    found = rows.filter(pc.equal(names, pa.scalar(LARGE_MESSAGE))).to_pylist()
    return sorted(set(found))  # type: ignore[arg-type]  # indices are never null


def _header_segment(batch: pa.RecordBatch, row: int) -> Chunk | None:
    """The segment that the record's header says it is; None where the payload's own header counts."""
    named = {header["key"]: header["value"] for header in batch.column("headers")[row].as_py()}
    try:
        header = decode_large_message_header(named[LARGE_MESSAGE])
        if not header.is_in_header():
            return None
        segment = header.to_chunk(memoryview(batch.column("value")[row].as_buffer() or b""))
        segment.check()
        return segment
    except InvalidChunk:
        return None  # a message of its own, then


def part_of(batch: pa.RecordBatch, row: int, segment: Chunk) -> Part:
    """A row with its segment; the payload is copied."""
    record = {name: batch.column(name)[row].as_py() for name in ("topic", "partition", "timestamp", "key", "headers")}
    kept = Chunk(segment.message_id, segment.sequence, segment.count, segment.message_size, bytes(segment.payload))
    return Part((record["topic"], record["partition"]), batch.column("offset")[row].as_py(), kept, record)


def _as_rows(messages: Iterable[Whole]) -> Iterator[pa.RecordBatch]:
    """Whole messages as rows, as many in a batch as a few MiB hold."""
    records: list[dict[str, Any]] = []
    size = 0
    for last, message in messages:
        records.append(_as_record(last, message))
        size += len(message)
        if size >= AT_ONCE:
            yield rows_of(pa.RecordBatch.from_pylist(records, schema=RECORD))
            records, size = [], 0
    if records:
        yield rows_of(pa.RecordBatch.from_pylist(records, schema=RECORD))


def _as_record(last: Part, message: bytes) -> dict[str, Any]:
    """The record of the last segment to arrive gives offset, time and headers."""
    key = last.record["key"]
    own = None if key == message_key(last.segment.message_id) else key
    return {**last.record, "offset": last.offset, "key": own, "value": message}
