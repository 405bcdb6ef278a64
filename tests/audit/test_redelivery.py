"""Missing records are produced again only on request, and dead letters are not missing."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.audit.kafka_source import (
    CONNECT_NUMBERS,
    CONNECT_TOPIC,
    SPRING_NUMBERS,
    SPRING_TOPIC,
    dead_letter_origin,
)
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


@pytest.mark.parametrize(
    ("headers", "origin"),
    [
        (
            {
                "kafka_dlt-original-topic": b"orders",
                "kafka_dlt-original-partition": b"\0\0\0\3",
                "kafka_dlt-original-offset": b"\0\0\0\0\0\0\1\0",
            },
            ("orders", 3, 256),
        ),
        ({"__connect.errors.topic": b"orders", "__connect.errors.partition": b"x"}, None),
        ({}, None),
    ],
)
def test_headers_of_spring_and_connect_name_the_record(
    headers: dict[str, bytes], origin: tuple[str, int, int] | None
) -> None:
    assert dead_letter_origin(list(headers.items())) == origin


NAMES = (CONNECT_TOPIC, *CONNECT_NUMBERS, SPRING_TOPIC, *SPRING_NUMBERS)


@given(st.dictionaries(st.sampled_from(NAMES), st.none() | st.binary(max_size=20)))
def test_any_headers_name_a_record_or_none(headers: dict[str, bytes | None]) -> None:
    origin = dead_letter_origin(list(headers.items()))
    assert origin is None or origin[0] == (headers.get(CONNECT_TOPIC) or headers.get(SPRING_TOPIC) or b"").decode()
