"""Failures while messages are assembled, against a real broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from penstock.kafka import Consumer
from penstock.kafka.errors import InvalidChunk, MessageDropped, RecordsFailed, Skip
from tests.kafka.kafka_helpers import (
    DEADLINE,
    DELIVERED,
    PART,
    Topics,
    committed,
    has_no_message,
    message,
    offsets,
    parts,
    position,
    read,
    read_one_by_one,
)


def consumer_of(topics: Topics, topic: str, *numbers: int, **config: Any) -> tuple[Consumer, TopicPartition]:
    consumer = topics.consumer(**config)
    consumer.assign([TopicPartition(topic, number) for number in numbers or (0,)])
    return consumer, TopicPartition(topic, 0)


def next_failure(consumer: Consumer) -> RecordsFailed:
    """Return the error that the consumer raises next."""
    with pytest.raises(RecordsFailed) as raised:
        read_one_by_one(consumer, 1)
    return raised.value


class Refusing:
    """A deserializer that raises for some values."""

    def __init__(self, *refused: bytes, error: type[Exception] = ValueError) -> None:
        self.refused, self._error = refused, error

    def __call__(self, data: bytes, context: object) -> str:
        if data in self.refused:
            raise self._error("refused")
        return data.decode()


def test_exception_in_processing_large_message(topics: Topics) -> None:
    consumer, partition = consumer_of(topics, topics.synthetic(), value_deserializer=Refusing(message(1)))
    records = consumer.consume(10, DEADLINE)
    assert offsets(records) == [2]
    assert position(consumer, partition) == 4
    failure = next_failure(consumer)
    assert [(failed.partition, failed.offset) for failed in failure.failures] == [((partition.topic, 0), 4)]
    assert isinstance(failure.failures[0].__cause__, ValueError)
    assert position(consumer, partition) == 5
    rest = read(consumer, 4)
    assert offsets(rest) == [5, 6, 7, 9]
    assert rest[0].value() == message(0).decode()
    assert consumer.counts()["failed"] == 1


def test_exception_handling_and_processing(topics: Topics) -> None:
    topic = topics.synthetic(2)
    refused = Refusing(message(4))
    consumer, partition = consumer_of(topics, topic, 0, value_deserializer=refused)
    assert offsets(consumer.consume(10, DEADLINE)) == [2, 4, 5, 6]
    assert position(consumer, partition) == 7
    consumer.pause([partition])
    assert has_no_message(consumer, 0.2)  # not even the exception
    consumer.incremental_assign([TopicPartition(topic, 1, 8)])
    assert offsets(read(consumer, 1)) == [9]
    consumer.resume([partition])
    assert next_failure(consumer).resume == {(topic, 0): 8}
    assert position(consumer, partition) == 8
    assert offsets(read(consumer, 1)) == [9]


def test_record_skipped_by_its_deserializer_is_counted(topics: Topics) -> None:
    refused = Refusing(message(0), message(4), error=Skip)
    consumer, _ = consumer_of(topics, topics.synthetic(), value_deserializer=refused)
    assert offsets(read(consumer, 4)) == [2, 4, 6, 9]
    assert consumer.counts()["skipped"] == 2


def gigantic_topic(topics: Topics) -> str:
    """Create a topic with two interleaved messages of 20 segments, each larger than a buffer of ten."""
    topic = topics.new()
    first_parts, second_parts = (parts(number, message(number)[:1] * PART * 20, PART) for number in (0, 1))
    topics.plain(topic, [part for pair in zip(first_parts, second_parts, strict=True) for part in pair])
    return topic


def test_gigantic_large_messages(topics: Topics) -> None:
    consumer, partition = consumer_of(
        topics, gigantic_topic(topics), message_assembler_buffer_capacity=PART + PART // 2
    )
    deadline = time.monotonic() + DEADLINE
    while position(consumer, partition) < 40 and time.monotonic() < deadline:
        assert has_no_message(consumer, 0.2)
    consumer.commit(asynchronous=False)
    assert committed(consumer, partition) == (40, "")
    assert consumer.committed_safe_offset(partition) == 39
    assert consumer.counts()["evicted"] == 39
    assert consumer.snapshot().messages == 1


def test_exception_on_large_msg_dropped(topics: Topics) -> None:
    capacity = {"message_assembler_buffer_capacity": 10 * PART, "exception_on_message_dropped": True}
    topic = gigantic_topic(topics)
    topics.plain(topic, [b"after"])
    consumer, _ = consumer_of(topics, topic, **capacity)
    dropped = []
    value = None
    while value is None:
        try:
            (record,) = read_one_by_one(consumer, 1)
            value = record.value()
        except RecordsFailed as error:
            dropped.append(error.failures[0].__cause__)
    assert value == b"after"
    assert all(isinstance(record, MessageDropped) for record in dropped)
    assert len(dropped) == consumer.counts()["evicted"] > 0


def test_bad_chunk_is_an_exception_or_by_configuration_a_message(topics: Topics) -> None:
    topic = topics.new()
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address})
    header = ("_lm", b"\x02" + bytes(16) + b"\x00\x00\x00\x05" + b"\x00\x00\x00\x02" + b"\x00\x00\x00\x09")
    producer.produce(topic, b"sequence 5 of 2", headers=[header])
    producer.produce(topic, b"good")
    producer.flush(30)
    consumer, _ = consumer_of(topics, topic)
    assert isinstance(next_failure(consumer).failures[0].__cause__, InvalidChunk)
    assert [record.value() for record in read(consumer, 1)] == [b"good"]
    assert consumer.counts()["refused.sequence"] >= 1
    lenient, _ = consumer_of(topics, topic, treat_bad_segments_as_payload=True)
    assert [record.value() for record in read(lenient, 2)] == [b"sequence 5 of 2", b"good"]


KILLED = """
import os, sys
from penstock.kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "large.message.enabled": True, "linger.ms": 0,
                     "max.message.segment.bytes": 1000, "message.max.bytes": 2000, "queue.buffering.max.messages": 10})
