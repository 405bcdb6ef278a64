"""Topics with times in the future, open transactions and rows of aborted ones get the right verdict."""

from __future__ import annotations

import contextlib
import secrets
import time
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka import TopicPartition

from penstock.audit.sources import kafka_source
from penstock.audit.sources.kafka_source import KafkaSource
from penstock.landing.offset_runs import as_runs
from penstock.testing.pipe import wait_until
from tests.audit.audited import filled_topic, run_audit, send_transactions, write_delta, write_parquet
from tests.kafka.kafka_helpers import Topics

NO_LIMIT = str((1 << 63) - 1)


def send_at(topics: Topics, topic: str, times_ms: list[int]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address})
    for moment in times_ms:
        producer.produce(topic, b"order", timestamp=moment, partition=0)
    assert producer.flush(30) == 0


def test_record_with_a_time_in_the_future_does_not_hide_lost_ones(topics: Topics, tmp_path: Path) -> None:
    topic = topics.new(message_timestamp_after_max_ms=NO_LIMIT)
    now = int(time.time() * 1000)
    times = [now - 7_200_000 + number for number in range(50)] + [now - 1000] * 10
    times[3] *= 1000
    send_at(topics, topic, times)
    table = write_delta(tmp_path / "t", [(0, offset) for offset in range(50) if offset != 20], topic)
    status, report, errors = run_audit(topics, topic, table, "--grace", "15m")
    assert (status, report.get("required"), report.get("missing")) == (1, 50, 1), errors
    assert report["partitions"][0]["missing"] == [[20, 21]]
    status, report, errors = run_audit(topics, topic, table)
    assert (status, report.get("required"), report.get("missing")) == (1, 60, 11), errors


@pytest.mark.parametrize("option", [("--grace", "15m"), ("--until", "1h")])
def test_records_with_times_in_microseconds_are_not_decided(
    topics: Topics, tmp_path: Path, option: tuple[str, str]
) -> None:
    topic = topics.new(message_timestamp_after_max_ms=NO_LIMIT)
    send_at(topics, topic, [int(time.time() * 1_000_000)] * 20)
    table = write_delta(tmp_path / "t", [(0, offset) for offset in range(10)], topic)
    status, report, errors = run_audit(topics, topic, table, *option)
    assert (status, report, "times in the future" in errors) == (2, {}, True), errors


def test_rows_of_an_open_transaction_are_no_finding(topics: Topics, tmp_path: Path) -> None:
    topic = topics.new()
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address, "transactional.id": secrets.token_hex(8)})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(5):
        producer.produce(topic, b"order", partition=0)
    assert producer.flush(30) == 0
    table = write_delta(tmp_path / "t", [(0, offset) for offset in range(5)], topic)
    status, report, errors = run_audit(topics, topic, table)
    assert (status, report.get("unexplained")) == (0, 0), errors
    later = write_delta(tmp_path / "later", [(0, offset) for offset in range(7)], topic)
    status, report, errors = run_audit(topics, topic, later)
    assert (status, report["partitions"][0]["unexplained"]) == (1, [[5, 7]]), errors
    producer.abort_transaction(30)


def test_rows_of_aborted_transactions_are_a_finding(topics: Topics, tmp_path: Path) -> None:
    """A sink that reads uncommitted records has rows of records that were never committed."""
    topic = topics.new()
    send_transactions(topics, topic, aborted={2, 5})
    # Ten transactions of three records and a control record each.
    rows = [(0, offset) for offset in range(40) if offset % 4 != 3]
    status, report, errors = run_audit(topics, topic, write_delta(tmp_path / "t", rows, topic))
    assert (status, report.get("missing"), report.get("unexplained")) == (1, 0, 6), errors
    assert report["partitions"][0]["unexplained"] == [[8, 11], [20, 23]]
    committed = [row for row in rows if row[1] // 4 not in (2, 5)]
    status, report, errors = run_audit(topics, topic, write_delta(tmp_path / "committed", committed, topic))
    assert (status, report.get("unexplained")) == (0, 0), errors


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_absent_records_of_compressed_batches_get_their_reason(topics: Topics, tmp_path: Path, codec: str) -> None:
    topic, contents = topics.new(), (None, b"order" * 50, b"order" * 50)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": topics.address,
            "compression.codec": codec,
            "linger.ms": 100,
            "transactional.id": secrets.token_hex(8),
        }
    )
    producer.init_transactions(30)
    for is_aborted in (False, True, False):
        producer.begin_transaction()
        for content in contents * 3:
            producer.produce(topic, content, b"key", partition=0)
        producer.flush(30)
        producer.abort_transaction(30) if is_aborted else producer.commit_transaction(30)
    # Nine records and a control record each; every third record is a tombstone.
    rows = [(0, offset) for offset in (*range(9), *range(20, 29)) if offset % 10 % 3 and offset != 4]
    status, report, errors = run_audit(topics, topic, write_delta(tmp_path / "t", rows, topic))
    part = report["partitions"][0]
    assert (status, part["missing"]) == (1, [[4, 5]]), errors
    assert part["absences"] == {"control": 3, "aborted": 9, "tombstone": 6}


