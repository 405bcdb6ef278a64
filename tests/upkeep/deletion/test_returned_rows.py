"""Rows that were deleted on request do not come back after a RESTORE, an overwrite or an INSERT of another program."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock.landing.offset_runs import Runs
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.table.table_file import Mask, TableFile
from penstock.landing.table.table_reader import TableReader
from penstock.landing.table_paths import Layout
from penstock.proof.commit_faults import current_complaints
from penstock.proof.commit_notes import TYPED_COMPLAINTS, noted_complaints
from penstock.proof.deleted_rows import mask_of_topics
from penstock.upkeep.compaction.typed_compaction import compact_all
from penstock.upkeep.deletion import foreign, returned_rows
from penstock.upkeep.deletion.certificate import certify
from penstock.upkeep.deletion.foreign import note_foreign_changes
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.deletion.returned_rows import changed_files
from penstock.upkeep.repair.unreadable_files import unreadable_files
from tests.landing.typed.typed_life import WINDOW, land_pairs, uuids
from tests.upkeep.repair.test_scrub import cut_short, flip_page

ALL = ["a0", "a1", "a2", "b0", "b1", "b2"]
Foreign = Callable[[Path, int, pa.Table], object]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Three batches of two events, each also in a typed table."""
    layout = land_pairs(tmp_path / "tables", ("t", "t", "t"))
    note_foreign_changes(layout)
    return layout


def delete(layout: Layout, where: str) -> None:
    request_deletion(layout, REQUESTED, parse_conditions(where))
    assert execute_deletions(layout, WINDOW) == 1


def restore_table(folder: Path, version: int, rows: pa.Table) -> None:
    del rows
    deltalake.DeltaTable(str(folder)).restore(version)


def overwrite(folder: Path, version: int, rows: pa.Table) -> None:
    del version
    deltalake.write_deltalake(str(folder), rows, mode="overwrite")


