"""confluent-kafka, a client on librdkafka, as kcat is."""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import Any, NoReturn

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType
from kio.schema.errors import ErrorCode

from penstock.counts import Name
from penstock.errors import PenstockError
from penstock.log import LogClosed, Topic
from penstock.log.store.segment import Segment
from penstock.records import body
from penstock.server.kafka.metadata.cluster import CREATIONS_AT_ONCE
from penstock.server.kafka.schema.messages import Api
from penstock.server.metrics.topic_metrics import refused_batches_family
from penstock.slogd.errors import Damaged, Stopping
from penstock.testing import wait_until
from tests.log.log_helpers import flip
from tests.server.kafka.schema.test_messages import request
from tests.server.kafka.test_limits import answer_of, connected, framed
from tests.server.running import Running

DEADLINE = 30.0


def produce(endpoint: Running, topic: str, *values: bytes | None, **config: Any) -> list[Message]:
    """Produce values; return the delivery report of each."""
    reports: list[Message] = []
    producer = Producer({"bootstrap.servers": endpoint.bound.kafka, "linger.ms": 5, **config})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, message: reports.append(error or message))
    assert producer.flush(DEADLINE) == 0
    return reports


def consumer(endpoint: Running, **config: Any) -> Consumer:
    defaults = {"group.id": "mine", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100, **config}
    return Consumer({"bootstrap.servers": endpoint.bound.kafka, **defaults})


def consume(consumer: Consumer, count: int) -> list[Message]:
    """Consume ``count`` messages."""
    messages: list[Message] = []
    until = time.monotonic() + DEADLINE
    while len(messages) < count and time.monotonic() < until:
        for message in consumer.consume(count - len(messages), 0.2):
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


def admin(endpoint: Running) -> AdminClient:
    return AdminClient({"bootstrap.servers": endpoint.bound.kafka})


def stored(topic: Topic) -> list[Any]:
    return [value for batch in topic.reader().read(0) for value in batch.load().column("payload").to_pylist()]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produced_messages_are_consumed_with_every_codec(endpoint: Running, codec: str) -> None:
    values = [b"%d" % number * (number % 50) for number in range(3000)]
    reports = produce(endpoint, "t", *values, **{"compression.type": codec, "enable.idempotence": codec == "zstd"})
    assert [message.offset() for message in reports] == list(range(3000))
    reader = consumer(endpoint)
    reader.subscribe(["t"])
    messages = consume(reader, 3000)
    reader.close()
    assert [message.value() for message in messages] == values
    assert [message.offset() for message in messages] == list(range(3000))


def test_keys_headers_and_tombstones_return_with_log_timestamps(endpoint: Running) -> None:
    producer = Producer({"bootstrap.servers": endpoint.bound.kafka})
    headers = [("a", b"text"), ("a", b"\xff\x00"), ("b", None), ("c", b"")]
    producer.produce("t", None, key=b"\x00k", headers=headers, timestamp=1_000)
    producer.produce("t", b"", key=None)
    producer.flush(DEADLINE)
    reader = consumer(endpoint)
    reader.assign([TopicPartition("t", 0, 0)])
    first, second = consume(reader, 2)
    assert (first.key(), first.value(), first.headers()) == (b"\x00k", None, headers)
    assert (second.key(), second.value(), second.headers()) == (None, b"", None)
    kind, millis = first.timestamp()
    assert kind == 2, "the log's own time"
    assert abs(millis / 1000 - time.time()) < 60


def test_consumer_reads_entries_of_other_protocols_and_skips_gaps(endpoint: Running) -> None:
    endpoint.request("POST", "/v1/logs/t", {"logs": []})
    produce(endpoint, "t", *(b"%d" % number for number in range(5)))
    topic = endpoint.log.topic("t")
    topic.append(body([b"x"] * 3), endpoint.api.topics._origin(body([b"x"] * 3), "http")).result(10)
    produce(endpoint, "t", b"last")
    reader = consumer(endpoint)
    reader.assign([TopicPartition("t", 0, 4)])
    assert [message.value() for message in consume(reader, 5)] == [b"4", b"x", b"x", b"x", b"last"]


