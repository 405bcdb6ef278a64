"""Tables without offsets: planted faults are found by a unique id, and the report says what that cannot see."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from penstock.audit.sources.kafka_source import KafkaSource, records_of
from penstock.landing.offset_runs import as_runs
from tests.audit.audited import run_audit
from tests.kafka.kafka_helpers import Topics

IDS = [f"order-{number}" for number in range(40)]


def orders_topic(topics: Topics, ids: Sequence[str] = IDS, partitions: int = 2) -> str:
    """Return a topic of JSON orders; the id is the key, the field ``id`` and the header ``order``."""
    topic = topics.new(partitions)
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address})
    for number, order_id in enumerate(ids):
        order = {"id": order_id, "customer": {"id": number * 10}}
        headers: list[tuple[str, str | bytes | None]] = [("order", b"first"), ("order", order_id.encode())]
        producer.produce(topic, json.dumps(order), order_id, partition=number % partitions, headers=headers)
    assert producer.flush(30) == 0
    return topic


def write_ids(path: Path, ids: Sequence[str | None]) -> Path:
    pq.write_table(pa.table({"order_id": pa.array(ids, pa.string()), "total": [1.5] * len(ids)}), path)
    return path


@pytest.mark.parametrize("field", ["key", "$.id", "header:order"])
def test_lost_and_doubled_rows_are_found_by_an_id_although_the_count_agrees(
    topics: Topics, tmp_path: Path, field: str
) -> None:
    topic = orders_topic(topics)
    table = write_ids(tmp_path / "t.parquet", ["order-9" if name == "order-6" else name for name in IDS])
    status, report, errors = run_audit(topics, topic, table, "--id", f"order_id={field}")
    assert (status, report.get("missing"), report.get("doubled"), report.get("required")) == (1, 1, 1, 40), errors
    assert [part["missing"] for part in report["partitions"]] == [[[3, 4]], []]
    assert [part["doubled"] for part in report["partitions"]] == [[], [[4, 5]]]
    assert report["proof"] == f"by the id in column order_id, which is {field} of the record"
    assert "records with the same id count as one" in report["cannot_see"]


def test_complete_table_has_no_finding_by_numeric_id_of_a_nested_field(topics: Topics, tmp_path: Path) -> None:
    topic = orders_topic(topics)
    numbers = pa.table({"customer_id": pa.array([number * 10 for number in range(40)], pa.int32())})
    pq.write_table(numbers, tmp_path / "t.parquet")
    status, report, errors = run_audit(topics, topic, tmp_path / "t.parquet", "--id", "customer_id=$.customer.id")
    assert (status, report.get("missing"), report.get("required")) == (0, 0, 40), errors


def test_rows_of_no_record_are_a_finding_only_if_no_record_has_expired(topics: Topics, tmp_path: Path) -> None:
    topic = orders_topic(topics, partitions=1)
    table = write_ids(tmp_path / "t.parquet", [*IDS, "never-ordered"])
    status, report, errors = run_audit(topics, topic, table, "--id", "order_id=key")
    assert (status, report.get("unexplained"), report.get("unknown_ids")) == (1, 1, 1), errors
    topics.admin.delete_records([TopicPartition(topic, 0, 5)])[TopicPartition(topic, 0, 5)].result(30)
    status, report, errors = run_audit(topics, topic, table, "--id", "order_id=key")
    assert (status, report.get("unexplained"), report.get("rows_of_no_record")) == (0, 0, 6), errors
    write_ids(table, [*IDS, IDS[9]])
    status, report, errors = run_audit(topics, topic, table, "--id", "order_id=key")
    assert (status, report.get("doubled"), report.get("possibly_doubled")) == (1, 1, 0), errors
    source = KafkaSource(topic, {"bootstrap.servers": topics.address})
    with contextlib.closing(source):
        offsets = [offset for batch in source.read(0, as_runs([(2, 40)])) for offset in batch["offset"].to_pylist()]
        assert offsets == list(range(5, 40))
        assert list(source.read(0, as_runs([(0, 5)]))) == []


def test_records_behind_the_end_of_a_partition_are_read() -> None:
    end = Message(topic="t", partition=0, offset=1, error=KafkaError(KafkaError._PARTITION_EOF))
    records = [Message(topic="t", partition=0, offset=offset, value=b"order") for offset in range(2)]
    assert records_of([records[0], end, records[1]]) == records
    assert records_of([end]) == []
    with pytest.raises(KafkaException):
        records_of([Message(topic="t", partition=0, error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))])


def test_repeated_ids_and_tombstones_of_a_topic_need_one_row(topics: Topics, tmp_path: Path) -> None:
    topic = orders_topic(topics, [*IDS[:20], *IDS[:5]], partitions=1)
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address})
    producer.produce(topic, None, "order-deleted", partition=0)
    assert producer.flush(30) == 0
    table = write_ids(tmp_path / "t.parquet", IDS[:20])
    status, report, errors = run_audit(topics, topic, table, "--id", "order_id=key")
    assert (status, report.get("missing"), report.get("repeated_ids")) == (0, 0, 5), errors
    assert run_audit(topics, topic, table, "--id", "order_id=key", "--with-tombstones")[1]["missing"] == 1
    write_ids(table, [*IDS[:20], *IDS[:5]])
    topics.admin.delete_records([TopicPartition(topic, 0, 3)])[TopicPartition(topic, 0, 3)].result(30)
    status, report, errors = run_audit(topics, topic, table, "--id", "order_id=key")
    assert (status, report.get("doubled"), report.get("possibly_doubled")) == (0, 0, 3), errors
    assert report["verdict"].endswith("each at least once")


def test_records_and_rows_without_an_id_are_not_decided(topics: Topics, tmp_path: Path) -> None:
    topic = orders_topic(topics, partitions=1)
    topics.plain(topic, [b"no JSON", b"\xff\xfe"])
    table = write_ids(tmp_path / "t.parquet", [*IDS, None])
    status, report, errors = run_audit(topics, topic, table, "--id", "order_id=$.id")
    assert (status, report.get("undecided"), report.get("rows_without_offset")) == (2, 3, 1), errors
    status, report, errors = run_audit(topics, topic, table, "--id", "nowhere=$.id")
    assert (status, report) == (2, {})
    assert "the table has no column 'nowhere'" in errors
