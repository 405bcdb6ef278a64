"""State of a consumer: recorded seeks and commits, failures, and missing offsets."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from penstock.kafka.errors import NoCommittedOffset, OffsetNotTracked, RecordsFailed
from penstock.kafka.large.chunks import encode_chunk
from penstock.kafka.large.headers import LARGE_MESSAGE, V3, LargeMessageHeader, encode_large_message_header
from penstock.kafka.large.record_processor import Committed
from tests.kafka.kafka_vectors import KAFKA, TP, headers_as_recorded, named, outcome, plain, uid, unhex
from tests.kafka.stand_in import Broker, Consumer, offsets

OTHER = ("topic", 1)
LAYOUT = ("M0a", "M1a", "M2", "M3a", "M1b", "M0b", "M3b", "M4", "M5a", "M5b")
DELIVERED = [2, 4, 5, 6, 7, 9]


@pytest.mark.parametrize("case", **named(KAFKA["consumer"]))
def test_consumer_seeks_and_commits_as_recorded(case: dict[str, Any]) -> None:
    broker = Broker()
    for record in case["log"]:
        assert broker.write(unhex(record["value"])) == record["offset"]
    first = case["ops"][0]
    if case["name"].startswith("raw committed"):
        broker.committed[TP] = Committed(*first["state"]["rawCommitted"])
    consumer = Consumer(broker, tracked=case["maxTracked"])
    consumer.raw[TP] = case["logStartOffset"]
    for index, op in enumerate(case["ops"]):
        assert _apply(consumer, op) == plain(op["result"]), index
        if "state" in op:
            assert _state(consumer) == op["state"], index


def _apply(consumer: Consumer, op: dict[str, Any]) -> Any:
    match op["op"]:
        case "poll":
            assert consumer.raw[TP] == op["rawPositionBefore"]
            messages = consumer.poll(op["maxRawRecords"])
            return [
                {"offset": m.offset(), "value": m.value().decode(), "headers": headers_as_recorded(m.headers())}
                for m in messages
            ]
        case "seek":
            return outcome(lambda: consumer.seek(op["offset"]))
        case "seekToCommitted":
            return outcome(consumer.seek_to_committed)
        case "commitSync":
            return outcome(consumer.commit)
        case "commitSyncOffset":
            return outcome(lambda: consumer.commit_offset(op["offset"], op.get("metadata", "")))
        case "safeOffsetAt":
            return outcome(lambda: consumer.state.safe_offset(TP, op["offset"]))
    raise AssertionError(op)


def _state(consumer: Consumer) -> dict[str, Any]:
    stored, committed = consumer.broker.committed.get(TP), consumer.state.committed(TP)
    return {
        "rawPosition": consumer.raw[TP],
        "position": consumer.raw[TP],
        "safeOffset": consumer.state.safe_offset(TP),
        "rawCommitted": stored and list(stored),
        "committed": committed and list(committed),
        "committedSafeOffset": consumer.state.committed_safe_offset(TP),
    }


def _broker() -> Broker:
    """Return a broker with the layout of the original's integration tests."""
    broker = Broker()
    for name in LAYOUT:
        number = int(name[1])
        count = 2 if name[2:] else 1
        sequence = "ab".index(name[2:]) if name[2:] else 0
        broker.write(encode_chunk(uid(number), sequence, count, 10 * count, bytes([48 + number]) * 10))
    return broker


# LiKafkaConsumerIntegrationTest, as far as it needs no broker


@pytest.mark.parametrize(
    ("offset", "raw", "then"),
    [
        (0, 0, DELIVERED),
        (2, 0, DELIVERED),
        (3, 0, DELIVERED[1:]),
        (4, 0, DELIVERED[1:]),
        (5, 0, DELIVERED[2:]),
        (6, 3, DELIVERED[3:]),
        (7, 7, DELIVERED[4:]),
        (8, 8, [9]),
        (9, 8, [9]),
        (10, 10, []),
        (11, 11, []),
    ],
)
def test_seek(offset: int, raw: int, then: list[int]) -> None:
    consumer = Consumer(_broker())
    assert offsets(consumer.poll()) == DELIVERED
    consumer.seek(offset)
    assert consumer.raw[TP] == raw
    assert offsets(consumer.poll()) == then


def test_seek_before_the_first_read_goes_to_its_offset() -> None:
    consumer = Consumer(_broker())
    consumer.seek(1)
    assert offsets(consumer.poll()) == [2, 4, 6, 7, 9]
    consumer.commit()
    assert consumer.broker.committed[TP] == (5, "10,")  # the second segment of M0 waits for its first


def test_seek_too_far_back() -> None:
    consumer = Consumer(_broker(), tracked=1)
    consumer.poll()
    with pytest.raises(OffsetNotTracked):
        consumer.seek(1)


