"""Questions to a broker that is just starting, or about a topic made a moment ago, are asked again; others are not."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.kafka.broker import Broker
from penstock.kafka.client.broker_answers import (
    NEW_TOPIC_ERRORS,
    TRANSIENT_ERRORS,
    end_offset,
    partition_numbers,
    retry_transient,
)
from tests.kafka.kafka_helpers import Topics


def failing(*codes: int) -> Callable[[float], str]:
    """A question that is answered with these errors first, then with yes."""
    left = iter(codes)

    def ask(seconds: float) -> str:
        assert seconds > 0
        for code in left:
            raise KafkaException(KafkaError(code))
        return "yes"

    return ask


@pytest.mark.parametrize("code", sorted(TRANSIENT_ERRORS))
def test_an_error_that_passes_is_waited_out(code: int) -> None:
    assert retry_transient(failing(code, code), 5) == "yes"


def test_an_error_that_stays_is_raised_when_the_time_is_over() -> None:
    with pytest.raises(KafkaException) as told:
        retry_transient(failing(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 1000), 0.3)
    assert told.value.args[0].code() == KafkaError.NOT_LEADER_FOR_PARTITION


@pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_other_errors_are_raised_at_once(code: int) -> None:
    with pytest.raises(KafkaException):
        retry_transient(failing(code), 60)


def test_an_unknown_topic_passes_where_it_was_just_made() -> None:
    assert retry_transient(failing(KafkaError.UNKNOWN_TOPIC_OR_PART), 5, NEW_TOPIC_ERRORS) == "yes"


def test_new_topics_are_known_with_their_ends_as_soon_as_they_are_made(topics: Topics, kafka_broker: Broker) -> None:
    client = confluent_kafka.Consumer({"bootstrap.servers": kafka_broker.address, "group.id": "answers"})
    try:
        for partitions in (1, 3, 7, 20):
            name = topics.new(partitions)
            numbers = partition_numbers(client, name, is_new=True)
            assert numbers == list(range(partitions))
            assert [end_offset(client, (name, number)) for number in numbers] == [0] * partitions
    finally:
        client.close()


def test_a_topic_that_is_not_there_is_an_error(kafka_broker: Broker) -> None:
    client = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka_broker.address, "group.id": "answers", "allow.auto.create.topics": "false"}
    )
    try:
        with pytest.raises(KafkaException):
            partition_numbers(client, "there-is-no-such-topic", 5)
    finally:
        client.close()
