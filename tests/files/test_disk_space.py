"""Full disks: recognized in errors of other programs, named, and waited for."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from pathlib import Path

import pytest

from penstock.files import disk_space
from penstock.files.disk_space import describe_full, has_space, is_disk_full, local_disks, wait_for_space
from tests.small_disk import small_file_system


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "full"), True),
        (OSError(errno.EDQUOT, "quota"), True),
        (OSError("Error writing bytes to file. Detail: [errno 28] No space left on device"), True),
        (RuntimeError("java.io.IOException: No space left on device; === Streaming Query ==="), True),
        (RuntimeError("Generic LocalFileSystem error: Unable to copy data: (os error 28)"), True),
        (OSError(errno.EIO, "Input/output error"), False),
        (RuntimeError("os error 289"), False),
    ],
)
def test_full_disk_is_recognized(error: Exception, expected: bool) -> None:
    assert is_disk_full(error) == expected


class Disk:
    """A disk whose folders named ``full`` have no space."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full, self._real = True, os.open
        monkeypatch.setattr(disk_space.os, "open", self._open)

    def _open(self, path: Path, *arguments: int) -> int:
        if self.is_full and Path(path).parent.name == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._real(path, *arguments)


def test_full_folder_is_named_and_left_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    folders = {"the table": tmp_path / "table", "Spark's scratch": tmp_path / "full"}
    assert describe_full(folders) == f"no space left on device in {tmp_path / 'full'} (Spark's scratch)"
    disk.is_full = False
    assert has_space(tmp_path / "full")
    assert f"{tmp_path / 'table'} (the table) and " in describe_full(folders), "nobody is full now: all are named"
    assert [list(folder.iterdir()) for folder in folders.values()] == [[], []]


def test_wait_ends_with_space_or_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, stop = Disk(monkeypatch), threading.Event()
    folders = {"the table": tmp_path / "full"}
    stop.set()
    assert not wait_for_space(folders, stop)
    stop.clear()
    threading.Timer(0.05, lambda: setattr(disk, "is_full", False)).start()
    assert wait_for_space(folders, stop, 0.01, freed_bytes=0)
    assert wait_for_space(folders, stop, 0.01, retry_s=0)


def test_wait_needs_more_space_than_a_failed_attempt_has_left(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "disk", "64m") as folder:
        ballast, stop = folder / "ballast", threading.Event()
        ballast.write_bytes(bytes(59 << 20))
        assert has_space(folder)
        threading.Timer(0.2, stop.set).start()
        assert not wait_for_space({"the table": folder}, stop, 0.01)
        stop.clear()
        threading.Timer(0.2, lambda: os.truncate(ballast, 30 << 20)).start()
        assert wait_for_space({"the table": folder}, stop, 0.01)


def test_wait_ends_at_once_if_the_space_was_freed_before(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "disk", "64m") as freed, small_file_system(tmp_path / "other", "64m") as other:
        stop = threading.Event()
        stop.set()
        folders = {"the table": freed, "Spark's scratch": other}
        assert wait_for_space(folders, stop, freed_bytes=1 << 40)
        (other / "ballast").write_bytes(bytes(59 << 20))
        assert not wait_for_space(folders, stop, freed_bytes=1 << 40), "of each disk"


def test_ample_space_is_not_enough_after_a_repeated_failure(tmp_path: Path) -> None:
    """The disk may be full in another way than its free bytes show."""
    with small_file_system(tmp_path / "disk", "64m") as folder:
        stop = threading.Event()
        threading.Timer(0.2, stop.set).start()
        folders = {"the table": folder}
        assert not wait_for_space(folders, stop, 0.01, freed_bytes=1 << 40, ample_is_enough=False)
        assert wait_for_space(folders, stop, 0.01, retry_s=0, ample_is_enough=False)


def test_folder_that_cannot_be_looked_at_is_tried_again_after_the_wait(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    stop, folders = threading.Event(), {"the table": tmp_path / "file" / "folder"}
    assert wait_for_space(folders, stop, 0.01, retry_s=0.05)


def test_each_disk_is_listed_once_with_the_smaller_limit(tmp_path: Path) -> None:
    total = shutil.disk_usage(tmp_path).total
    (tmp_path / "a").mkdir()
    folders = [tmp_path / "a", tmp_path, tmp_path / "absent"]
    assert [(disk.folder, disk.limit) for disk in local_disks(folders, 1 << 60, 0.5)] == [(tmp_path / "a", total // 2)]
    (disk,) = local_disks(folders, 5, 0.5)
    assert (disk.limit, disk.missing) == (5, 0)
