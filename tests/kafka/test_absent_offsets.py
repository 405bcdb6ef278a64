"""The reasons why a consumer of a real Kafka sees no message at an offset."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

import confluent_kafka
import numpy as np
import pytest
from confluent_kafka import TopicPartition

from penstock.kafka.absent_offsets import (
    Absence,
    AbsentOffsets,
    ClassifiedRange,
    aborted_transactions,
    classify_fetched,
)
from penstock.kafka.broker_connection import BrokerConnection, FetchedBatches, UnsupportedSecurity
from penstock.testing.pipe import wait_until
from tests.kafka.kafka_helpers import Topics, gather
from tests.kafka.stored_batches import batch, control_batch

CONTROL, ABORTED, COMPACTED = Absence.CONTROL, Absence.ABORTED, Absence.COMPACTED
EXPIRED, PRESENT, UNDECIDED, UNKNOWN = Absence.EXPIRED, Absence.PRESENT, Absence.UNDECIDED, Absence.UNKNOWN


def classified(topics: Topics, topic: str, absent: Iterable[tuple[int, int]], **kafka: str) -> list[tuple[Any, ...]]:
    properties = {"bootstrap.servers": topics.address, **{key.replace("_", "."): text for key, text in kafka.items()}}
    spans = AbsentOffsets(properties).classify((topic, 0), absent)
    return [(span.begin, span.end, span.absence) for span in spans]


def send_transactions(topics: Topics, topic: str, *sizes: int, aborted: Iterable[int] = ()) -> None:
    """Send one transaction of each size; those whose index is in ``aborted`` are aborted."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": topics.address, "transactional.id": secrets.token_hex(8), "linger.ms": 0}
    )
    producer.init_transactions(30)
    for index, size in enumerate(sizes):
        producer.begin_transaction()
        for number in range(size):
            producer.produce(topic, b"%d.%d" % (index, number), partition=0)
        producer.flush(30)
        producer.abort_transaction(30) if index in aborted else producer.commit_transaction(30)


def visible_offsets(topics: Topics, topic: str, end: int) -> list[int]:
    """Return the offsets that a consumer sees before the record at ``end - 1``."""
    consumer = topics.raw_consumer(topic)
    offsets: list[int] = []
    while not offsets or offsets[-1] < end - 1:
        offsets += [message.offset() for message in gather(lambda: consumer.consume(500, 0.2), 1)]
    consumer.close()
    return offsets


def test_classifies_markers_and_aborted_transactions(topics: Topics) -> None:
    topic = topics.new()
    send_transactions(topics, topic, 3, 2, 4, aborted=[1])
    # 0-2 and their commit at 3, 4-5 and their abort at 6, 7-10 and their commit at 11
    expected = [(3, 4, CONTROL), (4, 6, ABORTED), (6, 7, CONTROL), (11, 12, CONTROL), (12, 14, UNDECIDED)]
    # Kafka answers a commit before its marker is in the topic.
    wait_until(lambda: classified(topics, topic, [(3, 7), (11, 14)]) == expected)
    assert classified(topics, topic, [(0, 12)]) == [
        (0, 3, PRESENT),
        (3, 4, CONTROL),
        (4, 6, ABORTED),
        (6, 7, CONTROL),
        (7, 11, PRESENT),
        (11, 12, CONTROL),
    ]
    assert classified(topics, topic, [(5, 6)]) == [(5, 6, ABORTED)], "read from the middle of the transaction"
    assert classified(topics, topic, []) == []


def test_classifying_the_markers_of_transactions_reads_less_than_a_hundredth_of_the_topic(topics: Topics) -> None:
    topic = topics.new()
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address, "transactional.id": secrets.token_hex(8)})
    producer.init_transactions(30)
    for _ in range(50):
        producer.begin_transaction()
        for _ in range(20):
            producer.produce(topic, secrets.token_bytes(1000), partition=0)
        producer.commit_transaction(30)
    absent_offsets = AbsentOffsets({"bootstrap.servers": topics.address})
    spans = absent_offsets.classify((topic, 0), [(20 + 21 * number, 21 + 21 * number) for number in range(50)])
    assert {span.absence for span in spans} == {CONTROL}
    assert len(spans) == 50
    assert 0 < absent_offsets.fetched_bytes < 0.01 * 50 * 20 * 1000


