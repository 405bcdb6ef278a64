"""Rows that a deletion vector marks are absent wherever rows are read or rewritten."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
import penstock.tables
from penstock.cli.tables.contents import rows_by_view
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.table import delta_table
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.row_counts import HOST, RowCounts
from penstock.landing.table.table_file import TableFile, as_written, open_rows
from penstock.landing.table_paths import Layout
from penstock.proof.evidence import read_rows
from penstock.sql.query import Query
from penstock.sql.tables import Tables
from penstock.upkeep.backfill_planner import BackfillPlanner
from penstock.upkeep.compaction.compaction import repair_entries
from penstock.upkeep.compaction.typed_compaction import compact_all, compact_typed, remove_old, remove_old_typed
from penstock.upkeep.deletion.removal import count_rows, execute_deletions
from penstock.upkeep.trace.find_message import find_uuid
from penstock.upkeep.typed.found_fields import recent_data
from tests.landing.table.foreign_writer import (
    add_without_vector,
    delete_again_without_vector,
    delete_by_vector,
    optimize_without_vector,
)
from tests.landing.typed.typed_life import CLICK, WINDOW, Killed, Life, event, killed
from tests.landing.writing.messages import source

NAMES = [f"a-{number:02}" for number in range(40)]
REMAINING = sorted({*NAMES} - {"a-21", "a-30"})


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """Two batches of twenty clicks; a-21 and a-30 were deleted by a deletion vector, in both tables."""
    created = Life(Layout.for_tables(tmp_path / "tables"))
    for batch in range(2):
        rows = [(number, event(NAMES[number], ms=number)) for number in range(batch * 20, batch * 20 + 20)]
        created.land(batch, [source(rows)])
    for folder in (created.layout.tables / "landed", created.layout.tables / "events_click"):
        (name,) = [file for file in files_of(folder) if pq.read_table(folder / file)["uuid"][0].as_py() == "a-20"]
        delete_by_vector(folder, name, [1, 10])
    return created


def files_of(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")]


def seen_by_polars(folder: Path) -> list[str]:
    """Return the uuids that another program reads, in a process of its own because its threads do not end."""
    script = "import polars, sys, json; print(json.dumps(polars.scan_delta(sys.argv[1]).collect()['uuid'].to_list()))"
    process = subprocess.run([sys.executable, "-c", script, str(folder)], check=True, capture_output=True, timeout=60)
    return sorted(ast.literal_eval(process.stdout.decode()))


def test_every_reader_skips_deleted_rows(life: Life, tmp_path: Path) -> None:
    layout = life.layout
    landed = layout.landed
    (marked,) = [file for file in life.table.active() if file.live is not None]
    assert sorted(read_rows(landed, life.table.active())["uuid"].to_pylist()) == REMAINING
    assert find_uuid(landed, life.table.active(), "a-21") is None
    assert rows_by_view(layout.tables)["events"] == rows_by_view(layout.tables)["events_click"] == 38
    assert RowCounts(layout, HOST).count() == {("event", "web-1"): 38}
    assert count_rows(layout, parse_conditions("uuid in ('a-21', 'a-22')")) == (1, 1)
    assert len(recent_data(layout, "click", 100)) == 38
    assert BackfillPlanner(tmp_path / "topics", layout, ["t"], running=False)._find_landed_uuids(
        "t", {"a-21", "a-22"}
    ) == {"a-22"}
    for view in ("landed", "events", "events_click"):
        dataset = penstock.tables.open(layout.tables, view)
        assert sorted(dataset.to_table()["uuid"].to_pylist()) == REMAINING
        assert dataset.count_rows() == 38
    tables = Tables(layout, typed=(CLICK,))
    limited = Tables(layout, typed=(CLICK,), readable=frozenset({"t"}))
    for queried in (tables, limited):
        for view in ("landed", "events", "events_click"):
            with Query(queried, f"SELECT uuid FROM {view} ORDER BY uuid") as query:
                assert query.answer()["uuid"].to_pylist() == REMAINING
    with open_rows(landed, marked) as rows:
        assert sum(batch.num_rows for batch in rows.batches(["uuid"], 3)) == rows.rows == 18


def test_deleted_rows_stay_deleted_after_a_deletion_of_others(life: Life) -> None:
    request_deletion(life.layout, REQUESTED, parse_conditions("uuid = 'a-22'"))
    assert execute_deletions(life.layout, WINDOW) == 1
    remaining = [uuid for uuid in REMAINING if uuid != "a-22"]
    for name in ("landed", "events_click"):
        folder = life.layout.tables / name
        assert uuids_by_scan(folder) == remaining
        assert seen_by_polars(folder) == remaining


def test_deleted_rows_stay_deleted_after_a_merge(life: Life) -> None:
    assert compact_all(life.layout)[1] == 2
    for name in ("landed", "events_click"):
        folder = life.layout.tables / name
        assert uuids_by_scan(folder) == seen_by_polars(folder) == REMAINING
    life.land(2, [source([(40, event("a-40", ms=1))])])
    assert uuids_by_scan(life.layout.tables / "landed") == sorted([*REMAINING, "a-40"])


def test_replace_refuses_file_that_got_a_vector(life: Life) -> None:
    from penstock.landing.table.delta_table import TableChanged

    table = life.table
    (plain,) = [file for file in table.active() if file.live is None]
    delete_by_vector(life.layout.tables / "landed", plain, [0])
    with pytest.raises(TableChanged, match="another program"):
        table.replace([plain], [])  # type: ignore[attr-defined]
    assert len(uuids_by_scan(life.layout.tables / "landed")) == 37


def test_replace_refuses_file_that_gets_a_vector_before_the_commit(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.landing.table.delta_table import TableChanged

    table = life.table
    (plain,) = [file for file in table.active() if file.live is None]
    write, pending = table._write, [0]  # type: ignore[attr-defined]

    def write_after_another_program(*arguments: Any, **more: Any) -> None:
        if pending:
            delete_by_vector(life.layout.tables / "landed", plain, [pending.pop()])
        write(*arguments, **more)

    monkeypatch.setattr(table, "_write", write_after_another_program)
    with pytest.raises(TableChanged, match="another program"):
        table.replace([plain], [])  # type: ignore[attr-defined]
    assert len(uuids_by_scan(life.layout.tables / "landed")) == 37


def test_files_of_deletion_vectors_in_use_are_not_removed(life: Life) -> None:
    landed = life.layout.tables / "landed"
    vector = landed / "deletion_vector_1.bin"
    vector.write_bytes(b"1")
    life.table.vacuum(0)  # type: ignore[attr-defined]
    assert vector.exists()
    remove_old(life.layout)
    assert all(file.live is None for file in life.table.active())
    assert uuids_by_scan(landed) == REMAINING
    life.table.vacuum(0)  # type: ignore[attr-defined]
    assert not vector.exists()


def listed_twice(life: Life, table: str, faulty: Callable[[Path, str], int]) -> Path:
    """Let another program list the file with a vector twice, in one table; return its path."""
    folder = life.layout.tables / table
    (marked,) = [file for file in DeltaTable(folder).active() if file.live is not None]
    faulty(folder, marked)
    (twice,) = [file for file in DeltaTable(folder).active() if not file.is_plain]
    assert (twice, twice.copies) == (marked, 2)
    return folder / marked


FAULTY = [add_without_vector, lambda folder, name: delete_again_without_vector(folder, name, [1, 10, 12])]
"""Commits after which a file is listed twice: with and without a vector, and with two."""


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize("table", ["landed", "events_click"])
@pytest.mark.parametrize("faulty", FAULTY, ids=["one vector", "two vectors"])
def test_file_that_is_listed_twice_is_rewritten_once_for_all_readers(
    life: Life, table: str, faulty: Callable[[Path, str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """trinodb/trino#31253, #24648: an engine removes or adds a file without naming its deletion vector."""
    folder = life.layout.tables / table
    path = listed_twice(life, table, faulty)
    expected = REMAINING if faulty is add_without_vector else [uuid for uuid in REMAINING if uuid != "a-32"]
    assert uuids_by_sql(life.layout, table) == expected
    assert "a-21" in uuids_by_scan(folder) or "a-32" in uuids_by_scan(folder), "other readers show deleted rows"
    assert uuids_by_scan(folder).count("a-22") == seen_by_polars(folder).count("a-22") == 2
    for step in ("read_entries", "create_commit"):
        with monkeypatch.context() as patched:
            patched.setattr(delta_table, step, killed)
            with pytest.raises(Killed):
                repair_entries(life.layout)
    assert (repair_entries(life.layout), repair_entries(life.layout)) == (1, 0)
    assert uuids_by_scan(folder) == seen_by_polars(folder) == uuids_by_sql(life.layout, table) == expected
    life.land(2, [source([(40, event("a-40", ms=1))])])
    request_deletion(life.layout, REQUESTED, parse_conditions("uuid = 'a-22'"))
    assert execute_deletions(life.layout, WINDOW) == 1
    compact_all(life.layout)
    remove_old(life.layout)
    DeltaTable(folder).vacuum(0)
    assert not path.exists()
    expected = sorted({*expected, "a-40"} - {"a-22"})
    assert uuids_by_scan(folder) == seen_by_polars(folder) == uuids_by_sql(life.layout, table) == expected


