"""Rows into Kafka, in transactions: a batch is there whole or not at all, and whether it is can be asked."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
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

BATCH_HEADER = "_penstock_batch"
"""Header that names the batch a record was sent in; headers with an underscore are no annotations."""
PATIENCE = 60.0
"""Seconds that a transaction, or an answer, may take."""
DEFAULTS = {
    "large.message.enabled": "true",
    "header.timestamp.enabled": "false",
    "log_level": "0",
    "transaction.timeout.ms": "60000",
}


class CannotSend(PenstockError, RuntimeError):
    """Kafka did not take a batch; nothing of it is there."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to be; ``timestamp`` in milliseconds, 0 for now; ``partition`` -1 for that of its key."""

    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes]]
    timestamp: int = 0
    partition: int = -1


class KafkaOut:
    """A transactional producer. ``kafka``: properties of the client; ``name``: its transactional.id.

    One life of a name at a time: what an earlier one had begun and not committed is undone. Raises CannotSend.
    """

    def __init__(self, kafka: Mapping[str, str], name: str) -> None:
        self._kafka = dict(kafka)
        self._producer = Producer({**DEFAULTS, **kafka, "transactional.id": name})
        with _told("is there a broker?"):
            self._producer.init_transactions(PATIENCE)

    def append_batch(self, topic: str, body: pa.RecordBatch, producer: tuple[str, int] | None = None) -> list[int]:
        """Send rows (``records.BODY``) in one transaction; their offsets, each in its partition."""
        mark = [(BATCH_HEADER, f"{producer[0]}:{producer[1]}".encode())] if producer else []
        records = (
            Outgoing(row["payload"], row["key"], [*mark, *headers_of(row["annotations"])]) for row in body.to_pylist()
        )
        return [offset for _, offset in self.send(topic, records)]

    def has(self, topic: str, producer: tuple[str, int], since: int) -> bool:
        """Whether a batch was committed since a time (milliseconds). Raises CannotSend."""
        wanted = f"{producer[0]}:{producer[1]}".encode()
        with _told(f"topic {topic}"), consumer(self._kafka) as client:
            known = partition_numbers(client, topic, PATIENCE)
            places = [TopicPartition(topic, number, max(since - 1, 0)) for number in known]
            begins = client.offsets_for_times(places, PATIENCE)
        return any(
            value == wanted
            for place in begins
            if place.offset >= 0
            for _, value in marks(self._kafka, (topic, place.partition), place.offset, BATCH_HEADER)
        )

    def send(self, topic: str, records: Iterable[Outgoing]) -> list[tuple[int, int]]:
        """Send records in one transaction; partition and offset of each (of a large one: of its last segment)."""
        places: dict[int, tuple[int, int]] = {}
        self._producer.begin_transaction()
        try:
            for number, record in enumerate(records):
                self._produce(topic, record, _Report(number, places))
            with _told(f"topic {topic}"):
                self._producer.commit_transaction(PATIENCE)
        except BaseException:
            self._producer.abort_transaction(PATIENCE)
            raise
        return [places[number] for number in sorted(places)]

    def close(self) -> None:
        """End the producer; nothing waits in it."""
        self._producer.close(1)

    def _produce(self, topic: str, record: Outgoing, report: _Report) -> None:
        deadline = time.monotonic() + PATIENCE
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
            except BufferError:
                self._producer.poll(0.1)
                if time.monotonic() > deadline:
                    raise CannotSend(f"topic {topic}: the broker takes nothing") from None


class _Report:
    """Notes where one message is."""

    def __init__(self, number: int, places: dict[int, tuple[int, int]]) -> None:
        self._number, self._places = number, places

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:  # else the commit fails
            self._places[self._number] = (message.partition(), message.offset())  # type: ignore[assignment]  # it has both


@contextmanager
def _told(about: str) -> Iterator[None]:
    """Kafka's own words as CannotSend."""
    try:
        yield
    except KafkaException as error:
        raise CannotSend(f"{about}: {error.args[0].str()}") from error


def headers_of(annotations: Iterable[tuple[str, str]] | None) -> list[tuple[str, bytes]]:
    """Annotations as headers; those of Kafka's own kind are left out."""
    return [(name, value.encode()) for name, value in annotations or () if not name.startswith(TRANSPORT_HEADER_PREFIX)]


def marks(kafka: Mapping[str, str], place: TopicAndPartition, begin: int, header: str) -> Iterator[tuple[int, bytes]]:
    """Offset and value of a header of the committed records of a partition from ``begin`` on.

    What a transaction that has not ended keeps back is waited for. Raises CannotReadBack.
    """
    with consumer({**kafka, "isolation.level": "read_uncommitted"}) as client:
        end = end_offset(client, place, PATIENCE)
    with consumer({**kafka, "enable.partition.eof": "false"}) as client:
        for batch in read(client, place, begin, end) if begin < end else ():
            columns = (batch.column(name).to_pylist() for name in ("offset", "headers"))
            for offset, headers in zip(*columns, strict=True):
                yield from ((offset, one["value"]) for one in headers or () if one["key"] == header)