def test_absent_offsets_of_small_transactions_are_fetched_together(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.new()
    send_transactions(topics, topic, *[1] * 40)
    requests = []
    fetch = BrokerConnection.fetch

    def counted(connection: BrokerConnection, *position: Any) -> FetchedBatches:
        requests.append(position)
        return fetch(connection, *position)

    monkeypatch.setattr(BrokerConnection, "fetch", counted)
    assert len(classified(topics, topic, [(2 * number + 1, 2 * number + 2) for number in range(40)])) == 40
    assert len(requests) == 1


def test_aborted_transactions_are_collected_up_to_a_limit_if_their_records_are_not_absent(topics: Topics) -> None:
    topic, properties = topics.new(), {"bootstrap.servers": topics.address}
    send_transactions(topics, topic, 3, 2, 4, 1, 2, aborted=[0, 1, 4])
    markers = [(3, 4), (6, 7), (11, 12), (13, 14), (16, 17)]
    for limit, absent, transactions in (
        (0, markers, {}),
        (5, markers, {0: 4, 4: 7, 14: 17}),
        (2, markers, {0: 4, 4: 7}),
        (5, [(0, 4), *markers[1:]], {4: 7, 14: 17}),
    ):
        absent_offsets = AbsentOffsets(properties, max_aborted=limit)
        absent_offsets.classify((topic, 0), absent)
        assert absent_offsets.aborted.get((topic, 0), {}) == transactions


def test_interleaved_transactions_of_two_producers_are_told_apart(topics: Topics) -> None:
    topic = topics.new()
    producers = [
        confluent_kafka.Producer({"bootstrap.servers": topics.address, "transactional.id": secrets.token_hex(8)})
        for _ in range(2)
    ]
    for producer in producers:
        producer.init_transactions(30)
        producer.begin_transaction()
    for _ in range(2):
        for producer in producers:
            producer.produce(topic, b"x", partition=0)
            producer.flush(30)
    producers[0].abort_transaction(30)
    topics.plain(topic, [b"outside of all"])
    producers[1].commit_transaction(30)
    assert classified(topics, topic, [(0, 7)]) == [
        (0, 1, ABORTED),
        (1, 2, PRESENT),
        (2, 3, ABORTED),
        (3, 4, PRESENT),
        (4, 5, CONTROL),
        (5, 6, PRESENT),
        (6, 7, CONTROL),
    ]


def test_offsets_of_an_open_transaction_are_undecided(topics: Topics) -> None:
    topic = topics.new()
    topics.plain(topic, [b"a"])
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address, "transactional.id": secrets.token_hex(8)})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    assert classified(topics, topic, [(0, 3)]) == [(0, 1, PRESENT), (1, 3, UNDECIDED)]
    producer.abort_transaction(30)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_classifies_what_compaction_removed(topics: Topics, codec: str) -> None:
    settings = {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.01", "delete_retention_ms": "0"}
    topic = topics.new(cleanup_policy="compact", **settings)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": topics.address, "linger.ms": 50, "compression.type": codec}
    )
    for number in range(100):
        producer.produce(topic, b"%d" % number, key=b"%d" % (number % 7 if number < 90 else number), partition=0)
    assert producer.flush(30) == 0
    # Keys 0 to 6 repeat up to offset 89, so the last seven of them stay, and the ten single keys.
    kept = [*range(83, 100)]
    count = 100

    def compacted() -> bool:
        nonlocal count
        producer.produce(topic, b"last", key=b"last", partition=0)  # rolls the segment, so that it can be cleaned
        producer.flush(30)
        count += 1
        return visible_offsets(topics, topic, count)[: len(kept)] == kept

    wait_until(compacted, 60)
    spans = classified(topics, topic, [(0, 100)])
    assert spans == [(0, 83, COMPACTED), (83, 100, PRESENT)]
    assert classified(topics, topic, [(10, 20), (95, 96)]) == [(10, 20, COMPACTED), (95, 96, PRESENT)]