def test_commit_wakes_a_waiting_consumer(endpoint: Running) -> None:
    produce(endpoint, "t", b"first")
    reader = consumer(endpoint, **{"fetch.wait.max.ms": 20_000, "fetch.min.bytes": 1})
    reader.assign([TopicPartition("t", 0, 0)])
    consume(reader, 1)
    time.sleep(0.5)
    produce(endpoint, "t", b"second")
    began = time.monotonic()
    assert [message.value() for message in consume(reader, 1)] == [b"second"]
    assert time.monotonic() - began < 10, "not when its time to wait was over"


def test_group_resumes_at_its_committed_offset_which_is_a_cursor(endpoint: Running) -> None:
    produce(endpoint, "t", *(b"%d" % number for number in range(10)))
    first = consumer(endpoint, **{"enable.auto.commit": False})
    first.subscribe(["t"])
    last = consume(first, 4)[-1]
    first.commit(last, asynchronous=False)
    first.commit(offsets=[TopicPartition("t", 0, 4, "a note")], asynchronous=False)
    (committed,) = first.committed([TopicPartition("t", 0)], DEADLINE)
    assert (committed.offset, committed.metadata) == (4, "a note")
    first.close()
    assert endpoint.log.topic("t").cursors.offsets() == {"mine": 4}
    assert endpoint.log.topic("t").lag("mine").entries == 6
    second = consumer(endpoint)
    second.subscribe(["t"])
    assert [message.value() for message in consume(second, 6)] == [b"%d" % number for number in range(4, 10)]
    second.close()


@pytest.mark.parametrize("error", [Stopping("stopping"), LogClosed("closed")])
def test_offset_is_never_missing_because_the_daemon_stops(
    endpoint: Running, monkeypatch: pytest.MonkeyPatch, error: PenstockError
) -> None:
    # A consumer that is told "no offset" skips to the end of the topic, or reads it again.
    produce(endpoint, "t", b"0", b"1", b"2")
    endpoint.log.topic("t").cursors.commit("mine", 2)
    failures, readable = [error], endpoint.api.topics.readable
    monkeypatch.setattr(
        endpoint.api.topics, "readable", lambda *call: _raise(failures.pop()) if failures else readable(*call)
    )
    reader = consumer(endpoint, **{"auto.offset.reset": "latest"})
    reader.subscribe(["t"])
    assert [message.value() for message in consume(reader, 1)] == [b"2"]
    assert not failures
    reader.close()


