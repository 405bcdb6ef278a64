"""Segments read again from Kafka, behind the beginning of a task's range."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from uuid import UUID

import pyarrow as pa
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Message, TopicPartition

from penstock.errors import PenstockError
from penstock.kafka.large.safe_offsets import TopicAndPartition
from penstock.landing.event_rules import MAX_TIMESTAMP
from penstock.landing.from_kafka.range_assembler import Part, find_segments, part_of
from penstock.landing.from_kafka.rows import RECORD

FIRST_CHUNK = 32
"""Records read back at first; then four times as many, up to the expiry gap."""
PATIENCE = 60.0
AT_ONCE = 500
CLIENT = {
    "group.id": "penstock-pipeline",
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    "isolation.level": "read_committed",
    "queued.max.messages.kbytes": str(16 << 10),
    "auto.offset.reset": "earliest",
}


class CannotReadBack(PenstockError, RuntimeError):
    """Kafka did not answer in time; the task is tried again."""


class LookBack:
    """Reads segments of wanted messages. ``kafka``: properties of the client, bootstrap.servers among them."""

    def __init__(self, kafka: Mapping[str, str], gap: int) -> None:
        self._kafka, self._gap = dict(kafka), gap

    def __call__(self, place: TopicAndPartition, offset: int, wanted: Mapping[UUID, Collection[int]]) -> Iterable[Part]:
        """The segments of ``wanted`` in the ``gap`` offsets before ``offset``, read no further back than needed."""
        found: dict[tuple[UUID, int], Part] = {}
        end, chunk = offset, FIRST_CHUNK
        with consumer(self._kafka) as client:
            while end > max(0, offset - self._gap) and _missing(wanted, found):
                begin = max(0, offset - self._gap, end - chunk)
                for part in _parts(read(client, place, begin, end), wanted):
                    found.setdefault((part.segment.message_id, part.segment.sequence), part)
                end, chunk = begin, chunk * 4
        return found.values()


def _missing(wanted: Mapping[UUID, Collection[int]], found: Mapping[tuple[UUID, int], Part]) -> bool:
    """Whether a segment before the last known one of some message has not been found yet."""
    return any(
        number not in known and (uuid, number) not in found
        for uuid, known in wanted.items()
        for number in range(max(known))
    )


def _parts(batches: Iterable[pa.RecordBatch], wanted: Mapping[UUID, Collection[int]]) -> Iterator[Part]:
    for batch in batches:
        for row, segment in find_segments(batch).items():
            if segment.message_id in wanted:
                yield part_of(batch, row, segment)


@contextmanager
def consumer(kafka: Mapping[str, str]) -> Iterator[Consumer]:
    """A consumer that belongs to no group and sees what is committed."""
    client = Consumer({**CLIENT, **kafka})
    try:
        yield client
    finally:
        client.close()


def read(client: Consumer, place: TopicAndPartition, begin: int, end: int) -> Iterator[pa.RecordBatch]:
    """The records (RECORD) of a partition with offsets in [begin, end) that are there. Raises CannotReadBack."""
    topic, partition = place
    client.assign([TopicPartition(topic, partition, begin)])
    deadline = time.monotonic() + PATIENCE
    while True:
        messages = client.consume(AT_ONCE, 0.5)
        rows = [_row(m) for m in messages if m.error() is None and _offset(m) < end]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=RECORD)
            deadline = time.monotonic() + PATIENCE
        if _reached(client, messages, place, end):
            return
        if time.monotonic() > deadline:
            raise CannotReadBack(f"no answer from Kafka for {topic}/{partition} from offset {begin} on")


def _reached(client: Consumer, messages: list[Message], place: TopicAndPartition, end: int) -> bool:
    """Whether everything before ``end`` was seen: a record behind it, the partition's end, or the position."""
    if any(m.error() is not None or _offset(m) >= end - 1 for m in messages):
        _raise_errors(messages)
        return True
    (position,) = client.position([TopicPartition(*place)])
    return bool(position.offset != OFFSET_INVALID and position.offset >= end)


def _raise_errors(messages: list[Message]) -> None:
    for message in messages:
        error = message.error()
        if error is not None and error.code() != -191:  # the partition's end
            raise KafkaException(error)


def _row(message: Message) -> dict[str, object]:
    _, millis = message.timestamp()
    given = message.headers() or ()
    headers = [{"key": key, "value": _bytes(value)} for key, value in given]  # type: ignore[str-unpack]  # a list here
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": min(max(millis, 0), MAX_TIMESTAMP) * 1000,
        "key": _bytes(message.key()),
        "value": _bytes(message.value()),
        "headers": headers or None,
    }


def _offset(record: Message) -> int:
    return record.offset()  # type: ignore[return-value]  # only events have none


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
