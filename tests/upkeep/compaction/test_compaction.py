"""Merging of small files: few files remain of a day, sorted by type and synced before the commit."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.landing.event_rules import MessageKind
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.table_file import TableFile
from penstock.landing.table.table_reader import DELTA_LOG
from penstock.landing.table_paths import Layout
from penstock.landing.table_schema import FILE_SCHEMA
from penstock.landing.writing.written_file import FileWriter
from penstock.upkeep.compaction.compaction import MAX_FILE_ROWS, compact_table, group_files
from penstock.upkeep.deletion.removal import execute_deletions
from tests.landing.table.table_rows import AT, write_file
from tests.spark.spark_helpers import HandWritten, landed_event, landed_message


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    delta_table = DeltaTable(tmp_path / "landed")
    delta_table.begin()
    return delta_table


def listed(sizes: dict[str, int]) -> list[TableFile]:
    return [TableFile.listed(name, size) for name, size in sizes.items()]


def test_file_per_second_of_a_day_leaves_few_files() -> None:
    """At 100 events/s, merged every ten minutes, as sizes go: 22 bytes a row."""
    sizes: dict[str, int] = {}
    copied = 0
    for minutes in range(0, 24 * 60, 10):
        sizes |= {f"kind=event/date=d/{minutes}-{second}": 2_200 for second in range(600)}
        for number, names in enumerate(group_files(listed(sizes))):
            total = sum(sizes.pop(name) for name in names)
            copied += total
            sizes[f"kind=event/date=d/merged-{minutes}-{number}"] = total
    assert len(sizes) < 20
    assert sum(sizes.values()) == 86_400 * 2_200
    assert max(sizes.values()) <= 128 << 20
    assert copied < 10 * sum(sizes.values()), "each row was copied a few times, and not at each merge"


def test_full_files_are_not_merged() -> None:
    assert group_files(listed({"a/1": 90, "a/2": 60, "a/3": 60, "b/1": 1, "b/2": 1}), target=100) == [["b/1", "b/2"]]


def test_files_are_merged_up_to_a_number_of_rows() -> None:
    files = [TableFile.listed(f"a/{n}", 100 + n, None, MAX_FILE_ROWS // 2) for n in range(5)]
    assert group_files(files) == [["a/0", "a/1"], ["a/2", "a/3"]]


def test_files_of_a_large_day_are_merged_by_hour() -> None:
    def files(size: int) -> list[TableFile]:
        return [TableFile.listed(f"a/{n}", size, None, 1, hour) for n, hour in enumerate([7, 8, None, 8, 7, None])]

    assert group_files(files(4), target=24) == [["a/0", "a/1", "a/2", "a/3", "a/4", "a/5"]]
    assert group_files([*files(4), TableFile.listed("a/9", 24 * 24)], target=24) == [
        ["a/0", "a/4"],
        ["a/1", "a/3"],
        ["a/2", "a/5"],
    ]


def test_files_are_listed_with_their_rows_and_hour(table: DeltaTable) -> None:
    table.commit(0, [write_file(table, [0, 1])])
    (file,) = table.active()
    assert (file.written_rows, file.hour) == (2, int(AT.timestamp()) // 3600)


def test_merged_rows_are_clustered_by_type_and_host(table: DeltaTable) -> None:
    hosts = ["web-2", "web-10", None]
    for batch in range(3):
        writer = FileWriter(table.folder, MessageKind.EVENT, date(2026, 1, 1))
        base = {"topic": "t", "timestamp": AT, "landed_at": AT, "bucket": AT}
        rows = [
            {**base, "offset": n, "uuid": str(n), "type": f"type-{n % 2}", "host": hosts[n % 3]}
            for n in range(batch * 9, batch * 9 + 9)
        ]
        writer.write(pa.RecordBatch.from_pylist(rows, schema=FILE_SCHEMA))
        table.commit(batch, [writer.close()])
    assert compact_table(table.folder) == (3, 1)
    merged = pq.read_table(table.folder / table.active()[0], partitioning=None).to_pylist()
    expected = [(f"type-{n % 2}", hosts[n % 3]) for n in range(27)]
    expected.sort(key=lambda row: (row[0], row[1] is None, row[1] or ""))
    assert [(row["type"], row["host"]) for row in merged] == expected
    assert all((row["type"], row["host"]) == (f"type-{n % 2}", hosts[n % 3]) for row in merged for n in [row["offset"]])
    assert sorted(row["offset"] for row in merged) == list(range(27))


def test_merged_rows_are_sorted_by_type(table: DeltaTable) -> None:
    for batch in range(6):
        writer = FileWriter(table.folder, MessageKind.EVENT, date(2026, 1, 1))
        base = {"topic": "t", "timestamp": AT, "landed_at": AT, "bucket": AT}
        rows = [{**base, "offset": 3 * batch + n, "uuid": f"{batch}{n}", "type": f"type-{n}"} for n in range(3)]
        writer.write(pa.RecordBatch.from_pylist(rows, schema=FILE_SCHEMA))
        table.commit(batch, [writer.close()])
    assert compact_table(table.folder) == (6, 1)
    types = pq.read_table(table.folder / table.active()[0], partitioning=None)["type"].to_pylist()
    assert types == sorted(types)
    (added_file,) = pa.table(deltalake.DeltaTable(str(table.folder)).get_add_actions(flatten=True)).to_pylist()
    assert (added_file["num_records"], added_file["min.type"], added_file["max.type"]) == (18, "type-0", "type-2")


@pytest.mark.survives("merge, deletion, restore", "SIGKILL")
def test_killed_merge_changes_nothing(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for batch in range(3):
        table.commit(batch, [write_file(table, [batch])])
    real = os.fsync

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        compact_table(table.folder)
    monkeypatch.setattr(os, "fsync", real)
    assert len(DeltaTable(table.folder).active()) == 3, "the file is synced before the commit that names it"
    assert compact_table(table.folder) == (3, 1)


def test_files_merged_by_earlier_version_are_merged(tmp_path: Path) -> None:
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    for n in range(4):
        annotations = [("a", "1"), ("b", None)] if n % 2 else None
        event = landed_event(2 * n, f"u{n}", host="x" if n % 2 else "y", annotations=annotations)
        table.commit({"t": 2 * n + 2}, [event, landed_message(2 * n + 1, annotations=annotations)])
        deltalake.DeltaTable(str(table.layout.landed)).optimize.compact()
    request_deletion(table.layout, REQUESTED, parse_conditions("host = 'x'"))
    assert execute_deletions(table.layout, 1) == 1
    compact_table(table.layout.landed)
    rows = deltalake.DeltaTable(str(table.layout.landed)).to_pyarrow_table()
    assert sorted(rows["offset"].to_pylist()) == [0, 1, 3, 4, 5, 7]
    assert sum(annotations is not None for annotations in rows["annotations"].to_pylist()) == 2


def test_commit_of_merge_has_no_data_change(table: DeltaTable) -> None:
    for batch in range(3):
        table.commit(batch, [write_file(table, [batch])])
    compact_table(table.folder)
    newest = max((table.folder / DELTA_LOG).glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    assert {next(iter(action.values())).get("dataChange") for action in actions if {*action} & {"add", "remove"}} == {
        False
    }