@pytest.mark.parametrize("step", [compact_typed, remove_old_typed], ids=["merge", "sweep"])
@pytest.mark.parametrize("faulty", FAULTY, ids=["one vector", "two vectors"])
def test_deletion_merge_and_sweep_repair_a_file_that_is_listed_twice(
    life: Life, faulty: Callable[[Path, str], int], step: Callable[[Layout], object]
) -> None:
    listed_twice(life, "events_click", faulty)
    step(life.layout)
    listed_twice(life, "landed", faulty)
    request_deletion(life.layout, REQUESTED, parse_conditions("uuid = 'a-22'"))
    assert execute_deletions(life.layout, WINDOW) == 1
    remaining = sorted({*REMAINING} - ({"a-22"} if faulty is add_without_vector else {"a-22", "a-32"}))
    for table in ("landed", "events_click"):
        folder = life.layout.tables / table
        assert all(file.is_plain for file in DeltaTable(folder).active())
        assert uuids_by_scan(folder) == uuids_by_sql(life.layout, table) == remaining


def test_repair_yields_to_commits_of_other_programs(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair is committed to the version that it read, or not at all."""
    path = listed_twice(life, "landed", add_without_vector)
    landed = life.layout.tables / "landed"
    (plain,) = [file for file in life.table.active() if file.is_plain]
    commit, count = delta_table.create_commit, 0

    def commit_after_other_program(*arguments: Any) -> bool:
        nonlocal count
        count += 1
        if count == 1:
            delete_by_vector(landed, plain, [0])
        return commit(*arguments)

    monkeypatch.setattr(delta_table, "create_commit", commit_after_other_program)
    assert repair_entries(life.layout) == 1
    assert count == 2
    assert uuids_by_scan(landed) == uuids_by_sql(life.layout) == [uuid for uuid in REMAINING if uuid != "a-00"]
    assert path.name not in {Path(file).name for file in life.table.active()}


def test_rows_of_file_removed_without_its_vector_are_seen_twice_by_everybody(life: Life) -> None:
    landed = life.layout.tables / "landed"
    (marked,) = [file for file in life.table.active() if file.live is not None]
    optimize_without_vector(landed, marked, [1, 10])
    twice = sorted([*REMAINING, *(name for name in REMAINING if name >= "a-20")])
    assert uuids_by_scan(landed) == seen_by_polars(landed) == uuids_by_sql(life.layout) == twice
    compact_all(life.layout)
    assert uuids_by_scan(landed) == uuids_by_sql(life.layout) == twice


def uuids_by_sql(layout: Layout, table: str = "landed") -> list[str]:
    with Query(Tables(layout, typed=(CLICK,)), f"SELECT uuid FROM {table} ORDER BY 1") as query:
        return list(map(str, query.answer()["uuid"].to_pylist()))


def uuids_by_scan(folder: Path) -> list[str]:
    import deltalake

    rows = pa.table(deltalake.DeltaTable(str(folder)).scan(columns=["uuid"]))
    return sorted(map(str, rows["uuid"].to_pylist()))


def test_no_other_module_opens_files_of_tables() -> None:
    root = Path(penstock.__file__).parent
    rooms = [root / name for name in ("landing", "proof", "upkeep", "sql", "spark", "cli/tables", "tables.py")]
    modules = [path for room in rooms for path in ([room] if room.suffix else room.rglob("*.py"))]
    openers = {"parquet_file", "read_metadata", "ParquetFile", "read_table"}
    importers = {
        path.relative_to(root).as_posix()
        for path in modules
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.alias) and node.name in openers)
        or (isinstance(node, ast.Attribute) and node.attr in openers)
    }
    # Delta's own checkpoints have no deletion vectors.
    names = ("storage/parquet_files", "table/table_file", "table/delta_table", "table/file_entries")
    allowed = {f"landing/{name}.py" for name in names}
    assert importers <= allowed


def test_times_of_spark_are_read_exactly_without_statistics(tmp_path: Path) -> None:
    moments = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]
    rows = pa.table({"event_time": pa.array(moments, pa.timestamp("us", "UTC")), "offset": [5, 7]})
    pq.write_table(rows, tmp_path / "f.parquet", use_deprecated_int96_timestamps=True, write_statistics=False)
    (file,) = as_written(["f.parquet"])
    with open_rows(tmp_path, file) as reader:
        assert reader.bounds("event_time") == (moments[0], moments[1])
        assert reader.bounds("offset") == (5, 7)
        assert not reader.fits_nanoseconds()
        assert reader.read()["event_time"].to_pylist() == moments
    with open_rows(tmp_path, TableFile.listed("f.parquet", 1, np.array([False]))) as reader:
        assert (reader.rows, reader.read(["offset"])["offset"].to_pylist()) == (1, [7])
        assert reader.read_group(0, ["offset"])["offset"].to_pylist() == [7]
