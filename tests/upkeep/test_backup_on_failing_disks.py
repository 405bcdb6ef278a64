"""Backup and restore on disks that fail to read, write or sync: the file is named, and the repetition is complete."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.log import TopicReader
from penstock.upkeep import backup
from penstock.upkeep.backup import BackupError, read_backup, restore_backup
from tests.debian_packages import install
from tests.spark.spark_helpers import append
from tests.upkeep.test_backup import files_below, write_backup

SEGMENT = "topics/t/00000000000000000000.arrows"


@pytest.fixture(scope="module")
def strace() -> None:
    """Strace lets system calls fail."""
    if not shutil.which("strace"):
        install("strace")
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")


def run_backup(data: Path, *arguments: object, failing: tuple[str, Path] | None = None) -> tuple[int, str]:
    """Run the command, in which a system call on a file fails; return its status and errors."""
    command = [sys.executable, "-m", "penstock.cli.main", "backup", *arguments, "-o", f"data_dir={data}"]
    if failing:
        call, path = failing
        options = ["-P", path, "-e", f"trace={call}", "-e", f"inject={call}:error=EIO"]
        command = ["strace", "-f", "-qq", "-o", os.devnull, *options, *command]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return process.returncode, process.stderr


@pytest.mark.survives("backup", "failing disk")
def test_file_that_a_disk_fails_on_is_named_and_the_backup_is_repeated(tmp_path: Path, strace: None) -> None:
    data, folder, restored = tmp_path / "data", tmp_path / "backup", tmp_path / "restored"
    append(data / "topics", "t", [b"a", b"b"])
    copy = folder / "data" / SEGMENT
    for call, path in [("read", data / SEGMENT), ("write", copy), ("fsync", copy)]:
        status, errors = run_backup(data, folder, failing=(call, path))
        assert (status, errors) == (1, f"penstock: {path}: Input/output error\n")
        with pytest.raises(BackupError, match="is not a complete backup"):
            restore_backup(folder, restored)
    assert run_backup(data, folder) == (0, "")
    for call, path in [("read", copy), ("fsync", tmp_path / "restored.restoring" / SEGMENT)]:
        status, errors = run_backup(data, folder, "--restore", restored, failing=(call, path))
        assert (status, errors) == (1, f"penstock: {path}: Input/output error\n")
        assert not restored.exists()
    assert run_backup(data, folder, "--restore", restored)[0] == 0
    (stored,) = TopicReader(restored / "topics" / "t").read(0)
    assert stored.batch.column("payload").to_pylist() == [b"a", b"b"]
    assert read_backup(folder).balance["unaccounted"] == 0


@contextlib.contextmanager
def failing_once(monkeypatch: pytest.MonkeyPatch, step: int, calls: list[Any]) -> Iterator[None]:
    """Let one call fail, by its number in ``calls``."""

    def counted(name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        calls.append((name, *arguments))
        if len(calls) - 1 == step:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return function(*arguments, **options)

    with monkeypatch.context() as patched:
        for owner, name in [(backup.OS, "sync_directory"), (backup, "_copy_file"), (backup, "_sync_tree")]:
            patched.setattr(owner, name, partial(counted, name, getattr(owner, name)))
        yield


@pytest.mark.survives("backup", "failing disk")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["all in one folder", "tables elsewhere"])
def test_restore_that_fails_at_any_step_is_repeated(
    tmp_path: Path, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "backup"
    write_backup(folder)
    for step in itertools.count():
        place = tmp_path / str(step)
        target, tables = place / "data", place / "elsewhere" / "tables" if elsewhere else None
        (place / "elsewhere").mkdir(parents=True)
        calls: list[Any] = []
        with failing_once(monkeypatch, step, calls), contextlib.suppress(OSError):
            restore_backup(folder, target, tables)
        if len(calls) <= step:
            break
        repeated: list[Any] = []
        with failing_once(monkeypatch, -1, repeated):
            restore_backup(folder, target, tables)
        inside = {} if elsewhere else {"tables/d": "tables/d"}
        assert files_below(target) == {"a": "data/a", "b/c": "data/b/c"} | inside
        synced = {call for call in [*calls[:step], *calls[step + 1 :], *repeated] if call[0] == "sync_directory"}
        expected = {target.parent, *([tables.parent] if tables else [])}
        assert expected <= {path for _, path in synced}, "a name that no sync has brought to the disk"
    assert step > 4
