"""Penstock's producer and consumer of large messages over its own log."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka
import pytest

from penstock.kafka import Consumer, Producer
from tests.kafka.kafka_vectors import KAFKA, headers_as_recorded, headers_of, tohex, unhex
from tests.server.running import Running


@pytest.mark.parametrize("in_header", [False, True])
def test_large_message_is_assembled_also_after_a_resume(endpoint: Running, in_header: bool) -> None:
    values = [bytes(range(256)) * size for size in (1, 40, 1, 4000, 1)]
    config = {
        "bootstrap.servers": endpoint.bound.kafka,
        "large.message.enabled": True,
        "li.record.header.enable": in_header,
    }
    with Producer({**config, "max.message.segment.bytes": 5000}) as producer:
        for value in values:
            producer.produce("t", value, key=b"k")
    client_config = {"bootstrap.servers": endpoint.bound.kafka, "group.id": "g", "auto.offset.reset": "earliest"}
    consumed_values: list[bytes | None] = []
    until = time.monotonic() + 60
    for expected_count in (2, 5):  # the second one continues where the first one was
        consumer = Consumer({**client_config, "enable.auto.commit": False})
        consumer.subscribe(["t"])
        while len(consumed_values) < expected_count and time.monotonic() < until:
            for message in consumer.consume(1, timeout=0.2):
                consumed_values.append(message.value())
                consumer.commit(message, asynchronous=False)
        consumer.close()
    assert consumed_values == values
    position = endpoint.log.topic("t").cursors.position("g")
    assert position
    assert position[1]


def test_chunks_of_the_java_library_are_read_and_stay_unchanged(endpoint: Running) -> None:
    cases = [case for case in KAFKA["splitter"] if case.get("topic") and case["uuid"] and case["payload"]]
    topics = {f"case-{number}": case for number, case in enumerate(cases)}  # all have the same id
    producer = confluent_kafka.Producer({"bootstrap.servers": endpoint.bound.kafka})
    for topic, case in topics.items():
        for record in case["records"]:
            key, value = unhex(record["key"]), unhex(record["value"])
            producer.produce(topic, value, key=key, headers=headers_of(record["headers"]))
    assert producer.flush(60) == 0
    client_config = {"bootstrap.servers": endpoint.bound.kafka, "group.id": "g"}
    starts = [confluent_kafka.TopicPartition(topic, 0, 0) for topic in topics]
    plain = confluent_kafka.Consumer(client_config)
    plain.assign(starts)
    recorded = [
        (topic, chunk["key"], chunk["value"], chunk["headers"] or [])
        for topic, case in topics.items()
        for chunk in case["records"]
    ]
    stored = consumed(plain, len(recorded))
    plain.close()
    same = [
        (chunk.topic(), tohex(chunk.key()), tohex(chunk.value()), headers_as_recorded(chunk.headers()))
        for chunk in stored
    ]
    assert sorted(same, key=lambda chunk: chunk[0]) == sorted(recorded, key=lambda chunk: chunk[0])
    with Consumer(client_config) as consumer:
        consumer.assign(starts)
        assembled = {message.topic(): tohex(message.value()) for message in consumed(consumer, len(cases))}
    assert assembled == {topic: case["payload"] for topic, case in topics.items()}


def consumed(consumer: Any, count: int) -> list[Any]:
    """Consume ``count`` messages."""
    messages: list[Any] = []
    until = time.monotonic() + 60
    while len(messages) < count and time.monotonic() < until:
        messages += consumer.consume(count - len(messages), timeout=0.2)
    return messages