def test_offset_that_cannot_be_read_is_an_error(endpoint: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(endpoint, "t", b"0")
    monkeypatch.setattr(endpoint.api.topics, "readable", lambda *_: _raise(Damaged("a byte changed")))
    (committed,) = consumer(endpoint).committed([TopicPartition("t", 0)], DEADLINE)
    assert committed.error.code() == KafkaError.KAFKA_STORAGE_ERROR  # type: ignore[attr-defined]


def _raise(error: Exception) -> NoReturn:
    raise error


def test_second_member_takes_over_when_the_first_leaves(endpoint: Running) -> None:
    produce(endpoint, "t", b"0")
    first, second = (consumer(endpoint, **{"enable.auto.commit": False}) for _ in range(2))
    for member in (first, second):
        member.subscribe(["t"])
    until = time.monotonic() + DEADLINE
    while sum(len(member.assignment()) for member in (first, second)) != 1 or not all(
        member.memberid() for member in (first, second)
    ):
        assert time.monotonic() < until
        for member in (first, second):
            member.poll(0.1)
    has, waits = (first, second) if first.assignment() else (second, first)
    client = admin(endpoint)
    groups = client.describe_consumer_groups(["mine"])["mine"].result(DEADLINE)
    assert len(groups.members) == 2 or groups.state.name != "STABLE"
    has.close()
    produce(endpoint, "t", b"1")
    assert b"1" in [message.value() for message in consume(waits, 2)]
    waits.close()


def test_one_request_creates_a_limited_number_of_topics(endpoint: Running) -> None:
    client = admin(endpoint)
    topics = [NewTopic(f"t{number}", 1, 1) for number in range(3 * CREATIONS_AT_ONCE)]
    client.create_topics(topics, validate_only=True)["t0"].result(DEADLINE)
    errors = [future.exception(DEADLINE) for future in client.create_topics(topics).values()]
    assert errors.count(None) == len(endpoint.log.names())
    assert CREATIONS_AT_ONCE <= errors.count(None) < 2 * CREATIONS_AT_ONCE
    codes = {error.args[0].code() for error in errors if error is not None}
    assert codes == {KafkaError.THROTTLING_QUOTA_EXCEEDED}
    # A topic that exists costs no quota, and says so.
    again = client.create_topics(topics[:1])["t0"].exception(DEADLINE)
    assert again.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_admin_client_creates_and_describes_topics_and_groups(endpoint: Running) -> None:
    client = admin(endpoint)
    futures = client.create_topics(
        [NewTopic("made", 1, 1, config={"retention.ms": "60000", "cleanup.policy": "delete"})]
    )
    futures["made"].result(DEADLINE)
    assert endpoint.log.settings("made").stale_after == 60
    for bad in (NewTopic("many", 3, 1), NewTopic("copies", 1, 3), NewTopic("made", 1, 1), NewTopic("No Name", 1, 1)):
        with pytest.raises(KafkaException):
            client.create_topics([bad])[bad.topic].result(DEADLINE)
    with pytest.raises(KafkaException, match="not a setting"):
        client.create_topics([NewTopic("odd", 1, 1, config={"preallocate": "true"})])["odd"].result(DEADLINE)
    resource = ConfigResource(ResourceType.TOPIC, "made")
    configs = client.describe_configs([resource])[resource].result(DEADLINE)
    assert (configs["retention.ms"].value, configs["message.timestamp.type"].value) == ("60000", "LogAppendTime")
    produce(endpoint, "made", b"a", b"b")
    spec = {TopicPartition("made", 0): OffsetSpec.latest()}
    assert client.list_offsets(spec)[TopicPartition("made", 0)].result(DEADLINE).offset == 2
    described = client.describe_cluster().result(DEADLINE)
    assert [node.id for node in described.nodes] == [0]
    endpoint.log.topic("made").cursors.commit("known", 1)
    assert [group.group_id for group in client.list_consumer_groups().result(DEADLINE).valid] == ["known"]
    client.delete_consumer_groups(["known"])["known"].result(DEADLINE)
    assert endpoint.log.topic("made").cursors.offsets() == {}
    client.delete_topics(["made"])["made"].result(DEADLINE)
    assert "made" not in endpoint.log.names()


def test_group_that_the_disk_does_not_remove_is_answered_and_the_connection_goes_on(endpoint: Running) -> None:
    topic = endpoint.log.topic("t", create=True)
    topic.cursors.commit("g", 1)
    # A folder in the place of its copy: the cursor's files cannot be removed, as on a failing disk.
    obstacle = topic.path / "cursors" / "g.cursor.copy"
    obstacle.unlink()
    obstacle.mkdir()
    client = admin(endpoint)
    with pytest.raises(KafkaException) as refused:
        client.delete_consumer_groups(["g"])["g"].result(DEADLINE)
    assert refused.value.args[0].code() == KafkaError.KAFKA_STORAGE_ERROR
    assert topic.cursors.offsets() == {"g": 1}
    obstacle.rmdir()
    client.delete_consumer_groups(["g"])["g"].result(DEADLINE)
    assert topic.cursors.offsets() == {}


def test_offsets_are_looked_up_by_time_and_missing_ones_are_out_of_range(endpoint: Running) -> None:
    produce(endpoint, "t", b"a")
    time.sleep(0.01)
    millis = int(time.time() * 1000)
    time.sleep(0.01)
    produce(endpoint, "t", b"b")
    reader = consumer(endpoint, **{"auto.offset.reset": "error"})
    assert reader.offsets_for_times([TopicPartition("t", 0, millis)], DEADLINE)[0].offset == 1
    assert reader.get_watermark_offsets(TopicPartition("t", 0), DEADLINE) == (0, 2)
    reader.assign([TopicPartition("t", 0, 99)])
    message = None
    until = time.monotonic() + DEADLINE
    while message is None and time.monotonic() < until:
        message = reader.poll(0.2)
    assert message is not None
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


def test_transactions_are_refused_at_once(endpoint: Running) -> None:
    producer = Producer({"bootstrap.servers": endpoint.bound.kafka, "transactional.id": "tx"})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(DEADLINE)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_oversized_message_is_refused_and_the_next_one_stored(endpoint: Running) -> None:
    endpoint.log.create("t", {"message_size_limit": 100})
    reports = produce(endpoint, "t", b"x" * 1000, **{"message.timeout.ms": 5000})
    assert reports[0].code() == KafkaError.MSG_SIZE_TOO_LARGE  # type: ignore[attr-defined]
    assert [message.offset() for message in produce(endpoint, "t", b"small")] == [0]


def test_refused_message_without_an_answer_is_counted_and_reported(
    endpoint: Running, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.log.create("t", {"message_size_limit": 100})
    producer = Producer({"bootstrap.servers": endpoint.bound.kafka, "acks": 0, "linger.ms": 0, "client.id": "shop"})
    producer.produce("t", b"x" * 1000)
    wait_until(lambda: endpoint.api.refused_batches["message_too_large"])
    # Kafka closes the connection, too, which is all that such a producer can notice.
    wait_until(lambda: "kafka: batches of producers with acks=0 lost: 1 since" in caplog.text)

    def send_and_look() -> bool:
        producer.produce("t", b"small")
        producer.flush(DEADLINE)
        return b"small" in stored(endpoint.log.topic("t"))

    wait_until(send_and_look)
    family = refused_batches_family(endpoint.api.refused_batches)
    assert family.samples == [({"reason": "message_too_large"}, 1)]
    assert "topic 't', client 'shop' of 127.0.0.1: " in caplog.text


def test_first_batch_that_fails_once_is_stored_before_the_others_in_flight(
    endpoint: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = endpoint.log.create("t")
    reports: list[Any] = []
    producer = Producer(
        {"bootstrap.servers": endpoint.bound.kafka, "enable.idempotence": True, "batch.num.messages": 1, "linger.ms": 0}
    )
    # Its id and the topic are looked up first, so that it sends the first message alone.
    producer.produce("other", b"warm")
    assert producer.flush(DEADLINE) == 0
    producer.list_topics("t", DEADLINE)
    syncing, go_on, sync = threading.Event(), threading.Event(), Segment.sync

    def fail_once(segment: Segment) -> None:
        if not syncing.is_set():
            syncing.set()
            assert go_on.wait(DEADLINE)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(segment)

    monkeypatch.setattr(Segment, "sync", fail_once)
    for number in range(10):
        producer.produce("t", b"%d" % number, on_delivery=lambda error, message: reports.append(error or message))
        producer.poll(0)
        assert syncing.wait(DEADLINE)
    until = time.monotonic() + DEADLINE
    while len(topic._queue) < 4 and time.monotonic() < until:
        producer.poll(0.01)
    go_on.set()
    assert producer.flush(DEADLINE) == 0
    assert [message.offset() for message in reports] == list(range(10))
    reader = consumer(endpoint)
    reader.assign([TopicPartition("t", 0, 0)])
    assert [message.value() for message in consume(reader, 10)] == [b"%d" % number for number in range(10)]


def test_produced_messages_are_counted_with_source_kafka(endpoint: Running) -> None:
    produce(endpoint, "t", *[b"x"] * 7)
    origins = [batch.origin for batch in endpoint.log.topic("t").reader().whole_batches()]
    assert {origin.source for origin in origins} == {"kafka"}
    assert sum(origin.counts[Name.ACCEPTED] for origin in origins) == 7


def test_topic_with_create_time_stores_producer_timestamps(endpoint: Running) -> None:
    client = admin(endpoint)
    client.create_topics([NewTopic("made", 1, 1, config={"message.timestamp.type": "CreateTime"})])["made"].result(30)
    resource = ConfigResource(ResourceType.TOPIC, "made")
    configs = client.describe_configs([resource])[resource].result(DEADLINE)
    assert configs["message.timestamp.type"].value == "CreateTime"
    assert configs["message.timestamp.after.max.ms"].value == "3600000"
    now = int(time.time() * 1000)
    times = [now - 86_400_000, now - 5_000, now, now - 3_000, now + 60_000]
    reports: list[Message] = []
    producer = Producer({"bootstrap.servers": endpoint.bound.kafka})
    for created in times:
        producer.produce("made", b"x", timestamp=created, on_delivery=lambda error, message: reports.append(message))
        producer.flush(DEADLINE)
    assert [message.timestamp() for message in reports] == [(TIMESTAMP_CREATE_TIME, created) for created in times]
    reader = consumer(endpoint)
    reader.subscribe(["made"])
    messages = consume(reader, len(times))
    assert [message.timestamp() for message in messages] == [(TIMESTAMP_CREATE_TIME, created) for created in times]
    assert [message.headers() for message in messages] == [None] * len(times)
    moments = [now - 90_000_000, now - 4_000, now - 2_000, now + 1, now + 60_001]
    offsets = [reader.offsets_for_times([TopicPartition("made", 0, moment)], DEADLINE)[0].offset for moment in moments]
    assert offsets[:4] == [0, 2, 2, 4]
    assert offsets[4] in (-1, len(times)), "no record is that late"
    reader.close()
    newest = client.list_offsets({TopicPartition("made", 0): OffsetSpec.max_timestamp()})
    assert newest[TopicPartition("made", 0)].result(DEADLINE).offset == 4
    with pytest.raises(KafkaException, match="neither of LogAppendTime, CreateTime"):
        client.create_topics([NewTopic("odd", 1, 1, config={"message.timestamp.type": "x"})])["odd"].result(DEADLINE)


@pytest.mark.parametrize("kind", ["append", "create"])
def test_newest_record_is_found_before_a_damaged_end(endpoint: Running, kind: str) -> None:
    topic = endpoint.log.create("t", {"timestamp_type": kind})
    client, partition = admin(endpoint), TopicPartition("t", 0)

    def newest() -> tuple[int, int]:
        found = client.list_offsets({partition: OffsetSpec.max_timestamp()})[partition].result(DEADLINE)
        return found.offset, found.timestamp

    times = [message.timestamp()[1] for value in (b"a", b"b", b"c") for message in produce(endpoint, "t", value)]
    assert newest() == (2, times[2])
    path = topic.writer.active().files.data
    flip(path, path.read_bytes().rindex(b"c"))
    assert [(gap.begin, gap.end) for gap in topic.verify()] == [(2, 3)]
    assert newest() == (1, times[1])


def test_timestamp_far_in_the_future_is_refused(endpoint: Running) -> None:
    client = admin(endpoint)
    client.create_topics([NewTopic("t", 1, 1, config={"message.timestamp.type": "CreateTime"})])["t"].result(DEADLINE)
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": endpoint.bound.kafka})
    later = int(time.time() * 1000) + 2 * 3_600_000
    producer.produce("t", b"x", timestamp=later, on_delivery=lambda error, message: errors.append(error))
    producer.flush(DEADLINE)
    assert [error and error.code() for error in errors] == [KafkaError.INVALID_TIMESTAMP]


def test_timestamps_come_from_the_log_without_create_time(endpoint: Running) -> None:
    reports: list[Message] = []
    producer = Producer({"bootstrap.servers": endpoint.bound.kafka})
    producer.produce("t", b"x", timestamp=1_000, on_delivery=lambda error, message: reports.append(message))
    producer.flush(DEADLINE)
    kind, millis = reports[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert abs(millis - time.time() * 1000) < 60_000


@pytest.mark.parametrize(("topic", "partition"), [("missing", 0), ("t", 1)])
def test_error_of_a_fetch_comes_with_empty_records(endpoint: Running, topic: str, partition: int) -> None:
    """estuary/flow#1693: librdkafka refused an answer with null, and asked again a thousand times in a second."""
    endpoint.log.topic("t", create=True)
    wanted = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1000}
    with connected(endpoint) as sock:
        topics = [{"topic": topic, "partitions": [wanted]}]
        sock.sendall(framed(request(Api.FETCH, 11, topics=topics, replica_id=-1, max_bytes=1000)))
        ((answer,),) = (answered.partitions for answered in answer_of(sock, Api.FETCH, 11).responses)
    assert (answer.error_code, answer.records) == (ErrorCode.unknown_topic_or_partition, b"")
