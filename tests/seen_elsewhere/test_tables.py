"""Public reports on Delta tables: what other writers and readers did to rows, and what is in Penstock's table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import penstock.tables
from penstock.landing.event_rules import MessageKind
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from penstock.landing.table_schema import FILE_SCHEMA
from penstock.landing.writing.written_file import FileWriter, WrittenFile
from penstock.sql.query import Query
from penstock.sql.tables import Tables
from penstock.upkeep.compaction.compaction import compact_table
from tests.landing.table.foreign_writer import commit, delete_by_vector, latest_add
from tests.landing.table.table_rows import write_file

AT = datetime(2026, 2, 3, 4, 5, 6, 999_999, tzinfo=UTC)
"""A time that statistics, which have milliseconds, cannot hold."""
HOSTS = ("web-1", "web-2", "SHIP", "TRUCK")


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    delta_table = DeltaTable(tmp_path / "landed")
    delta_table.begin()
    for batch in range(6):
        delta_table.commit(batch, [write_file(delta_table, [batch])])
    return delta_table


def read_by_deltalake(table: DeltaTable) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(str(table.folder))


def test_merges_after_a_checkpoint_repeat_no_row(table: DeltaTable) -> None:
    """delta-io/delta-rs#3047: each merge after a checkpoint multiplied the rows."""
    read_by_deltalake(table).create_checkpoint()
    for batch in range(6, 9):
        assert compact_table(table.folder)[1] == 1
        table.commit(batch, [write_file(table, [batch])])
    assert sorted(read_by_deltalake(table).to_pyarrow_table()["offset"].to_pylist()) == list(range(9))
    assert len(DeltaTable(table.folder).active()) == 2


def test_each_file_has_its_number_of_rows_in_the_log(table: DeltaTable) -> None:
    """delta-io/delta-rs#2477, delta-io/delta#7266: files without statistics counted as empty or stopped readers."""
    compact_table(table.folder)
    table.commit(6, [write_file(table, [6, 7])])
    actions = pa.table(read_by_deltalake(table).get_add_actions(flatten=True))
    assert sorted(actions["num_records"].to_pylist()) == [2, 6]


def test_filter_on_a_column_without_bounds_keeps_its_rows(table: DeltaTable) -> None:
    """delta-io/delta-rs#2169: a filter on a column whose statistics are empty found nothing."""
    rows = read_by_deltalake(table).to_pyarrow_dataset().to_table(filter=ds.field("topic") == "t")
    assert rows.num_rows == 6


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.for_tables(tmp_path / "tables")


def rows_at(offsets: Sequence[int], at: datetime = AT, event_times: Sequence[datetime | None] = ()) -> pa.RecordBatch:
    """Return messages; each offset decides the host."""
    count = len(offsets)
    columns: dict[str, Any] = {field.name: pa.nulls(count, field.type) for field in FILE_SCHEMA}
    columns |= {name: pa.array([at] * count, FILE_SCHEMA.field(name).type) for name in ("timestamp", "landed_at")}
    columns |= {
        "bucket": columns["timestamp"],
        "topic": pa.array(["t"] * count),
        "offset": pa.array(offsets, pa.int64()),
    }
    columns["host"] = pa.array([HOSTS[number % len(HOSTS)] for number in offsets])
    if event_times:
        columns["event_time"] = pa.array(event_times, FILE_SCHEMA.field("event_time").type)
    return pa.RecordBatch.from_arrays([columns[name] for name in FILE_SCHEMA.names], schema=FILE_SCHEMA)


def written(table: DeltaTable, rows: pa.RecordBatch) -> WrittenFile:
    writer = FileWriter(table.folder, MessageKind.MESSAGE, AT.date())
    writer.write(rows)
    return writer.close()


def values(column: Any) -> list[Any]:
    return list(column.to_pylist())


def offsets_by_dataset(layout: Layout, rows_filter: Any = None) -> list[int]:
    rows = penstock.tables.open(layout.tables, "landed").to_table(columns=["offset"], filter=rows_filter)
    return sorted(values(rows["offset"]))


def offsets_by_sql(layout: Layout, condition: str = "true") -> list[int]:
    with Query(Tables(layout), f'SELECT "offset" FROM landed WHERE {condition} ORDER BY 1') as query:
        return values(query.answer()["offset"])


