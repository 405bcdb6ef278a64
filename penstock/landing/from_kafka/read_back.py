"""Read ranges of Kafka's partitions: what a task lands, and what a proof or a large message needs again."""

from __future__ import annotations

import functools
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from types import MappingProxyType
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.errors import PenstockError
from penstock.kafka.client.administration import ConnectionErrors, FetchedOffsets
from penstock.kafka.client.broker_answers import NO_SUCH_TOPIC, consume_available, headers_of, partition_numbers
from penstock.kafka.errors import KafkaAway
from penstock.kafka.large.safe_offsets import TopicAndPartition
from penstock.landing.from_kafka.range_assembler import ChunkRecord, RangeAssembler, chunk_of_row, find_chunks
from penstock.landing.from_kafka.rows import HEADERS, RECORD, ROW, clamp_timestamps
from penstock.landing.offset_runs import Runs, is_inside
from penstock.landing.topics.topic_store import Range
from penstock.qualified_names import partition_name, split_partition

FIRST_READ_RECORDS = 32
"""Records of the first read; each further read takes four times as many, up to the expiry gap."""
NO_PROGRESS_TIMEOUT_S = 60.0
STATISTICS_INTERVAL_MS = 5_000
RECORDS_PER_POLL = 10_000
GROUP_ROWS, GROUP_BYTES = 10_000, 16 << 20
"""Limit: rows and bytes of small ranges that are read together: one alone costs an answer of Kafka, 3 ms and more."""
GROUP_WAIT_S = 1.0
"""Time without a record after which the other ranges of a group are read alone, as the error then names one."""
DEFAULT_PROPERTIES = {
    "group.id": "penstock-pipeline",
    "check.crcs": "true",
    # Limit: librdkafka prefetches up to 64 MiB by default; each task has a client of its own.
    "queued.max.messages.kbytes": str(16 << 10),
    # Limit: one answer for many partitions, which by default has 50 MiB.
    "fetch.max.bytes": str(16 << 20),
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
NOTHING_FETCHED: Mapping[TopicAndPartition, int] = MappingProxyType({})
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
def _open_consumer(properties: tuple[tuple[str, str], ...]) -> tuple[Consumer, ConnectionErrors, FetchedOffsets]:
    errors, fetched = ConnectionErrors(), FetchedOffsets()
    overrides: dict[str, Any] = {**OWN_PROPERTIES, "log_level": "0", "error_cb": errors.note}
    overrides |= {"stats_cb": fetched.note, "statistics.interval.ms": STATISTICS_INTERVAL_MS}
    return Consumer({**DEFAULT_PROPERTIES, **dict(properties), **overrides}), errors, fetched


@contextmanager
def kept_consumer(kafka: Mapping[str, str]) -> Iterator[tuple[Consumer, FetchedOffsets]]:
    """Yield the process's consumer for these properties, as a new one takes 20 ms until its first record.

    For one thread of a process at a time. Raises CannotReadBack with the error of the connections, if there is one.
    """
    client, errors, fetched = _open_consumer(tuple(sorted(kafka.items())))
    errors.text = ""
    fetched.clear()
    try:
        yield client, fetched
    except CannotReadBack as error:
        raise CannotReadBack(f"{error}: {errors.text}" if errors.text else str(error)) from None
    finally:
        client.unassign()  # an idle client fetches nothing


def read_messages(kafka: Mapping[str, str], gap: int, ranges: Iterable[Range]) -> Iterator[pa.RecordBatch]:
    """Yield the messages (ROW) of partitions (``events/0``) whose last record is in the range, in the order of ranges.

    ``gap``: offsets that a large message may span. Raises KafkaAway with the name of the partition.
    """
    # A deleted topic is found in seconds, and may have hundreds of partitions.
    deleted: set[str] = set()
    for group in _group_small_ranges(ranges):
        early = _read_together(kafka, group) if len(group) > 1 else {}
        for part in group:
            yield from _messages_of_range(kafka, gap, part, early.pop(part, None), deleted)


def _messages_of_range(
    kafka: Mapping[str, str], gap: int, part: Range, early: list[pa.RecordBatch] | None, deleted: set[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range. ``early``: all of its records, if they were read. Raises KafkaAway."""
    topic_partition = split_partition(part.topic)
    if early is None and topic_partition[0] in deleted:
        return
    assembler = RangeAssembler(LookBack(kafka, gap), gap)
    try:
        try:
            for batch in _read_alone(kafka, topic_partition, part) if early is None else early:
                for rows in assembler.add_batch(batch):
                    yield rows.select(ROW.names)
        except _TopicDeleted:
            deleted.add(topic_partition[0])
        for rows in assembler.finish():
            yield rows.select(ROW.names)
    except (KafkaException, CannotReadBack) as error:
        raise _cannot_read(kafka, part.topic, error) from None


def _read_alone(kafka: Mapping[str, str], topic_partition: TopicAndPartition, part: Range) -> Iterator[pa.RecordBatch]:
    with kept_consumer(kafka) as (client, fetched):
        yield from read(client, topic_partition, part.begin, part.end, fetched=fetched, waits_for_end=True)


def _cannot_read(kafka: Mapping[str, str], name: str, error: KafkaException | CannotReadBack) -> KafkaAway:
    cause = error.args[0].str() if isinstance(error, KafkaException) else error
    return KafkaAway(f"Kafka at {kafka.get('bootstrap.servers')} does not give {name}: {cause}")


def _group_small_ranges(ranges: Iterable[Range]) -> Iterator[list[Range]]:
    """Yield all ranges in order, in groups of at most ``GROUP_ROWS`` rows, or of one range."""
    group: list[Range] = []
    rows = 0
    for part in ranges:
        if group and rows + part.rows > GROUP_ROWS:
            yield group
            group, rows = [], 0
        group.append(part)
        rows += part.rows
    if group:
        yield group


def _read_together(kafka: Mapping[str, str], ranges: Sequence[Range]) -> dict[Range, list[pa.RecordBatch]]:
    """Return the records (RECORD) of each range that Kafka gives at once. Raises KafkaAway.

    A range that it does not give, or that is beyond ``GROUP_BYTES``, is left out: it is read alone.
    """
    waiting = {split_partition(part.topic): part for part in ranges}
    batches: dict[Range, list[pa.RecordBatch]] = {part: [] for part in waiting.values()}
    unread = {part: part.begin for part in waiting.values()}
    size, progress_at = 0, time.monotonic()
    with kept_consumer(kafka) as (client, _):
        client.assign([TopicPartition(*key, part.begin) for key, part in waiting.items()])
        # Limit: a partition whose end was cut is read from its first record on, which may take hours.
        while waiting and size < GROUP_BYTES and time.monotonic() < progress_at + GROUP_WAIT_S:
            records, events = _split_events(consume_available(client, RECORDS_PER_POLL, GROUP_WAIT_S))
            for key, of_partition in groupby(records, _partition_of):
                if (part := waiting.get(key)) and (in_range := _unread(list(of_partition), unread[part], part.end)):
                    batches[part].append(_to_batch(key, in_range))
                    unread[part] = _offset(in_range[-1]) + 1
                    size, progress_at = size + batches[part][-1].nbytes, time.monotonic()
            ended = {_partition_of(event): _offset(event) for event in _ends_named(kafka, events, ranges)}
            complete = [
                key
                for key, part in waiting.items()
                if ended.get(key, -1) >= part.end or _position(client, key) >= part.end
            ]
            # Limit: else records behind a range that is read would fill the client's queue.
            client.incremental_unassign([TopicPartition(*key) for key in complete])
            for key in complete:
                del waiting[key]
            progress_at = time.monotonic() if complete else progress_at
    for part in waiting.values():
        del batches[part]
    return batches


def _ends_named(kafka: Mapping[str, str], events: Sequence[Message], ranges: Sequence[Range]) -> Iterator[Message]:
    """Yield the events that a partition has no further record. Raises KafkaAway, which names the partition."""
    for event in events:
        try:
            yield from _ends_of_partition([event])
        except KafkaException as error:
            topic, partition = _partition_of(event)
            name = partition_name(topic, partition) if topic else ranges[0].topic
            raise _cannot_read(kafka, name, error) from None


def _split_events(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Return the records, and the other events."""
    records = [message for message in messages if message.error() is None]
    events = [message for message in messages if message.error() is not None] if len(records) < len(messages) else []
    return records, events


def _partition_of(message: Message) -> TopicAndPartition:
    return message.topic(), message.partition()  # type: ignore[return-value]  # only errors of no partition have none


def read(
    client: Consumer,
    topic_partition: TopicAndPartition,
    begin: int,
    end: int,
    wanted: Runs | None = None,
    *,
    fetched: Mapping[TopicAndPartition, int] = NOTHING_FETCHED,
    waits_for_end: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the existing records (RECORD) of a partition with offsets in [begin, end), and in ``wanted`` if given.

    If the partition ends before ``end``, reading ends there; with ``waits_for_end`` it waits, and raises _TopicDeleted
    if the topic was deleted. ``fetched`` shows progress that gives no record. Raises CannotReadBack.
    """
    topic, partition = topic_partition
    client.assign([TopicPartition(topic, partition, begin)])
    position, unread, next_offset, progress_at = OFFSET_INVALID, begin, begin, time.monotonic()
    fetched_before = begin
    while True:
        messages = consume_available(client, RECORDS_PER_POLL, 0.5)
        records, events = _split_events(messages)
        offsets = np.fromiter(map(Message.offset, records), np.int64, len(records))
        is_read = _is_unread(offsets, unread) & (offsets < end)
        unread = max(unread, int(offsets.max()) + 1) if len(offsets) else unread
        if wanted is not None:
            # Fast path: a row costs ten times the time of its offset, and a proof wants one record of a hundred.
            is_read &= is_inside(offsets, wanted)
        if is_read.any():
            yield _to_batch(topic_partition, [records[row] for row in np.flatnonzero(is_read).tolist()])
        if any(not waits_for_end or _offset(event) >= end for event in _ends_of_partition(events)):
            return
        previous, position = position, _position(client, topic_partition)
        if (len(offsets) and offsets[-1] >= end - 1) or position >= end:
            return
        # Control records move the position: a range of aborted transactions is read on, and gives no record.
        if position > max(previous, begin):
            next_offset, progress_at = position, time.monotonic()
        # Any change: statistics of an earlier reading may come first, with an offset behind this range.
        if (fetched_now := fetched.get(topic_partition, fetched_before)) != fetched_before:
            fetched_before, progress_at = fetched_now, time.monotonic()
        waited_s = time.monotonic() - progress_at
        if waits_for_end and waited_s > EXISTENCE_CHECK_S and _is_deleted(client, topic):
            raise _TopicDeleted
        if waited_s > NO_PROGRESS_TIMEOUT_S:
            name = partition_name(topic, partition)
            raise CannotReadBack(
                f"no record of {name} from offset {next_offset} on in {NO_PROGRESS_TIMEOUT_S:g} s from Kafka"
            )


def _is_unread(offsets: npt.NDArray[np.int64], begin: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the offsets that are not before ``begin``, and not before or at an earlier one.

    A partition whose end is cut, also while it is read, is read from its first offset again.
    """
    read_before = np.maximum.accumulate(np.concatenate(([begin - 1], offsets[:-1])))
    mask: npt.NDArray[np.bool_] = offsets > read_before[: len(offsets)]
    return mask


def _unread(records: Sequence[Message], begin: int, end: int) -> list[Message]:
    """Return the records with offsets in [begin, end), each offset once."""
    offsets = np.fromiter(map(Message.offset, records), np.int64, len(records))
    return [records[row] for row in np.flatnonzero(_is_unread(offsets, begin) & (offsets < end)).tolist()]


def _position(client: Consumer, topic_partition: TopicAndPartition) -> int:
    """Return the offset behind the last record that was read; negative before the first."""
    # The last offsets of a range may be control records or compacted: then only the position passes its end.
    (position,) = client.position([TopicPartition(*topic_partition)])
    return int(position.offset)


def _is_deleted(client: Consumer, topic: str) -> bool:
    """Report whether a topic does not exist. Raises KafkaException if the user may not see it."""
    try:
        partition_numbers(client, topic, EXISTENCE_CHECK_S)
    except KafkaException as error:
        # The client gives no event for an assigned partition without the right to read it.
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
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
