"""Kafka clients with auditors that post to a real ledger over a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import confluent_kafka
import httpx
import pytest

from penstock.kafka import Consumer, Producer
from penstock.kafka.broker import Broker
from penstock.testing.pipe import Pipe, wait_until

LARGE = b"x" * 30_000


def _audits(pipe: Pipe) -> dict[tuple[str, str], dict[str, int]]:
    audits = httpx.get(f"http://{pipe.http}/balance", timeout=10).json()["audits"]
    return {(entry["tier"], entry["source"]): entry["counts"] for entry in audits}


def _send(broker: Broker, topic: str, audit: dict[str, str]) -> None:
    config = {"bootstrap.servers": broker.address, "large.message.enabled": True, "max.message.segment.bytes": 10_000}
    with Producer({**config, "client.id": "shop", "auditor.class": "LedgerAuditor", **audit}) as producer:
        for value in (b"small", LARGE):
            producer.produce(topic, value, b"key")


def _read(broker: Broker, topic: str, messages: int, **more: Any) -> list[Any]:
    config = {"bootstrap.servers": broker.address, "group.id": f"reads-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, **more})
    consumer.subscribe([topic])
    received: list[Any] = []

    def enough() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            received.append(message)
        return len(received) >= messages

    try:
        wait_until(enough, 60, "messages are read")
    finally:
        consumer.close()
    return received


@pytest.fixture
def topic(kafka_broker: Broker, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("_", "-")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka_broker.address})
    admin.create_topics([confluent_kafka.admin.NewTopic(name, 1, 1)])[name].result(30)
    return str(name)


def test_balance_shows_the_counts_of_producers_and_consumers(pipe: Pipe, kafka_broker: Broker, topic: str) -> None:
    _send(kafka_broker, topic, {"auditor.ledger.url": pipe.http})
    mirror = {"auditor.ledger.tier": "mirror", "auditor.ledger.source": "reader", "auditor.ledger.url": pipe.http}
    assert len(_read(kafka_broker, topic, 2, **{"auditor.class": "ledger", **mirror})) == 2
    size = len(b"keysmall") + len(b"key") + len(LARGE)
    expected = {
        ("kafka", "shop"): {"attempt": 2, "attempt_bytes": size, "success": 2, "success_bytes": size},
        ("mirror", "reader"): {"success": 2, "success_bytes": size},
    }
    assert _audits(pipe) == expected
    pipe.stop()
    pipe.start()
    assert _audits(pipe) == expected
    command = [sys.executable, "-m", "penstock.cli.main", "balance", "--full", *pipe.options]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    assert "mirror" in text
    assert f"success 2, success_bytes {size}" in text


def test_counts_are_sent_by_the_same_producer_to_a_topic(kafka_broker: Broker, topic: str) -> None:
    _send(kafka_broker, topic, {"auditor.ledger.topic": topic})
    *_, last = _read(kafka_broker, topic, 3)
    event = json.loads(last.value())
    assert event["type"] == "penstock.audit"
    assert event["data"]["source"] == "shop"
    (entry,) = event["data"]["counts"]
    assert (entry["topic"], entry["counts"]["attempt"]) == (topic, 2)