def offsets_by_datafusion(layout: Layout, condition: str = "true") -> list[int]:
    """Return what delta-rs reads with its own engine."""
    engine = deltalake.QueryBuilder().register("landed", deltalake.DeltaTable(str(layout.landed)))
    rows = pa.table(engine.execute(f'SELECT "offset" FROM landed WHERE {condition} ORDER BY 1').read_all())
    return values(rows["offset"])


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_filter_finds_a_time_finer_than_statistics(layout: Layout, has_checkpoint: bool) -> None:
    """delta-io/delta-rs#2571, #3133, #3288, trinodb/trino#31231: the largest time was cut to milliseconds."""
    table = begin_table(layout)
    table.commit(0, [written(table, rows_at([0]))])
    table.commit(1, [written(table, rows_at([1], AT - timedelta(microseconds=1)))])
    if has_checkpoint:
        deltalake.DeltaTable(str(layout.landed)).create_checkpoint()
    is_latest = ds.field("timestamp") == pa.scalar(AT, pa.timestamp("us", "UTC"))
    dataset = deltalake.DeltaTable(str(layout.landed)).to_pyarrow_dataset()
    assert dataset.to_table(filter=is_latest)["offset"].to_pylist() == [0]
    assert offsets_by_dataset(layout, is_latest) == [0]
    assert offsets_by_datafusion(layout, "timestamp = TIMESTAMP '2026-02-03T04:05:06.999999Z'") == [0]
    assert offsets_by_sql(layout, "timestamp > TIMESTAMPTZ '2026-02-03 04:05:06.999998Z'") == [0]


def test_readers_find_a_time_beyond_the_statistics_of_another_writer(layout: Layout) -> None:
    """trinodb/trino#31231: the file was rewritten by an engine that cuts the largest time to milliseconds."""
    table = begin_table(layout)
    table.commit(0, [written(table, rows_at([0]))])
    added = latest_add(layout.tables / "landed", str(table.active()[0]))
    statistics = json.loads(added["stats"])
    statistics["maxValues"] |= dict.fromkeys(("timestamp", "landed_at"), "2026-02-03T04:05:06.999Z")
    commit(
        layout.tables / "landed", [{"add": added | {"stats": json.dumps(statistics), "dataChange": False}}], "OPTIMIZE"
    )
    assert offsets_by_dataset(layout, ds.field("timestamp") == pa.scalar(AT, pa.timestamp("us", "UTC"))) == [0]
    assert offsets_by_sql(layout, "timestamp = TIMESTAMPTZ '2026-02-03 04:05:06.999999Z'") == [0]


def test_filters_and_limits_keep_the_rows_of_deletion_vectors_apart(layout: Layout) -> None:
    """delta-io/delta-rs#4692, trinodb/trino#21737, monoscope-tech/timefusion#219: vectors were applied to other rows
    as soon as a filter, a limit or a second reader divided the file.
    """
    table = begin_table(layout)
    count, deleted = 140_000, [0, 1, 8191, 8192, 60_000]
    table.commit(0, [written(table, rows_at(range(count)))])
    delete_by_vector(layout.tables / "landed", str(table.active()[0]), deleted)
    remaining = [number for number in range(count) if number not in deleted]
    assert offsets_by_dataset(layout) == offsets_by_sql(layout) == remaining
    assert offsets_by_sql(layout, '"offset" < 9000') == [number for number in remaining if number < 9000]
    assert offsets_by_sql(layout, '"offset" IN (1, 8191, 8193, 60000, 139999)') == [8193, 139_999]
    dataset = penstock.tables.open(layout.tables, "landed")
    assert dataset.count_rows() == len(remaining)
    assert dataset.count_rows(filter=ds.field("offset") < 9000) == 8996
    with Query(Tables(layout), 'SELECT "offset" FROM landed LIMIT 10') as query:
        assert not {*query.answer()["offset"].to_pylist()} & {*deleted}


def test_filters_find_rows_in_all_of_many_files(layout: Layout) -> None:
    """duckdb/duckdb-delta#303 (76 of 200 files), #96 (a filter on a partition column), duckdb/duckdb#4907 (a text)."""
    table = begin_table(layout)
    for batch in range(120):
        table.commit(batch, [written(table, rows_at([batch]))])
    assert offsets_by_sql(layout, "date = DATE '2026-02-03' AND kind = 'message'") == list(range(120))
    for index, host in enumerate(HOSTS):
        expected = [number for number in range(120) if number % len(HOSTS) == index]
        assert (
            offsets_by_sql(layout, f"host = '{host}'") == offsets_by_datafusion(layout, f"host = '{host}'") == expected
        )
        assert offsets_by_dataset(layout, ds.field("host") == host) == expected


