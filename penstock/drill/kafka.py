"""The Kafka of a drill: a broker of its own, which can go away and come back, and what it holds in the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.drill.senders import mark_of
from penstock.errors import PenstockError
from penstock.kafka.broker import Broker
from penstock.testing.pipe import free_ports

PATIENCE = 60.0
"""Seconds for a broker to answer."""


class CannotRead(PenstockError, RuntimeError):
    """What a broker holds does not come."""


def broker_in(folder: Path) -> Broker:
    """A broker that keeps its port when it is started again."""
    return Broker(folder, port=free_ports(1)[0], memory="256m", options=("-XX:TieredStopAtLevel=1",))


def marks_in(address: str) -> Counter[tuple[str, int]]:
    """Whose and which messages all topics of a broker hold, and how often."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "drill", "enable.auto.commit": False, "enable.partition.eof": True}
    )
    try:
        topics = consumer.list_topics(timeout=PATIENCE).topics.values()
        own = [topic for topic in topics if not topic.topic.startswith("__")]
        partitions = [TopicPartition(topic.topic, number, 0) for topic in own for number in topic.partitions]
        consumer.assign(partitions)
        return Counter(filter(None, (mark_of(value) for value in _values(consumer, len(partitions)))))
    finally:
        consumer.close()


def _values(consumer: Any, partitions: int) -> Iterator[bytes]:
    """Of all records until each partition has come to its end. Raises CannotRead."""
    from confluent_kafka import KafkaError

    end = time.monotonic() + PATIENCE
    while partitions:
        if time.monotonic() > end:
            raise CannotRead(f"Kafka's messages cannot be read within {PATIENCE:g} s")
        for message in consumer.consume(1000, 1.0):
            if message.error() is None:
                yield message.value() or b""
            elif message.error().code() == KafkaError._PARTITION_EOF:
                partitions -= 1


def missing(
    balance: Mapping[str, Any], handlers: Mapping[str, str], stored: Counter[tuple[str, int]], sent: Mapping[str, int]
) -> Iterator[str]:
    """What Kafka lacks of the listeners with a handler (its label by listener), beyond what the balance names."""
    for route in balance["routes"]:
        name = route["source"]
        if handlers.get(name) != route["handler"]:
            continue
        there = sum(1 for sender, _ in stored if sender == name)
        if there < route["delivered"]:
            yield f"{name}: {route['delivered']:,} were delivered to Kafka, which holds {there:,}"
        if there > sent.get(name, 0):
            yield f"{name}: Kafka holds {there:,} messages, {sent.get(name, 0):,} were sent"
