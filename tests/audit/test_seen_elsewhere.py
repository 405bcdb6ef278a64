"""Losses, doubled rows and false alarms of public reports, each planted in a small table and judged as it must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import TopicPartition

from penstock.kafka.broker import Broker
from penstock.testing.pipe import wait_until
from tests.audit.audited import (
    RECORDS,
    Row,
    filled_topic,
    run_audit,
    send_transactions,
    write_delta,
    write_iceberg,
    write_parquet,
)
from tests.kafka.kafka_helpers import Topics

GROUP = "seen-elsewhere-sink"


class Orders(NamedTuple):
    """A topic with 60 records in each of two partitions, and all their positions."""

    topics: Topics
    name: str
    rows: list[Row]


@pytest.fixture(scope="module")
def orders(kafka_broker: Broker) -> Iterator[Orders]:
    topics = Topics(kafka_broker, "seen-elsewhere")
    name, rows = filled_topic(topics, partitions=2)
    consumer = topics.raw_consumer(name, GROUP)
    ends = [TopicPartition(name, partition, RECORDS) for partition in range(2)]
    consumer.commit(offsets=ends, asynchronous=False)
    consumer.close()
    yield Orders(topics, name, rows)
    topics.close()


Audited = tuple[str, Sequence[str]]
"""Address of a table and options of the command."""


def named_rows(rows: Sequence[Row], offset: str, partition: str) -> pa.Table:
    """Return rows with columns of these names; a dot separates a struct and its field."""
    columns: dict[str, dict[str, pa.Array] | pa.Array] = {}
    for name, numbers in ((partition, [row[0] for row in rows]), (offset, [row[1] for row in rows])):
        head, _, field = name.partition(".")
        if field:
            columns.setdefault(head, {})[field] = pa.array(numbers, pa.int64())  # type: ignore[index]
        else:
            columns[head] = pa.array(numbers, pa.int64())
    return pa.table(
        {
            name: pa.StructArray.from_arrays([*column.values()], [*column]) if isinstance(column, dict) else column
            for name, column in columns.items()
        }
    )


def record_lost_by_a_compaction(orders: Orders, folder: Path) -> Audited:
    names = ("__kafka_metadata.__kafka_offset", "__kafka_metadata.__kafka_partition")
    halves = [named_rows(rows, *names) for rows in (orders.rows[:RECORDS], orders.rows[RECORDS:])]
    table = write_iceberg(folder, *halves)
    table.overwrite(named_rows([row for row in orders.rows if row != (1, 17)], *names))
    return table.refresh().metadata_location, ()


def files_whose_commit_failed(orders: Orders, folder: Path) -> Audited:
    names = ("_kafka_metadata_offset", "_kafka_metadata_partition")
    lost = [row for row in orders.rows if row[1] >= 20 and row[1] % 3]
    table = write_iceberg(folder, named_rows([row for row in orders.rows if row not in lost], *names))
    pq.write_table(named_rows(lost, *names), Path(table.location().removeprefix("file://")) / "data" / "lost.parquet")
    return table.metadata_location, ()


def offsets_reset_behind_the_retention(orders: Orders, folder: Path) -> Audited:
    return str(write_delta(folder / "t", [row for row in orders.rows if row[1] not in range(10, 30)], orders.name)), ()


def files_committed_by_two_snapshots(orders: Orders, folder: Path) -> Audited:
    table = write_iceberg(folder, named_rows(orders.rows[:40], "kafka_offset", "kafka_partition"))
    (task,) = table.scan().plan_files()
    table.append(named_rows(orders.rows[40:], "kafka_offset", "kafka_partition"))
    table.add_files([task.file.file_path], check_duplicate_files=False)
    return table.refresh().metadata_location, ()


def write_named(folder: Path, files: dict[str, int]) -> Audited:
    folder.mkdir()
    for name, count in files.items():
        pq.write_table(pa.table({"total": [0.5] * count}), folder / name)
    return str(folder), ()


def window_of_a_revoked_partition(orders: Orders, folder: Path) -> Audited:
    files = {f"{orders.name}+{partition}+{begin}.parquet": 20 for partition in range(2) for begin in range(0, 60, 20)}
    del files[f"{orders.name}+1+20.parquet"]
    return write_named(folder / "t", files)


def object_overwritten_by_a_task_that_hung(orders: Orders, folder: Path) -> Audited:
    files = {f"{orders.name}+{partition}+{begin}.parquet": 20 for partition in range(2) for begin in range(0, 60, 20)}
    files[f"{orders.name}+0+20.parquet"] = 14
    return write_named(folder / "t", files)


def records_behind_the_offset_of_the_group(orders: Orders, folder: Path) -> Audited:
    rows = [row for row in orders.rows if row != (0, 31)]
    return str(write_parquet(folder / "t", rows, orders.name)), ("--group", GROUP)


def batch_rolled_back_behind_committed_offsets(orders: Orders, folder: Path) -> Audited:
    rows = [row for row in orders.rows if row[1] not in range(30, 45)]
    names = ("_hoodie_kafka_source_offset", "_hoodie_kafka_source_partition")
    pq.write_table(named_rows(rows, *names), folder / "t.parquet")
    return str(folder / "t.parquet"), ("--group", GROUP)


def write_duckdb(rows: Sequence[Row], folder: Path) -> Audited:
    table = named_rows(rows, "_offset", "_partition")
    with duckdb.connect(str(folder / "shop.duckdb")) as connection:
        connection.register("written", table)
        connection.execute("CREATE TABLE orders AS SELECT * FROM written")
    return f"duckdb://{folder}/shop.duckdb?table=orders", ()


def insert_of_three_records_lost(orders: Orders, folder: Path) -> Audited:
    return write_duckdb([row for row in orders.rows if row[0] or row[1] not in range(35, 38)], folder)


def last_records_of_batches_lost(orders: Orders, folder: Path) -> Audited:
    return write_duckdb([row for row in orders.rows if row[1] % 29 != 28], folder)


def offsets_committed_late_by_the_owner_before(orders: Orders, folder: Path) -> Audited:
    """Commits forward skip a batch, those back write one again: the number of rows stays right."""
    rows = [row for row in orders.rows if row[0] == 0 or row[1] not in range(20, 40)]
    address, _ = write_duckdb([*rows, *[(1, offset) for offset in range(40, 60)]], folder)
    return address, ("--group", GROUP)


def record_buffered_at_each_retry(orders: Orders, folder: Path) -> Audited:
    return write_duckdb([*orders.rows, *[(1, 59)] * 4], folder)


def whole_set_copied_again(orders: Orders, folder: Path) -> Audited:
    table = named_rows(orders.rows * 2, "RECORD_METADATA.offset", "RECORD_METADATA.partition")
    pq.write_table(table, folder / "t.parquet")
    return str(folder / "t.parquet"), ()


class Case(NamedTuple):
    reports: str
    plant: Callable[[Orders, Path], Audited]
    missing: int
    doubled: int


CASES = [
    Case("apache/iceberg#17551", offsets_reset_behind_the_retention, 40, 0),
    Case("apache/iceberg#14425, #17340, #13763, #16282", files_committed_by_two_snapshots, 0, 40),
    Case("redpanda-data/connect#4009", window_of_a_revoked_partition, 20, 0),
    Case("redpanda-data/connect#4477", offsets_committed_late_by_the_owner_before, 20, 20),
    Case("confluentinc/kafka-connect-storage-cloud#253, #800", object_overwritten_by_a_task_that_hung, 6, 0),
    Case("confluentinc/kafka-connect-storage-cloud#846", records_behind_the_offset_of_the_group, 1, 0),
    Case("apache/hudi#7757", batch_rolled_back_behind_committed_offsets, 30, 0),
    Case("ClickHouse/clickhouse-kafka-connect#458", insert_of_three_records_lost, 3, 0),
    Case("ClickHouse/clickhouse-kafka-connect#384", last_records_of_batches_lost, 4, 0),
    Case("ClickHouse/clickhouse-kafka-connect#801", record_buffered_at_each_retry, 0, 1),
    Case("snowflakedb/snowflake-kafka-connector#710", whole_set_copied_again, 0, 120),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reports)
def test_fault_of_a_public_report_is_found(orders: Orders, tmp_path: Path, case: Case) -> None:
    address, options = case.plant(orders, tmp_path)
    status, report, errors = run_audit(orders.topics, orders.name, address, *options)
    assert (status, report.get("missing"), report.get("doubled")) == (1, case.missing, case.doubled), errors


def test_record_lost_by_a_compaction_names_the_snapshot(orders: Orders, tmp_path: Path) -> None:
    """Case of apache/iceberg#12549."""
    address, _ = record_lost_by_a_compaction(orders, tmp_path)
    status, report, errors = run_audit(orders.topics, orders.name, address)
    (loss,) = report["partitions"][1]["losses"]
    assert (status, report["missing"], loss["ranges"], loss["commit"][:9]) == (1, 1, [[17, 18]], "snapshot "), errors


