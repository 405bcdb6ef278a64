"""Small files merged: few are left of a day, sorted by type, on the disk before they count."""

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
from penstock.upkeep.compaction.compaction import compact_table, group_files
from penstock.upkeep.deletion.removal import execute_deletions
from tests.landing.table.table_rows import AT, write_file
from tests.spark.spark_helpers import HandWritten, landed_event, landed_message


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    found = DeltaTable(tmp_path / "landed")
    found.begin()
    return found


def listed(sizes: dict[str, int]) -> list[TableFile]:
    return [TableFile.listed(name, size) for name, size in sizes.items()]


def test_of_a_day_with_a_file_a_second_few_files_are_left() -> None:
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


def test_files_of_the_full_size_are_left_alone() -> None:
    assert group_files(listed({"a/1": 90, "a/2": 60, "a/3": 60, "b/1": 1, "b/2": 1}), target=100) == [["b/1", "b/2"]]


def test_rows_lie_by_type(table: DeltaTable) -> None:
    for batch in range(6):
        writer = FileWriter(table.folder, MessageKind.EVENT, date(2026, 1, 1))
        base = {"topic": "t", "timestamp": AT, "landed_at": AT, "bucket": AT}
        rows = [{**base, "offset": 3 * batch + n, "uuid": f"{batch}{n}", "type": f"type-{n}"} for n in range(3)]
        writer.write(pa.RecordBatch.from_pylist(rows, schema=FILE_SCHEMA))
        table.commit(batch, [writer.close()])
    assert compact_table(table.folder) == (6, 1)
    types = pq.read_table(table.folder / table.active()[0], partitioning=None)["type"].to_pylist()
    assert types == sorted(types)
    (told,) = pa.table(deltalake.DeltaTable(str(table.folder)).get_add_actions(flatten=True)).to_pylist()
    assert (told["num_records"], told["min.type"], told["max.type"]) == (18, "type-0", "type-2")


def test_one_that_is_killed_has_changed_nothing(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_files_that_an_earlier_version_merged_are_merged_and_written_without_rows(tmp_path: Path) -> None:
    made = HandWritten(Layout.for_tables(tmp_path / "tables"))
    for n in range(4):
        annotations = [("a", "1"), ("b", None)] if n % 2 else None
        event = landed_event(2 * n, f"u{n}", host="x" if n % 2 else "y", annotations=annotations)
        made.commit({"t": 2 * n + 2}, [event, landed_message(2 * n + 1, annotations=annotations)])
        deltalake.DeltaTable(str(made.layout.landed)).optimize.compact()
    request_deletion(made.layout, REQUESTED, parse_conditions("host = 'x'"))
    assert execute_deletions(made.layout, 1) == 1
    compact_table(made.layout.landed)
    rows = deltalake.DeltaTable(str(made.layout.landed)).to_pyarrow_table()
    assert sorted(rows["offset"].to_pylist()) == [0, 1, 3, 4, 5, 7]
    assert sum(annotations is not None for annotations in rows["annotations"].to_pylist()) == 2


def test_the_commit_says_that_no_data_changed(table: DeltaTable) -> None:
    for batch in range(3):
        table.commit(batch, [write_file(table, [batch])])
    compact_table(table.folder)
    newest = max((table.folder / DELTA_LOG).glob("*.json"))
    told = [json.loads(line) for line in newest.read_text().splitlines()]
    assert {next(iter(one.values())).get("dataChange") for one in told if {*one} & {"add", "remove"}} == {False}
