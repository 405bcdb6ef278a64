"""Read chunks from before the beginning of a task's range again from Kafka."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from uuid import UUID

import numpy as np
import pyarrow as pa
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.errors import PenstockError
from penstock.kafka.client.broker_answers import consume_available
from penstock.kafka.large.safe_offsets import TopicAndPartition
from penstock.landing.event_rules import MAX_TIMESTAMP
from penstock.landing.from_kafka.range_assembler import ChunkRecord, chunk_of_row, find_chunks
from penstock.landing.from_kafka.rows import RECORD
from penstock.landing.offset_runs import Runs, is_inside
from penstock.qualified_names import partition_name

FIRST_READ_RECORDS = 32
"""Records of the first read; each further read takes four times as many, up to the expiry gap."""
NO_PROGRESS_TIMEOUT_S = 60.0
RECORDS_PER_POLL = 500
CONSUMER_PROPERTIES = {
    "group.id": "penstock-pipeline",
    # Positions are Spark's: a committed offset of this group would be read by nobody.
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    # As the landing itself reads: records of aborted transactions are not messages.
    "isolation.level": "read_committed",
    # Limit: librdkafka prefetches up to 64 MiB by default; each task has a client of its own.
    "queued.max.messages.kbytes": str(16 << 10),
    "auto.offset.reset": "earliest",
}


class CannotReadBack(PenstockError, RuntimeError):
    """Kafka did not answer in time; Spark repeats the task."""


class LookBack:
    """The reader of earlier chunks of wanted messages. ``kafka`` holds the client's properties."""

    def __init__(self, kafka: Mapping[str, str], gap: int) -> None:
        self._kafka, self._gap = dict(kafka), gap

    def __call__(
        self, partition: TopicAndPartition, offset: int, incomplete: Mapping[UUID, Collection[int]]
    ) -> Iterable[ChunkRecord]:
        """Return chunks of ``incomplete`` messages (with the sequences at hand) from the ``gap`` offsets before
        ``offset``.

        Reads back no further than needed.
        """
        chunks: dict[tuple[UUID, int], ChunkRecord] = {}
        end, read_records = offset, FIRST_READ_RECORDS
        with consumer(self._kafka) as client:
            while end > max(0, offset - self._gap) and _has_missing_chunks(incomplete, chunks):
                begin = max(0, offset - self._gap, end - read_records)
                for part in _wanted_chunks(read(client, partition, begin, end), incomplete):
                    chunks.setdefault((part.chunk.message_id, part.chunk.sequence), part)
                end, read_records = begin, read_records * 4
        return chunks.values()


def _has_missing_chunks(
    incomplete: Mapping[UUID, Collection[int]], chunks: Mapping[tuple[UUID, int], ChunkRecord]
) -> bool:
    # Chunks are sent in order of sequences, so only those before the highest one at hand can be before the range.
    return any(
        sequence not in at_hand and (uuid, sequence) not in chunks
        for uuid, at_hand in incomplete.items()
        for sequence in range(max(at_hand))
    )


def _wanted_chunks(
    batches: Iterable[pa.RecordBatch], incomplete: Mapping[UUID, Collection[int]]
) -> Iterator[ChunkRecord]:
    for batch in batches:
        for row, chunk in find_chunks(batch).items():
            if chunk.message_id in incomplete:
                yield chunk_of_row(batch, row, chunk)


@contextmanager
def consumer(kafka: Mapping[str, str]) -> Iterator[Consumer]:
    """Yield a consumer that joins no group and reads committed records only."""
    client = Consumer({**CONSUMER_PROPERTIES, **kafka})
    try:
        yield client
    finally:
        client.close()


def read(
    client: Consumer, topic_partition: TopicAndPartition, begin: int, end: int, wanted: Runs | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the existing records (RECORD) of a partition with offsets in [begin, end), and in ``wanted`` if given.

    Raises CannotReadBack.
    """
    topic, partition = topic_partition
    client.assign([TopicPartition(topic, partition, begin)])
    deadline = time.monotonic() + NO_PROGRESS_TIMEOUT_S
    while True:
        messages = consume_available(client, RECORDS_PER_POLL, 0.5)
        records = [m for m in messages if m.error() is None and _offset(m) < end]
        if records:
            deadline = time.monotonic() + NO_PROGRESS_TIMEOUT_S
        if wanted is not None and records:
            # Fast path: a row costs ten times the time of its offset, and a proof wants one record of a hundred.
            is_wanted = is_inside(np.array([_offset(m) for m in records]), wanted)
            records = [records[index] for index in np.flatnonzero(is_wanted).tolist()]
        if records:
            yield pa.RecordBatch.from_pylist([_record_row(m) for m in records], schema=RECORD)
        if _is_at_end(client, messages, topic_partition, end):
            return
        if time.monotonic() > deadline:
            name = partition_name(topic, partition)
            raise CannotReadBack(
                f"no record of {name} from offset {begin} on in {NO_PROGRESS_TIMEOUT_S:g} s from Kafka"
            )


def _is_at_end(client: Consumer, messages: list[Message], topic_partition: TopicAndPartition, end: int) -> bool:
    if any(m.error() is not None or _offset(m) >= end - 1 for m in messages):
        _raise_errors(messages)
        return True
    # The last offsets of a range may be control records or compacted: then only the position passes ``end``.
    (position,) = client.position([TopicPartition(*topic_partition)])
    return bool(position.offset != OFFSET_INVALID and position.offset >= end)


def _raise_errors(messages: list[Message]) -> None:
    for message in messages:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)


def _record_row(message: Message) -> dict[str, object]:
    _, millis = message.timestamp()
    raw_headers = message.headers() or ()
    headers = [{"key": key, "value": _to_bytes(value)} for key, value in raw_headers]  # type: ignore[str-unpack]  # a list here
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": min(max(millis, 0), MAX_TIMESTAMP) * 1000,
        "key": _to_bytes(message.key()),
        "value": _to_bytes(message.value()),
        "headers": headers or None,
    }


def _offset(record: Message) -> int:
    return record.offset()  # type: ignore[return-value]  # only events have none


def _to_bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
