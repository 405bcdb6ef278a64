"""Missing records are produced again only on request, and dead letters are not missing."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka

from tests.audit.audited import filled_topic, run_audit, write_parquet
from tests.kafka.kafka_helpers import Topics


def test_missing_records_are_produced_again_with_key_and_headers(topics: Topics, tmp_path: Path) -> None:
    topic, repaired = topics.new(), topics.new()
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address})
    for number in range(6):
        producer.produce(topic, b"order %d" % number, b"k%d" % number, headers={"trace": b"t%d" % number})
    producer.flush(30)
    write_parquet(tmp_path / "t", [(0, 0), (0, 1), (0, 3), (0, 5)], topic)
    status, report, errors = run_audit(topics, topic, tmp_path / "t", "--redeliver-to", repaired)
    assert (status, report.get("missing")) == (1, 2), errors
    assert f"2 records delivered again to {repaired}" in errors
    records = topics.records(repaired, 2)
    assert [(record.key(), record.value()) for record in records] == [(b"k2", b"order 2"), (b"k4", b"order 4")]
    assert records[0].headers() == [("trace", b"t2"), ("penstock_audit_origin", f"{topic}-0@2".encode())]


def test_records_in_the_dead_letter_topic_are_not_missing(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    dead = topics.new()
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address})
    connect = {"__connect.errors.partition": b"0", "__connect.errors.offset": b"7"}
    producer.produce(dead, b"order 7", headers={"__connect.errors.topic": topic.encode(), **connect})
    connect |= {"__connect.errors.topic": b"another", "__connect.errors.offset": b"9"}
    producer.produce(dead, b"of another topic", headers=connect)  # type: ignore[arg-type]  # a dict of bytes
    producer.produce(dead, b"without headers")
    producer.flush(30)
    write_parquet(tmp_path / "t", [row for row in rows if row[1] not in (7, 9)], topic)
    status, report, errors = run_audit(topics, topic, tmp_path / "t", "--dead-letter", dead)
    assert (status, report.get("missing")) == (1, 1), errors
    assert report["partitions"][0]["absences"] == {"dead_letter": 1}
    assert report["partitions"][0]["missing"] == [[9, 10]]


def test_dead_letters_that_name_no_record_are_not_decided(topics: Topics, tmp_path: Path) -> None:
    """Headers that an application names itself."""
    topic, rows = filled_topic(topics)
    dead = topics.new()
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address})
    producer.produce(dead, b"order 7", headers={"x-original-topic": topic.encode(), "x-original-offset": b"7"})
    producer.flush(30)
    write_parquet(tmp_path / "t", [row for row in rows if row[1] != 7], topic)
    status, report, errors = run_audit(topics, topic, tmp_path / "t", "--dead-letter", dead)
    assert (status, report) == (2, {}), errors
    assert f"dead letter topic {dead}: no header of its 1 records names the record" in errors
