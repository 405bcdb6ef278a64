"""Read ranges of Kafka's partitions: what a task lands, and what a proof or a large message needs again."""

from __future__ import annotations

import functools
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.errors import PenstockError
from penstock.kafka.client.administration import ConnectionErrors
from penstock.kafka.client.broker_answers import NO_SUCH_TOPIC, consume_available, headers_of, partition_numbers
from penstock.kafka.errors import KafkaAway
from penstock.kafka.large.safe_offsets import TopicAndPartition
from penstock.landing.from_kafka.range_assembler import ChunkRecord, RangeAssembler, chunk_of_row, find_chunks
from penstock.landing.from_kafka.rows import HEADERS, RECORD, ROW, clamp_timestamps
from penstock.landing.offset_runs import Runs, is_inside
from penstock.qualified_names import partition_name, split_partition

FIRST_READ_RECORDS = 32
"""Records of the first read; each further read takes four times as many, up to the expiry gap."""
NO_PROGRESS_TIMEOUT_S = 60.0
RECORDS_PER_POLL = 10_000
DEFAULT_PROPERTIES = {
    "group.id": "penstock-pipeline",
    "check.crcs": "true",
    # Limit: librdkafka prefetches up to 64 MiB by default; each task has a client of its own.
    "queued.max.messages.kbytes": str(16 << 10),
    # A full queue is filled again at once, not after a second.
    "fetch.queue.backoff.ms": "2",
    # The next range waits for the answer to the last fetch, which at the end of a partition takes so long: 5 ms for
    # each of hundreds of partitions, not 20. An idle client fetches nothing.
    "fetch.wait.max.ms": "1",
}
OWN_PROPERTIES = {
    # Positions are Spark's: a committed offset of this group would be read by nobody.
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    # As the landing itself reads: records of aborted transactions are not messages.
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
}
"""Properties that the user's do not replace: with a reset to the latest offset, records would be left out."""
EXISTENCE_CHECK_S = 5.0
"""Time without a record after which Kafka is asked whether the topic still exists."""


class CannotReadBack(PenstockError, RuntimeError):
    """Kafka did not answer in time; Spark repeats the task."""


class _TopicDeleted(PenstockError):
    """The topic of a range does not exist any more."""


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
def consumer(kafka: Mapping[str, str], **changed: str) -> Iterator[Consumer]:
    """Yield a consumer that joins no group and reads committed records only.

    ``changed``: properties of this reading, with ``_`` for each dot.
    """
    overrides = {name.replace("_", "."): value for name, value in changed.items()}
    client = Consumer({**DEFAULT_PROPERTIES, **kafka, **OWN_PROPERTIES, **overrides})
    try:
        yield client
    finally:
        client.close()


@functools.lru_cache(maxsize=1)
def _open_consumer(properties: tuple[tuple[str, str], ...]) -> tuple[Consumer, ConnectionErrors]:
    errors = ConnectionErrors()
    overrides: dict[str, Any] = {**OWN_PROPERTIES, "log_level": "0", "error_cb": errors.note}
    return Consumer({**DEFAULT_PROPERTIES, **dict(properties), **overrides}), errors


@contextmanager
def kept_consumer(kafka: Mapping[str, str]) -> Iterator[Consumer]:
    """Yield the process's consumer for these properties: a new one takes 20 ms until its first record.

    For one thread of a process at a time. Raises CannotReadBack with the error of the connections, if there is one.
    """
    client, errors = _open_consumer(tuple(sorted(kafka.items())))
    errors.text = ""
    try:
        yield client
    except CannotReadBack as error:
        raise CannotReadBack(f"{error}: {errors.text}" if errors.text else str(error)) from None
    finally:
        client.unassign()  # an idle client fetches nothing