def test_files_whose_commit_failed_are_named_as_orphans(orders: Orders, tmp_path: Path) -> None:
    """Case of apache/iceberg#13752, #15878 and #18012."""
    address, _ = files_whose_commit_failed(orders, tmp_path)
    status, report, errors = run_audit(orders.topics, orders.name, address)
    assert (status, report["missing"]) == (1, 54), errors
    assert sum(sum(part["orphans"].values()) for part in report["partitions"]) == 54


def test_file_announced_to_a_coordinator_that_was_replaced_is_named_as_an_orphan(
    orders: Orders, tmp_path: Path
) -> None:
    """Case of apache/iceberg#18006: source offsets were committed, the file of the first ones never was."""
    names = ("kafka_offset", "kafka_partition")
    table = write_iceberg(tmp_path, named_rows([row for row in orders.rows if row[1] >= 20], *names))
    announced = named_rows([row for row in orders.rows if row[1] < 20], *names)
    pq.write_table(announced, Path(table.location().removeprefix("file://")) / "data" / "announced.parquet")
    status, report, errors = run_audit(orders.topics, orders.name, table.metadata_location, "--group", GROUP)
    assert (status, report.get("missing")) == (1, 40), errors
    assert [part["missing"] for part in report["partitions"]] == [[[0, 20]], [[0, 20]]]
    assert sum(sum(part["orphans"].values()) for part in report["partitions"]) == 40


