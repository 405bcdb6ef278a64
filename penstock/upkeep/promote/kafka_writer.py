"""Write rows to Kafka in transactions: a batch is written completely or not at all, and can be looked up."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from penstock.errors import PenstockError
from penstock.kafka import Producer
from penstock.kafka.client.broker_answers import end_offset, partition_numbers
from penstock.kafka.large.safe_offsets import TopicAndPartition
from penstock.landing.from_kafka.read_back import consumer, read
from penstock.landing.from_kafka.rows import TRANSPORT_HEADER_PREFIX
from penstock.server.kafka.records.headers import unwrap

BATCH_HEADER = "_penstock_batch"
"""Header with the id of a record's batch. Headers that begin with an underscore are not annotations."""
TIMEOUT_S = 60.0
"""Limit for a transaction or an answer; the same as transaction.timeout.ms."""
PRODUCER_DEFAULTS = {
    "large.message.enabled": "true",
    "header.timestamp.enabled": "false",
    "log_level": "0",
    "transaction.timeout.ms": "60000",
}


class CannotSend(PenstockError, RuntimeError):
    """Kafka did not accept a batch; none of its records is visible."""


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to send; ``timestamp`` in milliseconds, 0 for now; ``partition`` -1 to choose by key."""

    value: bytes | None
    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int = 0
    partition: int = -1


class KafkaWriter:
    """A transactional producer; ``name`` is its transactional.id, ``kafka`` the client's properties.

    One instance per name at a time: Kafka aborts the open transaction of an earlier one. Raises CannotSend.
    """

    def __init__(self, kafka: Mapping[str, str], name: str) -> None:
        self._kafka = dict(kafka)
        self._producer = Producer({**PRODUCER_DEFAULTS, **kafka, "transactional.id": name})
        with kafka_errors("no answer from a broker"):
            self._producer.init_transactions(TIMEOUT_S)

    def append_batch(self, topic: str, body: pa.RecordBatch, producer: tuple[str, int] | None = None) -> list[int]:
        """Send rows (``records.BODY``) in one transaction; return their offsets, each in its partition."""
        batch_header = [(BATCH_HEADER, f"{producer[0]}:{producer[1]}".encode())] if producer else []
        records = (
            OutgoingRecord(row["payload"], row["key"], [*batch_header, *headers_from_annotations(row["annotations"])])
            for row in body.to_pylist()
        )
        return [offset for _, offset in self.send(topic, records)]

    def has_batch(self, topic: str, producer: tuple[str, int], since: int) -> bool:
        """Return whether a batch was committed since a time (milliseconds). Raises CannotSend."""
        batch_id = f"{producer[0]}:{producer[1]}".encode()
        with kafka_errors(f"topic {topic}"), consumer(self._kafka) as client:
            partitions = partition_numbers(client, topic, TIMEOUT_S)
            times = [TopicPartition(topic, number, max(since - 1, 0)) for number in partitions]
            positions = client.offsets_for_times(times, TIMEOUT_S)
        return any(
            header_value == batch_id
            for position in positions
            if position.offset >= 0
            for _, header_value in read_header_values(
                self._kafka, (topic, position.partition), position.offset, BATCH_HEADER
            )
        )

    def send(self, topic: str, records: Iterable[OutgoingRecord]) -> list[tuple[int, int]]:
        """Send records in one transaction; return the position of each (of a large one: of its last chunk)."""
        positions: dict[int, tuple[int, int]] = {}
        self._producer.begin_transaction()
        try:
            for number, record in enumerate(records):
                self._produce(topic, record, _DeliveryReport(number, positions))
            with kafka_errors(f"topic {topic}"):
                self._producer.commit_transaction(TIMEOUT_S)
        except BaseException:
            # Crash: a killed process cannot abort; Kafka does at the timeout, or when the next instance starts.
            self._producer.abort_transaction(TIMEOUT_S)
            raise
        return [positions[number] for number in sorted(positions)]

    def close(self) -> None:
        """Close the producer; no record is pending in it."""
        self._producer.close(1)

    def _produce(self, topic: str, record: OutgoingRecord, report: _DeliveryReport) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                self._producer.produce(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=report,
                    timestamp=record.timestamp,
                    headers=list(record.headers),
                )
                return
            # Limit: the producer's queue is full; its callbacks run in poll and free it.
            except BufferError:
                self._producer.poll(0.1)
                if time.monotonic() > deadline:
                    raise CannotSend(f"topic {topic}: the broker has accepted nothing for {TIMEOUT_S:g} s") from None


class _DeliveryReport:
    """The delivery callback that records the position of one message."""

    def __init__(self, number: int, positions: dict[int, tuple[int, int]]) -> None:
        self._number, self._positions = number, positions

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        # On an error nothing is recorded: the commit of the transaction fails too.
        if error is None:
            self._positions[self._number] = (message.partition(), message.offset())  # type: ignore[assignment]  # it has both


@contextmanager
def kafka_errors(subject: str) -> Iterator[None]:
    """Raise errors of Kafka as CannotSend."""
    try:
        yield
    except KafkaException as error:
        raise CannotSend(f"{subject}: {error.args[0].str()}") from error


def headers_from_annotations(annotations: Iterable[tuple[str, str]] | None) -> list[tuple[str, bytes | None]]:
    """Convert annotations to headers as a Kafka producer sent them, without names reserved for the transport."""
    return [unwrap(name, text) for name, text in annotations or () if not name.startswith(TRANSPORT_HEADER_PREFIX)]


def read_header_values(
    kafka: Mapping[str, str], partition: TopicAndPartition, begin: int, header: str
) -> Iterator[tuple[int, bytes]]:
    """Yield offset and value of a header in the committed records of a partition from ``begin`` on.

    Waits for open transactions to end. Raises CannotReadBack.
    """
    with consumer(kafka, isolation_level="read_uncommitted") as client:
        # The end of all records, also of open transactions; the read below then waits until these are decided.
        end = end_offset(client, partition, TIMEOUT_S)
    with consumer(kafka, enable_partition_eof="false") as client:
        for batch in read(client, partition, begin, end) if begin < end else ():
            columns = (batch.column(name).to_pylist() for name in ("offset", "headers"))
            for offset, headers in zip(*columns, strict=True):
                yield from ((offset, pair["value"]) for pair in headers or () if pair["key"] == header)
