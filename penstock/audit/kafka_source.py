"""The Kafka topic of an audit: which offsets exist, which a table must have, and what an absent one is.

Reads metadata, offsets and raw record batches around absent offsets; it joins no group and commits nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaException, TopicPartition

from penstock.errors import PenstockError
from penstock.kafka.absent_offsets import AbsentOffsets, ClassifiedRange, watermarks
from penstock.kafka.client.broker_answers import partition_numbers
from penstock.landing.offset_runs import Runs, is_inside

TIMEOUT_S = 30.0
READ_TIMEOUT_S = 60.0
SEEK_OFFSETS = 500
POLL_S = 1.0


class SourceUnavailable(PenstockError, RuntimeError):
    """Kafka did not answer, or does not have the topic: the audit cannot be decided."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The offsets of a partition when the audit began: stored are [start, end), required are [begin, due).

    Records from ``due`` on are younger than the grace period, or not yet committed by the sink's group.
    """

    start: int
    end: int
    begin: int
    due: int


@dataclass(frozen=True, slots=True)
class Record:
    """A record that the table lacks, as evidence; ``timestamp`` in milliseconds since the epoch."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class KafkaSource:
    """A topic of a cluster. ``kafka``: properties of confluent-kafka's client. One thread; close it."""

    def __init__(self, topic: str, kafka: Mapping[str, str]) -> None:
        self.topic, self._kafka = topic, dict(kafka)
        base = {"group.id": "penstock-audit", "enable.auto.commit": "false", "auto.offset.reset": "error"}
        # Limit: librdkafka queues 64 MiB of records per partition by default; an audit reads single records.
        memory = {"queued.max.messages.kbytes": "4096", "isolation.level": "read_committed"}
        try:
            self._consumer = Consumer({**base, **memory, **kafka, "enable.auto.commit": "false"})
        except KafkaException as error:
            raise SourceUnavailable(f"Kafka's properties are invalid: {error.args[0]}") from None
        self._absent = AbsentOffsets(kafka)

    def close(self) -> None:
        self._consumer.close()

    def partitions(self) -> list[int]:
        """Return the numbers of the topic's partitions. Raises SourceUnavailable."""
        with self._answered():
            return partition_numbers(self._consumer, self.topic)

    def expected(
        self,
        partition: int,
        grace_s: float,
        since_s: float | None = None,
        until_s: float | None = None,
        group: str = "",
    ) -> Expected:
        """Return the offsets of a partition; ``since_s`` and ``until_s`` in seconds since the epoch.

        ``group``: the sink's consumer group, whose committed offset limits what the table must have.
        """
        with self._answered():
            start, end = watermarks(self._consumer, (self.topic, partition))
            due = min(self._at_time(partition, time.time() - grace_s, end), end)
            if until_s is not None:
                due = min(due, self._at_time(partition, until_s, end))
            begin = start if since_s is None else max(start, self._at_time(partition, since_s, end))
        if group:
            due = min(due, max(start, self._committed(partition, group)))
        return Expected(start, end, begin, max(begin, due))

    def end(self, partition: int) -> int:
        """Return the end of the stored offsets now."""
        with self._answered():
            return watermarks(self._consumer, (self.topic, partition))[1]

    def _at_time(self, partition: int, moment_s: float, end: int) -> int:
        """Return the first offset whose record is not older than ``moment_s``; the end if there is none."""
        lookup = TopicPartition(self.topic, partition, max(0, int(moment_s * 1000)))
        (answer,) = self._consumer.offsets_for_times([lookup], timeout=TIMEOUT_S)
        if answer.error is not None:
            raise KafkaException(answer.error)
        return end if answer.offset < 0 else int(answer.offset)

    def _committed(self, partition: int, group: str) -> int:
        """Return the offset that ``group`` has committed; 0 if it has none."""
        reader = Consumer({**self._kafka, "group.id": group, "enable.auto.commit": "false"})
        try:
            with self._answered():
                (answer,) = reader.committed([TopicPartition(self.topic, partition)], timeout=TIMEOUT_S)
                return max(0, int(answer.offset))
        finally:
            reader.close()

    def classify(self, partition: int, absent: Runs) -> list[ClassifiedRange]:
        """Return why each absent offset shows no row. Raises SourceUnavailable."""
        with self._answered():
            return self._absent.classify((self.topic, partition), absent.tolist())

    def records(self, partition: int, ranges: Runs, limit: int) -> Iterator[Record]:
        """Yield the records in ``ranges``, at most ``limit``."""
        # Ranges near each other are read in one go: a seek costs as much as some hundred records.
        is_far = ranges[1:, 0] - ranges[:-1, 1] > SEEK_OFFSETS
        remaining = limit
        for group in np.split(ranges, np.flatnonzero(is_far) + 1):
            for record in self._records(partition, group):
                if remaining <= 0:
                    return
                remaining -= 1
                yield record

    def _records(self, partition: int, ranges: Runs) -> Iterator[Record]:
        if not len(ranges):
            return
        begin, end = int(ranges[0, 0]), int(ranges[-1, 1])
        with self._answered():
            self._consumer.assign([TopicPartition(self.topic, partition, begin)])
            deadline = time.monotonic() + READ_TIMEOUT_S
            try:
                while time.monotonic() < deadline:
                    messages = self._consumer.consume(1000, POLL_S)
                    for message in messages:
                        if message.error() is not None:
                            raise KafkaException(message.error())
                    offsets = np.array([message.offset() for message in messages], np.int64)
                    for index in np.flatnonzero(is_inside(offsets, ranges)).tolist():
                        yield _record(partition, int(offsets[index]), messages[index])
                    if len(offsets) and offsets[-1] >= end - 1:
                        return
                    if messages:
                        deadline = time.monotonic() + READ_TIMEOUT_S
            finally:
                self._consumer.unassign()
        raise SourceUnavailable(f"{self.topic}-{partition}: no record at {begin} to {end} within {READ_TIMEOUT_S:g} s")

    @contextlib.contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise SourceUnavailable(f"topic {self.topic}: {error.args[0].str()}") from None
        except PenstockError as error:
            if isinstance(error, SourceUnavailable):
                raise
            raise SourceUnavailable(f"topic {self.topic}: {error}") from None


def _record(partition: int, offset: int, message: Any) -> Record:
    _, timestamp = message.timestamp()
    return Record(partition, offset, int(timestamp), message.key(), message.value())
