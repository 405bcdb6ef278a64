"""Planted faults are found, with the commit that made them, and healthy tables give no finding."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import confluent_kafka
import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewPartitions

from penstock.audit.audit import audit as run_whole_audit
from penstock.audit.outcome import Request
from penstock.audit.source import SourceUnavailable
from penstock.audit.sources import kafka_source
from penstock.audit.sources.kafka_source import KafkaSource
from penstock.audit.tables import delta
from penstock.audit.tables.delta import DeltaTable
from penstock.audit.tables.parquet_folder import ParquetFolder
from penstock.audit.tables.table import open_table
from penstock.config import SecurityConfig, TokenConfig
from penstock.kafka.broker import Broker
from penstock.kafka.client.broker_answers import partition_numbers
from penstock.testing.pipe import free_ports, wait_until
from tests.audit.audited import (
    RECORDS,
    Row,
    append_orders,
    copy_file,
    filled_topic,
    rows_table,
    run_audit,
    run_for_people,
    send_transactions,
    write_delta,
    write_parquet,
)
from tests.kafka.kafka_helpers import Topics
from tests.object_store import BUCKET, S3Server, Wire
from tests.server import certificates
from tests.server.running import Running

WRITERS: dict[str, Callable[[Path, Sequence[Row], str], object]] = {
    "delta": write_delta,
    "parquet": write_parquet,
}


@pytest.mark.parametrize("kind", WRITERS)
def test_complete_table_has_no_finding(topics: Topics, tmp_path: Path, kind: str) -> None:
    topic, rows = filled_topic(topics, partitions=2)
    WRITERS[kind](tmp_path / "t", rows, topic)
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report["missing"], report["doubled"], report["required"]) == (0, 0, 0, 120), errors
    assert report["verdict"] == f"{topic}: complete: 120 records checked, each once"


def test_topic_and_partition_of_a_partitioned_table_are_read_from_paths(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics, partitions=2)
    deltalake.write_deltalake(
        str(tmp_path / "t"), rows_table(rows[1:], topic), partition_by=["kafka_topic", "kafka_partition"]
    )
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report.get("missing"), report["partitions"][0]["missing"]) == (1, 1, [[0, 1]]), errors


@pytest.mark.parametrize("kind", WRITERS)
def test_lost_and_doubled_rows_of_one_file_are_found_although_the_count_agrees(
    topics: Topics, tmp_path: Path, kind: str
) -> None:
    topic, rows = filled_topic(topics, partitions=2)
    rows[rows.index((1, 17))] = (1, 18)
    WRITERS[kind](tmp_path / "t", rows, topic)
    status, report, _ = run_audit(topics, topic, tmp_path / "t")
    assert (status, report["missing"], report["doubled"]) == (1, 1, 1)
    part = report["partitions"][1]
    assert (part["missing"], part["doubled"]) == ([[17, 18]], [[18, 19]])
    assert len(part["doubled_in"]) == 1
    assert sum(part["missing_by_hour"].values()) == 1
    assert report["verdict"].startswith(f"{topic}: 1 missing, 1 doubled of 120 records checked; partition 1, ")
    begin, end = (datetime.fromisoformat(time) for time in re.findall(r"[-0-9]+ [0-9]+:[0-9]+", report["verdict"]))
    assert end - begin == timedelta(minutes=1), "the minute of the missing record"


def test_rewrite_that_drops_rows_is_named_with_version_and_operation(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    write_delta(tmp_path / "t", rows, topic)
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    table.delete("kafka_offset >= 40 AND kafka_offset < 45")
    deltalake.DeltaTable(str(tmp_path / "t")).optimize.compact()
    status, report, _ = run_audit(topics, topic, tmp_path / "t")
    (loss,) = report["partitions"][0]["losses"]
    assert (status, report["missing"], loss["ranges"]) == (1, 5, [[40, 45]])
    assert loss["commit"].startswith("version 2, DELETE by delta-rs")


def test_change_data_of_a_delete_is_no_file_of_rows(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    folder, feed = tmp_path / "t", {"delta.enableChangeDataFeed": "true"}
    deltalake.write_deltalake(str(folder), rows_table(rows, topic), configuration=feed)
    deltalake.DeltaTable(str(folder)).delete("kafka_offset between 10 and 14")
    assert [*folder.glob("_change_data/*.parquet")]
    status, report, errors = run_audit(topics, topic, folder)
    part = report["partitions"][0]
    assert (status, part["missing"], part["orphans"]) == (1, [[10, 15]], {}), errors
    assert part["losses"][0]["commit"].startswith("version 1, DELETE by delta-rs")


def test_overwritten_table_names_the_commit_that_lost_the_earlier_rows(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    write_delta(tmp_path / "t", rows[:30], topic, files=1)
    deltalake.write_deltalake(str(tmp_path / "t"), rows_table(rows[30:], topic), mode="overwrite")
    status, report, _ = run_audit(topics, topic, tmp_path / "t")
    (loss,) = report["partitions"][0]["losses"]
    assert (status, loss["ranges"]) == (1, [[0, 30]])
    assert loss["commit"].startswith("version 1, WRITE")


def test_batch_committed_twice_names_both_files_and_commits(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    write_delta(tmp_path / "t", [*rows[:30], *rows[:10], *rows[30:]], topic, files=1)
    deltalake.write_deltalake(str(tmp_path / "t"), rows_table(rows[50:], topic), mode="append")
    status, report, _ = run_audit(topics, topic, tmp_path / "t")
    part = report["partitions"][0]
    assert (status, part["doubled"], report["doubled"]) == (1, [[0, 10], [50, 60]], 20)
    assert sorted(commit.partition(",")[0] for commit in part["doubled_in"].values()) == ["version 0", "version 1"]


def test_batch_that_never_arrived_is_missing_without_a_commit_and_found_in_an_orphan(
    topics: Topics, tmp_path: Path
) -> None:
    topic, rows = filled_topic(topics)
    write_delta(tmp_path / "t", rows[:40], topic, files=1)
    pq.write_table(rows_table(rows[40:50], topic), tmp_path / "t" / "part-never-committed.parquet")
    (tmp_path / "t" / "part-torn.parquet").write_bytes(b"PAR1 torn")
    status, report, _ = run_audit(topics, topic, tmp_path / "t")
    part = report["partitions"][0]
    assert (status, part["missing"], part["losses"]) == (1, [[40, 60]], [])
    assert part["orphans"] == {"part-never-committed.parquet": 10}


def test_report_says_what_to_check_before_a_file_of_no_version_is_added(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    write_delta(tmp_path / "t", rows[:40], topic, files=1)
    pq.write_table(rows_table(rows[40:50], topic), tmp_path / "t" / "part-in-flight.parquet")
    text, _ = run_for_people(topics, topic, tmp_path / "t")
    assert "    10 also in part-in-flight.parquet, a file of no version that was searched\n    check before you" in text
    assert "recoverable" not in text


def write_overwritten_table(topics: Topics, folder: Path) -> str:
    """Write a Delta table with all rows of a new topic, and overwrite it four times by one row; return the topic."""
    topic, rows = filled_topic(topics)
    write_delta(folder, rows, topic, files=6)
    for _ in range(4):
        deltalake.write_deltalake(str(folder), rows_table(rows[:1], topic), mode="overwrite")
    return topic


def test_files_of_versions_that_cannot_be_searched_are_no_orphans(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = write_overwritten_table(topics, tmp_path / "t")
    monkeypatch.setattr(delta, "MAX_VERSIONS", 3)
    opened = open_table(str(tmp_path / "t"), version="1")
    with contextlib.closing(KafkaSource(topic, {"bootstrap.servers": topics.address})) as source:
        report = run_whole_audit(source, opened, str(tmp_path / "t"), Request(grace_s=0))
    (part,) = report.partitions
    assert (part.missing.tolist(), part.orphans) == ([[20, 60]], {})
    assert report.unsearched == ["files of no version: the versions after 1 cannot all be searched"]


def test_versions_beyond_the_limit_are_not_searched_and_the_report_says_so(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = write_overwritten_table(topics, tmp_path / "t")
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    (loss,) = report["partitions"][0]["losses"]
    assert (status, loss["commit"].partition(",")[0], report["unsearched"]) == (1, "version 6", []), errors
    monkeypatch.setattr(delta, "MAX_VERSIONS", 3)
    text, _ = run_for_people(topics, topic, tmp_path / "t")
    assert "lost by" not in text
    assert "not searched: versions up to 6: the search ends after 3" in text


def test_lost_and_copied_parquet_files_are_found(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    folder = write_parquet(tmp_path / "t", rows, topic, files=3)
    (folder / "part-20.parquet").unlink()
    copy_file(folder / "part-40.parquet", folder / "copy.parquet")
    status, report, _ = run_audit(topics, topic, folder)
    part = report["partitions"][0]
    assert (status, part["missing"], part["doubled"]) == (1, [[20, 40]], [[40, 60]])
    assert sorted(part["doubled_in"]) == ["t/copy.parquet", "t/part-40.parquet"]


def test_lost_file_of_a_delta_table_is_named_with_its_rows(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    write_delta(tmp_path / "t", rows, topic, files=3)
    lost = next(
        path for path in (tmp_path / "t").glob("*.parquet") if pq.read_table(path)["kafka_offset"][0].as_py() == 20
    )
    lost.unlink()
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report.get("missing"), report.get("lost_files")) == (1, 20, [lost.name]), errors
    assert report["verdict"].startswith(f"{topic}: 20 missing, 1 file of the table lost of 60 records checked")


def test_file_that_was_vacuumed_during_the_audit_is_no_loss(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, rows = filled_topic(topics)
    write_delta(tmp_path / "t", rows, topic)
    batches_of = DeltaTable.batches_of

    def compact(*arguments: Any) -> Any:
        monkeypatch.undo()
        table = deltalake.DeltaTable(str(tmp_path / "t"))
        table.optimize.compact()
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        return batches_of(*arguments)

    monkeypatch.setattr(DeltaTable, "batches_of", compact)
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report) == (2, {})
    assert "does not exist" in errors


def test_rows_that_the_topic_never_had_are_unexplained(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    write_parquet(tmp_path / "t", [*rows, (0, 100), (7, 0)], topic)
    status, report, _ = run_audit(topics, topic, tmp_path / "t")
    assert (status, report["unexplained"], report["rows_of_unknown_partitions"]) == (1, 2, 1)
    assert report["partitions"][0]["unexplained"] == [[100, 101]]


def test_rows_of_other_topics_are_left_out(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    write_delta(tmp_path / "t", rows, topic)
    write_delta(tmp_path / "t", rows[:7], "another")
    status, report, _ = run_audit(topics, topic, tmp_path / "t")
    assert (status, report["rows_of_other_topics"]) == (0, 7)


def visible_rows(topics: Topics, topic: str, count: int) -> list[Row]:
    return [(message.partition(), message.offset()) for message in topics.records(topic, count)]


def test_transactional_topic_with_aborted_records_has_no_finding(topics: Topics, tmp_path: Path) -> None:
    topic = topics.new()
    send_transactions(topics, topic, aborted={2, 5, 6})
    write_delta(tmp_path / "t", visible_rows(topics, topic, 21), topic)
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report.get("required")) == (0, 40), errors
    assert report["partitions"][0]["absences"] == {"control": 10, "aborted": 9}


@pytest.mark.parametrize("transactions", [200, pytest.param(5000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
def test_audit_of_a_transactional_topic_reads_less_than_a_hundredth_of_its_bytes(
    topics: Topics, tmp_path: Path, transactions: int
) -> None:
    topic = topics.new()
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address, "transactional.id": secrets.token_hex(8)})
    producer.init_transactions(30)
    for _ in range(transactions):
        producer.begin_transaction()
        for _ in range(20):
            producer.produce(topic, secrets.token_bytes(1000), partition=0)
        producer.commit_transaction(30)
    write_delta(tmp_path / "t", visible_rows(topics, topic, 20 * transactions), topic)
    received: list[int] = []

    def count(statistics: str) -> None:
        received.append(sum(broker["rxbytes"] for broker in json.loads(statistics)["brokers"].values()))

    kafka: Any = {"bootstrap.servers": topics.address, "stats_cb": count, "statistics.interval.ms": 50}
    with contextlib.closing(KafkaSource(topic, kafka)) as source:
        report = run_whole_audit(source, open_table(str(tmp_path / "t")), "t", Request(grace_s=0))
        fetched_bytes, seen = source._absent.fetched_bytes, len(received)
        # The second report after the audit counts all of it.
        wait_until(lambda: (source._consumer.poll(0.05), len(received) > seen + 1)[1])
    assert (report.status, report.partitions[0].absences) == (0, {"control": transactions})
    assert 0 < fetched_bytes + received[-1] < 0.01 * 20 * 1000 * transactions


def test_transactional_topic_has_no_finding_by_ids(topics: Topics, tmp_path: Path) -> None:
    topic = topics.new()
    send_transactions(topics, topic, aborted={2, 5, 6})
    values = [b"%d.%d" % (number, record) for number in range(10) if number not in (2, 5, 6) for record in range(3)]
    pq.write_table(pa.table({"text": pa.array(values, pa.binary())}), tmp_path / "t.parquet")
    status, report, errors = run_audit(topics, topic, tmp_path / "t.parquet", "--id", "text=value")
    assert report.get("required") == 21, errors
    assert (status, report.get("missing"), report.get("undecided"), report.get("unexplained")) == (0, 0, 0, 0), errors
    pq.write_table(pa.table({"text": pa.array([*values, b"2.0"], pa.binary())}), tmp_path / "t.parquet")
    status, report, errors = run_audit(topics, topic, tmp_path / "t.parquet", "--id", "text=value")
    assert (status, report.get("unknown_ids")) == (1, 1), errors


def test_compacted_topic_has_no_finding(topics: Topics, tmp_path: Path) -> None:
    topic = topics.new(
        cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01", delete_retention_ms="0"
    )
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address, "linger.ms": 0})
    for number in range(30):
        producer.produce(topic, b"v%d" % number, key=b"k%d" % (number % 3))
        producer.flush(30)
    wait_until(lambda: send_and_count(producer, topics, topic) < 25, seconds=60, what="compaction removes records")
    end = topics.raw_consumer(topic).get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
    write_delta(tmp_path / "t", remaining_rows(topics, topic, end), topic)
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report.get("missing")) == (0, 0), errors
    assert report["partitions"][0]["absences"]["compacted"] > 0
    pq.write_table(pa.table({"id": [f"k{number}" for number in range(3)] * 100}), tmp_path / "ids.parquet")
    status, report, errors = run_audit(topics, topic, tmp_path / "ids.parquet", "--id", "id=key")
    assert (status, report.get("doubled"), report.get("possibly_doubled")) == (0, 0, 3), errors


def send_and_count(producer: confluent_kafka.Producer, topics: Topics, topic: str) -> int:
    """Send one more record, which rolls the segment, and return how many of the first 30 offsets remain."""
    producer.produce(topic, b"roll", key=b"k0")
    producer.flush(30)
    end = topics.raw_consumer(topic).get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
    return sum(offset < 30 for _, offset in remaining_rows(topics, topic, end))


def remaining_rows(topics: Topics, topic: str, end: int) -> list[Row]:
    consumer = topics.raw_consumer(topic)
    rows: list[Row] = []
    try:
        while not rows or rows[-1][1] < end - 1:
            rows += [(0, message.offset()) for message in consumer.consume(500, 1.0)]
    finally:
        consumer.close()
    return rows


def test_expired_head_has_no_finding(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    topics.admin.delete_records([TopicPartition(topic, 0, 25)])[TopicPartition(topic, 0, 25)].result(30)
    write_delta(tmp_path / "t", rows[10:], topic)
    status, report, _ = run_audit(topics, topic, tmp_path / "t")
    assert (status, report["required"]) == (0, 35)


def test_tombstones_need_no_row_unless_they_are_required(topics: Topics, tmp_path: Path) -> None:
    topic = topics.new()
    topics.plain(topic, [b"a", None, b"c"])
    write_parquet(tmp_path / "t", [(0, 0), (0, 2)], topic)
    status, report, _ = run_audit(topics, topic, tmp_path / "t")
    assert (status, report["partitions"][0]["absences"]) == (0, {"tombstone": 1})
    status, report, _ = run_audit(topics, topic, tmp_path / "t", "--with-tombstones")
    assert (status, report["partitions"][0]["missing"]) == (1, [[1, 2]])


def test_records_within_the_grace_period_are_not_missing(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    write_delta(tmp_path / "t", rows[:20], topic)
    status, report, _ = run_audit(topics, topic, tmp_path / "t", "--grace", "10m")
    assert (status, report["missing"], report["required"]) == (0, 0, 0)
    status, report, _ = run_audit(topics, topic, tmp_path / "t", "--grace", "0s")
    assert (status, report["missing"]) == (1, 40)


def test_records_behind_the_commit_of_the_sinks_group_are_not_required(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    consumer = topics.raw_consumer(topic, "sink-of-orders")
    consumer.commit(offsets=[TopicPartition(topic, 0, 30)], asynchronous=False)
    consumer.close()
    write_delta(tmp_path / "t", rows[:30], topic)
    status, report, _ = run_audit(topics, topic, tmp_path / "t", "--group", "sink-of-orders")
    assert (status, report["required"]) == (0, 30)
    status, report, errors = run_audit(topics, topic, tmp_path / "t", "--group", "sink-of-odrers")
    assert (status, report) == (2, {})
    assert f"not decided: group sink-of-odrers has committed no offset of topic {topic}" in errors


def test_partition_without_a_commit_of_the_sinks_group_is_not_decided(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics, partitions=2)
    consumer = topics.raw_consumer(topic, "half-a-sink")
    consumer.commit(offsets=[TopicPartition(topic, 0, 60)], asynchronous=False)
    consumer.close()
    write_delta(tmp_path / "t", rows[:60], topic)
    status, report, errors = run_audit(topics, topic, tmp_path / "t", "--group", "half-a-sink")
    assert (status, report) == (2, {})
    assert f"group half-a-sink has committed no offset of {topic}-1, which has records that are due" in errors
    status, report, errors = run_audit(topics, topic, tmp_path / "t", "--group", "half-a-sink", "--grace", "1h")
    assert (status, report.get("required")) == (0, 0), errors


def test_partition_without_a_commit_of_the_group_is_judged_within_the_period(topics: Topics, tmp_path: Path) -> None:
    topic = topics.new(2)
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address})
    now_ms = int(time.time() * 1000)
    for _ in range(10):
        producer.produce(topic, b"x", partition=0, timestamp=now_ms)
        producer.produce(topic, b"x", partition=1, timestamp=now_ms - 5 * 3_600_000)
    producer.flush(30)
    consumer = topics.raw_consumer(topic, "newest-only")
    consumer.commit(offsets=[TopicPartition(topic, 0, 10)], asynchronous=False)
    consumer.close()
    write_delta(tmp_path / "t", [(0, offset) for offset in range(10)], topic)
    status, report, errors = run_audit(topics, topic, tmp_path / "t", "--group", "newest-only", "--since", "1h")
    assert (status, report.get("required")) == (0, 10), errors


def test_rows_in_sqlite_and_duckdb_are_audited(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    lite = sqlite3.connect(tmp_path / "shop.db")
    lite.execute("CREATE TABLE orders (kafka_partition INTEGER, kafka_offset INTEGER)")
    lite.executemany("INSERT INTO orders VALUES (?, ?)", rows[:-1])
    lite.commit()
    lite.close()
    status, report, errors = run_audit(topics, topic, f"sqlite://{tmp_path}/shop.db?table=orders")
    assert (status, report.get("missing")) == (1, 1), errors
    duck = duckdb.connect(str(tmp_path / "shop.duckdb"))
    duck.execute("CREATE TABLE orders (position BIGINT)")
    duck.executemany("INSERT INTO orders VALUES (?)", [[offset] for _, offset in rows])
    duck.close()
    status, report, errors = run_audit(
        topics, topic, f"duckdb://{tmp_path}/shop.duckdb?table=orders", "--offset", "position"
    )
    assert (status, report.get("missing")) == (0, 0), errors


def test_audit_that_cannot_be_decided_never_says_complete(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics, partitions=2)
    without_partition = rows_table([(0, offset) for offset in range(3)], topic).drop(["kafka_partition"])
    pq.write_table(without_partition, tmp_path / "a.parquet")
    status, report, errors = run_audit(topics, topic, tmp_path / "a.parquet")
    assert (status, report) == (2, {})
    assert "not decided: topic" in errors
    assert "--partition COLUMN" in errors
    write_parquet(tmp_path / "t", rows, topic)
    (tmp_path / "t" / "torn.parquet").write_bytes(b"PAR1 torn")
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report) == (2, {})
    assert "torn.parquet cannot be read" in errors
    assert run_audit(topics, "no-such-topic", tmp_path / "t")[0] == 2
    assert run_audit(topics, topic, tmp_path / "empty")[0] == 2


def test_partition_that_was_added_during_the_audit_is_not_unknown(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, rows = filled_topic(topics)
    write_parquet(tmp_path / "t", [*rows, (1, 0), (5, 0)], topic)
    rows_of_folder = ParquetFolder.rows

    def add_partition(*arguments: Any) -> Any:
        topics.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
        monkeypatch.undo()
        wait_until(lambda: len(topics.admin.list_topics(topic, 5).topics[topic].partitions) == 2)
        return rows_of_folder(*arguments)

    monkeypatch.setattr(ParquetFolder, "rows", add_partition)
    status, report, _ = run_audit(topics, topic, tmp_path / "t")
    assert (status, report["rows_of_unknown_partitions"], report["missing"]) == (1, 1, 0)


def test_receipt_is_the_report_without_payloads_or_credentials(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    write_parquet(tmp_path / "t", rows[1:], topic)
    (tmp_path / "client.properties").write_text("# mine\nclient.id = hidden-name\n")
    run_audit(
        topics,
        topic,
        tmp_path / "t",
        "--receipt",
        str(tmp_path / "receipt.json"),
        "--properties",
        str(tmp_path / "client.properties"),
    )
    text = (tmp_path / "receipt.json").read_text()
    assert json.loads(text)["missing"] == 1
    assert "order 0" not in text
    assert "hidden-name" not in text


def test_broker_that_ends_during_the_audit_leaves_it_undecided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = Running(tmp_path / "topics", kafka=True)
    append_orders(daemon.log, RECORDS)
    address = f"kafka://{daemon.bound.kafka}/orders"
    write_parquet(tmp_path / "t", [(0, offset) for offset in range(10, RECORDS)], "orders")
    monkeypatch.setattr(kafka_source, "READ_TIMEOUT_S", 2.0)
    records = KafkaSource.records

    def end_daemon(*arguments: Any, **options: Any) -> Any:
        daemon.stop()
        return records(*arguments, **options)

    monkeypatch.setattr(KafkaSource, "records", end_daemon)
    status, report, errors = run_audit("", address, tmp_path / "t")
    assert (status, report) == (2, {})
    (line,) = [line for line in errors.splitlines() if line.startswith("penstock: ")]
    assert "decided: 10 absent records and 0 doubled in all partitions; not decided: their causes" in line


@pytest.mark.survives("audit", "peer away")
def test_broker_that_restarts_during_the_audit_is_waited_for(
    kafka_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = ("-XX:TieredStopAtLevel=1",)
    broker = Broker(tmp_path / "broker", port=free_ports(1)[0], memory="256m", options=quick)
    broker.start()
    ended = threading.Event()
    # The broker ends with the thread that starts it.
    start = threading.Thread(target=lambda: (broker.start(), ended.wait()))
    try:
        topics = Topics(broker, "restarts")
        topic, rows = filled_topic(topics)
        topics.close()
        write_parquet(tmp_path / "t", rows[10:], topic)
        classify = KafkaSource.classify

        def restart_broker(*arguments: Any) -> Any:
            monkeypatch.undo()
            broker.stop()
            start.start()
            return classify(*arguments)

        monkeypatch.setattr(KafkaSource, "classify", restart_broker)
        status, report, errors = run_audit(broker.address, topic, tmp_path / "t")
        assert start.ident is not None
    finally:
        ended.set()
        broker.stop()
    assert (status, report.get("missing")) == (1, 10), errors


@pytest.mark.survives("audit", "peer away")
def test_broker_that_does_not_answer_is_one_line_with_the_cause(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_source, "partition_numbers", lambda *arguments: partition_numbers(*arguments, 2))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    status, report, errors = run_audit(address, "orders", write_parquet(tmp_path / "t", [(0, 0)]))
    assert (status, report) == (2, {})
    (line,) = errors.splitlines()
    assert line.startswith("penstock: not decided: topic orders: ")
    assert "Connection refused" in line
    # librdkafka writes to the descriptor.
    assert "rdkafka" not in capfd.readouterr().err


@pytest.mark.survives("audit", "peer away")
def test_broker_that_was_down_is_not_the_cause_of_a_later_error(topics: Topics) -> None:
    topic = topics.new()
    topics.plain(topic, [b"1"])
    causes = [""]
    # The client tries the addresses in any order, and the one without a broker not always.
    while "Connection refused" not in causes[0]:
        source = KafkaSource(topic, {"bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]},{topics.address}"})
        try:
            causes = [cause_of_unknown_partition(source) for _ in range(2)]
        finally:
            source.close()
    assert "Connection refused" not in causes[1]


def cause_of_unknown_partition(source: KafkaSource) -> str:
    with pytest.raises(SourceUnavailable) as caught:
        source.end(7)
    return str(caught.value)


@pytest.mark.survives("audit", "peer away")
def test_store_and_file_that_vanish_during_the_audit_leave_it_undecided(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_parquet(tmp_path / "source", [(0, offset) for offset in range(20)])
    wire = Wire(s3.address)
    store = s3.options(wire.address)
    address = f"s3://{BUCKET}/{tmp_path.name}"
    deltalake.write_deltalake(address, rows_table([(0, offset) for offset in range(20)]), storage_options=store)
    options = [text for name, setting in store.items() for text in ("--store", f"{name}={setting}")]
    assert run_audit("", str(source), address, *options)[0] == 0
    batches_of = DeltaTable.batches_of

    def cut(*arguments: Any) -> Any:
        with wire.cut():
            yield from batches_of(*arguments)

    monkeypatch.setattr(DeltaTable, "batches_of", cut)
    status, report, errors = run_audit("", str(source), address, *options)
    wire.end()
    assert (status, report) == (2, {})
    assert "nothing was decided" in errors
    assert store["AWS_SECRET_ACCESS_KEY"] not in errors
    table = write_parquet(tmp_path / "t", [(0, offset) for offset in range(20)])
    batches = ParquetFolder.batches

    def remove_file(folder: ParquetFolder, *arguments: Any) -> Any:
        if folder._root == str(table):
            (table / "part-10.parquet").unlink()
        return batches(folder, *arguments)

    monkeypatch.setattr(ParquetFolder, "batches", remove_file)
    status, report, errors = run_audit("", str(source), table)
    assert (status, report) == (2, {})
    assert "part-10.parquet" in errors
    assert "nothing was decided" in errors


def test_audit_changes_neither_kafka_nor_the_table(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    consumer = topics.raw_consumer(topic, "sink-of-orders")
    consumer.commit(offsets=[TopicPartition(topic, 0, 30)], asynchronous=False)
    consumer.close()
    write_delta(tmp_path / "t", rows[1:], topic)

    def state() -> tuple[object, ...]:
        files = {path: path.stat().st_mtime_ns for path in (tmp_path / "t").rglob("*")}
        groups = {group.group_id for group in topics.admin.list_consumer_groups().result(30).valid}
        request = [ConsumerGroupTopicPartitions("sink-of-orders", [TopicPartition(topic, 0)])]
        (answer,) = topics.admin.list_consumer_group_offsets(request).values()
        end = topics.raw_consumer(topic).get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        return (
            files,
            groups,
            answer.result(30).topic_partitions[0].offset,
            end,
            {*topics.admin.list_topics(timeout=30).topics},
        )

    before = state()
    for options in (
        (),
        ("--group", "sink-of-orders"),
        ("--all", "--compare", "kafka_offset=key"),
        ("--dead-letter", topic),
    ):
        run_audit(topics, topic, tmp_path / "t", *options)
    assert state() == before


def test_records_that_expire_before_the_sink_reads_them_are_announced(topics: Topics, tmp_path: Path) -> None:
    topic = topics.new(retention_ms=str(4 * 3_600_000))
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address})
    began_ms = int(time.time() - 9000) * 1000
    for number in range(RECORDS):
        producer.produce(topic, b"order", timestamp=began_ms + number, partition=0)
    assert producer.flush(30) == 0
    write_parquet(tmp_path / "t", [(0, offset) for offset in range(20)], topic)
    text, errors = run_for_people(topics, topic, tmp_path / "t", "--grace", "3h")
    verdict, warning = text.splitlines()[:2]
    assert verdict == f"{topic}: complete: 0 records checked, each once", errors
    assert warning == (
        "partition 0: 40 records are not in the table yet; the first of them expires in 1.5 h, "
        "and the sink is 2.5 h behind"
    )
    assert text.splitlines()[2].startswith("no record is required: all are younger than --grace, ")
    write_parquet(tmp_path / "t", [(0, offset) for offset in range(20, RECORDS)], topic)
    text, _ = run_for_people(topics, topic, tmp_path / "t")
    assert "expires" not in text


def test_report_selects_doubled_rows_and_names_records_by_hour(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    address = f"duckdb://{tmp_path}/shop.duckdb?table=orders"
    with duckdb.connect(tmp_path / "shop.duckdb") as duck:
        duck.register("written", rows_table([*rows[1:], rows[7], rows[7]], topic))
        duck.execute("CREATE TABLE orders AS SELECT * FROM written")
    text, errors = run_for_people(topics, topic, address, "--by", "hour")
    assert text.splitlines()[0].startswith(f"{topic}: 1 missing, 1 doubled of 60 records checked; partition 0, ")
    (query,) = [line.removeprefix("doubled rows: ") for line in text.splitlines() if line.startswith("doubled rows: ")]
    with duckdb.connect(tmp_path / "shop.duckdb", read_only=True) as duck:
        assert duck.execute(query.replace("FROM table", "FROM orders")).fetchall() == [(0, 7, 3)]
    assert "value 'order 0'" in text
    assert "UTC: 60 records, 1 missing, 1 doubled" in text
    assert not errors


def test_topic_behind_tls_and_sasl_is_audited_with_a_file_of_properties(tmp_path: Path) -> None:
    pair = certificates.make(tmp_path, "localhost")
    tokens = {"reader": TokenConfig(token="the-long-secret-of-reader", read=("orders",))}
    daemon = Running(
        tmp_path / "topics", SecurityConfig(tokens=tokens, tls_cert=pair.cert, tls_key=pair.key), kafka=True
    )
    properties = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": pair.cert,
        "sasl.mechanism": "PLAIN",
        "sasl.username": "reader",
        "sasl.password": "the-long-secret-of-reader",
    }
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
    file.chmod(0o600)
    try:
        append_orders(daemon.log, RECORDS)
        write_parquet(tmp_path / "t", [(0, offset) for offset in range(10, RECORDS)], "orders")
        status, report, errors = run_audit(daemon.bound.kafka, "orders", tmp_path / "t", "--properties", str(file))
    finally:
        daemon.stop()
    assert (status, report.get("missing"), report["partitions"][0]["missing"]) == (1, 10, [[0, 10]]), errors
    assert "the-long-secret" not in f"{report} {errors}"
