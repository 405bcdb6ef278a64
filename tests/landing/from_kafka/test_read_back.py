"""Ranges of partitions of a real Kafka are read whole, and nothing else is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AclOperation
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.broker import Broker
from penstock.kafka.errors import KafkaAway
from penstock.kafka.large.safe_offsets import TopicAndPartition
from penstock.landing.from_kafka import read_back
from penstock.landing.from_kafka.read_back import read_messages
from penstock.landing.topics.topic_store import Range
from penstock.testing.pipe import free_ports, wait_until
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
    return rows_of(cluster, Range(f"{topic}/0", begin, end))


def rows_of(cluster: Topics, *ranges: Range) -> list[dict[str, Any]]:
    batches = read_messages({"bootstrap.servers": cluster.address}, GAP, ranges)
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


SEEN_ELSEWHERE: list[tuple[str, dict[str, str], dict[str, str], dict[str, str]]] = [
    ("zendesk/ruby-kafka#505 (a range begins inside a compressed batch)", {}, {"compression.type": "gzip"}, {}),
    ("sarama#720, kafka-node#1225 (offsets of compressed records)", {}, {"compression.type": "lz4"}, {}),
    ("aio-libs/aiokafka#843 (the broker compresses)", {"compression_type": "zstd"}, {"compression.type": "snappy"}, {}),
    ("Parsely/pykafka#102, librdkafka#1314 (over the limits)", {}, {}, {"max.partition.fetch.bytes": "1000"}),
]


@pytest.mark.parametrize(
    ("reference", "topic", "producer", "reader"), SEEN_ELSEWHERE, ids=[r[0] for r in SEEN_ELSEWHERE]
)
def test_records_that_other_readers_missed_are_read(
    cluster: Topics, reference: str, topic: dict[str, str], producer: dict[str, str], reader: dict[str, str]
) -> None:
    name, client = cluster.new(**topic), Producer({"bootstrap.servers": cluster.address, "linger.ms": 200, **producer})
    payloads = [b"%d" % number * 1500 for number in range(40)]
    for payload in payloads:
        client.produce(name, payload)
    assert client.flush(30) == 0
    kafka = {"bootstrap.servers": cluster.address, **reader}
    batches = read_messages(kafka, GAP, [Range(f"{name}/0", 7, 40), Range(f"{cluster.new()}/0", 0, 0)])
    assert [row for batch in batches for row in batch["payload"].to_pylist()] == payloads[7:], reference


def test_records_have_the_time_of_the_broker_where_the_topic_says_so(cluster: Topics) -> None:
    """zendesk/ruby-kafka#706, kafka4beam/kafka_protocol#60 (the first record's time and the difference were added)."""
    topic, before = cluster.new(message_timestamp_type="LogAppendTime"), time.time()
    producer = Producer({"bootstrap.servers": cluster.address, "linger.ms": 200})
    for millis in (1_700_000_000_000, 1_700_000_999_000):
        producer.produce(topic, b"x", timestamp=millis)
    assert producer.flush(30) == 0
    assert all(before - 1 < row["received"].timestamp() < time.time() + 1 for row in rows(cluster, topic, 0, 2))


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
    batches = read_messages(kafka, GAP, [Range(f"{topic}/0", 0, 12)])
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
        list(read_messages({"bootstrap.servers": "127.0.0.1:1"}, GAP, [Range("t/0", 0, 1)]))


def test_a_deleted_topic_has_no_records_and_is_waited_for_once(
    cluster: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_back, "EXISTENCE_CHECK_S", 1.0)
    topic, other = cluster.new(partitions=2), cluster.new()
    cluster.plain(topic, [b"x"] * 5, range(2))
    cluster.plain(other, [b"y"])
    assert offsets(cluster, topic, 0, 2) == [0, 1]
    cluster.admin.delete_topics([topic])[topic].result(30)
    waits: list[str] = []
    read_alone = read_back.read

    def read(client: Any, topic_partition: TopicAndPartition, *bounds: int, **options: bool) -> Any:
        waits.append(topic_partition[0])
        return read_alone(client, topic_partition, *bounds, **options)

    monkeypatch.setattr(read_back, "read", read)
    records = rows_of(cluster, Range(f"{topic}/0", 2, 5), Range(f"{topic}/1", 0, 5), Range(f"{other}/0", 0, 1))
    assert [(row["topic"], row["payload"]) for row in records] == [(other, b"y")]
    assert waits == [topic]


