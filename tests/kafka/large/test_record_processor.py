"""Records are processed as recorded; skipped and failed records are counted; plain records take the fast path."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kafka.auditing.auditor import Auditor, AuditType, NoOpAuditor
from penstock.kafka.errors import InvalidChunk, OffsetNotTracked, Skip
from penstock.kafka.large.assembler import Assembler
from penstock.kafka.large.chunks import encode_chunk
from penstock.kafka.large.headers import LARGE_MESSAGE, V3, LargeMessageHeader, encode_large_message_header, encode_long
from penstock.kafka.large.record_processor import Committed, Processor, plain_runs
from penstock.kafka.large.safe_offsets import DeliveredOffsets
from tests.kafka.kafka_vectors import (
    KAFKA,
    TP,
    Key,
    Record,
    headers_as_recorded,
    headers_of,
    named,
    outcome,
    partition,
    plain,
    uid,
    unhex,
)
from tests.kafka.large.test_safe_offsets import query, recorded_answers
from tests.kafka.stand_in import Broker, Consumer


@pytest.mark.parametrize("case", **named(KAFKA["recordsProcessor"]))
def test_records_are_processed_as_recorded(case: dict[str, Any]) -> None:
    broker = Broker()
    bounds = {"capacity": case["bufferCapacity"], "gap": case["expirationOffsetGap"], "tracked": case["maxTracked"]}
    consumer = Consumer(broker, **bounds)
    for index, op in enumerate(case["ops"]):
        _check(consumer, broker, op, index)


def _check(consumer: Consumer, broker: Broker, op: dict[str, Any], index: int) -> None:
    kind = op["op"]
    of = partition(op["tp"]) if "tp" in op else TP
    if kind == "stored":
        broker.committed[of] = Committed(op["offset"], op["metadata"])
    elif kind == "query":
        assert query(consumer.tracker, op) == recorded_answers(op), index
    elif kind == "process":
        assert _processed(consumer, of, op["in"]) == _recorded(op), index
    elif kind == "safeOffsetsToCommit":
        committed, keep = Committed(op["offset"], op["metadata"]), not op["ignoreHighWatermark"]
        answer = outcome(lambda: consumer.state.to_commit(of, committed, keep))
        answer = answer if isinstance(answer, dict) else {"offset": answer.offset, "metadata": answer.metadata}
        assert answer == plain(op["result"]), index
    else:
        answer = {f"{topic}-{number}": offset for (topic, number), offset in consumer.state.safe_offsets().items()}
        assert (kind, answer) == ("safeOffsetsToCommitAll", op["result"]), index


def _processed(consumer: Consumer, of: Key, recorded: list[dict[str, Any]]) -> Any:
    records = [Record(r["offset"], unhex(r["value"]), headers_of(r["headers"]), b"key", of) for r in recorded]
    messages = consumer.state.process(records)
    errors = {f"{topic}-{number}": [offset, offset + 1] for (topic, number), offset in consumer.state.rewinds().items()}
    delivered = [
        (m.offset(), m.key(), m.value(), 0 if m.value() is None else len(m.value()), headers_as_recorded(m.headers()))
        for m in messages
    ]
    return delivered, errors, consumer.state.skipped


def _recorded(op: dict[str, Any]) -> Any:
    def encoded(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    result = op["result"]
    messages = [
        (r["offset"], encoded(r["key"]), encoded(r["value"]), r["serializedValueSize"], r["headers"])
        for r in result["records"]
    ]
    return messages, result["errorOffsets"], op["recordsSkipped"]


def _part(number: int, sequence: int, count: int = 2, each: int = 10) -> bytes:
    return encode_chunk(uid(number), sequence, count, count * each, bytes([65 + number]) * each)


def _layout(*more: Any) -> tuple[Broker, Consumer]:
    """Return a log: 0 plain, 1 first of A, 2 plain, 3 first of B, 4 last of B, 5 last of A; four are tracked."""
    broker = Broker()
    for value in (b"message0", _part(0, 0), b"message1", _part(1, 0), _part(1, 1), _part(0, 1)):
        broker.write(value)
    return broker, Consumer(broker, tracked=4)


# ConsumerRecordsProcessorTest


def test_filter() -> None:
    broker = Broker()
    for value in (b"plain", _part(0, 0), _part(1, 0)):
        broker.write(value)
    assert [message.offset() for message in Consumer(broker).poll()] == [0]


def test_correctness() -> None:
    _, consumer = _layout()
    messages = consumer.poll()
    assert [(m.offset(), m.value()) for m in messages] == [
        (0, b"message0"),
        (2, b"message1"),
        (4, b"B" * 20),
        (5, b"A" * 20),
    ]
    assert [headers_as_recorded(m.headers()) for m in messages] == [[], *[[["_so", encode_long(1).hex()]]] * 2, []]


@pytest.mark.parametrize("kind", [0, 1, V3, 3, 127])
def test_record_headers_compatibility(kind: int) -> None:
    broker = Broker()
    for sequence in range(2):
        value = b"A" * 10 if kind >= V3 else _part(0, sequence)
        encoded_header = encode_large_message_header(LargeMessageHeader(kind, uid(0), sequence, 2, 20))
        broker.write(value, [("user", b"7"), (LARGE_MESSAGE, encoded_header), ("last", None)])
    (message,) = Consumer(broker).poll()
    message_header = encode_large_message_header(LargeMessageHeader(kind, uid(0), 0, 2, 20).for_whole_message())
    assert message.value() == b"A" * 20
    assert message.headers() == [("user", b"7"), ("last", None), (LARGE_MESSAGE, message_header)]
    assert len(message_header) == (25 if kind == 0 else 29)


def test_safe_offset_without_large_message() -> None:
    broker = Broker()
    for _ in range(3):
        broker.write(b"plain")
    consumer = Consumer(broker)
    consumer.poll(at_once=2)
    assert [consumer.state.safe_offset(TP, offset) for offset in (0, 1)] == [1, 2]
    assert consumer.state.safe_offsets() == {TP: 2}
    assert consumer.state.commit_offsets({TP: Committed(1, "")}) == {TP: Committed(1, "1,")}


def test_safe_offset_with_large_message() -> None:
    _, consumer = _layout()
    consumer.poll()
    assert [consumer.state.safe_offset(TP, offset) for offset in (0, 2, 4, 5)] == [1, 1, 1, 6]
    for offset in (1, 3, 6):
        with pytest.raises(OffsetNotTracked):
            consumer.state.safe_offset(TP, offset)
    assert consumer.state.safe_offset(TP) == 6


def test_eviction() -> None:
    broker, consumer = _layout()
    for value in (_part(2, 0), b"message2", _part(2, 1)):
        broker.write(value)
    consumer.poll()
    with pytest.raises(OffsetNotTracked):
        consumer.state.safe_offset(TP, 2)
    assert [consumer.state.safe_offset(TP, offset) for offset in (4, 5, 7, 8)] == [1, 6, 6, 9]


def test_verify_starting_offset() -> None:
    _, consumer = _layout()
    consumer.poll()
    assert [consumer.tracker.starting_offset(TP, offset) for offset in (0, 2, 4, 5)] == [0, 2, 3, 1]


def test_starting_offset_without_messages() -> None:
    assert DeliveredOffsets().starting_offset(TP, 100) == 100


def test_starting_offset_with_normal_messages() -> None:
    _, consumer = _layout()
    consumer.poll()
    with pytest.raises(OffsetNotTracked):
        consumer.tracker.starting_offset(TP, 100)


def test_last_delivered() -> None:
    _, consumer = _layout()
    assert consumer.tracker.delivered(TP) is None
    consumer.poll()
    assert consumer.tracker.delivered(TP) == 5


def test_null_value() -> None:
    broker = Broker()
    broker.write(None)
    broker.write(b"")
    messages = Consumer(broker).poll()
    assert [message.value() for message in messages] == [None, b""]
    assert [m.value() for m in Consumer(broker, auditor=RecordingAuditor()).poll()] == [None, b""]


def test_deserialization_exception() -> None:
    def refuse(topic: str, value: Any, headers: Any) -> Any:
        if value in (b"message0", b"A" * 20):
            raise Skip("not this one")
        return value.decode()

    broker, _ = _layout()
    for number in (2, 3):
        broker.write(b"message%d" % number)
    consumer = Consumer(broker, value_deserializer=refuse)
    assert [m.value() for m in consumer.poll()] == ["message1", "B" * 20, "message2", "message3"]
    assert (consumer.state.skipped, consumer.state.rewinds()) == (2, {})


def test_failed_record_stops_only_its_partition() -> None:
    broker, other_partition = Broker(), ("topic", 1)
    bad = encode_large_message_header(LargeMessageHeader(V3, uid(0), 5, 2, 20))
    for of in (TP, other_partition):
        broker.write(b"first", of=of)
        broker.write(b"x", [(LARGE_MESSAGE, bad)] if of == TP else None, of=of)
        broker.write(b"last", of=of)
    processor = Processor(Assembler(), DeliveredOffsets(), lambda of: None)
    result = processor.process([*broker.records[TP], *broker.records[other_partition]])
    assert [(r.partition(), r.offset()) for r in result.records] == [(0, 0), (1, 0), (1, 1), (1, 2)]
    (failure,) = result.failures.values()
    assert (failure.partition, failure.offset) == (TP, 1)
    assert isinstance(failure.__cause__, InvalidChunk)


def test_keys_and_values_are_deserialized_once_per_message() -> None:
    seen: list[Any] = []

    def upper(topic: str, data: Any, headers: Any) -> Any:
        seen.append((topic, data, headers))
        return data and data.decode().upper()

    broker = Broker()
    headers = [("user", b"1")]
    for value in (_part(0, 0), _part(0, 1)):
        broker.write(value, headers, key=b"k")
    consumer = Consumer(broker, key_deserializer=lambda *a: a[1].decode(), value_deserializer=upper)
    (message,) = consumer.poll()
    assert (message.key(), message.value()) == ("k", "A" * 20)
    assert seen == [("topic", b"A" * 20, headers)]


class RecordingAuditor(Auditor):
    """An auditor that stores its calls."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.losses: list[Any] = []

    def lost(self, topic: str, reason: str, messages: int) -> None:
        self.losses.append((topic, reason, messages))

    def configure(self, config: Any) -> None: ...

    def start(self) -> None: ...

    def audit_token(self, key: Any, value: Any) -> Any:
        return key, value

    def record(self, token: Any, topic: str, timestamp: int | None, messages: int, size: int, kind: AuditType) -> None:
        self.records.append((token, topic, timestamp, messages, size, kind))

    def close(self, timeout: float | None = None) -> None: ...