def test_times_of_the_broker_show_what_is_due(topics: Topics, tmp_path: Path) -> None:
    topic = topics.new(message_timestamp_type="LogAppendTime")
    send_at(topics, topic, [1_600_000_000_000 + number for number in range(60)])
    table = write_delta(tmp_path / "t", [(0, offset) for offset in range(50)], topic)
    for option, required in ((("--grace", "1h"), 0), (("--since", "1h"), 60)):
        status, report, errors = run_audit(topics, topic, table, *option)
        assert (status, report.get("required")) == (int(required > 0), required), errors


def test_only_records_of_aborted_transactions_are_read(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last of twenty transactions are aborted, and the table has the ten records of each."""
    topic, records = topics.new(), [secrets.token_bytes(1000) for _ in range(10)]
    # One batch per transaction, sent by `flush`: a busy machine must not split it.
    settings = {"transactional.id": secrets.token_hex(8), "linger.ms": 60_000, "transaction.timeout.ms": 120_000}
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address, **settings})
    producer.init_transactions(30)
    for number in range(20):
        producer.begin_transaction()
        for content in records:
            producer.produce(topic, content, partition=0)
        assert producer.flush(30) == 0
        producer.abort_transaction(30) if number in (0, 19) else producer.commit_transaction(30)
    rows = as_runs([(11 * number, 11 * number + 10) for number in range(20)])
    markers = as_runs([(11 * number + 10, 11 * number + 11) for number in range(20)])
    for limit, aborted in ((100, [[0, 10], [209, 219]]), (5, [[0, 5], [209, 210]]), (10, [[0, 10], [209, 210]])):
        monkeypatch.setattr(kafka_source, "MAX_SUSPECTS", limit)
        with contextlib.closing(KafkaSource(topic, {"bootstrap.servers": topics.address})) as source:
            source.classify(0, markers)
            read_before = source._absent.fetched_bytes
            assert source.aborted(0, rows).tolist() == aborted
            assert source._absent.fetched_bytes - read_before < 3 * 10 * 1000


def test_topics_whose_names_differ_in_case_are_two(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    for write in (write_parquet, write_delta):
        folder = tmp_path / write.__name__
        write(folder, rows[1:], topic)
        write(folder / "nested" if write is write_parquet else folder, rows, topic.upper())
        status, report, errors = run_audit(topics, topic, folder)
        assert (status, report.get("missing"), report.get("doubled")) == (1, 1, 0), errors
        assert report["rows_of_other_topics"] == len(rows)


def test_rows_of_the_topic_that_had_the_name_before_are_a_finding(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    table = write_delta(tmp_path / "t", rows, topic)
    topics.admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in topics.admin.list_topics(timeout=10).topics, 30)
    topics.admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 1)])[topic].result(30)
    topics.plain(topic, [b"new %d" % number for number in range(20)])
    status, report, errors = run_audit(topics, topic, table)
    assert (status, report["partitions"][0]["unexplained"]) == (1, [[20, 60]]), errors


def test_records_deleted_up_to_an_offset_need_no_row_and_later_ones_do(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    head = TopicPartition(topic, 0, 20)
    topics.admin.delete_records([head])[head].result(30)
    table = write_delta(tmp_path / "t", [row for row in rows if not 10 <= row[1] < 30], topic)
    status, report, errors = run_audit(topics, topic, table)
    assert (status, report["partitions"][0]["missing"], report["unexplained"]) == (1, [[20, 30]], 0), errors