def test_partitions_of_other_writers_are_read_and_kept(layout: Layout) -> None:
    """duckdb/duckdb-delta#342, #301, ClickHouse/ClickHouse#111758, delta-io/delta-rs#433, delta-io/delta#2280: null
    partitions, and paths with escapes.
    """
    table = begin_table(layout)
    for batch in range(3):
        table.commit(batch, [written(table, rows_at([batch]))])
    kinds = [None, "a/b %c=d", "product (beta)", ""]
    for offset, kind in enumerate(kinds, 100):
        rows = pa.Table.from_batches([rows_at([offset])])
        rows = rows.append_column("kind", pa.array([kind], pa.string()))
        rows = rows.append_column("date", pa.array([AT.date() if kind else None], pa.date32()))
        deltalake.write_deltalake(str(layout.landed), rows, mode="append")
    everything = [0, 1, 2, 100, 101, 102, 103]
    assert offsets_by_dataset(layout) == offsets_by_sql(layout) == everything
    assert offsets_by_sql(layout, "kind = 'a/b %c=d'") == [101]
    assert compact_table(layout.landed) == (3, 1)
    table.vacuum(0)
    table.commit(3, [written(table, rows_at([3]))])
    assert offsets_by_dataset(layout) == offsets_by_sql(layout) == sorted([*everything, 3])


def test_commits_between_those_of_delta_rs_repeat_and_lose_no_row(layout: Layout) -> None:
    """delta-io/delta-rs#4352 (a repeated MERGE), #2716 (an append deleted rows), #2961, delta-io/delta#527."""
    table = begin_table(layout)
    for batch in range(4):
        table.commit(batch, [written(table, rows_at([2 * batch, 2 * batch + 1]))])
    for batch in range(4, 7):
        merge = deltalake.DeltaTable(str(layout.landed)).merge(
            pa.table({"offset": pa.array([1, 3], pa.int64())}),
            "s.offset = t.offset",
            source_alias="s",
            target_alias="t",
        )
        assert merge.when_matched_update({"host": "'merged'"}).execute()["num_target_rows_updated"] == 2
        table.commit(batch, [written(table, rows_at([2 * batch, 2 * batch + 1]))])
        compact_table(layout.landed)
    deltalake.DeltaTable(str(layout.landed)).optimize.z_order(["offset"])
    table.commit(7, [written(table, rows_at([14, 15]))])
    assert offsets_by_dataset(layout) == offsets_by_sql(layout) == offsets_by_datafusion(layout) == list(range(16))
    assert offsets_by_sql(layout, "host = 'merged'") == [1, 3]
    deltalake.DeltaTable(str(layout.landed)).restore(deltalake.DeltaTable(str(layout.landed)).version() - 1)
    assert (DeltaTable(layout.landed).newest(), offsets_by_sql(layout)) == (7, list(range(14)))


TIMES = [
    *(datetime(year, 1, 1, tzinfo=UTC) for year in (1, 1000, 1677, 2024)),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]


def test_times_of_other_writers_beyond_nanoseconds_do_not_change(layout: Layout) -> None:
    """pola-rs/polars#29184, duckdb/duckdb#6580, apache/datafusion#1360: INT96, as Spark writes it, wrapped around."""
    table = begin_table(layout)
    table.commit(0, [written(table, rows_at([0]))])
    name = "kind=message/date=2026-02-03/foreign.parquet"
    rows = pa.Table.from_batches([rows_at(range(1, len(TIMES) + 1), event_times=TIMES)])
    path = layout.tables / "landed" / name
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True, store_schema=False)
    added = {"path": name, "partitionValues": {"kind": "message", "date": "2026-02-03"}, "size": path.stat().st_size}
    added |= {
        "modificationTime": 1_770_000_000_000,
        "dataChange": True,
        "stats": json.dumps({"numRecords": len(TIMES)}),
    }
    commit(path.parents[2], [{"add": added}], "WRITE")
    for _ in range(2):
        times = penstock.tables.open(layout.tables, "landed").to_table(columns=["event_time"])["event_time"]
        assert sorted(values(times.drop_null())) == sorted(TIMES)
        with Query(Tables(layout), "SELECT event_time FROM landed WHERE event_time IS NOT NULL") as query:
            assert sorted(values(query.answer()["event_time"])) == sorted(TIMES)
        assert offsets_by_sql(layout, "event_time < TIMESTAMPTZ '1500-01-01 00:00:00Z'") == [1, 2]
        compact_table(layout.landed)
