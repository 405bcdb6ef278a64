"""Penstock's own producer and consumer of large messages, over its own log."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka
import pytest

from penstock.kafka import Consumer, Producer
from tests.kafka.kafka_vectors import KAFKA, headers_as_recorded, headers_of, tohex, unhex
from tests.server.running import Running


@pytest.mark.parametrize("in_header", [False, True])
def test_a_large_message_is_one_again_also_for_the_group_that_goes_on(endpoint: Running, in_header: bool) -> None:
    values = [bytes(range(256)) * size for size in (1, 40, 1, 4000, 1)]
    config = {
        "bootstrap.servers": endpoint.bound.kafka,
        "large.message.enabled": True,
        "li.record.header.enable": in_header,
    }
    with Producer({**config, "max.message.segment.bytes": 5000}) as producer:
        for value in values:
            producer.produce("t", value, key=b"k")
    given = {"bootstrap.servers": endpoint.bound.kafka, "group.id": "g", "auto.offset.reset": "earliest"}
    found: list[bytes | None] = []
    until = time.monotonic() + 60
    for wanted in (2, 5):  # the second one goes on where the first one was
        consumer = Consumer({**given, "enable.auto.commit": False})
        consumer.subscribe(["t"])
        while len(found) < wanted and time.monotonic() < until:
            for message in consumer.consume(1, timeout=0.2):
                found.append(message.value())
                consumer.commit(message, asynchronous=False)
        consumer.close()
    assert found == values
    assert endpoint.log.topic("t").cursors.note("g")


def test_what_javas_library_made_of_its_messages_is_read_and_stays_as_it_is(endpoint: Running) -> None:
    cases = [case for case in KAFKA["splitter"] if case.get("topic") and case["uuid"] and case["payload"]]
    topics = {f"case-{number}": case for number, case in enumerate(cases)}  # all have the same id
    producer = confluent_kafka.Producer({"bootstrap.servers": endpoint.bound.kafka})
    for topic, case in topics.items():
        for record in case["records"]:
            key, value = unhex(record["key"]), unhex(record["value"])
            producer.produce(topic, value, key=key, headers=headers_of(record["headers"]))
    assert producer.flush(60) == 0
    given = {"bootstrap.servers": endpoint.bound.kafka, "group.id": "g"}
    starts = [confluent_kafka.TopicPartition(topic, 0, 0) for topic in topics]
    plain = confluent_kafka.Consumer(given)
    plain.assign(starts)
    told = [
        (topic, one["key"], one["value"], one["headers"] or [])
        for topic, case in topics.items()
        for one in case["records"]
    ]
    stored = consumed(plain, len(told))
    plain.close()
    same = [(one.topic(), tohex(one.key()), tohex(one.value()), headers_as_recorded(one.headers())) for one in stored]
    assert sorted(same, key=lambda one: one[0]) == sorted(told, key=lambda one: one[0])
    with Consumer(given) as consumer:
        consumer.assign(starts)
        found = {message.topic(): tohex(message.value()) for message in consumed(consumer, len(cases))}
    assert found == {topic: case["payload"] for topic, case in topics.items()}


def consumed(consumer: Any, wanted: int) -> list[Any]:
    """So many messages."""
    found: list[Any] = []
    until = time.monotonic() + 60
    while len(found) < wanted and time.monotonic() < until:
        found += consumer.consume(wanted - len(found), timeout=0.2)
    return found