def test_offsets_below_the_start_of_the_log_have_expired(topics: Topics) -> None:
    topic = topics.new()
    topics.plain(topic, [b"%d" % number for number in range(10)])
    first = TopicPartition(topic, 0, 4)
    topics.admin.delete_records([first])[first].result(30)
    assert classified(topics, topic, [(0, 2), (3, 6)]) == [(0, 2, EXPIRED), (3, 4, EXPIRED), (4, 6, PRESENT)]


def test_without_a_way_to_authenticate_only_expiry_is_told(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = topics.new()
    send_transactions(topics, topic, 2)
    first = TopicPartition(topic, 0, 1)
    topics.admin.delete_records([first])[first].result(30)
    with pytest.raises(UnsupportedSecurity, match="GSSAPI"):
        BrokerConnection(topics.address, {"security.protocol": "sasl_plaintext"})

    def refuse(*_: object) -> BrokerConnection:
        raise UnsupportedSecurity("GSSAPI")

    monkeypatch.setattr("penstock.kafka.absent_offsets.BrokerConnection", refuse)
    assert classified(topics, topic, [(0, 1), (2, 3)]) == [(0, 1, EXPIRED), (2, 3, UNKNOWN)]


def spans_of(records: bytes, aborted: Iterable[tuple[int, int]], position: int, *wanted: tuple[int, int]) -> Any:
    fetched = FetchedBatches(memoryview(records), list(aborted), 0)
    end, spans = classify_fetched(fetched, position, np.array(wanted, np.int64))
    return end, [(span.begin, span.end, span.absence) for span in spans]


def test_offsets_between_batches_and_missing_records_are_compacted() -> None:
    stored = batch(10, [0, 2, 3]) + batch(20, [], last=4) + batch(40, [0])
    assert spans_of(stored, (), 5, (5, 11), (11, 12), (18, 50)) == (
        41,
        [
            (5, 10, COMPACTED),
            (10, 11, PRESENT),
            (11, 12, COMPACTED),
            (18, 20, COMPACTED),
            (20, 25, COMPACTED),
            (25, 40, COMPACTED),
            (40, 41, PRESENT),
        ],
    )


def test_a_producer_that_aborted_may_commit_in_the_same_response() -> None:
    stored = batch(0, [0, 1], producer=7) + control_batch(2, 7, commit=False)
    stored += batch(3, [0], producer=7) + control_batch(4, 7, commit=True)
    assert spans_of(stored, [(7, 0)], 0, (0, 5)) == (
        5,
        [(0, 2, ABORTED), (2, 3, CONTROL), (3, 4, PRESENT), (4, 5, CONTROL)],
    )


def test_aborted_transactions_of_a_response_reach_to_their_own_markers() -> None:
    stored = batch(0, [0], producer=7) + batch(1, [0], producer=8) + control_batch(2, 7, commit=False)
    stored += batch(3, [0], producer=7) + control_batch(4, 7, commit=True)
    stored += batch(5, [0], producer=7) + control_batch(6, 8, commit=False) + control_batch(7, 7, commit=False)
    fetched = FetchedBatches(memoryview(stored), [(7, 5), (8, 1), (7, 0), (9, 3)], 8)
    assert sorted(aborted_transactions(fetched)) == [(0, 3), (1, 7), (5, 8)]


def test_damaged_records_leave_the_reason_unknown() -> None:
    damaged = bytearray(batch(0, [0, 5]))
    damaged[-1:] = b""
    damaged[8:12] = (len(damaged) - 12).to_bytes(4, "big")
    assert spans_of(bytes(damaged), (), 0, (1, 3)) == (6, [(1, 3, UNKNOWN)])


def test_a_cut_batch_at_the_end_is_left_for_the_next_fetch() -> None:
    stored = batch(0, [0]) + batch(1, [0])[:-3]
    assert spans_of(stored, (), 0, (0, 2)) == (1, [(0, 1, PRESENT)])


def test_an_empty_response_tells_that_nothing_is_stored_up_to_the_stable_end() -> None:
    fetched = FetchedBatches(memoryview(b""), (), 9)
    assert classify_fetched(fetched, 4, np.array([(5, 12)], np.int64)) == (9, [ClassifiedRange(5, 9, COMPACTED)])
