"""Entries of a file equal the entries of Delta's readers, from commits and from checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pyarrow.parquet as pq
import pytest

from penstock.files.errors import DamagedFile
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.file_entries import create_commit, parse_actions, read_entries, replacement
from tests.landing.table.foreign_writer import (
    add_without_vector,
    delete_again_without_vector,
    delete_by_vector,
    inline_vector,
)
from tests.landing.table.table_rows import write_file


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """Two files of four rows."""
    created = DeltaTable(tmp_path / "landed")
    created.begin()
    for batch in range(2):
        created.commit(batch, [write_file(created, range(4 * batch, 4 * batch + 4))])
    return created


def vectors(table: DeltaTable, name: str, version: int | None = None) -> list[str]:
    """Return the vectors of a file's entries, sorted; "" for none."""
    entries = read_entries(table.folder / "_delta_log", table.version() if version is None else version, [name])[name]
    return sorted((entry.get("deletionVector") or {}).get("pathOrInlineDv", "") for entry in entries)


def make_checkpoint(table: DeltaTable, parts: int = 1) -> None:
    """Write a checkpoint in parts, and remove the commits before it."""
    deltalake.DeltaTable(str(table.folder)).create_checkpoint()
    log, version = Path(str(table.folder)) / "_delta_log", table.version()
    for number in range(version):
        (log / f"{number:020}.json").unlink()
    if parts > 1:
        single = log / f"{version:020}.checkpoint.parquet"
        rows = pq.read_table(single)
        for part in range(parts):
            share = rows.take(list(range(part, rows.num_rows, parts)))
            pq.write_table(share, log / f"{version:020}.checkpoint.{part + 1:010}.{parts:010}.parquet")
        single.unlink()
        pointer = {"version": version, "size": rows.num_rows, "parts": parts}
        (log / "_last_checkpoint").write_text(json.dumps(pointer))


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_entries_come_from_commits_and_checkpoints(table: DeltaTable, parts: int) -> None:
    folder = Path(str(table.folder))
    name, other = map(str, table.active())  # sorted by name
    first, second = (inline_vector(rows)["pathOrInlineDv"] for rows in ([1], [1, 2]))
    delete_by_vector(folder, name, [1])
    assert (vectors(table, name), vectors(table, other)) == ([first], [""])
    delete_again_without_vector(folder, name, [1, 2])
    add_without_vector(folder, name)
    assert vectors(table, name) == sorted(["", first, second])
    if parts:
        make_checkpoint(table, parts)
        table = DeltaTable(table.folder)
        assert vectors(table, name) == sorted(["", first, second])
        assert [file.copies for file in table.active()] == [3, 1]
    table.commit(2, [write_file(table, [9])])
    (last,) = {*map(str, table.active())} - {name, other}
    delete_by_vector(folder, last, [0])
    assert vectors(table, name) == sorted(["", first, second])
    assert (vectors(table, other), vectors(table, last)) == ([""], [inline_vector([0])["pathOrInlineDv"]])
    (entry, *_) = read_entries(folder / "_delta_log", table.version(), [name])[name]
    assert entry["partitionValues"] == {"kind": "message", "date": "2026-02-03"}


def test_missing_commit_is_damage(table: DeltaTable) -> None:
    (name, *_) = table.active()
    (Path(str(table.folder)) / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(DamagedFile, match="has no commit 1"):
        vectors(table, name, 2)


def test_version_is_created_once(tmp_path: Path) -> None:
    path = tmp_path / f"{7:020}.json"
    entry = {"path": "f", "partitionValues": {}, "size": 1, "deletionVector": {"storageType": "i", "offset": None}}
    first, second = (replacement([entry], [{"path": "g"}], 5, {"penstock": "upkeep"}) for _ in range(2))
    assert create_commit(path, first)
    assert not create_commit(path, second)
    info, removal, added = parse_actions(path.read_text())
    assert (info["commitInfo"]["penstock"], added) == ("upkeep", {"add": {"path": "g"}})
    assert removal["remove"]["deletionVector"] == {"storageType": "i"}
    assert [path.name for path in tmp_path.iterdir()] == [path.name]