def insert(folder: Path, version: int, rows: pa.Table) -> None:
    del version
    rows = rows.filter(pc.field("uuid") == "a1")
    deltalake.write_deltalake(str(folder), rows, mode="append")


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize("foreign", [restore_table, overwrite, insert])
@pytest.mark.parametrize("name", ["landed", "events_click"])
@pytest.mark.parametrize("is_compacted", [False, True])
def test_deleted_row_that_another_program_brings_back_is_deleted_again(
    layout: Layout, name: str, foreign: Foreign, is_compacted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    folder = layout.tables / name
    table = deltalake.DeltaTable(str(folder))
    version, rows = table.version(), table.to_pyarrow_table()
    delete(layout, "uuid in ('a1', 'b2')")
    if is_compacted:
        compact_all(layout)
        note_foreign_changes(layout)
    foreign(folder, version, rows)
    assert "a1" in uuids(folder)
    newest = deltalake.DeltaTable(str(folder)).history(1)[0]
    assert note_foreign_changes(layout, retry=False) == 1
    for table_name in ("landed", "events_click"):
        assert uuids(layout.tables / table_name) == ["a0", "a2", "b0", "b1"]
    assert f"{folder}: version {newest['version']}" in caplog.text
    assert f"{newest['operation']} of {newest['engineInfo']}" in caplog.text
    back = ["a1"] if foreign is insert else ["a1", "b2"]
    assert any(f"deleted again: {', '.join(names)}" in caplog.text for names in (back, back[::-1]))
    (returned,) = certify(layout, 1)["returned"]
    assert (returned["table"], returned["rows"]) == (name, len(back))
    assert sorted(row["uuid"] for row in returned["named"]) == back
    commit = {"version": newest["version"], "operation": newest["operation"], "engine": newest["engineInfo"]}
    assert returned["commits"] == [commit]
    assert len(noted_complaints(layout, TYPED_COMPLAINTS)) == (name != "landed")
    assert note_foreign_changes(layout) == 0
    assert len(noted_complaints(layout, TYPED_COMPLAINTS)) == (name != "landed")
    assert current_complaints(layout, is_exact=False) == []


def test_certificate_names_a_limited_number_of_rows_of_its_own_deletion(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = deltalake.DeltaTable(str(layout.landed)).version()
    delete(layout, "uuid in ('a1', 'b1', 'b2')")
    delete(layout, "uuid = 'a0'")
    monkeypatch.setattr(returned_rows, "MAX_NAMED", 2)
    restore_table(Path(str(layout.landed)), version, pa.table({}))
    note_foreign_changes(layout, retry=False)
    (first,), (second,) = (certify(layout, number)["returned"] for number in (1, 2))
    assert (first["rows"], second["rows"]) == (3, 1)
    assert len([*first["named"], *second["named"]]) == 2
    assert {row["uuid"] for row in first["named"]} < {"a1", "b1", "b2"}


def test_only_files_that_another_program_added_to_landed_are_searched(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = deltalake.DeltaTable(str(layout.landed)).to_pyarrow_table()
    delete(layout, "uuid = 'a1'")
    before = {*map(str, TableReader(layout.landed).active())}
    insert(Path(str(layout.landed)), 0, rows)
    searched: list[str] = []

    def mask(folder: Path, file: TableFile, runs: Mapping[str, Runs]) -> Mask:
        searched.append(str(file))
        return mask_of_topics(folder, file, runs)

    monkeypatch.setattr(returned_rows, "mask_of_topics", mask)
    assert note_foreign_changes(layout, retry=False) == 1
    assert searched
    assert not before & {*searched}
    assert "a1" not in uuids(Path(str(layout.landed)))


def flip_column(path: Path, column: str) -> None:
    """Damage the last page of a column."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    chunk = next(group.column(n) for n in range(group.num_columns) if group.column(n).path_in_schema == column)
    content = bytearray(path.read_bytes())
    content[(chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 1] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut_short, flip_page, *(partial(flip_column, column=c) for c in ("uuid", "host"))])
@pytest.mark.parametrize("name", ["landed", "events_click"])
def test_damaged_file_delays_only_the_rows_in_it(
    layout: Layout, name: str, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    folder = layout.tables / name
    table = deltalake.DeltaTable(str(folder))
    version = table.version()
    delete(layout, "uuid in ('a1', 'b2')")
    restore_table(folder, version, pa.table({}))
    path = next(folder / file for file in TableReader(folder).active() if "a1" in uuids_of(folder / file))
    content = path.read_bytes()
    damage(path)
    note_foreign_changes(layout, retry=False)
    note_foreign_changes(layout)
    assert str(path) in caplog.text
    remaining = [folder / file for file in TableReader(folder).active() if folder / file != path]
    assert sorted(uuid for file in remaining for uuid in uuids_of(file)) == ["a0", "a2", "b0"]
    path.write_bytes(content)
    note_foreign_changes(layout)
    for table_name in ("landed", "events_click"):
        assert uuids(layout.tables / table_name) == ["a0", "a2", "b0", "b1"]


def test_typed_table_with_a_damaged_file_is_searched_again_by_the_full_look_only(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = layout.tables / "events_click"
    version = deltalake.DeltaTable(str(folder)).version()
    delete(layout, "uuid in ('a1', 'b2')")
    restore_table(Path(str(folder)), version, pa.table({}))
    path = next(folder / file for file in TableReader(folder).active() if "a1" in uuids_of(folder / file))
    content = path.read_bytes()
    cut_short(path)
    note_foreign_changes(layout, retry=False)
    searched: list[object] = []

    def mask(folder: Path, file: TableFile, runs: Mapping[str, Runs]) -> Mask:
        searched.append(file)
        return mask_of_topics(folder, file, runs)

    monkeypatch.setattr(returned_rows, "mask_of_topics", mask)
    note_foreign_changes(layout, retry=False)
    assert searched == []
    note_foreign_changes(layout)
    assert searched
    path.write_bytes(content)
    note_foreign_changes(layout)
    assert uuids(folder) == ["a0", "a2", "b0", "b1"]


def uuids_of(path: Path) -> list[str]:
    return [str(uuid) for uuid in pq.ParquetFile(path).read(["uuid"])["uuid"].to_pylist()]


def test_only_files_that_another_program_changed_are_read(layout: Layout) -> None:
    folder = layout.tables / "events_click"
    reader, table = TableReader(folder), deltalake.DeltaTable(str(folder))
    before = {*map(str, reader.active())}
    table.update(updates={"host": "'changed'"}, predicate="uuid = 'a0'")
    commit = reader.foreign_commit(reader.version())
    assert commit is not None
    assert len(before) > 1
    assert {*map(str, changed_files(reader, [commit], reader.active))} == commit.added
    delete(layout, "uuid = 'a1'")
    assert not before & {*map(str, changed_files(reader, [commit], reader.active))}
    table = deltalake.DeltaTable(str(folder))
    table.restore(commit.version - 1)
    restore = reader.foreign_commit(reader.version())
    assert restore is not None
    assert restore.added <= {*map(str, changed_files(reader, [commit, restore], reader.active))}
    assert note_foreign_changes(layout, retry=False) == 2
    assert "a1" not in uuids(folder)


def test_restore_of_a_typed_table_is_named_with_the_command_that_brings_its_rows(layout: Layout) -> None:
    folder = layout.tables / "events_click"
    deltalake.DeltaTable(str(folder)).restore(1)
    assert note_foreign_changes(layout, retry=False) == 1
    (complaint,) = noted_complaints(layout, TYPED_COMPLAINTS)
    assert "is RESTORE of" in complaint.text
    assert complaint.text.endswith("rows that it took away are back after `penstock tables refill click`")


def test_rows_that_another_program_deleted_may_be_restored_by_it(layout: Layout) -> None:
    table = deltalake.DeltaTable(str(layout.tables / "landed"))
    version = table.version()
    table.delete("uuid = 'a1'")
    note_foreign_changes(layout)
    execute_deletions(layout, WINDOW)
    deltalake.DeltaTable(str(layout.tables / "landed")).restore(version)
    note_foreign_changes(layout)
    assert uuids(layout.tables / "landed") == ALL
    (complaint,) = current_complaints(layout, is_exact=False)
    assert "brought 1 deleted rows back" in complaint.text


def test_typed_table_whose_log_was_cleaned_up_is_examined_from_its_oldest_version(layout: Layout) -> None:
    folder = layout.tables / "events_click"
    delete(layout, "uuid = 'a1'")
    table = deltalake.DeltaTable(str(folder))
    table.restore(table.version() - 1)
    table.create_checkpoint()
    for path in sorted((folder / "_delta_log").glob("*.json"))[:-1]:
        path.unlink()
    layout.foreign.unlink()
    note_foreign_changes(layout)
    assert "a1" not in uuids(folder)


@pytest.mark.survives("merge, deletion, restore", "failing disk")
def test_deletion_of_returned_rows_that_fails_is_tried_again(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    table = deltalake.DeltaTable(str(layout.landed))
    version = table.version()
    delete(layout, "uuid = 'a1'")
    deltalake.DeltaTable(str(layout.landed)).restore(version)

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(foreign, "delete_returned_rows", fail)
        note_foreign_changes(layout, retry=False)
        note_foreign_changes(layout)
    assert "a1" in uuids(layout.landed)
    note_foreign_changes(layout, retry=False)
    assert "a1" in uuids(layout.landed)
    note_foreign_changes(layout)
    assert "a1" not in uuids(layout.landed)


def test_failed_deletion_of_returned_rows_is_not_forgotten_when_other_rows_come_back(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = deltalake.DeltaTable(str(layout.landed)).to_pyarrow_table()
    delete(layout, "uuid in ('a1', 'b2')")

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    insert(Path(str(layout.landed)), 0, rows)
    with monkeypatch.context() as patch:
        patch.setattr(foreign, "delete_returned_rows", fail)
        note_foreign_changes(layout, retry=False)
    deltalake.write_deltalake(str(layout.landed), rows.filter(pc.field("uuid") == "b2"), mode="append")
    note_foreign_changes(layout, retry=False)
    note_foreign_changes(layout)
    assert uuids(layout.landed) == ["a0", "a2", "b0", "b1"]


@pytest.mark.parametrize("is_vacuumed", [False, True])
def test_rows_that_came_back_are_deleted_from_the_file_of_an_optimize(layout: Layout, is_vacuumed: bool) -> None:
    rows = deltalake.DeltaTable(str(layout.landed)).to_pyarrow_table()
    delete(layout, "uuid = 'a1'")
    insert(Path(str(layout.landed)), 0, rows)
    table = deltalake.DeltaTable(str(layout.landed))
    table.optimize.compact()
    if is_vacuumed:
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    note_foreign_changes(layout, retry=False)
    assert uuids(layout.landed) == ["a0", "a2", "b0", "b1", "b2"]


def test_rows_that_came_back_in_commits_that_the_log_no_longer_has_are_deleted_again(layout: Layout) -> None:
    rows = deltalake.DeltaTable(str(layout.landed)).to_pyarrow_table()
    delete(layout, "uuid = 'a1'")
    note_foreign_changes(layout)
    insert(Path(str(layout.landed)), 0, rows)
    deltalake.write_deltalake(str(layout.landed), rows.slice(0, 0), mode="append")
    deltalake.DeltaTable(str(layout.landed)).create_checkpoint()
    for path in sorted((Path(str(layout.landed)) / "_delta_log").glob("*.json"))[:-1]:
        path.unlink()
    note_foreign_changes(layout, retry=False)
    assert uuids(layout.landed) == ["a0", "a2", "b0", "b1", "b2"]


def test_typed_table_that_was_put_back_from_a_copy_is_examined(layout: Layout, tmp_path: Path) -> None:
    folder = layout.tables / "events_click"
    delete(layout, "uuid = 'a1'")
    shutil.copytree(folder, tmp_path / "copy")
    deltalake.DeltaTable(str(tmp_path / "copy")).restore(1)
    for _ in range(5):
        deltalake.DeltaTable(str(folder)).delete("uuid = 'none'")
        deltalake.write_deltalake(str(folder), deltalake.DeltaTable(str(folder)).to_pyarrow_table(), mode="overwrite")
    note_foreign_changes(layout)
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder)
    note_foreign_changes(layout)
    assert "a1" not in uuids(folder)


def test_commit_with_vacuumed_files_is_named_as_unreadable_until_the_log_has_lost_it(layout: Layout) -> None:
    folder = Path(str(layout.landed))
    table = deltalake.DeltaTable(str(folder))
    table.update(updates={"host": "'changed'"}, predicate="uuid = 'a0'")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    note_foreign_changes(layout)
    (line,) = unreadable_files(layout)
    assert "UPDATE of" in line
    deltalake.write_deltalake(str(folder), table.to_pyarrow_table().slice(0, 0), mode="append")
    deltalake.DeltaTable(str(folder)).create_checkpoint()
    for path in sorted((folder / "_delta_log").glob("*.json"))[:-1]:
        path.unlink()
    note_foreign_changes(layout)
    assert unreadable_files(layout) == []
