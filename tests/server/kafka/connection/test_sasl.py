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


def produced(given: dict[str, Any], topic: str) -> Any:
    told: list[Any] = []
    producer = Producer({**given, "message.timeout.ms": 5000})
    producer.produce(topic, b"x", on_delivery=lambda error, message: told.append(error))
    producer.flush(DEADLINE)
    return told[0]


def test_a_token_is_a_password_and_has_its_rights(closed: Running, pair: Pair) -> None:
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
    assert closed.log.topic("a1").cursors.all() == {"mine-1": 1}
    names = AdminClient(config(closed, pair, "reader")).list_topics(timeout=DEADLINE).topics
    assert set(names) == {"a1"}


def test_without_the_right_to_move_cursors_there_is_no_group(closed: Running, pair: Pair) -> None:
    produced(config(closed, pair, "writer"), "a1")
    looker = Consumer({**config(closed, pair, "looker"), "group.id": "mine-1"})
    with pytest.raises(KafkaException) as refused:
        looker.commit(offsets=[TopicPartition("a1", 0, 1)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    other = Consumer({**config(closed, pair, "reader"), "group.id": "not-its-own"})
    with pytest.raises(KafkaException):
        other.commit(offsets=[TopicPartition("a1", 0, 1)], asynchronous=False)


@pytest.mark.parametrize(("user", "password"), [("writer", "wrong"), ("boss", "the-long-secret-of-writer"), ("", "")])
def test_who_is_not_known_is_told_so(closed: Running, pair: Pair, user: str, password: str) -> None:
    errors: list[KafkaError] = []
    given = config(closed, pair, "", **{"sasl.username": user or "x", "sasl.password": password or "x"})
    client = AdminClient({**given, "error_cb": errors.append})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)
    client.poll(0)
    assert KafkaError._AUTHENTICATION in {error.code() for error in errors}


def test_a_token_that_is_taken_back_is_nobodys_at_once(closed: Running, pair: Pair) -> None:
    client = AdminClient(config(closed, pair, "boss"))
    client.list_topics(timeout=DEADLINE)
    closed.api.guard.replace({"other": TokenConfig(token="another-long-token", read=("*",))})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)


def test_oauthbearer_shows_the_token_itself(closed: Running, pair: Pair) -> None:
    given = config(closed, pair, "boss")
    del given["sasl.username"], given["sasl.password"]
    given |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: ("the-long-secret-of-boss", time.time() + 3600)}
    client = AdminClient(given)
    client.poll(0.1)
    assert client.list_topics(timeout=DEADLINE).cluster_id == "penstock"


@given(st.sampled_from(MECHANISMS), st.binary(max_size=80))
def test_no_bytes_are_anybody_but_with_a_token(mechanism: str, shown: bytes) -> None:
    sasl = Sasl(TokenAuthenticator({"a": TokenConfig(token="the token that nobody guesses")}))
    assert sasl.authenticate(shown)["error_code"]
    sasl.handshake(mechanism)
    assert sasl.authenticate(shown)["error_code"]
    assert sasl.authorization is None
