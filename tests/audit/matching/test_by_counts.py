"""Tables with neither offsets nor ids: hours whose counts or checksums differ are found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import confluent_kafka
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import TopicPartition

from tests.audit.audited import run_audit
from tests.audit.reports.test_receipt import verify
from tests.kafka.kafka_helpers import Topics

HOUR_MS = 3_600_000
INDIA = timezone(timedelta(hours=5, minutes=30))
BEGIN_MS = int(datetime(2026, 3, 1, 10, tzinfo=UTC).timestamp() * 1000)
Event = tuple[int, int]
"""Milliseconds since the epoch, and an amount."""
EVENTS: list[Event] = [(BEGIN_MS + hour * HOUR_MS + number * 1000, number) for hour in range(3) for number in range(10)]


def events_topic(topics: Topics) -> str:
    topic = topics.new(retention_ms="-1")
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address})
    for moment, amount in EVENTS:
        local = datetime.fromtimestamp(moment / 1000, INDIA).isoformat()
        producer.produce(topic, json.dumps({"amount": amount, "at": moment, "local": local}), timestamp=moment)
    assert producer.flush(30) == 0
    return topic


def write_events(path: Path, events: Sequence[Event]) -> Path:
    moments, amounts = zip(*events, strict=True)
    times = pa.array(moments, pa.timestamp("ms", "UTC"))
    pq.write_table(pa.table({"happened": times, "millis": pa.array(moments), "amount": pa.array(amounts)}), path)
    return path


def test_hours_with_missing_and_doubled_rows_are_found(topics: Topics, tmp_path: Path) -> None:
    topic = events_topic(topics)
    table = write_events(tmp_path / "t.parquet", [*EVENTS[:7], *EVENTS[10:], EVENTS[25]])
    for pair in ("happened", "millis=$.at", "happened=$.at", "happened=$.local"):
        status, report, errors = run_audit(topics, topic, table, "--count-by", pair)
        assert (status, report.get("missing"), report.get("doubled"), report.get("required")) == (1, 3, 1, 30), errors
        assert [(hour["records"], hour["rows"]) for hour in report["hours"]] == [(10, 7), (10, 10), (10, 11)]
        assert report["hours"][0]["hour"] == "2026-03-01T10:00:00+00:00"
    assert report["verdict"].endswith("2026-03-01 10:00 to 2026-03-01 13:00 UTC")
    assert "a lost row and a doubled one in the same hour" in report["cannot_see"]


def test_lost_and_doubled_rows_of_one_hour_are_found_by_the_checksum_only(topics: Topics, tmp_path: Path) -> None:
    topic = events_topic(topics)
    table = write_events(tmp_path / "t.parquet", [*EVENTS[:11], EVENTS[12], *EVENTS[12:]])
    status, report, errors = run_audit(topics, topic, table, "--count-by", "happened")
    assert (status, report.get("missing")) == (0, 0), errors
    assert "the counts agree: 30 records checked, in 3 whole hours" in report["verdict"]
    status, report, errors = run_audit(topics, topic, table, "--count-by", "happened", "--compare", "amount")
    assert (status, report.get("differing_hours")) == (1, 1), errors
    assert [hour["checksum_equal"] for hour in report["hours"]] == [True, False, True]


def test_hours_that_are_not_due_yet_are_not_compared(topics: Topics, tmp_path: Path) -> None:
    topic = events_topic(topics)
    topics.plain(topic, [b'{"amount": 1}'])
    status, report, errors = run_audit(
        topics, topic, write_events(tmp_path / "t.parquet", EVENTS), "--count-by", "happened"
    )
    assert (status, len(report.get("hours", []))) == (0, 3), errors
    # An event of hours ago that was sent a moment ago.
    topics.plain(topic, [json.dumps({"amount": 1, "at": BEGIN_MS}).encode()])
    table = write_events(tmp_path / "t.parquet", EVENTS)
    status, report, errors = run_audit(topics, topic, table, "--count-by", "happened=$.at", "--grace", "1h")
    assert [hour["hour"][11:13] for hour in report.get("hours", [])] == ["11", "12"], errors
    until = ("--count-by", "happened=$.at", "--until", "2026-03-01T13:00:00Z")
    status, report, errors = run_audit(topics, topic, table, *until)
    assert (status, report.get("missing"), len(report.get("hours", []))) == (1, 1, 3), errors


@pytest.mark.parametrize("options", [(), ("--until", "2026-03-01T12:00:00Z"), ("--since", "2026-03-01T11:00:00Z")])
def test_verify_counts_the_same_hours(topics: Topics, tmp_path: Path, options: tuple[str, ...]) -> None:
    topic = events_topic(topics)
    table = write_events(tmp_path / "t.parquet", [*EVENTS[:17], *EVENTS[18:]])
    receipt = tmp_path / "receipt.json"
    by_hour = ("--count-by", "happened=$.at", "--receipt", str(receipt), *options)
    status, report, errors = run_audit(topics, topic, table, *by_hour)
    assert (status, report.get("missing"), len(report.get("hours", []))) == (1, 1, 2 if options else 3), errors
    # Later events of the same hours, and of the hour that ends with them.
    topics.plain(topic, [json.dumps({"amount": 1, "at": BEGIN_MS + hour * HOUR_MS}).encode() for hour in range(3)])
    status, text = verify(receipt)
    assert (status, "the check agrees with the receipt" in text) == (1, True), text


def test_hours_of_expired_records_are_not_compared(topics: Topics, tmp_path: Path) -> None:
    topic = events_topic(topics)
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address})
    producer.produce(topic, json.dumps({"amount": 1, "at": EVENTS[-1][0]}), timestamp=1)
    assert producer.flush(30) == 0
    page = tmp_path / "report.html"
    options = ("--count-by", "happened=$.at", "--html", str(page), "--by", "hour")
    table = write_events(tmp_path / "t.parquet", [*EVENTS, EVENTS[-1]])
    for begin, compared in ((5, 2), (len(EVENTS) + 1, 0)):
        partition = TopicPartition(topic, 0, begin)
        topics.admin.delete_records([partition])[partition].result(30)
        status, report, errors = run_audit(topics, topic, table, *options)
        assert (status, report.get("doubled"), len(report.get("hours", []))) == (0, 0, compared), errors
        assert "counts agree" in page.read_text()
        assert ("<svg" in page.read_text(), " UTC: " in errors) == (False, False)
