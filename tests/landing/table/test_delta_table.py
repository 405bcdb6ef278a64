"""The table as a Delta table: each batch once, whatever happens in between, and as every reader takes it."""

from __future__ import annotations

import json
import os
import random
from datetime import date
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from penstock.landing.table.delta_table import APPLICATION, DEFAULT_PROPERTIES, DELTA_LOG, KEEP_HOURS, DeltaTable
from penstock.landing.table_schema import LANDED
from penstock.upkeep.compaction.compaction import compact_table
from tests.landing.table.table_rows import AT, offsets_in, written


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    found = DeltaTable(tmp_path / "landed")
    found.begin()
    return found


def commit(table: DeltaTable, batch: int, *offsets: int) -> list[str]:
    files = [written(table, offsets)] if offsets else []
    table.commit(batch, files)
    return [file.name for file in files]


def entries(table: DeltaTable) -> list[Path]:
    return sorted((table.folder / DELTA_LOG).glob("*.json"))


def read(folder: Path) -> list[int]:
    """As anybody who has deltalake."""
    return sorted(deltalake.DeltaTable(str(folder)).to_pyarrow_table()["offset"].to_pylist())


def test_a_new_table_is_empty_and_of_a_protocol_that_every_reader_knows(table: DeltaTable) -> None:
    assert (table.newest(), table.active(), list(table.files())) == (-1, [], [])
    opened = deltalake.DeltaTable(str(table.folder))
    protocol = opened.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    assert not protocol.reader_features
    assert opened.metadata().partition_columns == ["kind", "date"]
    assert [one.name for one in opened.schema().fields] == LANDED.names


def test_a_table_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "none")
    assert (table.newest(), table.active(), list(table.files())) == (-1, [], [])
    assert not (tmp_path / "none").exists()


def test_batches_are_there_for_all_who_read_in_the_order_of_their_numbers(table: DeltaTable) -> None:
    names = {batch: commit(table, batch, *range(batch * 10, batch * 10 + 3)) for batch in (0, 1, 5)}
    assert dict(table.files()) == names
    assert list(table.files(1)) == [(1, names[1]), (5, names[5])]
    assert (table.newest(), table.active()) == (5, sorted(name for of in names.values() for name in of))
    assert read(table.folder) == offsets_in(table.folder, table.active()) == [0, 1, 2, 10, 11, 12, 50, 51, 52]
    again = DeltaTable(table.folder)
    assert (again.newest(), again.active(), list(again.files())) == (5, table.active(), list(table.files()))


def test_a_batch_is_committed_once(table: DeltaTable) -> None:
    commit(table, 3, 1)
    before = entries(table)
    for one in (table, DeltaTable(table.folder)):
        for batch in (3, 2, 0):
            commit(one, batch, 99)
    assert entries(table) == before
    assert read(table.folder) == [1]


def test_a_batch_without_rows_is_one(table: DeltaTable) -> None:
    commit(table, 0)
    assert (table.newest(), list(table.files()), read(table.folder)) == (0, [(0, [])], [])


def test_kind_and_day_are_columns_for_readers(table: DeltaTable) -> None:
    files = [written(table, [1], "message", date(1, 1, 1)), written(table, [2], "syslog", date(9999, 12, 31))]
    table.commit(0, files)
    rows = deltalake.DeltaTable(str(table.folder)).to_pyarrow_table().select(["offset", "kind", "date"]).to_pylist()
    assert sorted(rows, key=lambda row: row["offset"]) == [
        {"offset": 1, "kind": "message", "date": date(1, 1, 1)},
        {"offset": 2, "kind": "syslog", "date": date(9999, 12, 31)},
    ]


TORN = [b"", b"{", b'{"commitInfo":{}}\n{"add":{"pa', b"\x00" * 700, b"\n", b"\xff\xfe"]


@pytest.mark.parametrize("content", TORN)
def test_a_torn_newest_commit_is_removed_so_that_its_batch_is_done_again(table: DeltaTable, content: bytes) -> None:
    commit(table, 0, 1)
    commit(table, 1, 2)
    entries(table)[-1].write_bytes(content)
    again = DeltaTable(table.folder)
    again.begin()
    assert again.newest() == 0
    commit(again, 1, 7)
    assert read(table.folder) == [1, 7]
    assert dict(again.files()).keys() == {0, 1}


@pytest.mark.parametrize("content", TORN)
def test_a_table_whose_very_first_commit_is_torn_is_begun_again(table: DeltaTable, content: bytes) -> None:
    (first,) = entries(table)
    first.write_bytes(content)
    again = DeltaTable(table.folder)
    again.begin()
    commit(again, 0, 1)
    assert read(table.folder) == [1]


