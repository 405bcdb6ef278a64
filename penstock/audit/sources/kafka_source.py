"""The Kafka topic of an audit: which offsets exist, which a table must have, and what an absent one is.

Reads metadata, offsets and raw record batches around absent offsets; it joins no group and commits nothing.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]  # documented there

from penstock.audit.source import (
    CLOCK_SKEW_S,
    RECORDS,
    AuditSource,
    Expected,
    Lag,
    Period,
    Record,
    SourceUnavailable,
    times_in_the_future,
)
from penstock.audit.sources.dead_letters import dead_letter_origin
from penstock.errors import PenstockError
from penstock.kafka.absent_offsets import Absence, AbsentOffsets, ClassifiedRange, watermarks
from penstock.kafka.client.broker_answers import (
    TRANSIENT_ERRORS,
    consume_available,
    headers_of,
    partition_numbers,
    retry_transient,
)
from penstock.kafka.large.assembler import DEFAULT_EXPIRATION_GAP
from penstock.landing.offset_runs import Runs, as_runs, intersection, is_inside, runs_of
from penstock.proof.reread.kafka import KafkaRecords
from penstock.proof.reread.messages import RereadSource
from penstock.qualified_names import partition_name

TIMEOUT_S = 30.0
READ_TIMEOUT_S = 60.0
SEEK_OFFSETS = 500
MAX_LETTERS = 10_000_000
"""Limit: dead letters that are read per partition."""
MAX_ABORTED = 100_000
"""Limit: aborted transactions per partition whose rows are searched; each costs 100 bytes."""
MAX_SUSPECTS = 1_000_000
"""Limit: rows per partition whose records are read to find aborted ones."""
POLL_S = 1.0
_PASSING_ERRORS = {
    *TRANSIENT_ERRORS,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._PARTITION_EOF,
    KafkaError._AUTO_OFFSET_RESET,
}
"""Events that do not end reading: a broker that restarts is waited for, until the deadline."""
MAX_MICROS = 253_402_300_799_999_999
"""Limit: the last microsecond of the year 9999; producers may send any time."""


class KafkaSource(AuditSource):
    """A topic of a cluster. ``kafka``: properties of confluent-kafka's client."""

    def __init__(self, topic: str, kafka: Mapping[str, str]) -> None:
        # librdkafka logs each attempt to connect, many a second; the last one's error is in the text of the failure.
        self.topic, self._kafka = topic, {"log_level": "0", **kafka}
        self.address = f"kafka://{kafka.get('bootstrap.servers', '')}/{topic}"
        base = {"group.id": "penstock-audit", "enable.auto.commit": "false", "auto.offset.reset": "error"}
        # Limit: librdkafka queues 64 MiB of records per partition by default; an audit reads single records.
        memory = {"queued.max.messages.kbytes": "4096", "isolation.level": "read_committed"}
        fixed = {"enable.auto.commit": "false", "enable.partition.eof": "true", "error_cb": self._note_error}
        self._connection_error = ""
        try:
            self._consumer = Consumer({**base, **memory, **self._kafka, **fixed})
        except KafkaException as error:
            raise SourceUnavailable(f"Kafka's properties are invalid: {error.args[0]}") from None
        self._absent = AbsentOffsets(kafka, max_aborted=MAX_ABORTED)
        self._commits: dict[str, dict[int, int]] = {}

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of the client."""
        return self._kafka

    def close(self) -> None:
        self._consumer.close()

    def partitions(self) -> list[int]:
        """Return the numbers of the topic's partitions. Raises SourceUnavailable."""
        with self._answered():
            return partition_numbers(self._consumer, self.topic)

    def expected(self, partition: int, period: Period) -> Expected:
        """Return the offsets of a partition; the offset that ``period.group`` committed limits what is required."""
        with self._answered():
            start, end = watermarks(self._consumer, (self.topic, partition))
            # Without a grace period no clock matters.
            due = self._due(partition, time.time() - period.grace_s, end) if period.grace_s else end
            if period.until_s is not None:
                due = min(due, self._due(partition, period.until_s, end))
            begin = start if period.since_s is None else max(start, self._at_time(partition, period.since_s, end))
        if period.group:
            due = min(due, self._commit_of(period.group, partition, begin, due))
        return Expected(start, end, begin, max(begin, due))

    def end(self, partition: int) -> int:
        """Return the end of the stored offsets now."""
        with self._answered():
            return watermarks(self._consumer, (self.topic, partition))[1]

    def written_end(self, partition: int) -> int:
        """Return the end of all offsets now, also of open transactions."""
        reader = Consumer({**self._kafka, "group.id": "penstock-audit", "isolation.level": "read_uncommitted"})
        try:
            with self._answered():
                return watermarks(reader, (self.topic, partition))[1]
        finally:
            reader.close()

    def aborted(self, partition: int, ranges: Runs) -> Runs:
        """Return the offsets among ``ranges`` whose records belong to aborted transactions.

        Kafka names the first record of each. Only if the table has this one, the records up to the transaction's marker
        are read: others may be in between. Of rows beyond the limit, the first one of each transaction is returned.
        """
        transactions = self._absent.aborted.pop((self.topic, partition), {})
        first = np.array(sorted(transactions), np.int64)
        landed = first[is_inside(first, ranges)].tolist()
        suspects = intersection(ranges, as_runs([(offset, transactions[offset]) for offset in landed]))
        suspects = _first_offsets(suspects, MAX_SUSPECTS)
        spans = self.classify(partition, suspects)
        aborted = [(span.begin, span.end) for span in spans if span.absence is Absence.ABORTED]
        beyond = int(suspects[-1, 1]) if len(suspects) else 0
        return as_runs([*aborted, *((offset, offset + 1) for offset in landed if offset >= beyond)])

    def _due(self, partition: int, moment_s: float, end: int) -> int:
        """Return the first offset whose record is not older than ``moment_s``; ``end`` if there is none.

        Kafka's answer may be a record with a time in the future. The offset is then found by bisection over records
        with other times, which are nearly in order.
        """
        due = min(self._at_time(partition, moment_s, end), end)
        newest_s = time.time() + CLOCK_SKEW_S
        if due == end or moment_s > newest_s or self._at_time(partition, newest_s, end) != due:
            return due
        low, high = due, end
        while low < high:
            middle = (low + high) // 2
            records = list(self.records(partition, as_runs([(middle, high)]), SEEK_OFFSETS, is_complete=False))
            record = next((record for record in records if record.timestamp <= newest_s * 1000), None)
            if record is None and records:
                raise times_in_the_future(f"{self.topic}-{partition}", middle)
            if record is None or record.timestamp >= moment_s * 1000:
                high = middle
            else:
                low = record.offset + 1
        return low

    def _at_time(self, partition: int, moment_s: float, end: int) -> int:
        """Return the first offset whose record is not older than ``moment_s``; the end if there is none."""
        lookup = TopicPartition(self.topic, partition, max(0, int(moment_s * 1000)))
        (answer,) = retry_transient(
            lambda remaining_s: self._consumer.offsets_for_times([lookup], timeout=remaining_s), TIMEOUT_S
        )
        if answer.error is not None:
            raise KafkaException(answer.error)
        return end if answer.offset < 0 else int(answer.offset)

    def offsets_at(self, partition: int, moments_s: Sequence[float], end: int) -> list[int]:
        """Return for each time the first offset whose record is not older; ``end`` if there is none."""
        with self._answered():
            return [min(end, self._at_time(partition, moment_s, end)) for moment_s in moments_s]

    def lag(self, partition: int, position: int) -> Lag | None:
        """Return the lag of a sink that has not read ``position`` yet; None if it has read everything."""
        end = self.end(partition)
        ranges = as_runs([(position, end)])
        # The first offsets may be markers of transactions.
        first = next(self.records(partition, ranges, 1, is_complete=False), None) if len(ranges) else None
        if first is None or first.timestamp <= 0:
            return None
        behind_s = time.time() - first.timestamp / 1000
        return Lag(end - position, behind_s, self._retention_s - behind_s)

    @property
    def is_compacted(self) -> bool:  # type: ignore[override]  # known after a request
        """Whether the topic's policy is compaction; False if its configuration is unknown."""
        return "compact" in self._configuration.get("cleanup.policy", "")

    @property
    def _retention_s(self) -> float:
        policy = self._configuration.get("cleanup.policy", "")
        retention_ms = int(self._configuration.get("retention.ms", -1))
        return retention_ms / 1000 if "delete" in policy and retention_ms >= 0 else math.inf

    @cached_property
    def _configuration(self) -> Mapping[str, str]:
        """The topic's configuration; empty if the user may only read the topic."""
        admin = AdminClient({**self._kafka, "log_level": "0"})
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        with self._answered():
            try:
                (future,) = admin.describe_configs([resource], request_timeout=TIMEOUT_S).values()
                return {name: entry.value or "" for name, entry in future.result(TIMEOUT_S).items()}
            except KafkaException as error:
                if error.args[0].code() in (
                    KafkaError.TOPIC_AUTHORIZATION_FAILED,
                    KafkaError.UNSUPPORTED_VERSION,
                    KafkaError._UNSUPPORTED_FEATURE,
                ):
                    return {}
                raise

    def dead_letters(self, topic: str) -> Mapping[int, Runs]:
        """Return the offsets whose records are in a dead letter topic, by partition.

        Headers of Kafka Connect (with ``errors.deadletterqueue.context.headers.enable``), Kafka Streams and Spring name
        them. Raises SourceUnavailable if no letter has any: each letter would then count as a missing record.
        """
        letters: defaultdict[int, list[int]] = defaultdict(list)
        unnamed, is_any_named = 0, False
        letterbox = KafkaSource(topic, self._kafka)
        try:
            for number in letterbox.partitions():
                with letterbox._answered():
                    ranges = as_runs([watermarks(letterbox._consumer, (topic, number))])
                for letter in letterbox.records(number, ranges, MAX_LETTERS, is_complete=False):
                    origin = dead_letter_origin(letter.headers)
                    unnamed += origin is None
                    is_any_named |= origin is not None
                    if origin is not None and origin[0] == self.topic:
                        letters[origin[1]].append(origin[2])
        finally:
            letterbox.close()
        if unnamed and not is_any_named:
            raise SourceUnavailable(
                f"dead letter topic {topic}: no header of its {unnamed:,} records names the record that it is a copy "
                "of; a sink of Kafka Connect needs errors.deadletterqueue.context.headers.enable=true"
            )
        return {number: runs_of(np.unique(np.array(offsets, np.int64))) for number, offsets in letters.items()}

    def _commit_of(self, group: str, partition: int, begin: int, due: int) -> int:
        """Return the committed offset of a group. Raises SourceUnavailable if it has none although records are due.

        These are the records of [begin, due): earlier ones are not audited.
        """
        committed = self._committed(group).get(partition)
        if committed is None and due > begin:
            # Without its commit no record would be required; a partition with markers or compacted records has none.
            ranges = as_runs([(begin, due)])
            if next(self.records(partition, ranges, 1, is_complete=False), None) is not None:
                raise SourceUnavailable(
                    f"group {group} has committed no offset of {self.topic}-{partition}, which has records that are due"
                )
        return begin if committed is None else max(begin, committed)

    def _committed(self, group: str) -> Mapping[int, int]:
        """Return the offsets that ``group`` has committed, by partition. Raises SourceUnavailable if it has none."""
        if group not in self._commits:
            reader = Consumer({**self._kafka, "group.id": group, "enable.auto.commit": "false"})
            try:
                with self._answered():
                    partitions = [TopicPartition(self.topic, number) for number in self.partitions()]
                    answers = reader.committed(partitions, timeout=TIMEOUT_S)
            finally:
                reader.close()
            self._commits[group] = {answer.partition: answer.offset for answer in answers if answer.offset >= 0}
        if not self._commits[group]:
            # With a misspelled name no record would be required, and each table would be complete.
            raise SourceUnavailable(f"group {group} has committed no offset of topic {self.topic}")
        return self._commits[group]

    def classify(self, partition: int, absent: Runs) -> list[ClassifiedRange]:
        """Return why each absent offset shows no row. Raises SourceUnavailable."""
        with self._answered():
            return self._absent.classify((self.topic, partition), absent.tolist())

    def read(self, partition: int, ranges: Runs) -> Iterator[pa.RecordBatch]:
        """Yield the records in ``ranges`` (RECORDS)."""
        for messages in self._messages(partition, ranges, is_complete=False):
            yield _batch(messages)

    def records(self, partition: int, ranges: Runs, limit: int, *, is_complete: bool = True) -> Iterator[Record]:
        """Yield the records in ``ranges``, at most ``limit``. ``is_complete``: each range ends with a record."""
        remaining = limit
        for messages in self._messages(partition, ranges, is_complete=is_complete):
            for message in messages[:remaining]:
                yield _record(partition, message.offset(), message)
            remaining -= len(messages)
            if remaining <= 0:
                return

    def _messages(self, partition: int, ranges: Runs, *, is_complete: bool) -> Iterator[list[Any]]:
        # Ranges near each other are read together: a seek costs as much as some hundred records.
        is_far = ranges[1:, 0] - ranges[:-1, 1] > SEEK_OFFSETS
        for group in np.split(ranges, np.flatnonzero(is_far) + 1):
            if len(group):
                yield from self._messages_of_group(partition, group, is_complete)

    def _messages_of_group(self, partition: int, ranges: Runs, is_complete: bool) -> Iterator[list[Any]]:
        begin, end = int(ranges[0, 0]), int(ranges[-1, 1])
        position = begin
        with self._answered():
            self._consumer.assign([TopicPartition(self.topic, partition, begin)])
            deadline = time.monotonic() + READ_TIMEOUT_S
            try:
                while time.monotonic() < deadline:
                    events = consume_available(self._consumer, 1000, POLL_S)
                    messages = records_of(events)
                    is_at_end = _has_event(events, KafkaError._PARTITION_EOF)
                    offsets = np.array([message.offset() for message in messages], np.int64)
                    inside = [messages[index] for index in np.flatnonzero(is_inside(offsets, ranges)).tolist()]
                    if inside:
                        yield inside
                    if (len(offsets) and offsets[-1] >= end - 1) or (is_at_end and not is_complete):
                        return
                    if is_at_end:
                        break
                    if messages:
                        position = int(offsets[-1]) + 1
                        deadline = time.monotonic() + READ_TIMEOUT_S
                    if _has_event(events, KafkaError._AUTO_OFFSET_RESET):
                        # Retention has removed records during the audit: they are expired, not unreadable.
                        start, _ = watermarks(self._consumer, (self.topic, partition))
                        if start >= end:
                            return
                        if start <= position:
                            break
                        position = start
                        self._consumer.assign([TopicPartition(self.topic, partition, start)])
            finally:
                self._consumer.unassign()
        raise SourceUnavailable(f"{self.topic}-{partition}: no record at {begin} to {end} within {READ_TIMEOUT_S:g} s")

    def reread(self) -> RereadSource:
        """Return the reader that reads messages of Penstock again."""
        return KafkaRecords(self._kafka, DEFAULT_EXPIRATION_GAP)

    def partition_name(self, partition: int) -> str:
        """Return the name of a partition for ``reread``."""
        return partition_name(self.topic, partition)

    @contextlib.contextmanager
    def _answered(self) -> Iterator[None]:
        # An error of an earlier connection is obsolete once a request is answered.
        self._connection_error = ""
        try:
            yield
        except KafkaException as error:
            raise SourceUnavailable(f"topic {self.topic}: {error.args[0].str()}{self._cause()}") from None
        except PenstockError as error:
            if isinstance(error, SourceUnavailable):
                raise
            raise SourceUnavailable(f"topic {self.topic}: {error}{self._cause()}") from None

    def _cause(self) -> str:
        """Return the last error of a connection, such as a refused password, as the end of a sentence."""
        self._consumer.poll(0)  # calls _note_error
        return f": {self._connection_error}" if self._connection_error else ""

    def _note_error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._connection_error = error.str()


