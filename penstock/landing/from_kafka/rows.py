"""Records of Kafka as rows of the landing: large messages put together, on whole Arrow batches.

A task reads one range of one partition, in order of offsets. Segments of a message that lie in the range are put
together here; where earlier ones are missing they are read again from Kafka, no further back than the expiry gap
(``penstock.landing.from_kafka.read_back``). So nothing has to be remembered from one micro-batch to the next, and a
batch done again gives the same rows: a message belongs to the batch that holds its last segment. (Of a message that a
producer sent twice whole, under the same id and in two micro-batches, both land: the second is a record of its own.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import BUCKET_SECONDS
from penstock.kafka.errors import InvalidSegment
from penstock.kafka.large.headers import LARGE_MESSAGE, decode_large_message_header, message_key
from penstock.kafka.large.segments import HEADER_SIZE, Segment, decode_segment

OWN = "_"
"""Headers that begin so say how a message travelled, and nothing about it."""
CODEC_HEADER = "codec"
SOURCE = "kafka"
Rows = npt.NDArray[np.int64]
Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Part:
    """A segment as a record brought it, with the record's own columns."""

    place: Place
    offset: int
    segment: Segment
    record: Mapping[str, Any]


@dataclass(slots=True)
class Open:
    """A message of which parts have come: by sequence number; ``start`` is the offset of the first."""

    count: int
    size: int
    start: int
    parts: dict[int, Part] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether all segments are there."""
        return len(self.parts) == self.count

    @property
    def begun_before(self) -> bool:
        """Whether earlier segments are missing: what is there is not simply the beginning."""
        return sorted(self.parts) != list(range(len(self.parts)))

    def payload(self) -> bytes | None:
        """The message; None where its segments do not add up to its size."""
        data = b"".join(bytes(self.parts[number].segment.payload) for number in range(self.count))
        return data if len(data) == self.size else None


LookBack = Callable[[Place, int, Mapping[UUID, "Open"]], Iterable[Part]]
"""Place, offset and the messages that want earlier segments -> segments of these before the offset."""


class Assembler:
    """Puts the messages of one task's range together. ``gap``: how many offsets a message may span."""

    def __init__(self, look_back: LookBack, gap: int) -> None:
        self._look_back, self._gap = look_back, gap
        self._open: dict[Place, dict[UUID, Open]] = {}
        self._done: dict[tuple[Place, UUID], int] = {}
        self._first: dict[Place, int] = {}

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
        whole = [message for row, segment in segments.items() for message in self._add(part_of(batch, row, segment))]
        yield from _as_rows(whole)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The messages whose earlier segments had to be read again. What is still open belongs to a later batch."""
        for place, messages in self._open.items():
            wanting = {uuid: message for uuid, message in messages.items() if message.begun_before}
            if wanting:
                earlier = _by_message(self._look_back(place, self._first[place], wanting))
                whole = [
                    message for uuid, message in wanting.items() if self._completed(message, earlier.get(uuid, []))
                ]
                yield from _as_rows(whole)

    def _completed(self, message: Open, earlier: list[Part]) -> bool:
        """Whether ``message`` is whole with its ``earlier`` parts, and was not whole with these alone."""
        before = {part.segment.sequence: part for part in earlier if _fits(message, part.segment)}
        message.parts = {**message.parts, **before}
        message.start = min([message.start, *(part.offset for part in before.values())])
        return len(before) < message.count and message.whole and not self._too_long(message)

    def _note_first(self, batch: pa.RecordBatch) -> None:
        place = (batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
        self._first.setdefault(place, batch.column("offset")[0].as_py())

    def _add(self, part: Part) -> Iterator[Open]:
        messages = self._open.setdefault(part.place, {})
        self._expire(messages, part.offset)
        uuid = part.segment.message_id
        if (part.place, uuid) in self._done:
            return  # a duplicate of a segment, after its message
        message = messages.get(uuid)
        if message is None:
            message = messages[uuid] = Open(part.segment.count, part.segment.message_size, part.offset)
        if _fits(message, part.segment):
            message.parts.setdefault(part.segment.sequence, part)
        if message.whole:
            del messages[uuid]
            self._done[part.place, uuid] = part.offset
            yield message

    def _expire(self, messages: dict[UUID, Open], offset: int) -> None:
        for uuid in [uuid for uuid, message in messages.items() if message.start < offset - self._gap]:
            del messages[uuid]

    def _too_long(self, message: Open) -> bool:
        """Whether it had expired by the time its last segment came, as every reader sees it."""
        return message.start < max(part.offset for part in message.parts.values()) - self._gap


def _by_message(parts: Iterable[Part]) -> dict[UUID, list[Part]]:
    found: dict[UUID, list[Part]] = {}
    for part in parts:
        found.setdefault(part.segment.message_id, []).append(part)
    return found


def _fits(message: Open, segment: Segment) -> bool:
    return (segment.count, segment.message_size) == (message.count, message.size)


def find_segments(batch: pa.RecordBatch) -> dict[int, Segment]:
    """The rows of a batch of records (topic, partition, offset, timestamp, key, value, headers) that are segments."""
    found = {row: decoded for row in _with_header(batch) if (decoded := _header_segment(batch, row)) is not None}
    values = batch.column("value")
    for row in _candidates(values).tolist():
        segment = decode_segment(values[row].as_buffer()) if row not in found else None
        if segment is not None:
            found[row] = segment
    return dict(sorted(found.items()))


def _candidates(values: pa.BinaryArray) -> Rows:
    """Rows whose value may begin with a segment's own header: long enough, and the version byte fits."""
    if not len(values):
        return np.zeros(0, np.int64)
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    long_enough = np.flatnonzero(np.diff(offsets) >= HEADER_SIZE)
    first = data[offsets[long_enough]]
    likely: Rows = long_enough[(first == 0) | (first >= 0x80)]
    return likely