def test_each_message_is_audited_once_with_its_total_size() -> None:
    broker, auditor = Broker(), RecordingAuditor()
    for value in (b"plain", _part(0, 0), _part(0, 1), None):
        broker.write(value, key=b"key")
    Consumer(broker, auditor=auditor).poll()
    tokens = [(b"key", b"plain"), (b"key", b"A" * 20), (b"key", None)]
    assert auditor.records == [(token, "topic", 0, 1, 3 + len(token[1] or b""), AuditType.SUCCESS) for token in tokens]


def test_undelivered_messages_are_audited_by_topic_and_reason() -> None:
    def refuse(topic: str, value: Any, headers: Any) -> Any:
        if value == b"skip":
            raise Skip("not this one")
        return value

    broker, auditor = Broker(), RecordingAuditor()
    for number in range(3):
        broker.write(_part(number, 0))
    for value in (b"skip", b"skip", *[b"plain"] * 10):
        broker.write(value)
    broker.write(b"x", [(LARGE_MESSAGE, b"short")])
    Consumer(broker, capacity=25, gap=5, auditor=auditor, value_deserializer=refuse).poll()
    assert sorted(auditor.losses) == [
        ("topic", "evicted", 1),
        ("topic", "expired", 2),
        ("topic", "refused.header", 1),
        ("topic", "skipped", 2),
    ]