def _first_offsets(runs: Runs, limit: int) -> Runs:
    sizes = runs[:, 1] - runs[:, 0]
    remaining = limit - (np.cumsum(sizes) - sizes)
    return as_runs(np.stack([runs[:, 0], runs[:, 0] + np.minimum(sizes, remaining)], axis=1))


def _has_event(events: Iterable[Any], code: int) -> bool:
    # A live topic appends: records may follow the end of the partition within one poll.
    return any(event.error() is not None and event.error().code() == code for event in events)


def records_of(events: Iterable[Any]) -> list[Any]:
    """Return the events that are records. Raises KafkaException for errors that do not pass."""
    records = []
    for event in events:
        error = event.error()
        if error is None:
            records.append(event)
        elif error.code() not in _PASSING_ERRORS:
            raise KafkaException(error)
    return records


def _record(partition: int, offset: int, message: Any) -> Record:
    _, timestamp = message.timestamp()
    return Record(partition, offset, int(timestamp), message.key(), message.value(), headers_of([message])[0] or ())


def _batch(messages: Sequence[Any]) -> pa.RecordBatch:
    """Return messages as columns (RECORDS): one list per column, as librdkafka hands over objects only."""
    times = [message.timestamp()[1] * 1000 for message in messages]
    columns = [
        pa.array([message.offset() for message in messages], pa.int64()),
        pa.array([min(max(micros, 0), MAX_MICROS) for micros in times], RECORDS.field("timestamp").type),
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.array(headers_of(messages), RECORDS.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)
