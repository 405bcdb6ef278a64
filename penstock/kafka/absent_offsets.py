"""Classify offsets of a Kafka partition at which a consumer sees no message.

Kafka's clients hide why an offset is missing: it may be a control record, belong to an aborted transaction, have been
compacted away or have expired. Raw record batches tell: control batches carry a flag, a fetch response lists the
aborted transactions, the log cleaner leaves gaps, and what expired lies below the start of the log. Invariant: an
offset whose batch still has its record is PRESENT and never called absent, so a lost message cannot hide here.
Start with ``AbsentOffsets.classify``; ``classify_fetched`` is its part without I/O.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, TopicPartition
from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.kafka.broker_connection import (
    FETCH_BYTES,
    BrokerConnection,
    FetchedBatches,
    RequestFailed,
    UnsupportedSecurity,
)
from penstock.kafka.client.broker_answers import ANSWER_TIMEOUT_S, RETRY_INTERVAL_S, retry_transient
from penstock.kafka.errors import BadRecords
from penstock.kafka.large.safe_offsets import TopicAndPartition
from penstock.kafka.records.batch_headers import StoredRecordBatch, split_batches

OffsetRange = tuple[int, int]
ASSUMED_OFFSET_BYTES = 1024
"""Bytes per offset until some were fetched."""
SKIPPED_BYTES = 4096
"""Gap between absent offsets from which on a second request is cheaper than reading the gap: 0.3 ms of round trip."""
MARKER_BYTES = 78
"""Size of a batch with a marker of a transaction, which says nothing about the size of records."""


class Absence(StrEnum):
    """The reason why an offset shows no message."""

    CONTROL = "control"
    ABORTED = "aborted"
    COMPACTED = "compacted"
    EXPIRED = "expired"
    PRESENT = "present"
    """The record exists: a reader without it has lost it."""
    UNDECIDED = "undecided"
    """At or behind the last stable offset: a transaction is open, or nothing is written yet."""
    UNKNOWN = "absent"
    """Stored, but the batch cannot be read: the way to authenticate is not supported, or it is damaged."""


@dataclass(frozen=True, slots=True)
class ClassifiedRange:
    """Offsets [begin, end) with one reason."""

    begin: int
    end: int
    absence: Absence


class CannotClassify(PenstockError, RuntimeError):
    """The brokers did not answer in time; retry later."""


class AbsentOffsets:
    """Classifies absent offsets of one cluster. ``kafka``: properties of confluent-kafka's client. One thread.

    ``max_aborted``: limit of transactions in ``aborted``, per partition.
    """

    def __init__(self, kafka: Mapping[str, str], *, max_aborted: int = 0) -> None:
        self._kafka, self._max_aborted = dict(kafka), max_aborted
        self.fetched_bytes = 0
        """Bytes of record batches that were read."""
        self.aborted: dict[TopicAndPartition, dict[int, int]] = {}
        """Aborted transactions whose first record is not absent and whose marker was fetched: the offset of that
        record, and the one behind the marker.
        """

    def classify(self, partition: TopicAndPartition, absent: Iterable[OffsetRange]) -> list[ClassifiedRange]:
        """Return the reason of each offset in the ranges, which ascend and do not overlap.

        Reads only the batches around them. Raises CannotClassify, KafkaException.
        """
        ranges = [span for span in absent if span[0] < span[1]]
        if not ranges:
            return []
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        with _client(self._kafka) as client:
            while True:
                try:
                    return _joined(self._classify(client, partition, ranges))
                except (RequestFailed, BadRecords, OSError) as error:
                    # A leader that moved, a broker that restarts, a head that expired between two requests: look again.
                    if time.monotonic() > deadline:
                        topic, number = partition
                        raise CannotClassify(f"{topic}-{number} cannot be read from Kafka: {error}") from None
                    time.sleep(RETRY_INTERVAL_S)

    def _classify(
        self, client: Consumer, partition: TopicAndPartition, ranges: Sequence[OffsetRange]
    ) -> Iterator[ClassifiedRange]:
        start, end = watermarks(client, partition)
        inner = []
        for first, last in ranges:
            if first < start:
                yield ClassifiedRange(first, min(last, start), Absence.EXPIRED)
            if last > end:
                yield ClassifiedRange(max(first, end), last, Absence.UNDECIDED)
            if max(first, start) < min(last, end):
                inner.append((max(first, start), min(last, end)))
        if inner:
            try:
                connection = BrokerConnection(leader_address(client, partition), self._kafka)
            except UnsupportedSecurity:
                yield from (ClassifiedRange(first, last, Absence.UNKNOWN) for first, last in inner)
                return
            with contextlib.closing(connection):
                yield from self._classify_stored(connection, partition, inner)

    def _classify_stored(
        self, connection: BrokerConnection, partition: TopicAndPartition, ranges: Sequence[OffsetRange]
    ) -> Iterator[ClassifiedRange]:
        """Classify ranges within the stored offsets; one response covers all ranges that its batches reach."""
        wanted = np.array(ranges, np.int64)
        position = read_offsets = read_bytes = 0
        for index, (first, last) in enumerate(ranges):
            while (position := max(position, first)) < last:
                bytes_per_offset = read_bytes / read_offsets if read_offsets else ASSUMED_OFFSET_BYTES
                size = _fetch_size(ranges, index, position, bytes_per_offset)
                fetched = connection.fetch(partition, position, size)
                self.fetched_bytes += len(fetched.records)
                if self._max_aborted and fetched.aborted:
                    self._note_aborted(partition, fetched, wanted)
                begin, (position, classified) = position, classify_fetched(fetched, position, wanted)
                if len(fetched.records) > MARKER_BYTES:
                    read_offsets, read_bytes = read_offsets + position - begin, read_bytes + len(fetched.records)
                yield from classified

    def _note_aborted(
        self, partition: TopicAndPartition, fetched: FetchedBatches, absent: npt.NDArray[np.int64]
    ) -> None:
        transactions = self.aborted.setdefault(partition, {})
        for first, end in aborted_transactions(fetched):
            if len(transactions) < self._max_aborted and not any(_common(absent, first, first + 1)):
                transactions[first] = end


def _fetch_size(ranges: Sequence[OffsetRange], index: int, position: int, bytes_per_offset: float) -> int:
    """Return how many bytes to fetch from ``position`` on, which is in the range at ``index``: up to the next gap that
    is worth a request of its own. Brokers add the rest of the first batch.

    Markers of transactions lie between large amounts of records, so a fetch of one marker reads its 78 bytes only.
    """
    reach = ranges[index][1]
    for begin, end in itertools.islice(ranges, index + 1, None):
        if (begin - reach) * bytes_per_offset > SKIPPED_BYTES or (reach - position) * bytes_per_offset > FETCH_BYTES:
            break
        reach = end
    return max(1, min(FETCH_BYTES, int((reach - position - 1) * bytes_per_offset)))


def classify_fetched(
    fetched: FetchedBatches, position: int, wanted: npt.NDArray[np.int64]
) -> tuple[int, list[ClassifiedRange]]:
    """Return the offset up to which the response to a fetch at ``position`` tells, and the reasons of wanted offsets.

    ``wanted`` has the shape (ranges, 2), ascending and apart. Raises BadRecords.
    """
    batches = list(split_batches(fetched.records))
    # Kafka returns at least one whole batch if there is one before the last stable offset.
    end = max(batches[-1].end if batches else fetched.stable_end, position + 1)
    classified = []
    for begin, span_end, reason in _spans(batches, fetched.aborted, position, end):
        for first, last in _common(wanted, begin, span_end):
            # Only batches around wanted offsets are unpacked.
            spans = (
                _spans_of_records(reason, first, last) if not isinstance(reason, Absence) else [(first, last, reason)]
            )
            classified += [ClassifiedRange(*span) for span in spans]
    return end, classified


def aborted_transactions(fetched: FetchedBatches) -> Iterator[OffsetRange]:
    """Yield the range of each aborted transaction whose marker is in a response: from its first record to the marker.

    Records of other producers may lie in between. Raises BadRecords.
    """
    firsts: dict[int, list[int]] = {}
    for producer, first in sorted(fetched.aborted):
        firsts.setdefault(producer, []).append(first)
    for batch in split_batches(fetched.records):
        if batch.is_control and batch.producer in firsts and batch.is_abort():
            # The transactions of a producer follow one another.
            index = bisect.bisect_left(firsts[batch.producer], batch.first) - 1
            if index >= 0:
                yield firsts[batch.producer][index], batch.end


def _common(wanted: npt.NDArray[np.int64], begin: int, end: int) -> Iterator[OffsetRange]:
    first = int(np.searchsorted(wanted[:, 1], begin, "right"))
    last = int(np.searchsorted(wanted[:, 0], end, "left"))
    for range_begin, range_end in wanted[first:last].tolist():
        yield max(range_begin, begin), min(range_end, end)


def _spans(
    batches: Sequence[StoredRecordBatch], aborted: Sequence[tuple[int, int]], position: int, end: int
) -> Iterator[tuple[int, int, Absence | StoredRecordBatch]]:
    """Yield the reasons of all offsets from ``position`` to ``end`` in order, or the batch whose records decide."""
    transactions = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    active: set[int] = set()
    for batch in batches:
        while transactions and transactions[-1][1] < batch.end:
            active.add(transactions.pop()[0])
        if batch.first > position:
            yield position, batch.first, Absence.COMPACTED
        begin = max(position, batch.first)
        if batch.is_control:
            if batch.is_abort():
                active.discard(batch.producer)
            yield begin, batch.end, Absence.CONTROL
        elif batch.is_transactional and batch.producer in active:
            yield begin, batch.end, Absence.ABORTED
        else:
            yield begin, batch.end, batch
        position = max(position, batch.end)
    if position < end:
        yield position, end, Absence.COMPACTED


def _spans_of_records(batch: StoredRecordBatch, begin: int, end: int) -> Iterator[tuple[int, int, Absence]]:
    try:
        offsets = batch.offsets()
    except BadRecords:
        yield begin, end, Absence.UNKNOWN
        return
    offsets = offsets[(offsets >= begin) & (offsets < end)]
    breaks = np.flatnonzero(np.diff(offsets) != 1) + 1
    position = begin
    for run in np.split(offsets, breaks) if len(offsets) else ():
        first, last = int(run[0]), int(run[-1]) + 1
        if first > position:
            yield position, first, Absence.COMPACTED
        yield first, last, Absence.PRESENT
        position = last
    if position < end:
        yield position, end, Absence.COMPACTED


def _joined(ranges: Iterable[ClassifiedRange]) -> list[ClassifiedRange]:
    """Return the ranges in order, adjacent ones of one reason joined."""
    joined: list[ClassifiedRange] = []
    for span in sorted(ranges, key=lambda span: span.begin):
        if joined and joined[-1].end == span.begin and joined[-1].absence == span.absence:
            joined[-1] = ClassifiedRange(joined[-1].begin, span.end, span.absence)
        else:
            joined.append(span)
    return joined


@contextlib.contextmanager
def _client(kafka: Mapping[str, str]) -> Iterator[Consumer]:
    """Yield a client for metadata and watermarks; it joins no group."""
    defaults = {"group.id": "penstock-absent-offsets", "enable.auto.commit": "false"}
    client = Consumer({**defaults, **kafka, "isolation.level": "read_committed"})
    try:
        yield client
    finally:
        client.close()


def watermarks(client: Consumer, partition: TopicAndPartition) -> OffsetRange:
    """Return the start of a partition's log and its last stable offset. Raises KafkaException."""
    topic, number = partition
    low, high = retry_transient(
        lambda remaining_s: client.get_watermark_offsets(TopicPartition(topic, number), timeout=remaining_s)
    )
    return int(low), int(high)


def leader_address(client: Consumer, partition: TopicAndPartition) -> str:
    """Return ``host:port`` of the broker that leads a partition. Raises RequestFailed, KafkaException."""
    topic, number = partition
    metadata = client.list_topics(topic, ANSWER_TIMEOUT_S)
    partition_metadata = metadata.topics[topic].partitions.get(number)
    broker = metadata.brokers.get(partition_metadata.leader) if partition_metadata else None
    if broker is None:
        raise RequestFailed(ErrorCode.leader_not_available)
    return f"{broker.host}:{broker.port}"
