"""confluent-kafka, which is librdkafka, as kcat is."""

from __future__ import annotations

import time
from typing import Any

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

from penstock.counts import Name
from penstock.log import Topic
from penstock.records import body
from tests.server.running import Running

DEADLINE = 30.0


def produce(endpoint: Running, topic: str, *values: bytes | None, **config: Any) -> list[Message]:
    """Produce, and what was told of each."""
    told: list[Message] = []
    producer = Producer({"bootstrap.servers": endpoint.bound.kafka, "linger.ms": 5, **config})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, message: told.append(error or message))
    assert producer.flush(DEADLINE) == 0
    return told


def consumer(endpoint: Running, **config: Any) -> Consumer:
    given = {"group.id": "mine", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100, **config}
    return Consumer({"bootstrap.servers": endpoint.bound.kafka, **given})


def consume(one: Consumer, count: int) -> list[Message]:
    """So many messages."""
    found: list[Message] = []
    until = time.monotonic() + DEADLINE
    while len(found) < count and time.monotonic() < until:
        for message in one.consume(count - len(found), 0.2):
            assert message.error() is None, message.error()
            found.append(message)
    return found


def admin(endpoint: Running) -> AdminClient:
    return AdminClient({"bootstrap.servers": endpoint.bound.kafka})


def stored(topic: Topic) -> list[Any]:
    return [value for one in topic.reader().read() for value in one.batch.column("payload").to_pylist()]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_is_consumed_whatever_it_is_packed_with(endpoint: Running, codec: str) -> None:
    values = [b"%d" % number * (number % 50) for number in range(3000)]
    told = produce(endpoint, "t", *values, **{"compression.type": codec, "enable.idempotence": codec == "zstd"})
    assert [message.offset() for message in told] == list(range(3000))
    one = consumer(endpoint)
    one.subscribe(["t"])
    found = consume(one, 3000)
    one.close()
    assert [message.value() for message in found] == values
    assert [message.offset() for message in found] == list(range(3000))


def test_keys_headers_and_tombstones_come_back_with_the_time_of_the_log(endpoint: Running) -> None:
    producer = Producer({"bootstrap.servers": endpoint.bound.kafka})
    headers = [("a", b"text"), ("a", b"\xff\x00"), ("b", None), ("c", b"")]
    producer.produce("t", None, key=b"\x00k", headers=headers, timestamp=1_000)
    producer.produce("t", b"", key=None)
    producer.flush(DEADLINE)
    one = consumer(endpoint)
    one.assign([TopicPartition("t", 0, 0)])
    first, second = consume(one, 2)
    assert (first.key(), first.value(), first.headers()) == (b"\x00k", None, headers)
    assert (second.key(), second.value(), second.headers()) == (None, b"", None)
    kind, millis = first.timestamp()
    assert kind == 2, "the log's own time"
    assert abs(millis / 1000 - time.time()) < 60


def test_consumer_reads_entries_of_other_protocols_and_skips_gaps(endpoint: Running) -> None:
    endpoint.ask("POST", "/v1/logs/t", {"logs": []})
    produce(endpoint, "t", *(b"%d" % number for number in range(5)))
    topic = endpoint.log.topic("t")
    topic.append(body([b"x"] * 3), endpoint.api.topics._origin(body([b"x"] * 3), "http")).result(10)
    produce(endpoint, "t", b"last")
    one = consumer(endpoint)
    one.assign([TopicPartition("t", 0, 4)])
    assert [message.value() for message in consume(one, 5)] == [b"4", b"x", b"x", b"x", b"last"]


def test_a_waiting_consumer_is_woken_by_a_commit(endpoint: Running) -> None:
    produce(endpoint, "t", b"first")
    one = consumer(endpoint, **{"fetch.wait.max.ms": 20_000, "fetch.min.bytes": 1})
    one.assign([TopicPartition("t", 0, 0)])
    consume(one, 1)
    time.sleep(0.5)
    produce(endpoint, "t", b"second")
    began = time.monotonic()
    assert [message.value() for message in consume(one, 1)] == [b"second"]
    assert time.monotonic() - began < 10, "not when its time to wait was over"


def test_a_group_goes_on_where_it_was_and_its_offsets_are_a_cursor(endpoint: Running) -> None:
    produce(endpoint, "t", *(b"%d" % number for number in range(10)))
    one = consumer(endpoint, **{"enable.auto.commit": False})
    one.subscribe(["t"])
    last = consume(one, 4)[-1]
    one.commit(last, asynchronous=False)
    one.commit(offsets=[TopicPartition("t", 0, 4, "a note")], asynchronous=False)
    (told,) = one.committed([TopicPartition("t", 0)], DEADLINE)
    assert (told.offset, told.metadata) == (4, "a note")
    one.close()
    assert endpoint.log.topic("t").cursors.all() == {"mine": 4}
    assert endpoint.log.topic("t").lag("mine").entries == 6
    other = consumer(endpoint)
    other.subscribe(["t"])
    assert [message.value() for message in consume(other, 6)] == [b"%d" % number for number in range(4, 10)]
    other.close()


