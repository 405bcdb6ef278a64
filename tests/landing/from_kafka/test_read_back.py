"""Ranges of partitions of a real Kafka are read whole, and nothing else is read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from penstock.kafka.broker import Broker
from penstock.kafka.errors import KafkaAway
from penstock.landing.from_kafka import read_back
from penstock.landing.from_kafka.read_back import read_messages
from tests.kafka.kafka_helpers import Topics

GAP = 50
ODD_HEADERS: list[tuple[str, bytes | None]] = [
    ("", b""),
    ("twice", b"1"),
    ("twice", b"2"),
    ('"quo\\ted" \1 \u2028 \U0001f600', "\u00e4".encode()),
    ("null", None),
    ("codec", b"plog"),
]


@pytest.fixture
def cluster(kafka_broker: Broker) -> Iterator[Topics]:
    topics = Topics(kafka_broker, f"r{time.time_ns():x}")
    yield topics
    topics.close()


def rows(cluster: Topics, topic: str, begin: int, end: int) -> list[dict[str, Any]]:
    batches = read_messages({"bootstrap.servers": cluster.address}, GAP, f"{topic}/0", begin, end)
    return [row for batch in batches for row in batch.to_pylist()]


def offsets(cluster: Topics, topic: str, begin: int, end: int) -> list[int]:
    return [row["offset"] for row in rows(cluster, topic, begin, end)]


def test_a_range_is_read_with_every_column(cluster: Topics) -> None:
    topic = cluster.new()
    producer = Producer({"bootstrap.servers": cluster.address})
    producer.produce(topic, b"\xff\x00", b"key", 0, timestamp=1_700_000_000_123, headers=ODD_HEADERS)
    producer.produce(topic, None, partition=0)
    assert producer.flush(30) == 0
    first, second = rows(cluster, topic, 0, 2)
    assert (first["topic"], first["partition"], first["key"], first["payload"]) == (topic, 0, b"key", b"\xff\x00")
    assert first["received"].timestamp() == 1_700_000_000.123
    assert first["annotations"] == [
        (name, None if value is None else value.decode()) for name, value in ODD_HEADERS[:-1]
    ]
    assert first["codec"] == "plog"
    assert (second["offset"], second["payload"], second["key"], second["annotations"]) == (1, None, None, None)


def test_a_header_name_of_any_bytes_loses_neither_its_record_nor_its_value(cluster: Topics) -> None:
    topic = cluster.new()
    cluster.plain(topic, [b"before"])
    cluster.with_header_bytes(topic, [(b"a", b"1"), (b"\xff\xfe", b"2"), (b"b", b"\xff")])
    cluster.with_header_bytes(topic, [(b"\xc3", b"")])
    annotations = [row["annotations"] for row in rows(cluster, topic, 0, 3)]
    assert annotations == [None, [("a", "1"), ("\ufffd", "2"), ("b", "\ufffd")], [("\ufffd", "")]]


def test_only_the_range_is_read_and_reads_follow_each_other(cluster: Topics) -> None:
    topic = cluster.new()
    cluster.plain(topic, [b"%d" % number for number in range(30)])
    for begin, end in ((0, 10), (10, 11), (25, 30), (3, 4)):
        assert offsets(cluster, topic, begin, end) == list(range(begin, end))


def test_offsets_without_records_end_a_range(cluster: Topics) -> None:
    topic = cluster.new()
    with cluster.transaction(topic, [b"aborted"] * 3):  # with the mark of its end: offsets 0 to 3
        pass
    with cluster.transaction(topic, [b"committed"] * 2) as producer:  # offsets 4 to 6
        producer.commit_transaction(30)
    assert offsets(cluster, topic, 0, 4) == []
    assert offsets(cluster, topic, 0, 7) == [4, 5]


def test_expired_records_are_left_out(cluster: Topics) -> None:
    topic = cluster.new()
    cluster.plain(topic, [b"x"] * 10)
    partition = TopicPartition(topic, 0, 6)
    (deleted,) = cluster.admin.delete_records([partition]).values()
    deleted.result(30)
    assert offsets(cluster, topic, 0, 8) == [6, 7]
    assert offsets(cluster, topic, 0, 4) == []


def test_properties_of_the_user_do_not_leave_records_out(cluster: Topics) -> None:
    topic = cluster.new()
    cluster.plain(topic, [b"x"] * 10)
    (deleted,) = cluster.admin.delete_records([TopicPartition(topic, 0, 6)]).values()
    deleted.result(30)
    with cluster.transaction(topic, [b"aborted"]):
        pass
    kafka = {
        "bootstrap.servers": cluster.address,
        "auto.offset.reset": "latest",
        "enable.partition.eof": "false",
        "isolation.level": "read_uncommitted",
    }
    batches = read_messages(kafka, GAP, f"{topic}/0", 0, 12)
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == [6, 7, 8, 9]


def test_records_of_a_cut_partition_are_waited_for_and_not_read_twice(
    cluster: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_back, "NO_PROGRESS_TIMEOUT_S", 1.0)
    topic = cluster.new()
    cluster.plain(topic, [b"x"] * 5)
    for begin in (5, 8):  # at the end, and behind it: the client then begins with the first record
        with pytest.raises(KafkaAway, match=rf"Kafka at .* does not give {topic}/0: no record .* {begin} on in 1 s"):
            offsets(cluster, topic, begin, 10)
    assert offsets(cluster, topic, 3, 5) == [3, 4]


def test_an_error_names_why_no_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_back, "NO_PROGRESS_TIMEOUT_S", 1.0)
    cause = r"Kafka at 127\.0\.0\.1:1 does not give t/0: no record .* from Kafka: .*127\.0\.0\.1:1.*refused$"
    with pytest.raises(KafkaAway, match=cause):
        list(read_messages({"bootstrap.servers": "127.0.0.1:1"}, GAP, "t/0", 0, 1))


def test_a_deleted_topic_has_no_records_and_is_waited_for_once(
    cluster: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_back, "EXISTENCE_CHECK_S", 1.0)
    topic = cluster.new(partitions=2)
    cluster.plain(topic, [b"x"] * 5, range(2))
    assert offsets(cluster, topic, 0, 2) == [0, 1]
    cluster.admin.delete_topics([topic])[topic].result(30)
    kafka, deleted = {"bootstrap.servers": cluster.address}, set[str]()
    assert list(read_messages(kafka, GAP, f"{topic}/0", 2, 5, deleted)) == []
    assert deleted == {topic}
    monkeypatch.setattr(read_back, "EXISTENCE_CHECK_S", 1000.0)
    assert list(read_messages(kafka, GAP, f"{topic}/1", 0, 5, deleted)) == []


def test_a_user_needs_rights_on_the_topic_and_on_no_group(guarded: tuple[Broker, dict[str, str]]) -> None:
    broker, limited = guarded
    topics = Topics(broker, "read")
    topic = topics.new()
    topics.plain(topic, [b"a", b"b"])
    rule = AclBinding(
        *(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:limited", "*"),
        *(AclOperation.READ, AclPermissionType.ALLOW),
    )
    (granted,) = topics.admin.create_acls([rule]).values()
    granted.result(30)
    payloads = [
        row for batch in read_messages(limited, GAP, f"{topic}/0", 0, 2) for row in batch["payload"].to_pylist()
    ]
    assert payloads == [b"a", b"b"]
    topics.close()
