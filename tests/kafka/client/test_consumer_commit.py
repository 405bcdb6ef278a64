"""Commits of the consumer, and consumers that resume from them, against a real broker."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from penstock.kafka import Consumer, Producer
from penstock.testing import wait_until
from tests.kafka.kafka_helpers import (
    DEADLINE,
    DELIVERED,
    Topics,
    committed,
    first_partition_consumer,
    has_no_message,
    offsets,
    position,
    read,
    read_one_by_one,
)


def raw_committed(topics: Topics, topic: str, group: str) -> tuple[int, str | None]:
    consumer = topics.raw_consumer(topic, group)
    (partition,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    consumer.close()
    return partition.offset, partition.metadata


def test_commit(topics: Topics) -> None:
    consumer, partition = first_partition_consumer(topics, topics.synthetic(), group_id="test_commit")
    assert committed(consumer, partition) == (OFFSET_INVALID, None)
    assert consumer.committed_safe_offset(partition) is None
    safe = {2: 0, 4: 0, 5: 3, 6: 7, 7: 8, 9: 10}
    for offset in DELIVERED:
        assert offsets(read_one_by_one(consumer, 1)) == [offset]
        consumer.commit(asynchronous=False)
        assert committed(consumer, partition) == (offset + 1, "")
        assert consumer.committed_safe_offset(partition) == safe[offset] == consumer.safe_offset(partition)
    assert raw_committed(topics, partition.topic, "test_commit") == (10, "10,")


def test_commit_with_offset_map(topics: Topics) -> None:
    consumer, partition = first_partition_consumer(topics, topics.synthetic())
    read(consumer, 6)
    safe = {0: 0, 3: 0, 5: 0, 6: 3, 7: 7, 8: 8, 10: 10}
    for offset, expected in safe.items():
        request = TopicPartition(partition.topic, 0, offset, metadata="mine, and mine")
        (answer,) = consumer.commit(offsets=[request], asynchronous=False) or ()
        assert (answer.offset, answer.metadata) == (offset, "mine, and mine")
        assert committed(consumer, partition) == (offset, "mine, and mine")
        assert consumer.committed_safe_offset(partition) == expected


def test_commit_with_timeout(topics: Topics) -> None:
    consumer, partition = first_partition_consumer(topics, topics.synthetic())
    read(consumer, 6)
    consumer.commit(asynchronous=False, timeout=DEADLINE)
    assert committed(consumer, partition) == (10, "")
    lonely = topics.consumer(bootstrap_servers="127.0.0.1:1", log_level=0)
    started = time.monotonic()
    with pytest.raises(KafkaException):
        lonely.commit(offsets=[TopicPartition(partition.topic, 0, 5)], asynchronous=False, timeout=0.2)
    assert time.monotonic() - started < 20


def test_commit_of_a_message_covers_all_messages_up_to_it(topics: Topics) -> None:
    consumer, partition = first_partition_consumer(topics, topics.synthetic())
    records = read(consumer, 6)
    consumer.commit(message=records[2], asynchronous=False)
    assert committed(consumer, partition) == (6, "")
    assert consumer.committed_safe_offset(partition) == 3
    with pytest.raises(ValueError, match="exclude each other"):
        consumer.commit(message=records[2], offsets=[partition])


def test_commit_of_a_partition_end_is_refused(topics: Topics) -> None:
    consumer, partition = first_partition_consumer(topics, topics.synthetic(), enable_partition_eof=True)
    end = next(event for event in iter(lambda: consumer.poll(DEADLINE), None) if event.error())
    for take in (consumer.commit, consumer.store_offsets):
        with pytest.raises(KafkaException) as raised:
            take(message=end)
        assert raised.value.args[0].code() == KafkaError._INVALID_ARG
    assert committed(consumer, partition) == (OFFSET_INVALID, None)


def test_synchronous_commit_of_nothing_is_an_error(topics: Topics) -> None:
    consumer, _ = first_partition_consumer(topics, topics.synthetic())
    consumer.commit()
    with pytest.raises(KafkaException) as raised:
        consumer.commit(asynchronous=False)
    assert raised.value.args[0].code() == KafkaError._NO_OFFSET


def test_only_stored_offsets_are_committed_without_automatic_storing(topics: Topics) -> None:
    consumer, partition = first_partition_consumer(topics, topics.synthetic(), enable_auto_offset_store=False)
    records = read(consumer, 6)
    consumer.store_offsets(message=records[1])
    consumer.commit(asynchronous=False)
    assert committed(consumer, partition) == (5, "")
    consumer.store_offsets(offsets=[TopicPartition(partition.topic, 0, 8)])
    consumer.commit(asynchronous=False)
    assert committed(consumer, partition) == (8, "")


def test_offset_commit_callback(topics: Topics) -> None:
    reports: list[tuple[object, list[tuple[int, str | None]]]] = []
    consumer, partition = first_partition_consumer(
        topics,
        topics.synthetic(),
        on_commit=lambda error, partitions: reports.append(
            (error, [(committed_partition.offset, committed_partition.metadata) for committed_partition in partitions])
        ),
    )
    read(consumer, 6)
    consumer.commit(offsets=[TopicPartition(partition.topic, 0, 6, metadata="half")])
    deadline = time.monotonic() + DEADLINE
    while not reports and time.monotonic() < deadline:
        assert has_no_message(consumer, 0.1)
    assert reports == [(None, [(6, "half")])]


@pytest.mark.parametrize("metadata", ["", "test", "test,test"])
def test_committed_on_offsets_committed_by_raw_consumer(topics: Topics, metadata: str) -> None:
    topic = topics.synthetic()
    group = f"raw-{metadata}"
    raw = topics.raw_consumer(topic, group)
    raw.commit(offsets=[TopicPartition(topic, 0, 7, metadata=metadata)], asynchronous=False)
    raw.close()
    consumer, partition = first_partition_consumer(topics, topic, group_id=group)
    assert committed(consumer, partition) == (7, metadata)
    assert consumer.committed_safe_offset(partition) == (7 if metadata else None)
    consumer.seek_to_committed([partition])
    assert offsets(read(consumer, 2)) == [7, 9]


def test_offsets_are_committed_by_interval_and_on_closing(topics: Topics) -> None:
    topic = topics.synthetic()
    config = {"group_id": "auto", "enable_auto_commit": True, "auto_commit_interval_ms": 100}
    with Consumer(
        {"bootstrap.servers": topics.address, "group.id": "auto-close", "auto.offset.reset": "earliest"}
    ) as first:
        first.assign([TopicPartition(topic, 0)])
        assert offsets(read_one_by_one(first, 2)) == [2, 4]
    assert raw_committed(topics, topic, "auto-close") == (0, "5,")
    consumer, partition = first_partition_consumer(topics, topic, **config)
    read_one_by_one(consumer, 3)
    deadline = time.monotonic() + DEADLINE
    while committed(consumer, partition)[0] != 6 and time.monotonic() < deadline:
        consumer.consume(0, 0.1)
        time.sleep(0.05)
    assert committed(consumer, partition) == (6, "")


class Interrupted(Exception):
    """An exception of a signal's handler, as KeyboardInterrupt is one."""


