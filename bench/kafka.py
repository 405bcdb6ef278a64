"""Kafka: large and small messages through our classes, against plain clients of the same broker in the same run."""

from __future__ import annotations

import struct
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.kafka import Consumer, Producer
from penstock.kafka.broker import Broker

ROUNDS = 3
PLAIN_BYTES = 800_000
LARGE = (1_000_000, 5_000_000)
TOTAL_BYTES = 160_000_000
SMALL_VALUE = b'{"type":"bench","data":"' + b"x" * 230 + b'"}'
"""256 bytes."""
SMALL_COUNT = 150_000
BATCH = 1_000
SEND = {"linger.ms": 5, "queue.buffering.max.kbytes": 65_536}
READ = {"enable.auto.commit": False, "fetch.wait.max.ms": 50}
_LONG = struct.Struct(">q")
Rates = tuple[float, float]
"""Messages a second: sent, read."""


def measure() -> dict[str, Any]:
    """All figures of Kafka: the best of three rounds of each, taken in turn."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, Broker(Path(folder)) as broker:
        bench = Bench(broker.address)
        bench.round()  # warms the broker up
        rounds = [bench.round() for _ in range(ROUNDS)]
    best = {name: tuple(max(one[name][side] for one in rounds) for side in (0, 1)) for name in rounds[0]}
    plain = [rate * PLAIN_BYTES / 1e6 for rate in best["plain large"]]
    results: dict[str, Any] = {"kafka_plain_800_kB_MB_per_s_sent_read": [round(rate) for rate in plain]}
    for size in LARGE:
        rates = [rate * size / 1e6 for rate in best[f"large {size}"]]
        name = f"kafka_{size // 10**6}_MB"
        results[f"{name}_MB_per_s_sent_read"] = [round(rate) for rate in rates]
        results[f"{name}_ratio_to_plain_sent_read"] = _ratios(rates, plain)
    small, plain_small = best["small"], best["plain small"]
    results["kafka_plain_256_B_messages_per_s_sent_read"] = [round(rate) for rate in plain_small]
    results["kafka_256_B_messages_per_s_sent_read"] = [round(rate) for rate in small]
    results["kafka_256_B_ratio_to_plain_sent_read"] = _ratios(small, plain_small)
    return results


def _ratios(ours: Iterable[float], plain: Iterable[float]) -> list[float]:
    return [round(one / other, 2) for one, other in zip(ours, plain, strict=True)]


class Bench:
    """One broker's measurements."""

    def __init__(self, address: str) -> None:
        self._servers: dict[str, str | int | float | bool] = {"bootstrap.servers": address}
        self._admin = AdminClient(self._servers)
        self._topics = 0

    def round(self) -> dict[str, Rates]:
        """Each kind of messages once."""
        found = {"plain large": self._plain_large()}
        for size in LARGE:
            found[f"large {size}"] = self._large(size)
        return found | {"plain small": self._plain_small(), "small": self._small()}

    def _plain_large(self) -> Rates:
        count, value = TOTAL_BYTES // PLAIN_BYTES, bytes(PLAIN_BYTES)
        return self._measured(
            self._plain_producer(), lambda send, topic: send(topic, value), self._plain_consumer(), _read_values, count
        )

    def _large(self, size: int) -> Rates:
        count, value = TOTAL_BYTES // size, bytes(size)
        producer = Producer({**self._servers, **SEND, "large.message.enabled": True})
        capacity = {"message.assembler.buffer.capacity": 2 * size}
        consumer = Consumer({**self._servers, **READ, **capacity, "group.id": "ours"})
        return self._measured(producer, lambda send, topic: send(topic, value), consumer, _read_values, count)

    def _plain_small(self) -> Rates:
        value = SMALL_VALUE

        def produce(send: Callable[..., None], topic: str) -> None:
            send(topic, value, headers=[("_t", _LONG.pack(int(time.time() * 1000)))])

        return self._measured(self._plain_producer(), produce, self._plain_consumer(), _read_stamped, SMALL_COUNT)

    def _small(self) -> Rates:
        value = SMALL_VALUE
        producer = Producer({**self._servers, **SEND, "large.message.enabled": True})
        consumer = Consumer({**self._servers, **READ, "group.id": "ours"})
        return self._measured(producer, lambda send, topic: send(topic, value), consumer, _read_stamped, SMALL_COUNT)

    def _plain_producer(self) -> Any:
        return confluent_kafka.Producer({**self._servers, **SEND})

    def _plain_consumer(self) -> Any:
        return confluent_kafka.Consumer({**self._servers, **READ, "group.id": "plain"})

    def _measured(
        self,
        producer: Any,
        produce: Callable[[Callable[..., None], str], None],
        consumer: Any,
        read: Callable[[list[Any]], None],
        count: int,
    ) -> Rates:
        topic = self._new_topic()
        sent = count / _sending(producer, produce, topic, count)
        consumer.assign([TopicPartition(topic, 0, 0)])
        got = count / _reading(consumer, read, count)
        consumer.close()
        self._admin.delete_topics([topic])[topic].result(30)
        return sent, got

    def _new_topic(self) -> str:
        self._topics += 1
        name = f"bench-{self._topics}"
        self._admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        return name


def _sending(producer: Any, produce: Callable[[Callable[..., None], str], None], topic: str, count: int) -> float:
    """Seconds until everything is acknowledged."""
    producer.list_topics(topic, 30)
    started = time.perf_counter()
    for number in range(count):
        while True:
            try:
                produce(producer.produce, topic)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 500 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return time.perf_counter() - started


def _reading(consumer: Any, read: Callable[[list[Any]], None], count: int) -> float:
    """Seconds from the first message on."""
    first = consumer.consume(1, 60)
    started, got = time.perf_counter(), len(first)
    while got < count:
        batch = consumer.consume(min(BATCH, count - got), 1.0)
        read(batch)
        got += len(batch)
    return time.perf_counter() - started


def _read_values(batch: list[Any]) -> None:
    for message in batch:
        assert not message.error()
        len(message.value())


def _read_stamped(batch: list[Any]) -> None:
    for message in batch:
        assert not message.error()
        len(message.value())
        _LONG.unpack(dict(message.headers())["_t"])
