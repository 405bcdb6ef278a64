"""Committed offsets of the consumer group that shows the pipeline's progress."""

from __future__ import annotations

import logging
import secrets

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.kafka.broker import Broker
from penstock.proof import group_offsets
from penstock.proof.group_offsets import GroupOffsets
from penstock.testing.pipe import wait_until


def committed(broker: Broker, group: str, *partitions: tuple[str, int]) -> list[int]:
    """Return committed offsets; none as long as a new broker has no coordinator, whose answer is an error."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group})
    try:
        offsets = consumer.committed([TopicPartition(*partition) for partition in partitions], timeout=30)
        return [partition.offset for partition in offsets]
    except KafkaException:
        return []
    finally:
        consumer.close()


def test_changed_offsets_are_committed(kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, group = f"g{secrets.token_hex(4)}", f"lag-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": kafka_broker.address})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    offsets = GroupOffsets({"bootstrap.servers": kafka_broker.address}, group)

    def is_committed(first: int) -> bool:
        # A new broker refuses requests until it has a coordinator: they are repeated.
        offsets.report({f"{topic}/0": first, f"{topic}/1": 0, "a-topic-of-the-log": 99})
        return committed(kafka_broker, group, (topic, 0), (topic, 1)) == [first, 0]

    monkeypatch.setattr(group_offsets, "COMMIT_INTERVAL_S", 0.1)
    wait_until(lambda: is_committed(7))
    monkeypatch.setattr(group_offsets, "COMMIT_INTERVAL_S", 600.0)  # longer than a busy machine takes for this test
    wait_until(lambda: is_committed(8))
    assert not is_committed(9), "at most one request in an interval"
    offsets.flush({f"{topic}/0": 9, f"{topic}/1": 0})
    assert committed(kafka_broker, group, (topic, 0), (topic, 1)) == [9, 0]
    assert offsets.problem == ""


def test_refused_commits_are_logged_once_and_never_raised(
    kafka_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = GroupOffsets({"bootstrap.servers": kafka_broker.address}, "lag")
    with caplog.at_level(logging.WARNING):
        for end in (1, 2):
            offsets.flush({"no-such-topic/0": end})
    assert "UNKNOWN_TOPIC_OR_PART" in offsets.problem
    assert len(caplog.records) == 1


def test_bad_properties_do_not_stop_landing() -> None:
    offsets = GroupOffsets({"bootstrap.servers": "127.0.0.1:1", "no.such.property": "x"}, "lag")
    offsets.flush({"events/0": 1})
    assert "no.such.property" in offsets.problem
