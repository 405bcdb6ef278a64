"""Requests to a starting broker, or about a new topic, are retried; other errors are raised."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.kafka.broker import Broker
from penstock.kafka.client.broker_answers import (
    NEW_TOPIC_ERRORS,
    TRANSIENT_ERRORS,
    consume_available,
    end_offset,
    headers_of,
    partition_numbers,
    retry_transient,
)
from tests.kafka.kafka_helpers import Topics


def failing_request(*codes: int) -> Callable[[float], str]:
    """Return a request that fails with each of these codes once, then succeeds."""
    codes_to_raise = iter(codes)

    def send(seconds: float) -> str:
        assert seconds > 0
        for code in codes_to_raise:
            raise KafkaException(KafkaError(code))
        return "yes"

    return send


@pytest.mark.parametrize("code", sorted(TRANSIENT_ERRORS))
def test_temporary_error_is_retried(code: int) -> None:
    assert retry_transient(failing_request(code, code), 5) == "yes"


def test_lasting_error_is_raised_after_the_timeout() -> None:
    with pytest.raises(KafkaException) as raised:
        retry_transient(failing_request(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 1000), 0.3)
    assert raised.value.args[0].code() == KafkaError.NOT_LEADER_FOR_PARTITION


@pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_other_errors_are_raised_immediately(code: int) -> None:
    with pytest.raises(KafkaException):
        retry_transient(failing_request(code), 60)


def test_unknown_topic_is_retried_after_its_creation() -> None:
    assert retry_transient(failing_request(KafkaError.UNKNOWN_TOPIC_OR_PART), 5, NEW_TOPIC_ERRORS) == "yes"


def test_offsets_of_a_new_topic_are_available_after_its_creation(topics: Topics, kafka_broker: Broker) -> None:
    client = confluent_kafka.Consumer({"bootstrap.servers": kafka_broker.address, "group.id": "answers"})
    try:
        for partitions in (1, 3, 7, 20):
            name = topics.new(partitions)
            numbers = partition_numbers(client, name, is_new=True)
            assert numbers == list(range(partitions))
            assert [end_offset(client, (name, number)) for number in numbers] == [0] * partitions
    finally:
        client.close()


def test_missing_topic_is_an_error(kafka_broker: Broker) -> None:
    client = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka_broker.address, "group.id": "answers", "allow.auto.create.topics": "false"}
    )
    try:
        with pytest.raises(KafkaException):
            partition_numbers(client, "there-is-no-such-topic", 5)
    finally:
        client.close()


@pytest.mark.timeout(60)
def test_few_records_do_not_wait_for_a_full_batch(topics: Topics) -> None:
    topic = topics.new()
    topics.plain(topic, [b"1", b"2", b"3"])
    client = topics.raw_consumer(topic)
    records: list[confluent_kafka.Message] = []
    while len(records) < 3:
        records += consume_available(client, 1000, 600)
    assert [record.value() for record in records] == [b"1", b"2", b"3"]
    assert consume_available(client, 1000, 0) == []


@pytest.mark.parametrize("before", [0, 5000])
def test_header_name_of_any_bytes_is_replaced_whatever_was_read_before(topics: Topics, before: int) -> None:
    # A loop that ran for long is specialized by CPython, and then misses the error that the client sets.
    topic = topics.new()
    topics.plain(topic, [b"x"] * before)
    topics.with_header_bytes(topic, [(b"a", b"1"), (b"\xff\xfe", b"2")])
    headers = headers_of(topics.records(topic, before + 1))
    assert headers == [None] * before + [[("a", b"1"), ("\ufffd", b"2")]]
