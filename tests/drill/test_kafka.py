"""Messages in Kafka compared with the balance."""

from __future__ import annotations

from collections import Counter

from confluent_kafka import Producer

from penstock.drill.kafka import compare_with_kafka, count_serials
from penstock.drill.senders import payload
from penstock.kafka.broker import Broker


def test_marks_are_read_from_all_topics(kafka_broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": kafka_broker.address})
    for topic, number in (("drill-one", 1), ("drill-two", 2), ("drill-two", 2)):
        producer.produce(topic, payload("test-drill-kafka", number))
    producer.flush(30)
    serials = count_serials(kafka_broker.address)
    assert {serial: n for serial, n in serials.items() if serial[0] == "test-drill-kafka"} == {
        ("test-drill-kafka", 1): 1,
        ("test-drill-kafka", 2): 2,
    }


def test_missing_and_surplus_messages_are_errors() -> None:
    balance = {"routes": [{"source": "a", "handler": "kafka", "delivered": 2}, {"source": "a", "handler": "log"}]}
    stored = Counter({("a", 0): 1, ("a", 1): 3})
    assert list(compare_with_kafka(balance, {"a": "kafka"}, stored, {"a": 2})) == []
    assert len(list(compare_with_kafka(balance, {"a": "kafka"}, Counter({("a", 0): 5}), {"a": 2}))) == 1
    assert len(list(compare_with_kafka(balance, {"a": "kafka"}, stored, {"a": 1}))) == 1