sent = 0
def count(*record, send=producer._raw.produce):
    global sent
    send(*record)
    sent += 1
    if sent == 30:
        while len(producer._raw) > 0:
            producer.poll(0.1)
        print("half", flush=True)
        sys.stdin.read()
producer._send = count
producer.produce(sys.argv[2], os.urandom(60_000))
"""


@pytest.mark.survives("large messages", "SIGKILL")
def test_producer_killed_between_chunks(topics: Topics) -> None:
    topic = topics.new()
    command = [sys.executable, "-c", KILLED, topics.address, topic]
    killed = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert killed.stdout
    assert killed.stdout.readline() == "half\n"
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    consumer, partition = consumer_of(topics, topic, message_assembler_expiration_offset_gap=50)
    topics.plain(topic, [b"a"] * 20)
    assert len(read(consumer, 20)) == 20
    assert consumer.safe_offset(partition) == 0  # it may still come
    topics.plain(topic, [b"b"] * 10)
    assert len(read(consumer, 10)) == 10
    assert consumer.safe_offset(partition) == 60
    consumer.commit(asynchronous=False)
    assert consumer.committed_safe_offset(partition) == 60
    assert consumer.counts()["expired"] == 1
    assert consumer.snapshot().bytes == 0


@pytest.mark.survives("large messages", "SIGKILL")
def test_consumer_killed_between_chunks_resumes_without_loss(topics: Topics) -> None:
    topic = topics.synthetic()
    script = (
        "import sys, time; from penstock.kafka import Consumer\n"
        "consumer = Consumer({'bootstrap.servers': sys.argv[1], 'group.id': 'killed', 'auto.offset.reset': 'earliest',"
        " 'enable.auto.commit': False, 'session.timeout.ms': 6000})\n"
        "consumer.subscribe([sys.argv[2]])\n"
        "one = None\n"
        "while one is None or one.offset() != 4:\n"
        "    one = consumer.poll(1) or one\n"
        "consumer.commit(asynchronous=False); print(one.offset(), flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", script, topics.address, topic]
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert killed.stdout
    assert killed.stdout.readline() == "4\n"
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    consumer = topics.consumer(group_id="killed")
    consumer.assign([TopicPartition(topic, 0)])
    assert offsets(read(consumer, 4)) == [offset for offset in DELIVERED if offset > 4]
