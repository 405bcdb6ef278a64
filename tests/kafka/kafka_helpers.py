"""Topics of the tests, with the layout of the Java library's integration tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

import confluent_kafka
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

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
    """Makes topics of one broker, and clients for them."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.address, self._name, self._count = broker.address, name, 0
        self.admin = AdminClient({"bootstrap.servers": broker.address})
        self._closing: list[Consumer] = []

    def new(self, partitions: int = 1, **config: str) -> str:
        """A new topic."""
        self._count += 1
        name = f"{self._name}-{self._count}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)
        return name

    def synthetic(self, partitions: int = 1) -> str:
        """A new topic; in each partition the records of LAYOUT."""
        name = self.new(partitions)
        self.plain(name, synthetic_values(), range(partitions))
        return name

    def plain(self, topic: str, values: Iterable[bytes | None], partitions: Iterable[int] = (0,)) -> None:
        """Produce records as they are."""
        values = list(values)
        producer = confluent_kafka.Producer({"bootstrap.servers": self.address, "linger.ms": 1})
        for partition in partitions:
            for value in values:
                producer.produce(topic, value, partition=partition)
        assert producer.flush(30) == 0

    def consumer(self, **config: Any) -> Consumer:
        """A consumer that is closed in the end; commits by hand unless told otherwise."""
        given = {
            key if key in ("on_commit", "log_level") else key.replace("_", "."): value for key, value in config.items()
        }
        base = {"bootstrap.servers": self.address, "group.id": self._name, "auto.offset.reset": "earliest"}
        made = Consumer({**base, "enable.auto.commit": False, **QUICK, **given})
        self._closing.append(made)
        return made

    def raw_consumer(self, topic: str, group: str = "", partitions: Sequence[int] = (0,)) -> confluent_kafka.Consumer:
        """A plain consumer that reads a topic from its beginning."""
        base = {"bootstrap.servers": self.address, "group.id": group or self._name, "enable.auto.commit": False}
        made = confluent_kafka.Consumer({**base, "auto.offset.reset": "earliest", **QUICK})
        made.assign([TopicPartition(topic, number, 0) for number in partitions])
        return made

    def records(self, topic: str, count: int, partitions: Sequence[int] = (0,)) -> list[Message]:
        """The first records of a topic as they are stored."""
        consumer = self.raw_consumer(topic, "records", partitions)
        found = gather(lambda: consumer.consume(count, 0.2), count)
        consumer.close()
        return found

    def close(self) -> None:
        """Close all consumers."""
        for consumer in self._closing:
            consumer.close()


def begun(topics: Topics, topic: str, **config: object) -> tuple[Consumer, TopicPartition]:
    """A consumer that reads the first partition of a topic, and that partition."""
    consumer, partition = topics.consumer(**config), TopicPartition(topic, 0)
    consumer.assign([partition])
    return consumer, partition


def uid(number: int) -> UUID:
    """An id of a message."""
    return UUID(int=0x0123456789ABCDEF_FEDCBA9876543210 * (number + 1) % (1 << 128))


def message(number: int) -> bytes:
    """What M0 to M5 are: those of LAYOUT in two parts have one and a half, the others a half."""
    return bytes([97 + number]) * (PART // 2 if number in (2, 4) else PART * 3 // 2)


def synthetic_values() -> list[bytes]:
    """The values of the records of LAYOUT."""
    return [_value(int(name[1]), name[2:]) for name in LAYOUT]


def _value(number: int, part: str) -> bytes:
    whole = message(number)
    if not part:
        return encode_chunk(uid(number), 0, 1, len(whole), whole)
    sequence = "ab".index(part)
    return encode_chunk(uid(number), sequence, 2, len(whole), whole[sequence * PART : (sequence + 1) * PART])


def parts(number: int, whole: bytes, size: int) -> list[bytes]:
    """The values of a message's segments."""
    count = -(-len(whole) // size)
    cut = [whole[place * size : (place + 1) * size] for place in range(count)]
    return [encode_chunk(uid(number), place, count, len(whole), part) for place, part in enumerate(cut)]


def gather(take: Callable[[], list[Message]], count: int, seconds: float = DEADLINE) -> list[Message]:
    """Messages until there are ``count``, or the time is up; events are left out."""
    found: list[Message] = []
    until = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < until:
        found += [one for one in take() if not one.error()]
    return found


def read(consumer: Consumer, count: int) -> list[Message]:
    """The next messages; fails where there are fewer."""
    found = gather(lambda: consumer.consume(count, 0.2), count)
    assert len(found) == count
    return found


def read_one_by_one(consumer: Consumer, count: int) -> list[Message]:
    """The next messages, by ``poll``: nothing behind the last of them is looked at."""
    found: list[Message] = []
    until = time.monotonic() + DEADLINE
    while len(found) < count and time.monotonic() < until:
        one = consumer.poll(0.2)
        if one is not None and not one.error():
            found.append(one)
    assert len(found) == count
    return found


def nothing_comes(consumer: Consumer, seconds: float = 0.5) -> bool:
    """Whether there is no further message."""
    return not [one for one in consumer.consume(1, seconds) if not one.error()]


def offsets(messages: Iterable[Message]) -> list[int]:
    """Their offsets."""
    return [one.offset() for one in messages]


def header(message: Message, name: str) -> Header | None:
    """The last header of that name."""
    return find_last(message.headers(), name)


def large(message: Message) -> Any:
    """What ``_lm`` says."""
    found = header(message, "_lm")
    assert found
    return decode_large_message_header(found[1])


def committed(consumer: Consumer, partition: TopicPartition) -> tuple[int, str | None]:
    """The user's committed offset and metadata."""
    (one,) = consumer.committed([partition])
    return one.offset, one.metadata


def position(consumer: Consumer, partition: TopicPartition) -> int:
    """The offset of the next record."""
    (one,) = consumer.position([partition])
    return int(one.offset)
