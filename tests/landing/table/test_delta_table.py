"""The Delta table: each batch once across crashes, readable by every Delta reader."""

from __future__ import annotations

import json
import os
import random
import shutil
import tracemalloc
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties

from penstock.landing.table.delta_table import DEFAULT_PROPERTIES, KEEP_HOURS, DeltaTable, TableChanged
from penstock.landing.table.table_reader import APPLICATION, DELTA_LOG
from penstock.landing.table_schema import LANDED
from penstock.upkeep.compaction.compaction import compact_table
from tests.landing.table.table_rows import AT, offsets_in, write_file


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    created = DeltaTable(tmp_path / "landed")
    created.begin()
    return created


def commit(table: DeltaTable, batch: int, *offsets: int) -> list[str]:
    files = [write_file(table, offsets)] if offsets else []
    table.commit(batch, files)
    return [file.name for file in files]


@pytest.fixture(scope="module")
def folder_of_99_batches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that the next commit gives its first checkpoint; tests copy it, because each commit takes 20 ms."""
    table = DeltaTable(tmp_path_factory.mktemp("batches") / "landed")
    table.begin()
    for batch in range(99):
        commit(table, batch, batch)
    return table.folder


@pytest.fixture
def long_table(folder_of_99_batches: Path, tmp_path: Path) -> DeltaTable:
    """A table with the batches 0 to 98 of a row each."""
    table = DeltaTable(shutil.copytree(folder_of_99_batches, tmp_path / "landed"))
    table.begin()
    return table


def commit_files(table: DeltaTable) -> list[Path]:
    return sorted((table.folder / DELTA_LOG).glob("*.json"))


def read_offsets(folder: Path) -> list[int]:
    """Return the offsets that deltalake reads."""
    return sorted(deltalake.DeltaTable(str(folder)).to_pyarrow_table()["offset"].to_pylist())


def test_new_table_is_empty_with_the_lowest_protocol(table: DeltaTable) -> None:
    assert (table.newest(), table.active(), list(table.files())) == (-1, [], [])
    opened = deltalake.DeltaTable(str(table.folder))
    protocol = opened.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    assert not protocol.reader_features
    assert opened.metadata().partition_columns == ["kind", "date"]
    assert [field.name for field in opened.schema().fields] == LANDED.names


def test_missing_table_reads_as_empty(tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "none")
    assert (table.newest(), table.active(), list(table.files())) == (-1, [], [])
    assert not (tmp_path / "none").exists()


def test_files_yields_batches_in_order(table: DeltaTable) -> None:
    names = {batch: commit(table, batch, *range(batch * 10, batch * 10 + 3)) for batch in (0, 1, 5)}
    assert dict(table.files()) == names
    assert list(table.files(1)) == [(1, names[1]), (5, names[5])]
    assert (table.newest(), table.active()) == (5, sorted(name for files in names.values() for name in files))
    assert read_offsets(table.folder) == offsets_in(table.folder, table.active()) == [0, 1, 2, 10, 11, 12, 50, 51, 52]
    reopened = DeltaTable(table.folder)
    assert (reopened.newest(), reopened.active(), list(reopened.files())) == (5, table.active(), list(table.files()))


def test_batch_is_committed_once(table: DeltaTable) -> None:
    commit(table, 3, 1)
    before = commit_files(table)
    for opened_table in (table, DeltaTable(table.folder)):
        for batch in (3, 2, 0):
            commit(opened_table, batch, 99)
    assert commit_files(table) == before
    assert read_offsets(table.folder) == [1]


def test_batch_without_rows_is_committed(table: DeltaTable) -> None:
    commit(table, 0)
    assert (table.newest(), list(table.files()), read_offsets(table.folder)) == (0, [(0, [])], [])


def test_kind_and_day_are_columns(table: DeltaTable) -> None:
    files = [write_file(table, [1], "message", date(1, 1, 1)), write_file(table, [2], "syslog", date(9999, 12, 31))]
    table.commit(0, files)
    rows = deltalake.DeltaTable(str(table.folder)).to_pyarrow_table().select(["offset", "kind", "date"]).to_pylist()
    assert sorted(rows, key=lambda row: row["offset"]) == [
        {"offset": 1, "kind": "message", "date": date(1, 1, 1)},
        {"offset": 2, "kind": "syslog", "date": date(9999, 12, 31)},
    ]


TORN = [b"", b"{", b'{"commitInfo":{}}\n{"add":{"pa', b"\x00" * 700, b"\n", b"\xff\xfe"]


@pytest.mark.parametrize("content", TORN)
def test_begin_removes_torn_newest_commit(table: DeltaTable, content: bytes) -> None:
    commit(table, 0, 1)
    commit(table, 1, 2)
    commit_files(table)[-1].write_bytes(content)
    reopened = DeltaTable(table.folder)
    reopened.begin()
    assert reopened.newest() == 0
    commit(reopened, 1, 7)
    assert read_offsets(table.folder) == [1, 7]
    assert dict(reopened.files()).keys() == {0, 1}


@pytest.mark.parametrize("content", TORN)
def test_begin_recreates_table_if_its_first_commit_is_torn(table: DeltaTable, content: bytes) -> None:
    (first,) = commit_files(table)
    first.write_bytes(content)
    reopened = DeltaTable(table.folder)
    reopened.begin()
    commit(reopened, 0, 1)
    assert read_offsets(table.folder) == [1]


def test_begin_removes_several_torn_commits(table: DeltaTable) -> None:
    for batch in range(4):
        commit(table, batch, batch)
    for entry in commit_files(table)[-2:]:
        entry.write_bytes(b"")
    reopened = DeltaTable(table.folder)
    reopened.begin()
    assert (reopened.newest(), read_offsets(table.folder)) == (1, [0, 1])


def test_begin_changes_no_complete_commit(table: DeltaTable) -> None:
    commit(table, 0, 1)
    before = {entry: entry.read_bytes() for entry in commit_files(table)}
    for opened_table in (table, DeltaTable(table.folder)):
        opened_table.begin()
    assert {entry: entry.read_bytes() for entry in commit_files(table)} == before


def test_merge_adds_no_batch_and_changes_no_rows(table: DeltaTable) -> None:
    names = {batch: commit(table, batch, batch * 2, batch * 2 + 1) for batch in range(10)}
    reader = deltalake.DeltaTable(str(table.folder))
    assert compact_table(table.folder) == (10, 1)
    assert dict(table.files()) == names
    assert (table.newest(), len(table.active())) == (9, 1)
    assert read_offsets(table.folder) == list(range(20))
    assert reader.to_pyarrow_table().num_rows == 20, "who read before still finds its files"
    names[10] = commit(table, 10, 20)
    assert (table.newest(), dict(DeltaTable(table.folder).files())) == (10, names)
    assert read_offsets(table.folder) == list(range(21))


def test_merge_commits_no_data_change(table: DeltaTable) -> None:
    for batch in range(3):
        commit(table, batch, batch)
    compact_table(table.folder)
    actions = [json.loads(line) for line in commit_files(table)[-1].read_text().splitlines()]
    changes = [action[name]["dataChange"] for action in actions for name in ("add", "remove") if name in action]
    assert changes == [False] * 4


def test_merged_file_is_synced_before_its_commit(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for batch in range(3):
        commit(table, batch, batch)
    synced, real = list[str](), os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    assert compact_table(table.folder) == (3, 1)
    (merged,) = table.active()
    commits = [str(entry) for entry in commit_files(table) if int(entry.stem) > 3]
    assert synced.index(str(table.folder / merged)) < synced.index(commits[0])
    assert {*commits} <= {*synced}


def test_begin_syncs_the_commit_of_a_killed_writer(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(DeltaTable, "_sync_since", lambda self, before, *, added=True: before)
        commit(table, 0, 0)
    newest = str(commit_files(table)[-1])
    synced, real = list[str](), os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    DeltaTable(table.folder, LANDED.append(pa.field("later", pa.string()))).begin()
    assert {newest, str(commit_files(table)[-1]), str(table.folder / DELTA_LOG)} <= {*synced}
    assert newest != str(commit_files(table)[-1]), "a column was added"


def test_merge_keeps_days_and_kinds_apart(table: DeltaTable) -> None:
    for batch in range(6):
        day = date(2026, 1, 1 + batch % 2)
        table.commit(batch, [write_file(table, [batch], kind, day) for kind in ("message", "syslog")])
    assert compact_table(table.folder) == (12, 4)
    assert compact_table(table.folder) == (0, 0)
    assert sorted(name.rpartition("/")[0] for name in table.active()) == [
        f"kind={kind}/date=2026-01-0{day}" for kind in ("message", "syslog") for day in (1, 2)
    ]


def test_checkpoint_replaces_removed_commits(long_table: DeltaTable) -> None:
    table = long_table
    for batch in range(99, 130):
        commit(table, batch, batch)
    assert list((table.folder / DELTA_LOG).glob("*.checkpoint.parquet")), "there is one"
    for entry in commit_files(table)[:99]:
        entry.unlink()
    reopened = DeltaTable(table.folder)
    reopened.begin()
    assert (reopened.newest(), len(reopened.active())) == (129, 130)
    assert [batch for batch, _ in reopened.files()] == list(range(98, 130)), "what the journal has already may be gone"
    assert read_offsets(table.folder) == list(range(130))
    commit(reopened, 130, 130)
    assert read_offsets(table.folder) == list(range(131))


@pytest.mark.parametrize("content", [b"", b"PAR1" + bytes(500), None])
def test_begin_removes_torn_checkpoint(long_table: DeltaTable, content: bytes | None) -> None:
    table = long_table
    for batch in range(99, 103):
        commit(table, batch, batch)
    (checkpoint,) = (table.folder / DELTA_LOG).glob("*.checkpoint.parquet")
    if content is None:
        (table.folder / DELTA_LOG / "_last_checkpoint").write_bytes(b"")
    else:
        checkpoint.write_bytes(content)
    reopened = DeltaTable(table.folder)
    reopened.begin()
    commit(reopened, 103, 103)
    assert (reopened.newest(), len(reopened.active()), read_offsets(table.folder)) == (103, 104, list(range(104)))
    assert checkpoint.exists() == (content is None)


def test_vacuum_removes_commits_after_the_checkpoint_is_synced(
    long_table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = long_table
    for entry in commit_files(table):
        os.utime(entry, (0, 0))
    commits, synced, real = commit_files(table), list[str](), os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
        if "checkpoint" in synced[-1]:
            assert commit_files(table)[: len(commits)] == commits
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    commit(table, 99, 99)
    assert {f"{100:020}.checkpoint.parquet", "_last_checkpoint"} <= {*synced}
    assert commit_files(table)[: len(commits)] == commits, (
        "their age is judged by the maintenance, which knows the clock"
    )
    table.vacuum(KEEP_HOURS)
    assert len(commit_files(table)) < len(commits), "what it stands for is gone"
    assert (DeltaTable(table.folder).newest(), read_offsets(table.folder)) == (99, list(range(100)))


@pytest.mark.survives("landing from the log", "foreign writer")
def test_newest_skips_commits_of_other_programs(table: DeltaTable) -> None:
    commit(table, 7, 1)
    opened = deltalake.DeltaTable(str(table.folder))
    opened.delete("offset = 1")
    for opened_table in (table, DeltaTable(table.folder)):
        assert (opened_table.newest(), opened_table.active()) == (7, [])
        assert [batch for batch, _ in opened_table.files()] == [7]
        opened_table.commit(7, [write_file(opened_table, [5])])
    assert read_offsets(table.folder) == []


def test_commit_has_bounds_of_files(table: DeltaTable) -> None:
    commit(table, 0, 5, 3, 9)
    opened = deltalake.DeltaTable(str(table.folder))
    (action,) = pa.table(opened.get_add_actions(flatten=True)).to_pylist()
    assert (action["num_records"], action["min.offset"], action["max.offset"], action["min.topic"]) == (3, 3, 9, "t")
    assert opened.transaction_version(APPLICATION) == 0


def test_active_within_excludes_files_by_the_statistics_of_the_log(table: DeltaTable) -> None:
    names = [*commit(table, 0, 3, 5), *commit(table, 1, 6, 9), *commit(table, 2, 20)]
    assert sorted(table.active_within({"offset": (5, 6)})) == sorted(names[:2])
    assert table.active_within({"offset": (10, 19)}) == []
    assert table.active_within({"offset": (20, 30), "topic": ("s", "u")}) == names[2:]
    assert table.active_within({"offset": (20, 30), "topic": ("u", "v")}) == []
    assert sorted(table.active_within({"timestamp": (AT, AT)})) == sorted(names)
    assert table.active_within({"timestamp": (AT - timedelta(days=2), AT - timedelta(days=1))}) == []
    assert sorted(table.active_within({"uuid": ("a", "b"), "unknown": (1, 2)})) == sorted(names)


def test_statistics_of_a_file_need_no_memory_for_the_others(table: DeltaTable) -> None:
    (name,) = commit(table, 0, 3, 5)
    folder, _, _ = name.rpartition("/")
    with table.commit_path(table.version() + 1).open("w") as log:
        for number in range(5000):
            statistics = {"numRecords": 2, "minValues": {"offset": number}, "maxValues": {"offset": number + 1}}
            added = {
                "path": f"{folder}/part%20{number}.parquet",
                "partitionValues": {"kind": "event", "date": AT.date().isoformat()},
                "size": 1,
                "modificationTime": 0,
                "dataChange": True,
                "stats": json.dumps(statistics),
            }
            log.write(json.dumps({"add": added}) + "\n")
    assert len(table.active()) == 5001
    tracemalloc.start()
    assert table.statistics(name)["offset"] == (3, 5, 0)
    assert table.statistics(f"{folder}/part 4999.parquet")["offset"] == (4999, 5000, None)
    assert table.statistics("away") == {}
    assert tracemalloc.get_traced_memory()[1] < 200_000
    tracemalloc.stop()


@pytest.mark.survives("landing from the log", "power cut")
def test_batches_are_exact_after_random_crashes(tmp_path: Path) -> None:
    """Before the commit, after it, and with a commit that did not reach the disk whole."""
    chance, folder, batch, landed = random.Random(15), tmp_path / "landed", 0, list[int]()
    table = DeltaTable(folder)
    table.begin()
    for _ in range(120):
        if chance.random() < 0.3:
            table = DeltaTable(folder)
            table.begin()
        assert table.newest() == batch - 1
        file = write_file(table, [batch])
        if chance.random() < 0.3:
            continue
        table.commit(batch, [file])
        if chance.random() < 0.2:
            entry = commit_files(table)[-1]
            entry.write_bytes(entry.read_bytes()[: chance.randrange(40)])
            table = DeltaTable(folder)
            table.begin()
            if table.newest() == batch - 1:
                continue
        landed.append(batch)
        batch += 1
    assert read_offsets(folder) == landed == list(range(batch))


def test_only_new_table_gets_default_properties(tmp_path: Path) -> None:
    folder, new = tmp_path / "landed", tmp_path / "new"
    folder.mkdir()
    deltalake.DeltaTable.create(str(folder), LANDED, partition_by=["kind", "date"])
    for path, configuration in ((folder, {}), (new, DEFAULT_PROPERTIES)):
        for _ in range(2):
            DeltaTable(path).begin()
            opened = deltalake.DeltaTable(str(path))
            assert (opened.metadata().configuration, opened.version()) == (configuration, 0)


def test_checkpoint_omits_files_removed_long_ago(table: DeltaTable) -> None:
    for batch in range(60):
        commit(table, batch, batch)
    compact_table(table.folder)
    (merged,) = (entry for entry in commit_files(table) if '"remove"' in entry.read_text())
    actions = [json.loads(line) for line in merged.read_text().splitlines()]
    for action in actions:
        if "remove" in action:
            action["remove"]["deletionTimestamp"] -= (KEEP_HOURS + 2) * 3_600_000
    merged.write_text("\n".join(map(json.dumps, actions)))
    reopened = DeltaTable(table.folder)
    for batch in range(60, 110):
        commit(reopened, batch, batch)
    (checkpoint,) = (table.folder / DELTA_LOG).glob("*.checkpoint.parquet")
    rows = pq.read_table(checkpoint, columns=["add", "remove"]).to_pylist()
    assert sum(row["remove"] is not None and row["remove"]["path"] is not None for row in rows) == 0
    assert sum(row["add"] is not None and row["add"]["path"] is not None for row in rows) == 39 + 1


def test_filter_on_column_without_bounds_matches_rows(table: DeltaTable) -> None:
    commit(table, 0, 7)
    rows = deltalake.DeltaTable(str(table.folder)).to_pyarrow_dataset()
    assert rows.to_table(filter=ds.field("bucket") == AT).num_rows == 1
    assert rows.to_table(filter=ds.field("uuid").is_null()).num_rows == 1
    assert rows.to_table(filter=ds.field("bucket") < AT).num_rows == 0


def test_commit_is_repeated_if_another_program_changes_rows_during_it(
    table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(table, 0, 1, 2)
    # The check of the files is between the read of the newest version and the commit.
    monkeypatch.setattr(
        table, "_check_files_exist", lambda files: deltalake.DeltaTable(table.folder).delete("offset = 1")
    )
    commit(table, 1, 3)
    assert offsets_in(table.folder, table.active()) == [2, 3]


def test_overwrite_refuses_a_version_that_another_program_adds_before_its_commit(
    table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(table, 0, 1)
    write = table._write

    def write_after_another_program(*arguments: Any, **more: Any) -> None:
        commit(DeltaTable(table.folder), 1, 2)
        write(*arguments, **more)

    monkeypatch.setattr(table, "_write", write_after_another_program)
    with pytest.raises(TableChanged, match="another program commits at the same time"):
        table._overwrite([write_file(table, (3,))], CommitProperties())
    assert read_offsets(table.folder) == [1, 2]
