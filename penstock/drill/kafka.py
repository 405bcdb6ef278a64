"""The Kafka broker of a drill, which can be killed and restarted, and the check of its messages."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.drill.senders import serial_of
from penstock.errors import PenstockError
from penstock.kafka.broker import Broker
from penstock.testing.pipe import free_ports

RESPONSE_TIMEOUT_S = 60.0
"""Limit for a broker to respond."""


class CannotRead(PenstockError, RuntimeError):
    """The messages of a broker cannot be read in time."""


def broker_in(folder: Path) -> Broker:
    """Return a broker that keeps its port across restarts."""
    return Broker(folder, port=free_ports(1)[0], memory="256m", options=("-XX:TieredStopAtLevel=1",))


def count_serials(address: str) -> Counter[tuple[str, int]]:
    """Count each serial (sender and number) in all topics of a broker."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "drill", "enable.auto.commit": False, "enable.partition.eof": True}
    )
    try:
        topics = consumer.list_topics(timeout=RESPONSE_TIMEOUT_S).topics.values()
        # Topics whose names begin with two underscores belong to the broker.
        user_topics = [topic for topic in topics if not topic.topic.startswith("__")]
        partitions = [TopicPartition(topic.topic, number, 0) for topic in user_topics for number in topic.partitions]
        consumer.assign(partitions)
        return Counter(filter(None, (serial_of(value) for value in _values(consumer, len(partitions)))))
    finally:
        consumer.close()


def _values(consumer: Any, partitions: int) -> Iterator[bytes]:
    """Yield the payloads of all records up to the end of each partition. Raises CannotRead."""
    from confluent_kafka import KafkaError

    from penstock.kafka.client.broker_answers import consume_available

    deadline = time.monotonic() + RESPONSE_TIMEOUT_S
    # A broker that was just restarted may respond late, so an empty poll does not mean the end.
    while partitions:
        if time.monotonic() > deadline:
            raise CannotRead(f"Kafka's messages cannot be read within {RESPONSE_TIMEOUT_S:g} s")
        for message in consume_available(consumer, 1000, 1.0):
            error = message.error()
            if error is None:
                yield message.value() or b""
            elif error.code() == KafkaError._PARTITION_EOF:
                partitions -= 1


def compare_with_kafka(
    balance: Mapping[str, Any], handlers: Mapping[str, str], stored: Counter[tuple[str, int]], sent: Mapping[str, int]
) -> Iterator[str]:
    """Compare Kafka's messages with the balance; yield a line per listener that has too few or too many.

    ``handlers`` has the label of the Kafka handler by listener.
    """
    for route in balance["routes"]:
        name = route["source"]
        if handlers.get(name) != route["handler"]:
            continue
        # Repeated messages count once: a killed forwarder repeats those whose acknowledgement it lost.
        distinct_messages = sum(1 for sender, _ in stored if sender == name)
        if distinct_messages < route["delivered"]:
            yield f"{name}: {route['delivered']:,} were delivered to Kafka, which holds {distinct_messages:,} of them"
        if distinct_messages > sent.get(name, 0):
            yield f"{name}: Kafka holds {distinct_messages:,} different messages, {sent.get(name, 0):,} were sent"