def read_messages(
    kafka: Mapping[str, str], gap: int, name: str, begin: int, end: int, deleted: set[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the messages (ROW) of a partition (``events/0``) whose last record is in [begin, end).

    ``gap``: offsets that a large message may span. ``deleted``: topics of the task that were found to be deleted;
    that takes seconds, and a topic may have hundreds of partitions. Raises KafkaAway.
    """
    topic_partition, deleted = split_partition(name), set() if deleted is None else deleted
    if topic_partition[0] in deleted:
        return
    assembler = RangeAssembler(LookBack(kafka, gap), gap)
    try:
        try:
            with kept_consumer(kafka) as client:
                for batch in read(client, topic_partition, begin, end, waits_for_end=True):
                    for rows in assembler.add_batch(batch):
                        yield rows.select(ROW.names)
        except _TopicDeleted:
            deleted.add(topic_partition[0])
        for rows in assembler.finish():
            yield rows.select(ROW.names)
    except (KafkaException, CannotReadBack) as error:
        cause = error.args[0].str() if isinstance(error, KafkaException) else error
        raise KafkaAway(f"Kafka at {kafka.get('bootstrap.servers')} does not give {name}: {cause}") from None


def read(
    client: Consumer,
    topic_partition: TopicAndPartition,
    begin: int,
    end: int,
    wanted: Runs | None = None,
    *,
    waits_for_end: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the existing records (RECORD) of a partition with offsets in [begin, end), and in ``wanted`` if given.

    If the partition ends before ``end``, reading ends there; with ``waits_for_end`` it waits, and raises _TopicDeleted
    if the topic was deleted. Raises CannotReadBack.
    """
    topic, partition = topic_partition
    client.assign([TopicPartition(topic, partition, begin)])
    next_offset, progress_at = begin, time.monotonic()
    while True:
        messages = consume_available(client, RECORDS_PER_POLL, 0.5)
        records = [m for m in messages if m.error() is None]
        events = [m for m in messages if m.error() is not None] if len(records) < len(messages) else []
        offsets = np.fromiter(map(Message.offset, records), np.int64, len(records))
        # A partition whose end was cut is read from its first offset: what is before ``begin`` was read before.
        is_read = (offsets >= begin) & (offsets < end)
        if is_read.any():
            next_offset, progress_at = int(offsets[is_read][-1]) + 1, time.monotonic()
        if wanted is not None:
            # Fast path: a row costs ten times the time of its offset, and a proof wants one record of a hundred.
            is_read &= is_inside(offsets, wanted)
        if is_read.any():
            yield _to_batch(topic_partition, [records[row] for row in np.flatnonzero(is_read).tolist()])
        if any(not waits_for_end or _offset(event) >= end for event in _ends_of_partition(events)):
            return
        if (len(offsets) and offsets[-1] >= end - 1) or _has_passed(client, topic_partition, end):
            return
        waited_s = time.monotonic() - progress_at
        if waits_for_end and waited_s > EXISTENCE_CHECK_S and _is_deleted(client, topic):
            raise _TopicDeleted
        if waited_s > NO_PROGRESS_TIMEOUT_S:
            name = partition_name(topic, partition)
            raise CannotReadBack(
                f"no record of {name} from offset {next_offset} on in {NO_PROGRESS_TIMEOUT_S:g} s from Kafka"
            )


def _has_passed(client: Consumer, topic_partition: TopicAndPartition, end: int) -> bool:
    # The last offsets of a range may be control records or compacted: then only the position passes ``end``.
    (position,) = client.position([TopicPartition(*topic_partition)])
    return bool(position.offset != OFFSET_INVALID and position.offset >= end)


def _is_deleted(client: Consumer, topic: str) -> bool:
    try:
        partition_numbers(client, topic, EXISTENCE_CHECK_S)
    except KafkaException as error:
        return error.args[0].code() in NO_SUCH_TOPIC
    return False


def _ends_of_partition(events: Sequence[Message]) -> list[Message]:
    """Return the events that a partition has no further record. Raises KafkaException for other events."""
    ends = []
    for event in events:
        error = event.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            ends.append(event)
        # The client looks for the coordinator of its group, which it does not need: a user may have no right to it.
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise KafkaException(error)
    return ends


def _to_batch(topic_partition: TopicAndPartition, messages: Sequence[Message]) -> pa.RecordBatch:
    """Return records of one partition as a batch (RECORD)."""
    topic, partition = topic_partition
    count = len(messages)
    millis = np.fromiter((message.timestamp()[1] for message in messages), np.int64, count)
    columns: dict[str, Any] = {
        "topic": pa.repeat(pa.scalar(topic), count),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
        "offset": pa.array(np.fromiter(map(Message.offset, messages), np.int64, count)),
        "timestamp": clamp_timestamps(millis),
        "key": pa.array(list(map(Message.key, messages)), pa.binary()),
        "value": pa.array(list(map(Message.value, messages)), pa.binary()),
        "headers": _headers(headers_of(messages)),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in RECORD.names], schema=RECORD)


def _headers(headers: Sequence[Any]) -> pa.Array[Any]:
    """Return the headers of records; null for a record without any."""
    # Fast path: most topics have no headers.
    if not any(headers):
        return pa.nulls(len(headers), HEADERS)
    rows = [[{"key": key, "value": content} for key, content in pairs] if pairs else None for pairs in headers]
    return pa.array(rows, HEADERS)


def _offset(record: Message) -> int:
    return record.offset()  # type: ignore[return-value]  # only events have none