def test_several_torn_commits_are_removed_down_to_the_newest_whole_one(table: DeltaTable) -> None:
    for batch in range(4):
        commit(table, batch, batch)
    for entry in entries(table)[-2:]:
        entry.write_bytes(b"")
    again = DeltaTable(table.folder)
    again.begin()
    assert (again.newest(), read(table.folder)) == (1, [0, 1])


def test_what_is_whole_is_left_alone(table: DeltaTable) -> None:
    commit(table, 0, 1)
    before = {entry: entry.read_bytes() for entry in entries(table)}
    for one in (table, DeltaTable(table.folder)):
        one.begin()
    assert {entry: entry.read_bytes() for entry in entries(table)} == before


def test_merging_files_is_no_batch_and_changes_no_rows(table: DeltaTable) -> None:
    names = {batch: commit(table, batch, batch * 2, batch * 2 + 1) for batch in range(10)}
    reader = deltalake.DeltaTable(str(table.folder))
    assert compact_table(table.folder) == (10, 1)
    assert dict(table.files()) == names
    assert (table.newest(), len(table.active())) == (9, 1)
    assert read(table.folder) == list(range(20))
    assert reader.to_pyarrow_table().num_rows == 20, "who read before still finds its files"
    names[10] = commit(table, 10, 20)
    assert (table.newest(), dict(DeltaTable(table.folder).files())) == (10, names)
    assert read(table.folder) == list(range(21))


def test_merging_changes_no_data_for_those_who_follow_the_table(table: DeltaTable) -> None:
    for batch in range(3):
        commit(table, batch, batch)
    compact_table(table.folder)
    actions = [json.loads(line) for line in entries(table)[-1].read_text().splitlines()]
    changes = [action[name]["dataChange"] for action in actions for name in ("add", "remove") if name in action]
    assert changes == [False] * 4