def _with_header(batch: pa.RecordBatch) -> list[int]:
    """Rows with a header that says which segment they are."""
    headers = batch.column("headers")
    names = pc.struct_field(headers.flatten(), "key")
    rows = pc.list_parent_indices(headers)
    return sorted(set(rows.filter(pc.equal(names, LARGE_MESSAGE)).to_pylist()))


def _header_segment(batch: pa.RecordBatch, row: int) -> Segment | None:
    """The segment that the record's header says it is; None where the payload's own header counts."""
    named = {header["key"]: header["value"] for header in batch.column("headers")[row].as_py()}
    try:
        header = decode_large_message_header(named[LARGE_MESSAGE])
        if not header.is_in_header():
            return None
        segment = header.segment_of(memoryview(batch.column("value")[row].as_buffer() or b""))
        segment.check()
        return segment
    except InvalidSegment:
        return None  # a message of its own, then


def part_of(batch: pa.RecordBatch, row: int, segment: Segment) -> Part:
    """A row with its segment; the payload is copied."""
    record = {name: batch.column(name)[row].as_py() for name in ("topic", "partition", "timestamp", "key", "headers")}
    kept = Segment(segment.message_id, segment.sequence, segment.count, segment.message_size, bytes(segment.payload))
    return Part((record["topic"], record["partition"]), batch.column("offset")[row].as_py(), kept, record)


def _as_rows(messages: list[Open]) -> Iterator[pa.RecordBatch]:
    """Whole messages as rows: the record of the last segment to arrive gives offset, time and headers."""
    for message in messages:
        payload = message.payload()
        last = max(message.parts.values(), key=lambda part: part.offset)
        if payload is None:
            continue  # the proof finds its segments, and that they do not add up
        key = last.record["key"]
        columns = {
            **last.record,
            "offset": last.offset,
            "key": None if key == message_key(last.segment.message_id) else key,
            "value": payload,
        }
        yield rows_of(pa.RecordBatch.from_pylist([columns], schema=RECORD))


HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
RECORD = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""The columns of Spark's Kafka source that are used."""
ROW = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("payload", pa.binary()),
        pa.field("type_url", pa.string()),
        pa.field("annotations", pa.map_(pa.string(), pa.string())),
        pa.field("source", pa.string()),
        pa.field("bucket", pa.timestamp("us", "UTC")),
        pa.field("received", pa.timestamp("us", "UTC")),
        pa.field("codec", pa.string()),
    ]
)
"""The columns of the landing's source, with the partition."""


def rows_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records as rows (ROW): headers become annotations, the header ``codec`` the codec."""
    count = batch.num_rows
    micros = batch.column("timestamp").cast(pa.int64())
    bucket = pc.multiply(pc.divide(micros, BUCKET_SECONDS * 1_000_000), BUCKET_SECONDS * 1_000_000)
    annotations, codec = _annotations(batch.column("headers"))
    values = {
        "payload": batch.column("value"),
        "type_url": pa.nulls(count, pa.string()),
        "annotations": annotations,
        "source": pa.repeat(SOURCE, count),
        "bucket": bucket.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
        "received": batch.column("timestamp"),
        "codec": codec,
    }
    columns = [values[f.name] if f.name in values else batch.column(f.name) for f in ROW]
    return pa.RecordBatch.from_arrays(
        [c if c.type.equals(f.type) else c.cast(f.type) for c, f in zip(columns, ROW, strict=True)], schema=ROW
    )


def _annotations(headers: pa.ListArray) -> tuple[pa.MapArray, pa.Array]:
    """The headers that are text as annotations, and the codec; null where a record has none."""
    count = len(headers)
    rows = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    names = pc.struct_field(headers.flatten(), "key")
    shown = pc.invert(pc.starts_with(names, OWN))
    if not len(names) or not pc.any(shown).as_py():
        return pa.nulls(count, ROW.field("annotations").type), pa.nulls(count, pa.string())
    rows, names = rows[shown.to_numpy(zero_copy_only=False)], names.filter(shown)
    values = _texts(pc.struct_field(headers.flatten(), "value").filter(shown))
    is_codec = pc.equal(names, CODEC_HEADER).to_numpy(zero_copy_only=False)
    codecs = _scattered(count, rows[is_codec], values.filter(pa.array(is_codec)))
    rest = pa.array(~is_codec)
    return _maps(count, rows[~is_codec], names.filter(rest), values.filter(rest)), codecs


def _texts(values: pa.Array) -> pa.Array:
    """Values as texts; what is no UTF-8 with replacements."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if v is None else v.decode(errors="replace") for v in values.to_pylist()], pa.string())


def _scattered(count: int, rows: Rows, values: pa.Array) -> pa.Array:
    """``values`` at their ``rows`` (the last of each), null elsewhere."""
    places = np.full(count, -1)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))


def _maps(count: int, rows: Rows, names: pa.Array, values: pa.Array) -> pa.MapArray:
    """A map for each row of its names and values; of a name that stands there twice the last."""
    last = {pair: number for number, pair in enumerate(zip(rows.tolist(), names.to_pylist(), strict=True))}
    if len(last) < len(names):
        kept = sorted(last.values())
        rows, names, values = rows[kept], names.take(kept), values.take(kept)
    sizes = np.bincount(rows, minlength=count)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    kind = ROW.field("annotations").type
    return pa.MapArray.from_arrays(offsets, names, values, type=kind, mask=pa.array(sizes == 0))