@pytest.mark.parametrize("first", range(11))
def test_commit_before_any_offset_loses_no_later_message(first: int) -> None:
    consumer = Consumer(_broker())
    assert offsets(consumer.poll()) == DELIVERED
    consumer.broker.committed |= consumer.state.commit_before({TP: first})
    assert consumer.state.committed(TP) == (first, "")
    assert offsets(Consumer(consumer.broker).poll()) == [offset for offset in DELIVERED if offset >= first]


def test_commit_before_an_offset_that_is_no_longer_tracked_is_left_out() -> None:
    consumer = Consumer(_broker(), tracked=2)
    assert offsets(consumer.poll()) == DELIVERED
    assert consumer.state.commit_before({TP: 4}) == {}


@pytest.mark.parametrize("sought", range(11))
@pytest.mark.parametrize("tracked", [500, 4, 2])
def test_seek_to_any_offset_loses_no_later_message(sought: int, tracked: int) -> None:
    consumer = Consumer(_broker(), tracked=tracked)
    assert offsets(consumer.poll()) == DELIVERED
    try:
        consumer.seek(sought)
    except OffsetNotTracked:
        assert tracked < 5
        return
    assert offsets(consumer.poll()) == [offset for offset in DELIVERED if offset >= sought]


def test_commit() -> None:
    consumer = Consumer(_broker())
    for count, expected in itertools.zip_longest(
        range(1, 11), [(0, "1,"), (0, "2,"), (0, "3,"), (0, "3,"), (0, "5,"), (3, "6,"), (7, "7,"), (8, "8,")]
    ):
        consumer.poll(at_once=1)
        consumer.commit()
        if expected and count > 2:
            assert consumer.broker.committed[TP] == expected, count
    assert consumer.broker.committed[TP] == (10, "10,")
    assert consumer.state.committed(TP) == (10, "")


def test_commit_with_offset_map() -> None:
    consumer = Consumer(_broker())
    consumer.poll()
    for offset, safe in [(3, 0), (5, 0), (6, 3), (7, 7), (8, 8), (10, 10)]:
        consumer.commit_offset(offset, "mine")
        assert consumer.broker.committed[TP] == (safe, f"{offset},mine")
        assert consumer.state.committed(TP) == (offset, "mine")
        assert consumer.state.committed_safe_offset(TP) == safe


def test_absent_metadata_is_empty() -> None:
    consumer = Consumer(_broker())
    consumer.poll()
    consumer.commit_offset(7, None)
    assert consumer.broker.committed[TP] == (7, "7,")


def test_seek_to_beginning_and_end() -> None:
    consumer = Consumer(_broker())
    consumer.poll()
    for raw, then in ((0, DELIVERED), (10, [])):
        consumer.state.reset(TP)
        consumer.raw[TP] = raw
        assert offsets(consumer.poll()) == then
        assert consumer.state.safe_offset(TP) == (10 if then else None)


def test_seek_to_committed() -> None:
    consumer = Consumer(_broker())
    consumer.poll()
    consumer.commit_offset(3)
    assert (consumer.state.committed(TP), consumer.state.committed_safe_offset(TP)) == ((3, ""), 0)
    consumer.seek_to_committed()
    assert consumer.raw[TP] == 0
    assert offsets(consumer.poll()) == DELIVERED[1:]


def test_seek_to_committed_without_a_commit() -> None:
    with pytest.raises(NoCommittedOffset):
        Consumer(_broker()).seek_to_committed()


def test_seek_to_the_committed_offset_is_a_seek_to_committed() -> None:
    consumer = Consumer(_broker())
    consumer.poll()
    consumer.commit_offset(3)
    consumer.seek(3)
    assert (consumer.raw[TP], offsets(consumer.poll())) == (0, DELIVERED[1:])


@pytest.mark.parametrize("metadata", ["", "test", "test,test", None])
def test_committed_on_offsets_committed_by_raw_consumer(metadata: str | None) -> None:
    broker = _broker()
    broker.committed[TP] = Committed(3, metadata)
    consumer = Consumer(broker)
    assert consumer.state.committed(TP) == (3, metadata)
    assert consumer.state.committed_safe_offset(TP) == (3 if metadata else None)
    assert offsets(consumer.poll()) == [6, 7, 9]


def test_seek_after_assignment_change() -> None:
    broker = _broker()
    broker.records[OTHER] = [record.copy() for record in broker.records[TP]]
    consumer = Consumer(broker)
    consumer.poll()
    consumer.state.revoked([TP])
    consumer.state.assigned([OTHER])
    assert consumer.state.safe_offset(TP) is None
    assert consumer.state.seek(TP, 1) == 1


def test_unsubscribe() -> None:
    consumer = Consumer(_broker())
    consumer.poll(at_once=6)
    consumer.state.clear()
    assert (consumer.state.safe_offsets(), consumer.state.snapshot().messages) == ({}, 0)


