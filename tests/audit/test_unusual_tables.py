"""Tables with nulls, younger columns, renamed columns and odd files get the right verdict."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.kafka.broker import Broker
from tests.audit.audited import RECORDS, Row, filled_topic, rows_table, run_audit
from tests.kafka.kafka_helpers import Topics

TOPIC, PARTITION, OFFSET = range(3)
"""Indices of columns."""


class Orders(NamedTuple):
    """A topic with 60 records in each of two partitions, all their positions, and the rows of a complete table."""

    topics: Topics
    name: str
    rows: list[Row]
    table: pa.Table

    def changed(self, column: int, cells: pa.Array) -> pa.Table:
        """Return the complete table with another column."""
        return self.table.set_column(column, self.table.schema.names[column], cells)


@pytest.fixture(scope="module")
def orders(kafka_broker: Broker) -> Iterator[Orders]:
    topics = Topics(kafka_broker, "unusual-tables")
    name, rows = filled_topic(topics, partitions=2)
    yield Orders(topics, name, rows, rows_table(rows, name))
    topics.close()


def write_files(folder: Path, *tables: pa.Table) -> str:
    folder.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"part-{number}.parquet")
    return str(folder)


def write_younger_column(column: str) -> Callable[[Orders, Path], str]:
    """Return a writer of Parquet files, of which the one with partition 1 lacks a column."""

    def write(orders: Orders, folder: Path) -> str:
        halves = orders.table.slice(RECORDS).drop_columns([column]), orders.table.slice(0, RECORDS)
        return write_files(folder / "t", *halves)

    return write


def write_younger_delta_column(orders: Orders, folder: Path) -> str:
    halves = orders.table.slice(RECORDS).drop_columns(["kafka_partition"]), orders.table.slice(0, RECORDS)
    for half in halves:
        deltalake.write_deltalake(str(folder / "t"), half, mode="append", schema_mode="merge")
    return str(folder / "t")


def write_null_topics(orders: Orders, folder: Path) -> str:
    return write_files(folder / "t", orders.changed(TOPIC, pa.array([None] * 30 + [orders.name] * 90)))


def write_null_partitions(orders: Orders, folder: Path) -> str:
    numbers = [None if row < 30 else partition for row, (partition, _) in enumerate(orders.rows)]
    return write_files(folder / "t", orders.changed(PARTITION, pa.array(numbers, pa.int32())))


def write_null_offsets(orders: Orders, folder: Path) -> str:
    numbers = [None if row < 30 else offset for row, (_, offset) in enumerate(orders.rows)]
    return write_files(folder / "t", orders.changed(OFFSET, pa.array(numbers, pa.int64())))


def write_nulls_in_sqlite(column: int) -> Callable[[Orders, Path], str]:
    def write(orders: Orders, folder: Path) -> str:
        rows = [[orders.name, partition, offset] for partition, offset in orders.rows]
        for row in rows[:30]:
            row[column] = None  # type: ignore[call-overload]
        return write_sqlite(folder, rows)

    return write


def write_sqlite(folder: Path, rows: list[list[object]]) -> str:
    with sqlite3.connect(folder / "shop.db") as database:
        database.execute("CREATE TABLE orders (kafka_topic, kafka_partition, kafka_offset)")
        database.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)
    database.close()
    return f"sqlite://{folder}/shop.db?table=orders"


@pytest.mark.parametrize(
    ("write", "undecided"),
    [
        (write_younger_column("kafka_topic"), 60),
        (write_younger_column("kafka_partition"), 60),
        (write_younger_column("kafka_offset"), 60),
        (write_younger_delta_column, 60),
        (write_null_topics, 30),
        (write_null_partitions, 30),
        (write_null_offsets, 30),
        (write_nulls_in_sqlite(TOPIC), 30),
        (write_nulls_in_sqlite(PARTITION), 30),
        (write_nulls_in_sqlite(OFFSET), 30),
    ],
)
def test_rows_that_could_be_any_record_are_neither_doubled_nor_unknown(
    orders: Orders, tmp_path: Path, write: Callable[[Orders, Path], str], undecided: int
) -> None:
    _, report, errors = run_audit(orders.topics, orders.name, write(orders, tmp_path))
    assert report, errors
    assert (report["rows_without_offset"], report["doubled"], report["unexplained"]) == (undecided, 0, 0)
    assert (report["missing"], report["rows_of_other_topics"]) == (undecided, 0)


def test_rows_of_another_topic_need_no_offset(orders: Orders, tmp_path: Path) -> None:
    others = rows_table(orders.rows, "customers").set_column(OFFSET, "kafka_offset", pa.nulls(120, pa.int64()))
    rows: list[list[object]] = [[orders.name, *row] for row in orders.rows]
    rows += [["customers", partition, None] for partition, _ in orders.rows]
    for address in (write_files(tmp_path / "t", orders.table, others), write_sqlite(tmp_path, rows)):
        status, report, errors = run_audit(orders.topics, orders.name, address)
        assert (status, report.get("required"), report.get("rows_of_other_topics")) == (0, 120, 120), errors


@pytest.mark.parametrize("kind", ["text", "padded text", "decimal", "unsigned", "double", "dictionary"])
def test_offsets_and_partitions_of_any_type_are_read(orders: Orders, tmp_path: Path, kind: str) -> None:
    casts: dict[str, Callable[[pa.Array], pa.Array]] = {
        "text": lambda numbers: numbers.cast(pa.string()),
        "padded text": lambda numbers: pa.array([f"{number:020}" for number in numbers.to_pylist()]),
        "decimal": lambda numbers: numbers.cast(pa.decimal128(22, 2)),
        "unsigned": lambda numbers: numbers.cast(pa.uint64()),
        "double": lambda numbers: numbers.cast(pa.float64()),
        "dictionary": lambda numbers: numbers.cast(pa.string()).dictionary_encode(),
    }
    table = orders.table.filter(pa.array([row != (1, 17) for row in orders.rows]))
    for column in (PARTITION, OFFSET):
        cells = casts[kind](table.column(column).combine_chunks().cast(pa.int64()))
        table = table.set_column(column, table.schema.names[column], cells)
    status, report, errors = run_audit(orders.topics, orders.name, write_files(tmp_path / "t", table))
    assert (status, report.get("missing"), report.get("doubled")) == (1, 1, 0), errors
    assert report["partitions"][1]["missing"] == [[17, 18]]


def test_text_that_is_no_partition_is_not_decided(orders: Orders, tmp_path: Path) -> None:
    rows: list[list[object]] = [[orders.name, f"p{partition}", offset] for partition, offset in orders.rows]
    status, _, errors = run_audit(orders.topics, orders.name, write_sqlite(tmp_path, rows))
    assert (status, "has 'p0', which is not a partition" in errors) == (2, True), errors


def test_partitions_that_no_topic_has_are_unknown(orders: Orders, tmp_path: Path) -> None:
    extra = rows_table([(-1, 3), (7, 4)], orders.name)
    status, report, errors = run_audit(orders.topics, orders.name, write_files(tmp_path / "t", orders.table, extra))
    assert (status, report.get("missing"), report.get("unexplained")) == (1, 0, 2), errors


def test_files_beside_those_of_the_rows_are_no_rows(orders: Orders, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    address = write_files(folder, orders.table, orders.table.slice(0, 0))
    for name in ("_SUCCESS", "part-2.parquet", "notes.txt"):
        (folder / name).touch()
    (folder / ".part-0.parquet.crc").write_bytes(b"crc\x00")
    pq.write_table(orders.table, folder / "_temporary.parquet")
    status, report, errors = run_audit(orders.topics, orders.name, address)
    assert (status, report.get("required")) == (0, 120), errors


def test_partitions_of_a_delta_table_come_from_its_log(orders: Orders, tmp_path: Path) -> None:
    """Delta's paths need not name partitions: object stores spread files over random prefixes."""
    folder = tmp_path / "t"
    deltalake.write_deltalake(str(folder), orders.table, partition_by=["kafka_partition"])
    log = folder / "_delta_log" / f"{0:020}.json"
    text = log.read_text()
    for number in (0, 1):
        (path,) = (folder / f"kafka_partition={number}").iterdir()
        text = text.replace(f"kafka_partition={number}/{path.name}", f"{number}-{path.name}")
        path.rename(folder / f"{number}-{path.name}")
    log.write_text(text)
    status, report, errors = run_audit(orders.topics, orders.name, folder)
    assert (status, report.get("required")) == (0, 120), errors


def test_renamed_columns_of_a_delta_table_are_read_by_their_stored_names(orders: Orders, tmp_path: Path) -> None:
    """A log as Spark writes it after ``RENAME COLUMN``; tests/engines has Spark itself."""
    folder = tmp_path / "t"
    kept = orders.table.filter(pa.array([row != (1, 17) for row in orders.rows]))
    stored = kept.rename_columns(["kafka_topic", "part", "kafka_offset", "total"])
    deltalake.write_deltalake(str(folder), stored)
    log = folder / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        if "metaData" in action:
            action["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
            schema = json.loads(action["metaData"]["schemaString"])
            for number, field in enumerate(schema["fields"]):
                names = {"delta.columnMapping.id": number + 1, "delta.columnMapping.physicalName": field["name"]}
                field["metadata"] = names
                field["name"] = {"part": "kafka_partition"}.get(field["name"], field["name"])
            action["metaData"]["schemaString"] = json.dumps(schema)
    log.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    status, report, errors = run_audit(orders.topics, orders.name, folder)
    assert (status, report.get("missing"), report.get("doubled")) == (1, 1, 0), errors
    assert report["partitions"][1]["missing"] == [[17, 18]]