def mixed_partitions(cluster: Topics) -> list[Range]:
    """Ranges of partitions with plain records, large messages, expired and aborted records, and none."""
    plain, large, expired, aborted = cluster.new(3), cluster.synthetic(2), cluster.new(), cluster.new()
    cluster.plain(plain, [b"%d" % number for number in range(20)], range(2))
    cluster.plain(expired, [b"x"] * 10)
    (deleted,) = cluster.admin.delete_records([TopicPartition(expired, 0, 6)]).values()
    deleted.result(30)
    with cluster.transaction(aborted, [b"aborted"] * 3):
        pass
    cluster.plain(aborted, [b"behind"])
    return [
        *(Range(f"{plain}/0", 5, 15), Range(f"{large}/1", 0, 10), Range(f"{expired}/0", 2, 4)),
        *(Range(f"{plain}/1", 0, 20), Range(f"{large}/0", 5, 9), Range(f"{aborted}/0", 0, 4)),
        *(Range(f"{expired}/0", 4, 8), Range(f"{plain}/2", 0, 0), Range(f"{aborted}/0", 1, 5)),
    ]


@pytest.mark.parametrize("limit", [1, 1000, 16 << 20])
def test_ranges_that_are_read_together_give_what_each_gives_alone(
    cluster: Topics, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    ranges = mixed_partitions(cluster)
    alone = [row for part in ranges for row in rows_of(cluster, part)]
    assert {row["topic"] for row in alone} == {part.topic.partition("/")[0] for part in ranges}
    # Spark's plan names a partition once; a second range of one is read alone.
    ranges, repeated = ranges[:-3], ranges[-3:]
    monkeypatch.setattr(read_back, "GROUP_BYTES", limit)
    calls: list[TopicAndPartition] = []
    read_alone = read_back.read

    def read(client: Any, topic_partition: TopicAndPartition, *bounds: int, **options: bool) -> Any:
        if options:  # not for earlier chunks of a large message
            calls.append(topic_partition)
        return read_alone(client, topic_partition, *bounds, **options)

    monkeypatch.setattr(read_back, "read", read)
    first = rows_of(cluster, *ranges)
    if limit > 1000:
        assert calls == [], "an answer of Kafka was waited for by each partition"
    assert first == alone[: len(first)]
    assert rows_of(cluster, *ranges, *repeated) == alone


def test_a_partition_whose_end_was_cut_keeps_back_no_other(cluster: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    # The client reads such a partition from its first record on, here for as long as one is produced.
    monkeypatch.setattr(read_back, "NO_PROGRESS_TIMEOUT_S", 1.0)
    topic, cut, ended = cluster.new(), cluster.new(), threading.Event()
    cluster.plain(topic, [b"y"])

    def produce() -> None:
        producer, until = Producer({"bootstrap.servers": cluster.address, "linger.ms": 0}), time.monotonic() + 30
        while not ended.wait(0.05) and time.monotonic() < until:
            producer.produce(cut, b"x")
            producer.flush(30)

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        ranges = [Range(f"{topic}/0", 0, 1), Range(f"{cut}/0", 10**6, 10**6 + 1)]
        batches = read_messages({"bootstrap.servers": cluster.address}, GAP, ranges)
        assert next(batches)["payload"].to_pylist() == [b"y"]
        with pytest.raises(KafkaAway, match=f"does not give {cut}/0: no record"):
            next(batches)
        assert producing.is_alive(), "the other partition was waited for"
    finally:
        ended.set()
        producing.join()


def test_a_partition_that_is_cut_while_it_is_read_gives_each_offset_once(tmp_path: Path) -> None:
    count, (port,) = 300, free_ports(1)
    with Broker(tmp_path / "broker", port=port, memory="256m") as broker:
        topics = Topics(broker, "cut")
        topic = topics.new()
        topics.plain(topic, [b"x" * 200_000] * count)
        kafka = {"bootstrap.servers": broker.address, "reconnect.backoff.max.ms": "500"}
        batches = read_messages(kafka, GAP, [Range(f"{topic}/0", 0, count)])
        read = next(batches)["offset"].to_pylist()
        assert 0 < len(read) < count
        broker.stop()
        for file in (broker.folder / "data" / f"{topic}-0").iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        broker.start()
        time.sleep(3)  # the client notices the cut
        topics.plain(topic, [b"y" * 200_000] * count)
        read += [offset for batch in batches for offset in batch["offset"].to_pylist()]
    assert read == list(range(count))


def test_aborted_transactions_are_progress(cluster: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_back, "NO_PROGRESS_TIMEOUT_S", 4.0)
    topic = cluster.new()
    producer = Producer({"bootstrap.servers": cluster.address, "transactional.id": topic})
    producer.init_transactions(30)

    def abort_slowly() -> None:
        for _ in range(8):
            time.sleep(1)
            producer.begin_transaction()
            producer.produce(topic, b"aborted", partition=0)
            producer.flush(30)
            producer.abort_transaction(30)
        cluster.plain(topic, [b"behind"])

    aborting = threading.Thread(target=abort_slowly)
    aborting.start()
    try:
        assert offsets(cluster, topic, 0, 17) == [16]
    finally:
        aborting.join()


def test_records_of_an_aborted_transaction_are_progress(cluster: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one gives no record for minutes, and does not move the position either."""
    monkeypatch.setattr(read_back, "STATISTICS_INTERVAL_MS", 50)
    topic = cluster.new()
    key, kafka = (topic, 0), {"bootstrap.servers": cluster.address, "client.id": topic}
    with cluster.transaction(topic, [b"aborted"] * 3):
        pass
    cluster.plain(topic, [b"behind"])
    with read_back.kept_consumer(kafka) as (client, fetched):
        (batch,) = read_back.read(client, key, 0, 5, fetched=fetched, waits_for_end=True)
        assert batch["value"].to_pylist() == [b"behind"]
        wait_until(lambda: client.poll(0.05) is None and fetched.get(key) == 5, 20)
    # As statistics show the progress: nothing arrives for longer than a client without progress may take.
    monkeypatch.setattr(read_back, "NO_PROGRESS_TIMEOUT_S", 2.0)
    shown = {key: 1000}  # of an earlier reading

    def advance() -> None:
        for offset in range(6, 22):
            time.sleep(0.25)
            shown[key] = offset
        cluster.plain(topic, [b"late"])

    advancing = threading.Thread(target=advance)
    advancing.start()
    try:
        with read_back.kept_consumer(kafka) as (client, _):
            (batch,) = read_back.read(client, key, 5, 6, fetched=shown, waits_for_end=True)
        assert batch["offset"].to_pylist() == [5]
    finally:
        advancing.join()


def test_a_partition_that_fails_among_others_is_named(
    guarded: tuple[Broker, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_back, "EXISTENCE_CHECK_S", 1.0)
    broker, limited = guarded
    topics = Topics(broker, "named")
    allowed, denied = topics.new(), topics.new()
    topics.plain(allowed, [b"a"])
    topics.grant(allowed, AclOperation.READ)
    with pytest.raises(KafkaAway, match=f"Kafka at .* does not give {denied}/0: .*[Aa]uthorization"):
        list(read_messages(limited, GAP, [Range(f"{allowed}/0", 0, 1), Range(f"{denied}/0", 0, 1)]))
    topics.close()


def test_a_user_needs_rights_on_the_topic_and_on_no_group(guarded: tuple[Broker, dict[str, str]]) -> None:
    broker, limited = guarded
    topics = Topics(broker, "read")
    topic = topics.new()
    topics.plain(topic, [b"a", b"b"])
    topics.grant(topic, AclOperation.READ)
    batches = list(read_messages(limited, GAP, [Range(f"{topic}/0", 0, 2)]))
    assert [row for batch in batches for row in batch["payload"].to_pylist()] == [b"a", b"b"]
    topics.close()


@given(st.lists(st.integers(0, 20)), st.integers(0, 20))
def test_offsets_that_are_given_again_are_read_once(given_offsets: list[int], begin: int) -> None:
    """A partition that is cut during one poll of the client begins again within its batch."""
    offsets = np.array(given_offsets, np.int64)
    once = offsets[read_back._is_unread(offsets, begin)]
    assert (np.diff(once) > 0).all()
    assert set(once) <= {*range(begin, 21)}
    assert max(given_offsets, default=-1) < begin or max(once) == max(given_offsets)
