"""Commits on a disk that fails to sync them once: a power cut takes none on which others stand."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import deltalake
import pytest

from penstock.landing.table import synced_files
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.synced_files import write_again
from penstock.landing.table.table_file import NewFile
from penstock.landing.table.table_reader import list_commits
from penstock.upkeep.compaction.compaction import compact_table
from tests.landing.table.table_rows import offsets_in, write_file


class FailingSyncs:
    """Syncs of which the next one of a commit may fail: Linux then counts its pages as written, and they are not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails = False
        self.lost, self.synced = set[Path](), set[Path]()
        self._real = os.fsync
        monkeypatch.setattr(os, "fsync", self._sync)

    def _sync(self, handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if self.fails and path.suffix == ".json":
            self.fails = False
            self.lost.add(path)
            # Any later write changes the time, also within the same tick of the clock.
            os.utime(path, ns=(1, 1))
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._real(handle)
        self.synced.add(path)
        if path in self.lost and path.stat().st_mtime_ns != 1:
            self.lost.remove(path)

    def cut_power(self) -> None:
        for path in self.lost:
            path.write_bytes(b"")


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> FailingSyncs:
    return FailingSyncs(monkeypatch)


def read_offsets(folder: Path) -> list[int]:
    return sorted(offsets_in(folder, DeltaTable(folder).active()))


def assert_three_batches(folder: Path) -> None:
    table = DeltaTable(folder)
    table.begin()
    assert (table.newest(), read_offsets(folder)) == (2, [0, 1, 2])


@pytest.mark.survives("landing from the log", "failing disk")
@pytest.mark.parametrize("is_restarted", [False, True])
def test_batch_whose_commit_is_not_synced_is_on_the_disk_before_the_next(
    tmp_path: Path, syncs: FailingSyncs, is_restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable(tmp_path / "landed")
    table.begin()
    table.commit(0, [write_file(table, [0])])
    syncs.fails = True
    with pytest.raises(OSError, match="Input/output error"):
        table.commit(1, [write_file(table, [1])])
    assert (len(syncs.lost), table.newest()) == (1, 1)
    if is_restarted:
        monkeypatch.setattr(synced_files, "_UNSYNCED", set())
        table = DeltaTable(tmp_path / "landed")
        table.begin()
    table.commit(2, [write_file(table, [2])])
    syncs.cut_power()
    assert_three_batches(tmp_path / "landed")


@pytest.mark.survives("landing from the log", "failing disk")
def test_batch_lands_behind_a_merge_whose_commit_is_not_synced(tmp_path: Path, syncs: FailingSyncs) -> None:
    table = DeltaTable(tmp_path / "landed")
    table.begin()
    for batch in range(2):
        table.commit(batch, [write_file(table, [batch])])
    syncs.fails = True
    with pytest.raises(OSError, match="Input/output error"):
        compact_table(table.folder)
    table.commit(2, [write_file(table, [2])])
    syncs.cut_power()
    assert_three_batches(tmp_path / "landed")


@pytest.mark.survives("landing from the log", "failing disk")
def test_entries_are_replaced_behind_a_commit_that_is_not_synced(tmp_path: Path, syncs: FailingSyncs) -> None:
    table = DeltaTable(tmp_path / "landed")
    table.begin()
    syncs.fails = True
    with pytest.raises(OSError, match="Input/output error"):
        table.commit(0, [write_file(table, [0]), write_file(table, [1], "dropped")])
    table.replace_entries(table.active()[0], [write_file(table, [2])])
    syncs.cut_power()
    assert len(read_offsets(tmp_path / "landed")) == 2


@pytest.mark.survives("landing from the log", "failing disk")
def test_batch_is_synced_behind_a_foreign_commit_that_is_not(
    tmp_path: Path, syncs: FailingSyncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable(tmp_path / "landed")
    table.begin()
    check_files_exist = table._check_files_exist

    def commit_first(files: Sequence[NewFile]) -> None:
        check_files_exist(files)
        deltalake.DeltaTable(table.folder).alter.set_table_properties({"delta.appendOnly": "false"})

    with monkeypatch.context() as patched:
        patched.setattr(table, "_check_files_exist", commit_first)
        syncs.fails = True
        with pytest.raises(OSError, match="Input/output error"):
            table.commit(0, [write_file(table, [0])])
    table.commit(1, [write_file(table, [1])])
    assert syncs.lost == set()
    assert {*list_commits(table.folder / "_delta_log")} <= syncs.synced


def test_newest_commit_of_another_user_is_only_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = DeltaTable(tmp_path / "landed")
    table.begin()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))  # also for root, in whose name tests may run

    monkeypatch.setattr(os, "utime", refuse)
    (newest,) = list_commits(table.folder / "_delta_log")
    before = newest.stat()
    table.begin()
    assert newest.stat().st_mtime_ns == before.st_mtime_ns


def test_file_that_is_written_again_keeps_content_time_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "commit"
    path.write_bytes(b"content")
    path.chmod(0o604)
    os.utime(path, ns=(5, 7))
    before = path.stat()
    write_again(path)
    after = path.stat()
    assert path.read_bytes() == b"content"
    assert (after.st_ino, after.st_mtime_ns, after.st_mode) == (before.st_ino, 7, before.st_mode)
    write_again(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()
