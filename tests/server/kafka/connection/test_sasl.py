from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import TokenConfig
from penstock.server.auth.rights import TokenAuthenticator
from penstock.server.kafka.connection.sasl import MECHANISMS, Sasl
from penstock.testing.pipe import wait_until
from tests.server.certificates import Pair
from tests.server.running import Running

DEADLINE = 30.0


def config(closed: Running, pair: Pair, name: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": closed.bound.kafka,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(pair.cert),
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": f"the-long-secret-of-{name}",
        "log_level": 0,
        **more,
    }


def produced(client_config: dict[str, Any], topic: str) -> Any:
    reports: list[Any] = []
    producer = Producer({**client_config, "message.timeout.ms": 5000})
    producer.produce(topic, b"x", on_delivery=lambda error, message: reports.append(error))
    producer.flush(DEADLINE)
    return reports[0]


def test_token_as_password_has_its_rights(closed: Running, pair: Pair) -> None:
    assert produced(config(closed, pair, "writer"), "a1") is None
    assert produced(config(closed, pair, "writer"), "b1").code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    reader = Consumer({**config(closed, pair, "reader"), "group.id": "mine-1", "auto.offset.reset": "earliest"})
    reader.subscribe(["a1"])
    message, until = None, time.monotonic() + DEADLINE
    while message is None and time.monotonic() < until:
        message = reader.poll(0.2)
    assert message is not None
    assert message.value() == b"x"
    reader.commit(message, asynchronous=False)
    reader.close()
    assert closed.log.topic("a1").cursors.offsets() == {"mine-1": 1}
    names = AdminClient(config(closed, pair, "reader")).list_topics(timeout=DEADLINE).topics
    assert set(names) == {"a1"}


def test_group_requires_the_right_to_move_cursors(closed: Running, pair: Pair) -> None:
    produced(config(closed, pair, "writer"), "a1")
    looker = Consumer({**config(closed, pair, "looker"), "group.id": "mine-1"})
    with pytest.raises(KafkaException) as refused:
        looker.commit(offsets=[TopicPartition("a1", 0, 1)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    foreign_group = Consumer({**config(closed, pair, "reader"), "group.id": "not-its-own"})
    with pytest.raises(KafkaException):
        foreign_group.commit(offsets=[TopicPartition("a1", 0, 1)], asynchronous=False)


@pytest.mark.parametrize(("user", "password"), [("writer", "wrong"), ("boss", "the-long-secret-of-writer"), ("", "")])
def test_unknown_user_is_refused(closed: Running, pair: Pair, user: str, password: str) -> None:
    errors: list[KafkaError] = []
    client_config = config(closed, pair, "", **{"sasl.username": user or "x", "sasl.password": password or "x"})
    client = AdminClient({**client_config, "error_cb": errors.append})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)

    def is_reported() -> bool:
        client.poll(0)
        return KafkaError._AUTHENTICATION in {error.code() for error in errors}

    wait_until(is_reported)


def test_revoked_token_is_refused_at_once(closed: Running, pair: Pair) -> None:
    client = AdminClient(config(closed, pair, "boss"))
    client.list_topics(timeout=DEADLINE)
    closed.api.guard.replace({"other": TokenConfig(token="another-long-token", read=("*",))})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)


def test_oauthbearer_accepts_the_token(closed: Running, pair: Pair) -> None:
    settings = config(closed, pair, "boss")
    del settings["sasl.username"], settings["sasl.password"]
    settings |= {
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: ("the-long-secret-of-boss", time.time() + 3600),
    }
    client = AdminClient(settings)
    client.poll(0.1)
    assert client.list_topics(timeout=DEADLINE).cluster_id == "penstock"


@given(st.sampled_from(MECHANISMS), st.binary(max_size=80))
def test_any_credentials_without_a_token_are_refused(mechanism: str, credentials: bytes) -> None:
    sasl = Sasl(TokenAuthenticator({"a": TokenConfig(token="the token that nobody guesses")}))
    assert sasl.authenticate(credentials)["error_code"]
    sasl.handshake(mechanism)
    assert sasl.authenticate(credentials)["error_code"]
    assert sasl.authorization is None
