"""The Kafka of a drill: a broker of its own, which can go away and come back, and what it holds in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.drill.senders import mark_of
from penstock.kafka.broker import Broker
from penstock.testing.pipe import free_ports

TOPIC = "drill"
PATIENCE = 60.0
"""Seconds for a broker to answer."""


def broker_in(folder: Path) -> Broker:
    """A broker that keeps its port when it is started again."""
    return Broker(folder, port=free_ports(1)[0], memory="256m", options=("-XX:TieredStopAtLevel=1",))


def marks_in(address: str) -> Counter[tuple[str, int]]:
    """Whose and which messages all topics of a broker hold, and how often."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "drill", "enable.auto.commit": False})
    try:
        names = [name for name in consumer.list_topics(timeout=PATIENCE).topics if not name.startswith("__")]
        partitions = [TopicPartition(name, 0, 0) for name in names]
        ends = {of.topic: consumer.get_watermark_offsets(of, timeout=PATIENCE)[1] for of in partitions}
        consumer.assign(partitions)
        return Counter(filter(None, (mark_of(value) for value in _values(consumer, ends))))
    finally:
        consumer.close()


def _values(consumer: Any, ends: Mapping[str, int]) -> Iterator[bytes]:
    left = {topic for topic, end in ends.items() if end}
    while left:
        for message in consumer.consume(1000, PATIENCE):
            if message.offset() + 1 >= ends[message.topic()]:
                left.discard(message.topic())
            yield message.value() or b""


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
