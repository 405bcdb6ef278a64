"""Seeks of the consumer against a real broker: the integration tests of the Java library, by their names."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException, TopicPartition

from penstock.kafka import Consumer, Producer
from penstock.kafka.errors import InvalidOffset, NoCommittedOffset, OffsetNotTracked
from penstock.kafka.large.headers import decode_long
from tests.kafka.kafka_helpers import (
    DELIVERED,
    Topics,
    committed,
    first_partition_consumer,
    has_no_message,
    header,
    message,
    offsets,
    position,
    read,
    read_one_by_one,
)


def test_assembled_messages_carry_their_safe_offset(topics: Topics) -> None:
    consumer, _ = first_partition_consumer(topics, topics.synthetic())
    records = read(consumer, 6)
    assert offsets(records) == DELIVERED
    assert [record.value() for record in records] == [message(number) for number in (2, 1, 0, 3, 4, 5)]
    safe_offsets = [header(record, "_so") for record in records]
    assert [record and decode_long(record[1]) for record in safe_offsets] == [0, 0, 3, None, None, None]


@pytest.mark.parametrize(
    ("offset", "raw", "expected"),
    [
        (0, 0, DELIVERED),
        (2, 0, DELIVERED),
        (3, 0, [4, 5, 6, 7, 9]),
        (4, 0, [4, 5, 6, 7, 9]),
        (5, 0, [5, 6, 7, 9]),
        (6, 3, [6, 7, 9]),
        (7, 7, [7, 9]),
        (8, 8, [9]),
        (9, 8, [9]),
        (10, 10, []),
        (11, 11, []),
    ],
)
def test_seek(topics: Topics, offset: int, raw: int, expected: list[int]) -> None:
    consumer, partition = first_partition_consumer(topics, topics.synthetic(), auto_offset_reset="latest")
    consumer.seek(TopicPartition(partition.topic, 0, 0))
    read(consumer, 6)
    consumer.seek(TopicPartition(partition.topic, 0, offset))
    assert position(consumer, partition) == raw
    assert offsets(read(consumer, len(expected))) == expected
    assert has_no_message(consumer, 0.1)


def test_seek_before_the_first_read_goes_to_its_offset(topics: Topics) -> None:
    consumer, partition = first_partition_consumer(topics, topics.synthetic())
    consumer.seek(TopicPartition(partition.topic, 0, 1))
    assert offsets(read(consumer, 5)) == [2, 4, 6, 7, 9]  # the first half of M0 is missing
    consumer.commit(asynchronous=False)
    assert committed(consumer, partition) == (10, "")
    assert consumer.committed_safe_offset(partition) == 5


def test_seek_before_the_tracked_offsets_is_refused(topics: Topics) -> None:
    consumer, partition = first_partition_consumer(topics, topics.synthetic(), max_tracked_messages_per_partition=2)
    read(consumer, 6)
    with pytest.raises(OffsetNotTracked, match="offset 1 of"):
        consumer.seek(TopicPartition(partition.topic, 0, 1))
    assert position(consumer, partition) == 10


def test_seek_in_an_unassigned_partition_is_refused(topics: Topics) -> None:
    consumer, partition = first_partition_consumer(topics, topics.synthetic())
    with pytest.raises(KafkaException, match="is not assigned"):
        consumer.seek(TopicPartition(partition.topic, 1, 0))


def test_seek_to_beginning_and_end(topics: Topics) -> None:
    consumer, partition = first_partition_consumer(topics, topics.synthetic())
    read(consumer, 3)
    consumer.seek_to_end([partition])
    assert position(consumer, partition) == 10
    assert has_no_message(consumer, 0.2)
    topics.plain(partition.topic, [b"new"])
    assert offsets(read(consumer, 1)) == [10]
    consumer.seek_to_beginning()
    assert position(consumer, partition) == 0
    assert offsets(read(consumer, 7)) == [*DELIVERED, 10]
    consumer.seek(TopicPartition(partition.topic, 0, OFFSET_END))
    assert position(consumer, partition) == 11
    consumer.seek(TopicPartition(partition.topic, 0, OFFSET_BEGINNING))
    assert position(consumer, partition) == 0


def test_seek_to_committed(topics: Topics) -> None:
    consumer, partition = first_partition_consumer(topics, topics.synthetic())
    with pytest.raises(NoCommittedOffset):
        consumer.seek_to_committed([partition])
    assert offsets(read_one_by_one(consumer, 1)) == [2]
    consumer.commit(asynchronous=False)
    assert committed(consumer, partition) == (3, "")
    assert consumer.committed_safe_offset(partition) == 0
    read(consumer, 5)
    consumer.seek_to_committed([partition])
    assert position(consumer, partition) == 0
    assert offsets(read(consumer, 5)) == [4, 5, 6, 7, 9]


def test_seek_after_assignment_change(topics: Topics) -> None:
    topic = topics.synthetic(2)
    consumer = topics.consumer()
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer.assign([first, second])
    read(consumer, 12)
    assert consumer.safe_offset(first) == 10
    consumer.assign([second])
    assert consumer.safe_offset(first) is None
    assert consumer.safe_offset(second) is None
    consumer.assign([first, second])
    consumer.seek(TopicPartition(topic, 0, 0))
    assert position(consumer, first) == 0
    consumer.seek(TopicPartition(topic, 1, 5))
    records = read(consumer, 6 + 2)
    assert offsets(record for record in records if record.partition() == 0) == DELIVERED
    assert offsets(record for record in records if record.partition() == 1) == [7, 9]


def test_position(topics: Topics) -> None:
    consumer, partition = first_partition_consumer(topics, topics.synthetic())
    assert position(consumer, partition) == 0
    read_one_by_one(consumer, 1)
    assert position(consumer, partition) == 3
    read_one_by_one(consumer, 1)
    assert position(consumer, partition) == 5
    read(consumer, 4)
    assert position(consumer, partition) == 10


def test_search_offset_by_timestamp(topics: Topics) -> None:
    topic = topics.new()
    with Producer({"bootstrap.servers": topics.address}) as producer:
        for number in range(10):
            producer.produce(topic, f"{number}", timestamp=1_000_000 + number)
    consumer, _ = first_partition_consumer(topics, topic)
    (earliest,) = consumer.offsets_for_times([TopicPartition(topic, 0, 1_000_004)], timeout=10)
    assert earliest.offset == 4
    consumer.seek(earliest)
    assert [record.value() for record in read(consumer, 6)] == [b"4", b"5", b"6", b"7", b"8", b"9"]


def test_throw_exception_on_invalid_offset(topics: Topics) -> None:
    consumer, partition = first_partition_consumer(topics, topics.synthetic(), auto_offset_reset="none")
    for _ in range(2):
        with pytest.raises(InvalidOffset, match="no offset is committed"):
            consumer.poll(5)
    consumer.seek(TopicPartition(partition.topic, 0, 100))
    with pytest.raises(InvalidOffset, match="offset 100 does not exist"):
        read(consumer, 1)
    consumer.seek(TopicPartition(partition.topic, 0, 0))
    assert offsets(read(consumer, 6)) == DELIVERED


def cut_off(topics: Topics, topic: str, before: int) -> None:
    topics.admin.delete_records([TopicPartition(topic, 0, before)])[TopicPartition(topic, 0, before)].result(30)


@pytest.mark.parametrize(("strategy", "low", "high"), [("earliest", 4, 4), ("latest", 10, 10), ("liclosest", 4, 10)])
def test_offset_out_of_range_for_strategy(topics: Topics, strategy: str, low: int, high: int) -> None:
    topic = topics.new()
    topics.plain(topic, [b"%d" % number for number in range(10)])
    cut_off(topics, topic, 4)
    consumer, partition = first_partition_consumer(topics, topic, auto_offset_reset=strategy)
    for offset, expected in ((1, low), (20, high)):
        consumer.seek(TopicPartition(topic, 0, offset))
        comes = [b"%d" % number for number in range(expected, 10)]
        assert [record.value() for record in read(consumer, len(comes))] == comes
        wait_for_position(consumer, partition, 10)


def wait_for_position(consumer: Consumer, partition: TopicPartition, offset: int) -> None:
    deadline = time.monotonic() + 30
    while position(consumer, partition) != offset and time.monotonic() < deadline:
        assert has_no_message(consumer, 0.1)
    assert position(consumer, partition) == offset


def test_invalid_offset_raises_once_and_is_reset(topics: Topics) -> None:
    topic = topics.new()
    topics.plain(topic, [b"0", b"1"])
    consumer, _ = first_partition_consumer(topics, topic, exception_on_invalid_offset_reset=True)
    with pytest.raises(InvalidOffset, match="no offset is committed"):
        consumer.poll(5)
    assert offsets(read(consumer, 2)) == [0, 1]
    consumer.seek(TopicPartition(topic, 0, 7))
    with pytest.raises(InvalidOffset, match="offset 7 does not exist"):
        read(consumer, 1)
    assert offsets(read(consumer, 2)) == [0, 1]


def test_bootstrap_with_liclosest_starts_at_the_beginning(topics: Topics) -> None:
    consumer, _ = first_partition_consumer(topics, topics.synthetic(), auto_offset_reset="liclosest")
    assert offsets(read(consumer, 6)) == DELIVERED


def test_fall_off_start_with_liclosest(topics: Topics) -> None:
    topic = topics.new()
    topics.plain(topic, [b"%d" % number for number in range(10)])
    first, partition = first_partition_consumer(topics, topic)
    read_one_by_one(first, 2)
    first.commit(asynchronous=False)
    cut_off(topics, topic, 5)
    consumer, _ = first_partition_consumer(topics, topic, auto_offset_reset="liclosest")
    assert position(consumer, partition) == 2
    assert offsets(read(consumer, 5)) == [5, 6, 7, 8, 9]


def test_header_name_of_any_bytes_fails_neither_the_consumer_nor_its_user(topics: Topics) -> None:
    topic = topics.synthetic()
    topics.with_header_bytes(topic, [(b"a", b"1"), (b"\xff\xfe", b"2")])
    topics.plain(topic, [b"behind"])
    topics.with_header_bytes(topic, [(b"\xc3", b"")])
    consumer, _ = first_partition_consumer(topics, topic)
    records = read(consumer, len(DELIVERED) + 3)
    assert [record.headers() for record in records[-3:]] == [[("a", b"1"), ("\ufffd", b"2")], None, [("\ufffd", b"")]]
    assert [record.value() for record in records[-3:]] == [b"v", b"behind", b"v"]