# Whole batches of plain messages

VALUES = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.just(b'{"type":"a"}' * 4),
    st.builds(_part, st.integers(0, 3), st.integers(0, 1)),
)
HEADERS = st.sampled_from([None, [], [("_t", bytes(8))], [("a", b""), ("b", None)], [(LARGE_MESSAGE, bytes(25))]])
LOGS = st.lists(st.tuples(VALUES, HEADERS, st.sampled_from([TP, ("topic", 1)]), st.integers(1, 3)), max_size=40)


@settings(max_examples=200)
@given(LOGS, st.integers(1, 12), st.integers(-1, 9))
def test_batch_gives_the_messages_of_single_records(log: Any, at_once: int, stored: int) -> None:
    results = []
    for auditor in (NoOpAuditor(), RecordingAuditor()):  # with an auditor every record is looked at
        broker = Broker()
        if stored >= 0:
            broker.committed[TP] = Committed(0, f"{stored},")
        offsets = {TP: 0, ("topic", 1): 0}
        records = []
        for value, headers, of, gap in log:
            offsets[of] += gap
            records.append(Record(offsets[of], value, headers and list(headers), None, of))
        state = Consumer(broker, auditor=auditor, tracked=3).state
        seen = []
        for start in range(0, len(records), at_once):
            messages = state.process(records[start : start + at_once])
            seen += [(m.partition(), m.offset(), m.value(), headers_as_recorded(m.headers())) for m in messages]
            seen.append((state.rewinds(), state.safe_offsets()))
        tracker = state._tracker
        for of in offsets:
            for offset in range(offsets[of] + 2):
                seen.append(outcome(partial(tracker.safe_offset, of, offset)))
                seen.append(outcome(partial(tracker.closest_delivered, of, offset)))
        results.append((seen, state.commit([*offsets], lambda of: 77)))
    assert results[0] == results[1]


def test_plain_runs_are_found_by_partition() -> None:
    other_partition = ("topic", 1)
    records = [Record(offset, b"x", None, None, of) for offset, of in [(3, TP), (5, TP), (0, other_partition), (9, TP)]]
    assert plain_runs(records) == [(TP, 3, 5), (other_partition, 0, 0), (TP, 9, 9)]
    assert plain_runs([]) == []


@pytest.mark.parametrize(
    "record",
    [Record(6, _part(0, 0)), Record(6, b"x", [(LARGE_MESSAGE, None)]), Record(5, b"x"), Record(4, b"x")],
)
def test_record_that_is_not_plain_leaves_the_fast_path(record: Record) -> None:
    assert plain_runs([Record(5, b"x"), record]) is None