def test_partition_assigned_again_at_once_keeps_its_buffer() -> None:
    consumer = Consumer(_broker())
    consumer.poll(at_once=5)
    consumer.commit()
    consumer.state.revoked([TP])
    consumer.state.assigned([TP])
    assert consumer.state.snapshot().messages == 2
    assert offsets(consumer.poll()) == [5, 6, 7, 9]


def test_position() -> None:
    consumer = Consumer(_broker())
    consumer.poll(at_once=2)
    consumer.commit()  # nothing was delivered: the position, held back by what is incomplete
    assert consumer.broker.committed[TP] == (0, "2,")


def test_partition_without_reads_is_not_committed() -> None:
    consumer = Consumer(_broker(), TP, OTHER)
    consumer.poll()
    consumer.commit()
    assert set(consumer.broker.committed) == {TP}


def test_exception_handling_and_processing() -> None:
    def refuse(topic: str, value: Any, headers: Any) -> Any:
        if value == b"4" * 10:
            raise ValueError("I do not like it")
        return value

    consumer = Consumer(_broker(), value_deserializer=refuse)
    assert offsets(consumer.poll()) == [2, 4, 5, 6]
    assert consumer.raw[TP] == 7
    with pytest.raises(RecordsFailed, match="I do not like it") as caught:
        consumer.poll()
    assert caught.value.resume == {TP: 8}
    assert consumer.raw[TP] == 8
    assert offsets(consumer.poll()) == [9]


def test_failure_of_a_paused_partition_is_raised_after_resume() -> None:
    broker = _broker()
    broker.write(b"other", of=OTHER)
    bad = encode_large_message_header(LargeMessageHeader(V3, uid(0), 5, 2, 20))
    broker.records[TP] = []
    broker.write(b"first")
    broker.write(b"x", [(LARGE_MESSAGE, bad)])
    consumer = Consumer(broker, TP, OTHER)
    assert offsets(consumer.poll()) == [0, 0]
    consumer.paused = {TP}
    broker.write(b"more", of=OTHER)
    assert offsets(consumer.poll()) == [1]
    assert consumer.raw[TP] == 1
    consumer.paused = set()
    with pytest.raises(RecordsFailed):
        consumer.poll()
    assert consumer.raw[TP] == 2


def test_seek_discards_failures() -> None:
    bad = encode_large_message_header(LargeMessageHeader(V3, uid(0), 5, 2, 20))
    broker = Broker()
    broker.write(b"first")
    broker.write(b"x", [(LARGE_MESSAGE, bad)])
    consumer = Consumer(broker)
    consumer.poll()
    consumer.seek(0)
    assert offsets(consumer.poll()) == [0]


def test_exception_in_processing_large_message() -> None:
    def refuse(topic: str, value: Any, headers: Any) -> Any:
        if value.startswith(b"1"):
            raise ValueError("not this one")
        return value

    consumer = Consumer(_broker(), value_deserializer=refuse)
    assert offsets(consumer.poll()) == [2]
    assert consumer.raw[TP] == 4
    with pytest.raises(RecordsFailed):
        consumer.poll()
    assert consumer.raw[TP] == 5
    assert offsets(consumer.poll()) == [5, 6, 7, 9]


def test_gigantic_large_messages() -> None:
    broker = Broker()
    for sequence in range(3):
        broker.write(encode_chunk(uid(0), sequence, 3, 30, b"x" * 10))
    consumer = Consumer(broker, capacity=15)
    assert consumer.poll() == []
    consumer.commit()
    assert consumer.state.committed(TP) == (3, "")
    assert broker.committed[TP].offset == 2
    assert consumer.state.snapshot().dropped == {"evicted": 1, "expired": 0}


def test_exception_on_large_message_dropped() -> None:
    broker = Broker()
    for number in range(4):
        broker.write(encode_chunk(uid(number), 0, 2, 20, b"x" * 10))
    consumer = Consumer(broker, capacity=30, exception_on_dropped=True)
    with pytest.raises(RecordsFailed, match="the buffer is full"):
        consumer.poll()
    assert consumer.raw[TP] == 4


@pytest.mark.parametrize(("fetched", "raw", "then"), [(0, 3, [6, 7, 9]), (50, 10, []), (7, 7, [7, 9])])
def test_offset_out_of_range_for_liclosest(fetched: int, raw: int, then: list[int]) -> None:
    consumer = Consumer(_broker())
    assert consumer.state.out_of_range(TP, fetched, 3, 10) == raw
    consumer.raw[TP] = raw
    assert offsets(consumer.poll()) == then


def test_killed_producer_holds_the_safe_offset_only_for_the_gap() -> None:
    broker = Broker()
    broker.write(encode_chunk(uid(0), 0, 2, 20, b"x" * 10))
    for _ in range(30):
        broker.write(b"plain")
    consumer = Consumer(broker, gap=10)
    consumer.poll(at_once=11)
    assert consumer.state.safe_offset(TP) == 0
    consumer.poll()
    assert consumer.state.safe_offset(TP) == 31
    assert consumer.state.snapshot().dropped == {"evicted": 0, "expired": 1}
