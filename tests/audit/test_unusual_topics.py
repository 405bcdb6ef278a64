"""Topics with times in the future, open transactions and rows of aborted ones get the right verdict."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import confluent_kafka
import pytest

from tests.audit.audited import run_audit, send_transactions, write_delta
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