def test_records_that_a_sink_skipped_because_its_commit_had_expired_are_found(orders: Orders, tmp_path: Path) -> None:
    """ClickHouse/clickhouse-kafka-connect#511: a commit below the log start resets a sink to the topic's end."""
    topics = orders.topics
    topic, rows = filled_topic(topics)
    sink = {"bootstrap.servers": topics.address, "group.id": f"{topic}-sink", "auto.offset.reset": "latest"}
    sink["enable.partition.eof"] = "true"
    with confluent_kafka.Consumer(sink) as before:
        before.commit(offsets=[TopicPartition(topic, 0, 10)], asynchronous=False)
    head = TopicPartition(topic, 0, 30)
    topics.admin.delete_records([head])[head].result(30)
    with confluent_kafka.Consumer(sink) as restarted:
        restarted.subscribe([topic])
        # The end of the partition is announced once the position is there.
        wait_until(lambda: (event := restarted.poll(0.5)) is not None and event.error() is not None, 60)
        topics.plain(topic, [b"later %d" % number for number in range(20)])
        seen = [(0, message.offset()) for message in restarted.consume(20, 30) if message.error() is None]
        restarted.commit(asynchronous=False)
    table = write_duckdb([*rows[:10], *seen], tmp_path)
    status, report, errors = run_audit(topics, topic, table[0], "--group", f"{topic}-sink")
    # Of the records that the sink never read, 10 to 29 are no longer in the topic.
    assert (seen[0], status, report["partitions"][0]["missing"]) == ((0, 60), 1, [[30, 60]]), errors


def test_version_that_a_stream_of_a_table_skipped_is_found(tmp_path: Path) -> None:
    """delta-io/delta#6314: the last commit of the source vanished between two listings of its log."""
    rows = [(0, offset) for offset in range(RECORDS)]
    source = write_delta(tmp_path / "source", rows, files=3)
    sink = write_delta(tmp_path / "sink", rows[:40])
    status, report, errors = run_audit("", str(source), sink)
    assert (status, report.get("missing"), report["partitions"][0]["missing"]) == (1, 20, [[40, 60]]), errors


def test_gaps_of_offsets_and_expired_heads_are_no_alarm(orders: Orders, tmp_path: Path) -> None:
    """redpanda-data/redpanda#11227: contiguous offsets cannot be expected where records expire."""
    topics = orders.topics
    topic, rows = filled_topic(topics)
    head = TopicPartition(topic, 0, 20)
    topics.admin.delete_records([head])[head].result(30)
    address = write_delta(tmp_path / "t", [row for row in rows if row[1] >= 20], topic)
    status, report, errors = run_audit(topics, topic, address)
    assert (status, report.get("missing"), report.get("required")) == (0, 0, 40), errors


@pytest.mark.parametrize(
    ("reports", "records", "absences"),
    [
        ("apache/pinot#19161, #14716", 2, {"control": 20, "aborted": 2}),
        ("snowflakedb/snowflake-kafka-connector#961", 1, {"control": 20, "aborted": 1}),
    ],
)
def test_control_records_between_all_records_are_no_alarm(
    orders: Orders, tmp_path: Path, reports: str, records: int, absences: dict[str, int]
) -> None:
    """Each transaction has few records and ends with a control record; the first one of the topic is aborted."""
    topic = orders.topics.new()
    send_transactions(orders.topics, topic, aborted={0}, count=20, records=records)
    seen = [(0, message.offset()) for message in orders.topics.records(topic, 19 * records)]
    assert seen[0][1] == records + 1
    address = write_delta(tmp_path / "t", seen, topic)
    status, report, errors = run_audit(orders.topics, topic, address)
    assert (status, report.get("missing"), report["partitions"][0]["absences"]) == (0, 0, absences), errors
    assert "warning" not in errors.lower(), reports