def test_of_two_members_of_a_group_one_takes_over_when_the_other_leaves(endpoint: Running) -> None:
    produce(endpoint, "t", b"0")
    first, second = (consumer(endpoint, **{"enable.auto.commit": False}) for _ in range(2))
    for one in (first, second):
        one.subscribe(["t"])
    until = time.monotonic() + DEADLINE
    while sum(len(one.assignment()) for one in (first, second)) != 1 or not all(
        one.memberid() for one in (first, second)
    ):
        assert time.monotonic() < until
        for one in (first, second):
            one.poll(0.1)
    has, waits = (first, second) if first.assignment() else (second, first)
    client = admin(endpoint)
    groups = client.describe_consumer_groups(["mine"])["mine"].result(DEADLINE)
    assert len(groups.members) == 2 or groups.state.name != "STABLE"
    has.close()
    produce(endpoint, "t", b"1")
    assert b"1" in [message.value() for message in consume(waits, 2)]
    waits.close()


def test_administrators_make_and_describe_topics_and_groups(endpoint: Running) -> None:
    client = admin(endpoint)
    made = client.create_topics([NewTopic("made", 1, 1, config={"retention.ms": "60000", "cleanup.policy": "delete"})])
    made["made"].result(DEADLINE)
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
    assert endpoint.log.topic("made").cursors.all() == {}
    client.delete_topics(["made"])["made"].result(DEADLINE)
    assert "made" not in endpoint.log.names()


def test_offsets_are_found_by_time_and_those_that_are_gone_are_out_of_range(endpoint: Running) -> None:
    produce(endpoint, "t", b"a")
    time.sleep(0.01)
    millis = int(time.time() * 1000)
    time.sleep(0.01)
    produce(endpoint, "t", b"b")
    one = consumer(endpoint, **{"auto.offset.reset": "error"})
    assert one.offsets_for_times([TopicPartition("t", 0, millis)], DEADLINE)[0].offset == 1
    assert one.get_watermark_offsets(TopicPartition("t", 0), DEADLINE) == (0, 2)
    one.assign([TopicPartition("t", 0, 99)])
    message = None
    until = time.monotonic() + DEADLINE
    while message is None and time.monotonic() < until:
        message = one.poll(0.2)
    assert message is not None
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


def test_transactions_are_refused_at_once(endpoint: Running) -> None:
    producer = Producer({"bootstrap.servers": endpoint.bound.kafka, "transactional.id": "tx"})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(DEADLINE)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_message_that_is_too_large_is_refused_and_the_next_one_taken(endpoint: Running) -> None:
    endpoint.log.create("t", {"message_size_limit": 100})
    told = produce(endpoint, "t", b"x" * 1000, **{"message.timeout.ms": 5000})
    assert told[0].code() == KafkaError.MSG_SIZE_TOO_LARGE  # type: ignore[attr-defined]
    assert [message.offset() for message in produce(endpoint, "t", b"small")] == [0]


def test_what_is_produced_is_in_the_balance_as_kafkas(endpoint: Running) -> None:
    produce(endpoint, "t", *[b"x"] * 7)
    found = [one.origin for one in endpoint.log.topic("t").reader().whole_batches()]
    assert {origin.source for origin in found} == {"kafka"}
    assert sum(origin.counts[Name.ACCEPTED] for origin in found) == 7


def test_producers_times_are_kept_where_a_topic_asks_for_it(endpoint: Running) -> None:
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
    wanted = [now - 90_000_000, now - 4_000, now - 2_000, now + 1, now + 60_001]
    offsets = [reader.offsets_for_times([TopicPartition("made", 0, moment)], DEADLINE)[0].offset for moment in wanted]
    assert offsets[:4] == [0, 2, 2, 4]
    assert offsets[4] in (-1, len(times)), "no record is that late"
    reader.close()
    newest = client.list_offsets({TopicPartition("made", 0): OffsetSpec.max_timestamp()})
    assert newest[TopicPartition("made", 0)].result(DEADLINE).offset == 4
    with pytest.raises(KafkaException, match="neither of LogAppendTime, CreateTime"):
        client.create_topics([NewTopic("odd", 1, 1, config={"message.timestamp.type": "x"})])["odd"].result(DEADLINE)


def test_a_time_far_in_the_future_is_refused(endpoint: Running) -> None:
    client = admin(endpoint)
    client.create_topics([NewTopic("t", 1, 1, config={"message.timestamp.type": "CreateTime"})])["t"].result(DEADLINE)
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": endpoint.bound.kafka})
    later = int(time.time() * 1000) + 2 * 3_600_000
    producer.produce("t", b"x", timestamp=later, on_delivery=lambda error, message: errors.append(error))
    producer.flush(DEADLINE)
    assert [error and error.code() for error in errors] == [KafkaError.INVALID_TIMESTAMP]


def test_without_create_time_the_time_is_the_logs(endpoint: Running) -> None:
    reports: list[Message] = []
    producer = Producer({"bootstrap.servers": endpoint.bound.kafka})
    producer.produce("t", b"x", timestamp=1_000, on_delivery=lambda error, message: reports.append(message))
    producer.flush(DEADLINE)
    kind, millis = reports[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert abs(millis - time.time() * 1000) < 60_000