@contextmanager
def interrupted_once(condition: Callable[[], bool]) -> Iterator[None]:
    """Interrupt the main thread once the condition holds; the block must end by it."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    def wait_and_interrupt() -> None:
        wait_until(condition, DEADLINE)
        os.kill(os.getpid(), signal.SIGUSR1)

    previous = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=wait_and_interrupt)
    thread.start()
    try:
        with pytest.raises(Interrupted):
            yield
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, previous)


def test_messages_of_an_interrupted_call_are_returned_by_the_next_and_committed_after_it(topics: Topics) -> None:
    topic, commits = topics.synthetic(), []
    consumer, partition = first_partition_consumer(
        topics,
        topic,
        enable_auto_commit=True,
        auto_commit_interval_ms=50,
        on_commit=lambda *commit: commits.append(commit),
    )
    with interrupted_once(lambda: len(consumer._collected) == len(DELIVERED) and len(commits) > 2):
        consumer.consume(100, DEADLINE)
    assert committed(consumer, partition) == (2, "")
    assert consumer.committed_safe_offset(partition) == 0
    assert offsets(consumer.consume(4, 0)) == DELIVERED[:4]
    consumer.commit(asynchronous=False)
    assert committed(consumer, partition) == (7, "")
    assert offsets(consumer.consume(4, 0)) == DELIVERED[4:]
    consumer.commit(asynchronous=False)
    assert committed(consumer, partition) == (10, "")


def test_closing_after_an_interrupt_commits_only_returned_messages(topics: Topics) -> None:
    topic = topics.synthetic()
    consumer = topics.consumer(enable_auto_commit=True)
    consumer.subscribe([topic])
    assert offsets(read_one_by_one(consumer, 2)) == [2, 4]
    with interrupted_once(lambda: len(consumer._collected) == 4):
        consumer.consume(100, DEADLINE)
    consumer.close()
    successor = topics.consumer()
    successor.subscribe([topic])
    assert offsets(read(successor, 4)) == [5, 6, 7, 9]


def test_messages_of_an_interrupted_call_are_dropped_if_they_are_read_again(topics: Topics) -> None:
    topic = topics.synthetic()
    consumer, partition = first_partition_consumer(topics, topic)
    for move, expected in (
        (lambda: consumer.seek(TopicPartition(topic, 0, 5)), [5, 6, 7, 9]),
        (lambda: consumer.seek_to_beginning(), DELIVERED),
        (lambda: consumer.assign([partition]), DELIVERED),
        (lambda: consumer.subscribe([topic]), DELIVERED),
    ):
        consumer.assign([partition])
        with interrupted_once(lambda: len(consumer._collected) == len(DELIVERED)):
            consumer.consume(100, DEADLINE)
        move()
        assert offsets(read(consumer, len(expected))) == expected
        assert has_no_message(consumer, 0.2)


def test_messages_of_an_interrupted_call_are_read_once_if_their_partition_returns(topics: Topics) -> None:
    topic = topics.synthetic()
    consumer = topics.consumer(enable_auto_commit=True)
    consumer.subscribe([topic])
    with interrupted_once(lambda: len(consumer._collected) == len(DELIVERED)):
        consumer.consume(100, DEADLINE)
    partition = TopicPartition(topic, 0)
    consumer._on_revoke(None, [partition])
    consumer._on_assign(None, [partition])
    consumer._commit_automatically()
    assert committed(consumer, partition) == (2, "")
    assert offsets(read(consumer, 6)) == DELIVERED
    assert has_no_message(consumer, 0.2)


def test_unsubscribe(topics: Topics) -> None:
    topic = topics.synthetic()
    consumer = topics.consumer(enable_auto_commit=True, group_id="unsubscribe")
    consumer.subscribe([topic])
    assert offsets(read(consumer, 6)) == DELIVERED
    consumer.unsubscribe()
    assert consumer.assignment() == []
    assert consumer.safe_offsets() == {}
    assert raw_committed(topics, topic, "unsubscribe") == (10, "10,")
    topics.plain(topic, [b"more"])
    consumer.subscribe([topic])
    assert offsets(read(consumer, 1)) == [10]


def test_fenced_member_closes_and_its_successor_reads_again(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    topic, membership = topics.synthetic(), {"group_id": "put-out", "group_instance_id": "the-same"}
    first = topics.consumer(enable_auto_commit=True, **membership)
    first.subscribe([topic])
    assert offsets(read(first, 6)) == DELIVERED
    second = topics.consumer(**membership)
    second.subscribe([topic])
    assert offsets(read(second, 6)) == DELIVERED
    topics._closing.remove(first)
    first.close()
    assert "automatic commit failed" in caplog.text


def test_consumer_is_closed_after_an_interrupt_while_closing(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    consumer = topics.consumer(enable_auto_commit=True, group_id="interrupted")
    consumer.subscribe([topics.synthetic()])
    assert offsets(read(consumer, 6)) == DELIVERED
    topics._closing.remove(consumer)
    monkeypatch.setattr(consumer._plain, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer._plain.client.poll(0)


def test_failed_automatic_commit_is_logged_on_poll_and_close(
    topics: Topics, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    consumer = topics.consumer(enable_auto_commit=True, auto_commit_interval_ms=100, group_id="not-answered")
    consumer.subscribe([topics.synthetic()])
    monkeypatch.setattr(consumer, "offsets_to_commit", refused)
    assert offsets(read(consumer, 6)) == DELIVERED
    time.sleep(0.2)
    assert has_no_message(consumer, 0.1)
    assert "automatic commit failed" in caplog.text
    caplog.clear()
    topics._closing.remove(consumer)
    consumer.close()
    assert "automatic commit failed" in caplog.text


def test_failing_listener_leaves_no_state(topics: Topics) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the listener's own")

    topic = topics.synthetic()
    consumer = topics.consumer(group_id="listener-fails")
    consumer.subscribe([topic], on_revoke=fail)
    assert offsets(read(consumer, 6)) == DELIVERED
    topics._closing.remove(consumer)
    with pytest.raises(RuntimeError, match="the listener's own"):
        consumer.close()
    assert consumer.assignment() == []


def test_commit_and_resume(topics: Topics) -> None:
    topic = topics.new(2)
    sent = send_mixture(topics, topic, 120)
    got: list[bytes] = []
    choose = random.Random(7)
    while len(got) < len(sent):
        consumer = topics.consumer(group_id="resume")
        consumer.subscribe([topic])
        got += [record.value() for record in read(consumer, min(choose.randrange(1, 40), len(sent) - len(got)))]
        consumer.commit(asynchronous=False)
        consumer.close()
    assert sorted(got) == sorted(sent)


def send_mixture(topics: Topics, topic: str, count: int) -> list[bytes]:
    """Send small and large messages of two producers, so that their segments are interleaved."""
    sent = []
    config = {"bootstrap.servers": topics.address, "large.message.enabled": True, "max.message.segment.bytes": 100}
    with Producer(config) as odd_producer, Producer(config) as even_producer:
        for number in range(count):
            value = b"%06d" % number * random.Random(number).choice([1, 1, 20, 90])
            sent.append(value)
            (odd_producer if number % 2 else even_producer).produce(topic, value, key=b"%d" % number)
            if number % 10 == 0:
                odd_producer.poll(0)
    return sent


class Member(threading.Thread):
    """A member of a group: reads until told to leave, and commits delivered messages when it leaves or a partition
    is revoked.
    """

    def __init__(self, topics: Topics, topic: str, strategy: str) -> None:
        super().__init__()
        self.got: list[bytes] = []
        self.assigned = 0
        self.leaves = threading.Event()
        self._make = lambda: topics.consumer(
            partition_assignment_strategy=strategy,
            enable_auto_commit=True,
            heartbeat_interval_ms=100,
            group_id=f"rebalance-{strategy}",
        )
        self._topics, self._topic = topics, topic

    def run(self) -> None:
        consumer = self._make()
        self._topics._closing.remove(consumer)
        consumer.subscribe([self._topic], on_assign=self._count)
        while not self.leaves.is_set():
            self.got += [record.value() for record in consumer.consume(10, 0.02) if not record.error()]
        consumer.close()

    def _count(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned += 1

    def leave(self) -> None:
        self.leaves.set()
        self.join(DEADLINE)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_rebalance(topics: Topics, strategy: str) -> None:
    topic = topics.new(3)
    members: list[Member] = []
    sent: list[bytes] = []
    for _ in range(4):  # each joins while messages come; from the third on the oldest leaves
        members.append(Member(topics, topic, strategy))
        members[-1].start()
        before = len(members[-1].got)
        deadline = time.monotonic() + DEADLINE
        while (len(members[-1].got) < before + 5 or not members[-1].assigned) and time.monotonic() < deadline:
            sent += send_mixture(topics, topic, 30)
            time.sleep(0.05)
        if len(members) > 2:
            members[-3].leave()
    wait_until(lambda: sum(len(member.got) for member in members) >= len(sent), DEADLINE)
    for member in members:
        member.leave()
    assert all(member.got for member in members)
    assert sum(member.assigned for member in members) > len(members)
    assert sorted(value for member in members for value in member.got) == sorted(sent)


def test_listeners_are_called_after_assignment_and_before_revocation(topics: Topics) -> None:
    topic = topics.synthetic(2)
    calls: list[tuple[str, int]] = []

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        calls.append(("assigned", len(consumer.assignment())))
        consumer.seek(TopicPartition(topic, 1, 7))

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        calls.append(("revoked", len(consumer.assignment())))
        consumer.commit(asynchronous=False)

    consumer = topics.consumer(group_id="listeners")
    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
    records = read(consumer, 6 + 2)
    assert offsets(record for record in records if record.partition() == 1) == [7, 9]
    assert position(consumer, TopicPartition(topic, 1)) == 10
    consumer.close()
    consumer.close()
    assert calls == [("assigned", 2), ("revoked", 2)]
    assert raw_committed(topics, topic, "listeners") == (10, "10,")


def test_offsets_that_the_revocation_listener_stores_are_committed(topics: Topics) -> None:
    topic = topics.synthetic()
    consumer = topics.consumer(group_id="stored-last", enable_auto_commit=True, enable_auto_offset_store=False)

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.store_offsets(message=records[-1])

    consumer.subscribe([topic], on_revoke=on_revoke)
    records = read(consumer, 6)
    consumer.close()
    assert raw_committed(topics, topic, "stored-last")[0] == 10


def test_offsets_are_committed_with_a_transaction(topics: Topics) -> None:
    source, target = topics.synthetic(), topics.new()
    consumer = topics.consumer(group_id="transactions")
    consumer.subscribe([source])
    config = {"bootstrap.servers": topics.address, "transactional.id": "t", "large.message.enabled": True}
    with Producer({**config, "max.message.segment.bytes": 25}) as producer:
        producer.init_transactions(30)
        for commits in (False, True):
            records = read(consumer, 6)
            producer.begin_transaction()
            for record in records:
                producer.produce(target, record.value())
            positions = consumer.positions_for_transaction()
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 30)
            if commits:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
                consumer.seek_to_beginning()
    assert raw_committed(topics, source, "transactions") == (10, "10,")
    reader, _ = first_partition_consumer(topics, target, group_id="committed-only", isolation_level="read_committed")
    assert [record.value() for record in read(reader, 6)] == [record.value() for record in records]
    assert has_no_message(reader)
