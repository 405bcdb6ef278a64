"""Partitions of a real Kafka as a status shows them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from penstock.kafka.broker import Broker
from penstock.kafka.errors import KafkaAway
from penstock.landing.from_kafka.partitions import KafkaPartitions
from penstock.landing.journal import Journal
from penstock.proof.status import status
from penstock.testing.pipe import wait_until
from tests.kafka.kafka_helpers import Topics
from tests.spark.spark_helpers import HandWritten, landed_event


@pytest.fixture
def cluster(kafka_broker: Broker, request: pytest.FixtureRequest) -> Iterator[Topics]:
    topics = Topics(kafka_broker, f"p{time.time_ns():x}")
    yield topics
    topics.close()


def test_status_shows_ends_and_lag_of_partitions(cluster: Topics, table: HandWritten) -> None:
    topic = cluster.new(partitions=2)
    cluster.plain(topic, [b"a", b"b", b"c"])
    table.commit({f"{topic}/0": 1}, [landed_event(0, "u1")])
    Journal(table.layout).update()
    source = KafkaPartitions({"bootstrap.servers": cluster.address})
    first, second = status(source, table.layout, [topic]).topics
    assert (first.topic, first.end, first.landed, first.lag_rows) == (f"{topic}/0", 3, 1, 2)
    assert 0 < first.lag < 60
    assert (second.topic, second.end, second.lag_rows, second.lag) == (f"{topic}/1", 0, 0, 0.0)


def test_internal_topics_are_shown_by_their_full_name_only(cluster: Topics) -> None:
    source = KafkaPartitions({"bootstrap.servers": cluster.address})
    topic = cluster.new()

    def finds_topic() -> bool:
        try:
            return f"{topic}/0" in source.views(["*"])
        except KafkaAway:  # a broker hears of a new topic a moment later: it does not know yet that it leads it
            return False

    wait_until(finds_topic, 30)
    assert not any(name.startswith("_") for name in source.views(["*"]))


def test_a_cluster_that_does_not_answer_is_reported_with_the_rest(
    table: HandWritten, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.landing.from_kafka.partitions.ANSWER_TIMEOUT_S", 0.5)
    source = KafkaPartitions({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(KafkaAway, match=r"Kafka at 127\.0\.0\.1:1 does not answer: .*Connection refused$"):
        source.views(["*"])
    table.commit({"events/0": 1}, [landed_event(0, "u1")])
    Journal(table.layout).update()
    shown = status(source, table.layout, ["*"])
    assert (shown.topics, shown.last_batch) == ([], 0)
    assert shown.problem.startswith("Kafka at 127.0.0.1:1 does not answer")
