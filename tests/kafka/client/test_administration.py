"""Why a cluster does not answer, from a real broker and from addresses without one."""

from __future__ import annotations

import gc
import os
import secrets
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection

from penstock.kafka.broker import Broker
from penstock.kafka.client.administration import Administration
from penstock.kafka.errors import KafkaAway
from penstock.landing.from_kafka.partitions import KafkaPartitions
from penstock.testing.pipe import wait_until
from tests.conftest import QUICK_JAVA

NOBODY = "127.0.0.1:1"


def cause(kafka: Mapping[str, str]) -> str:
    with pytest.raises(KafkaAway) as caught, Administration(kafka).requests("does not answer") as admin:
        admin.list_topics(timeout=3)
    return str(caught.value)


def describe_missing_topic(kafka: Mapping[str, str]) -> None:
    with Administration(kafka).requests("does not describe") as admin:
        for future in admin.describe_topics(TopicCollection([secrets.token_hex()])).values():
            future.result()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (NOBODY, "Connection refused"),
        ("no-such-host.invalid:9092", "Failed to resolve 'no-such-host.invalid:9092'"),
    ],
)
def test_addresses_without_a_broker_are_told_apart(address: str, reason: str) -> None:
    text = cause({"bootstrap.servers": address})
    assert text.startswith(f"Kafka at {address} does not answer: ")
    assert reason in text
    assert "after" not in text, "librdkafka's state and times change with each attempt"


@pytest.mark.parametrize(
    ("protocol", "reason"), [("SSL", "connecting to a PLAINTEXT broker listener"), ("SASL_PLAINTEXT", "mechanism")]
)
def test_refused_handshakes_are_named(kafka_broker: Broker, protocol: str, reason: str) -> None:
    sasl = {"sasl.mechanism": "PLAIN", "sasl.username": "user", "sasl.password": "wrong"}
    kafka = {"bootstrap.servers": kafka_broker.address, "security.protocol": protocol}
    assert reason in cause(kafka | (sasl if protocol.startswith("SASL") else {}))


def test_causes_of_former_requests_are_forgotten_and_a_broker_is_asked_again(tmp_path: Path) -> None:
    """A broker that was stopped: a client that failed is replaced by one that connects at once."""
    with Broker(tmp_path / "broker", memory="256m", options=(QUICK_JAVA,)) as broker:
        administration = Administration({"bootstrap.servers": broker.address})

        def answers() -> bool:
            try:
                with administration.requests("does not answer") as admin:
                    admin.list_topics(timeout=2)
            except KafkaAway:
                return False
            return True

        assert answers()
        assert broker.pid
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            assert not answers()
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        wait_until(answers, 30)


def test_client_closes_its_sockets_with_its_last_use(kafka_broker: Broker) -> None:
    """Pages of the console and checks have clients of their own, which also fail; no garbage is collected here."""
    gc.disable()
    try:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            kafka = {"bootstrap.servers": kafka_broker.address}
            KafkaPartitions(kafka).views(["*"])
            with pytest.raises(KafkaAway, match="Unknown topic"):
                describe_missing_topic(kafka)
        wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before, 30)
    finally:
        gc.enable()


def test_timeout_of_the_caller_is_no_answer_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        administration = Administration({"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"})
        with pytest.raises(KafkaAway, match=r"no answer in time$"), administration.requests("does not answer"):
            raise TimeoutError


def test_error_of_a_connection_before_a_request_is_not_its_cause() -> None:
    administration = Administration({"bootstrap.servers": NOBODY})
    with administration.requests("does not answer") as admin:
        # Its length counts errors that wait for their callback.
        wait_until(lambda: len(admin) > 0, 30)
    with pytest.raises(KafkaAway, match=r"no answer in time$"), administration.requests("does not answer"):
        raise TimeoutError
