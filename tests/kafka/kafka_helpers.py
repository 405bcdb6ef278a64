"""Topics for tests, with the layout of the Java library's integration tests."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID, uuid4

import confluent_kafka
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from crc32c import crc32c

from penstock.kafka import Consumer
from penstock.kafka.broker import Broker
from penstock.kafka.large.chunks import encode_chunk
from penstock.kafka.large.headers import Header, decode_large_message_header, find_last

QUICK = {"fetch.wait.max.ms": 20, "fetch.error.backoff.ms": 20, "session.timeout.ms": 6000}
DEADLINE = 60.0
LAYOUT = ("M0a", "M1a", "M2", "M3a", "M1b", "M0b", "M3b", "M4", "M5a", "M5b")
"""Offsets 0 to 9. Messages are delivered at 2, 4, 5, 6, 7 and 9."""
DELIVERED = [2, 4, 5, 6, 7, 9]
PART = 40


class Topics:
    """A factory of topics of one broker and of clients for them."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.address, self._name, self._count = broker.address, name, 0
        self.admin = AdminClient({"bootstrap.servers": broker.address})
        self._closing: list[Consumer] = []
        self._granted: list[list[Any]] = []

    def new(self, partitions: int = 1, **config: str) -> str:
        """Create a topic and return its name."""
        self._count += 1
        name = f"{self._name}-{self._count}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)
        return name

    def synthetic(self, partitions: int = 1) -> str:
        """Create a topic with the records of LAYOUT in each partition and return its name."""
        name = self.new(partitions)
        self.plain(name, synthetic_values(), range(partitions))
        return name

    def plain(self, topic: str, values: Iterable[bytes | None], partitions: Iterable[int] = (0,)) -> None:
        """Produce records with unchanged values."""
        values = list(values)
        producer = confluent_kafka.Producer({"bootstrap.servers": self.address, "linger.ms": 1})
        for partition in partitions:
            for value in values:
                producer.produce(topic, value, partition=partition)
        assert producer.flush(30) == 0

    def with_header_bytes(self, topic: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Produce a record ``v`` to partition 0 whose header names are any bytes; all texts have under 60 bytes."""
        pairs = [_short(name) + _short(content) for name, content in headers]
        record = b"\0\0\0\1" + _short(b"v") + bytes([2 * len(headers)]) + b"".join(pairs)
        millis = time.time_ns() // 1_000_000
        checked = struct.pack(">hiqqqhii", 0, 0, millis, millis, -1, -1, -1, 1) + bytes([2 * len(record)]) + record
        frame = struct.pack(">iBI", 0, 2, crc32c(checked)) + checked
        batch = struct.pack(">qi", 0, len(frame)) + frame
        name, nobody = topic.encode(), struct.pack(">hh", -1, -1)  # no client id, no transaction
        wanted = struct.pack(f">hiih{len(name)}siii", 1, 10_000, 1, len(name), name, 1, 0, len(batch))
        request = struct.pack(">hhi", 0, 3, 1) + nobody + wanted + batch
        host, port = self.address.split(":")
        with socket.create_connection((host, int(port)), 30) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.makefile("rb").read(4 + 4 + 4 + 2 + len(name) + 4 + 4 + 2)
        assert struct.unpack(">h", answer[-2:]) == (0,)

    @contextmanager
    def transaction(self, topic: str, values: Iterable[bytes]) -> Iterator[confluent_kafka.Producer]:
        """Produce records in an open transaction; it is aborted at the end if it is still open."""
        transaction = uuid4().hex
        producer = confluent_kafka.Producer({"bootstrap.servers": self.address, "transactional.id": transaction})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(30) == 0
        yield producer
        with suppress(confluent_kafka.KafkaException):
            producer.abort_transaction(30)

    def consumer(self, **config: Any) -> Consumer:
        """Return a consumer that is closed after the test; it commits only on request by default."""
        properties = {
            key if key in ("on_commit", "log_level") else key.replace("_", "."): value for key, value in config.items()
        }
        base = {"bootstrap.servers": self.address, "group.id": self._name, "auto.offset.reset": "earliest"}
        consumer = Consumer({**base, "enable.auto.commit": False, **QUICK, **properties})
        self._closing.append(consumer)
        return consumer

    def raw_consumer(self, topic: str, group: str = "", partitions: Sequence[int] = (0,)) -> confluent_kafka.Consumer:
        """Return a plain consumer that reads a topic from its beginning."""
        base = {"bootstrap.servers": self.address, "group.id": group or self._name, "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer({**base, "auto.offset.reset": "earliest", **QUICK})
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        return consumer

    def records(self, topic: str, count: int, partitions: Sequence[int] = (0,)) -> list[Message]:
        """Return the first records of a topic in their stored form."""
        consumer = self.raw_consumer(topic, "records", partitions)
        records = gather(lambda: consumer.consume(count, 0.2), count)
        consumer.close()
        return records

    def grant(self, topic: str, operation: AclOperation) -> None:
        """Grant the user ``limited`` a right on a topic until ``close``."""
        rule = [ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:limited", "*", operation]
        self._granted.append([*rule, AclPermissionType.ALLOW])
        for granted in self.admin.create_acls([AclBinding(*self._granted[-1])]).values():
            granted.result(30)

    def close(self) -> None:
        """Close all consumers and take back all rights."""
        for consumer in self._closing:
            consumer.close()
        for rule in self._granted:
            for removed in self.admin.delete_acls([AclBindingFilter(*rule)]).values():
                assert len(removed.result(30)) == 1


def _short(text: bytes) -> bytes:
    return bytes([2 * len(text)]) + text


def first_partition_consumer(topics: Topics, topic: str, **config: object) -> tuple[Consumer, TopicPartition]:
    """Return a consumer of the first partition of a topic, and that partition."""
    consumer, partition = topics.consumer(**config), TopicPartition(topic, 0)
    consumer.assign([partition])
    return consumer, partition


def uid(number: int) -> UUID:
    """Return the id of a message."""
    return UUID(int=0x0123456789ABCDEF_FEDCBA9876543210 * (number + 1) % (1 << 128))


def message(number: int) -> bytes:
    """Return the value of M0 to M5: one and a half parts if LAYOUT has two parts, else half a part."""
    return bytes([97 + number]) * (PART // 2 if number in (2, 4) else PART * 3 // 2)


def synthetic_values() -> list[bytes]:
    """Return the values of the records of LAYOUT."""
    return [_value(int(name[1]), name[2:]) for name in LAYOUT]


def _value(number: int, part: str) -> bytes:
    payload = message(number)
    if not part:
        return encode_chunk(uid(number), 0, 1, len(payload), payload)
    sequence = "ab".index(part)
    return encode_chunk(uid(number), sequence, 2, len(payload), payload[sequence * PART : (sequence + 1) * PART])


def parts(number: int, payload: bytes, size: int) -> list[bytes]:
    """Return the values of a message's segments."""
    count = -(-len(payload) // size)
    cut = [payload[sequence * size : (sequence + 1) * size] for sequence in range(count)]
    return [encode_chunk(uid(number), sequence, count, len(payload), part) for sequence, part in enumerate(cut)]


def gather(take: Callable[[], list[Message]], count: int, seconds: float = DEADLINE) -> list[Message]:
    """Return messages until there are ``count`` or the time is up, without events."""
    messages: list[Message] = []
    deadline = time.monotonic() + seconds
    while len(messages) < count and time.monotonic() < deadline:
        messages += [message for message in take() if not message.error()]
    return messages


def read(consumer: Consumer, count: int) -> list[Message]:
    """Return the next ``count`` messages. Fails if there are fewer."""
    messages = gather(lambda: consumer.consume(count, 0.2), count)
    assert len(messages) == count
    return messages


def read_one_by_one(consumer: Consumer, count: int) -> list[Message]:
    """Return the next ``count`` messages by ``poll``, without reading past the last one."""
    messages: list[Message] = []
    deadline = time.monotonic() + DEADLINE
    while len(messages) < count and time.monotonic() < deadline:
        polled = consumer.poll(0.2)
        if polled is not None and not polled.error():
            messages.append(polled)
    assert len(messages) == count
    return messages


def has_no_message(consumer: Consumer, seconds: float = 0.5) -> bool:
    """Report whether no further message arrives."""
    return not [message for message in consumer.consume(1, seconds) if not message.error()]


def offsets(messages: Iterable[Message]) -> list[int]:
    """Return the offsets of messages."""
    return [message.offset() for message in messages]


def header(message: Message, name: str) -> Header | None:
    """Return the last header of a name."""
    return find_last(message.headers(), name)


def large(message: Message) -> Any:
    """Return the decoded header ``_lm``."""
    id_header = header(message, "_lm")
    assert id_header
    return decode_large_message_header(id_header[1])


def committed(consumer: Consumer, partition: TopicPartition) -> tuple[int, str | None]:
    """Return the user's committed offset and metadata."""
    (answer,) = consumer.committed([partition])
    return answer.offset, answer.metadata


def position(consumer: Consumer, partition: TopicPartition) -> int:
    """Return the offset of the next record."""
    (answer,) = consumer.position([partition])
    return int(answer.offset)