def test_what_is_merged_is_on_the_disk_before_the_commit_that_names_it(
    table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(3):
        commit(table, batch, batch)
    synced, real = list[str](), os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    assert compact_table(table.folder) == (3, 1)
    (merged,) = table.active()
    commits = [str(entry) for entry in entries(table) if int(entry.stem) > 3]
    assert synced.index(str(table.folder / merged)) < synced.index(commits[0])
    assert {*commits} <= {*synced}


def test_what_is_merged_stays_merged_and_other_days_and_kinds_are_left_apart(table: DeltaTable) -> None:
    for batch in range(6):
        day = date(2026, 1, 1 + batch % 2)
        table.commit(batch, [written(table, [batch], kind, day) for kind in ("message", "syslog")])
    assert compact_table(table.folder) == (12, 4)
    assert compact_table(table.folder) == (0, 0)
    assert sorted(name.rpartition("/")[0] for name in table.active()) == [
        f"kind={kind}/date=2026-01-0{day}" for kind in ("message", "syslog") for day in (1, 2)
    ]


def test_long_after_a_checkpoint_stands_for_all_commits_before_it(table: DeltaTable) -> None:
    for batch in range(130):
        commit(table, batch, batch)
    assert list((table.folder / DELTA_LOG).glob("*.checkpoint.parquet")), "there is one"
    for entry in entries(table)[:99]:
        entry.unlink()
    again = DeltaTable(table.folder)
    again.begin()
    assert (again.newest(), len(again.active())) == (129, 130)
    assert [batch for batch, _ in again.files()] == list(range(98, 130)), "what the journal has already may be gone"
    assert read(table.folder) == list(range(130))
    commit(again, 130, 130)
    assert read(table.folder) == list(range(131))


@pytest.mark.parametrize("content", [b"", b"PAR1" + bytes(500), None])
def test_a_torn_checkpoint_is_removed_as_its_commits_are_still_there(table: DeltaTable, content: bytes | None) -> None:
    for batch in range(103):
        commit(table, batch, batch)
    (checkpoint,) = (table.folder / DELTA_LOG).glob("*.checkpoint.parquet")
    if content is None:
        (table.folder / DELTA_LOG / "_last_checkpoint").write_bytes(b"")
    else:
        checkpoint.write_bytes(content)
    again = DeltaTable(table.folder)
    again.begin()
    commit(again, 103, 103)
    assert (again.newest(), len(again.active()), read(table.folder)) == (103, 104, list(range(104)))
    assert checkpoint.exists() == (content is None)


def test_commits_go_only_when_the_checkpoint_that_stands_for_them_is_on_the_disk(
    table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(99):
        commit(table, batch, batch)
    for entry in entries(table):
        os.utime(entry, (0, 0))
    commits, synced, real = entries(table), list[str](), os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
        if "checkpoint" in synced[-1]:
            assert entries(table)[: len(commits)] == commits
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    commit(table, 99, 99)
    assert {f"{100:020}.checkpoint.parquet", "_last_checkpoint"} <= {*synced}
    assert entries(table)[: len(commits)] == commits, "their age is judged by the maintenance, which knows the clock"
    table.vacuum(KEEP_HOURS)
    assert len(entries(table)) < len(commits), "what it stands for is gone"
    assert (DeltaTable(table.folder).newest(), read(table.folder)) == (99, list(range(100)))


def test_other_commits_do_not_hide_the_newest_batch(table: DeltaTable) -> None:
    commit(table, 7, 1)
    opened = deltalake.DeltaTable(str(table.folder))
    opened.delete("offset = 1")
    for one in (table, DeltaTable(table.folder)):
        assert (one.newest(), one.active()) == (7, [])
        assert [batch for batch, _ in one.files()] == [7]
        one.commit(7, [written(one, [5])])
    assert read(table.folder) == []


def test_bounds_are_there_for_readers_to_pass_over_files(table: DeltaTable) -> None:
    commit(table, 0, 5, 3, 9)
    opened = deltalake.DeltaTable(str(table.folder))
    (one,) = pa.table(opened.get_add_actions(flatten=True)).to_pylist()
    assert (one["num_records"], one["min.offset"], one["max.offset"], one["min.topic"]) == (3, 3, 9, "t")
    assert opened.transaction_version(APPLICATION) == 0


def test_batches_are_exact_though_the_writer_is_lost_at_random_moments(tmp_path: Path) -> None:
    """Before the commit, after it, and with a commit that did not reach the disk whole."""
    chance, folder, batch, landed = random.Random(15), tmp_path / "landed", 0, list[int]()
    table = DeltaTable(folder)
    table.begin()
    for _ in range(120):
        if chance.random() < 0.3:
            table = DeltaTable(folder)
            table.begin()
        assert table.newest() == batch - 1
        file = written(table, [batch])
        if chance.random() < 0.3:
            continue
        table.commit(batch, [file])
        if chance.random() < 0.2:
            entry = entries(table)[-1]
            entry.write_bytes(entry.read_bytes()[: chance.randrange(40)])
            table = DeltaTable(folder)
            table.begin()
            if table.newest() == batch - 1:
                continue
        landed.append(batch)
        batch += 1
    assert read(folder) == landed == list(range(batch))


def test_only_a_new_table_gets_default_settings(tmp_path: Path) -> None:
    folder, new = tmp_path / "landed", tmp_path / "new"
    folder.mkdir()
    deltalake.DeltaTable.create(str(folder), LANDED, partition_by=["kind", "date"])
    for path, configuration in ((folder, {}), (new, DEFAULT_PROPERTIES)):
        for _ in range(2):
            DeltaTable(path).begin()
            opened = deltalake.DeltaTable(str(path))
            assert (opened.metadata().configuration, opened.version()) == (configuration, 0)


def test_checkpoints_forget_files_that_are_long_gone(table: DeltaTable) -> None:
    for batch in range(60):
        commit(table, batch, batch)
    compact_table(table.folder)
    (merged,) = (entry for entry in entries(table) if '"remove"' in entry.read_text())
    told = [json.loads(line) for line in merged.read_text().splitlines()]
    for action in told:
        if "remove" in action:
            action["remove"]["deletionTimestamp"] -= (KEEP_HOURS + 2) * 3_600_000
    merged.write_text("\n".join(map(json.dumps, told)))
    again = DeltaTable(table.folder)
    for batch in range(60, 110):
        commit(again, batch, batch)
    (checkpoint,) = (table.folder / DELTA_LOG).glob("*.checkpoint.parquet")
    kept = pq.read_table(checkpoint, columns=["add", "remove"]).to_pylist()
    assert sum(row["remove"] is not None and row["remove"]["path"] is not None for row in kept) == 0
    assert sum(row["add"] is not None and row["add"]["path"] is not None for row in kept) == 39 + 1


def test_rows_are_found_by_columns_that_have_no_bounds(table: DeltaTable) -> None:
    commit(table, 0, 7)
    rows = deltalake.DeltaTable(str(table.folder)).to_pyarrow_dataset()
    assert rows.to_table(filter=ds.field("bucket") == AT).num_rows == 1
    assert rows.to_table(filter=ds.field("uuid").is_null()).num_rows == 1
    assert rows.to_table(filter=ds.field("bucket") < AT).num_rows == 0
