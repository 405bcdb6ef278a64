"""Names that patterns match, and names that rotation gives."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.client.tail.discovery import (
    MAX_SUBJECTS,
    Discovery,
    OnceLogger,
    find_by_inode,
    is_mounted,
    matching_paths,
    name_before_rotation,
)
from penstock.client.tail.positions import FilePosition


@pytest.mark.parametrize(
    ("path", "original"),
    [
        ("/var/log/app.log.1", "/var/log/app.log"),
        ("/var/log/app.1.log", "/var/log/app.log"),
        ("/var/log/app.log-20260101", "/var/log/app.log"),
        ("/var/log/app-2026-01-01T10:00.log", "/var/log/app.log"),
        ("/var/log/app.log.old", "/var/log/app.log"),
        ("/var/log/app.log~", "/var/log/app.log"),
        ("/var/log/app.log", "/var/log/app.log"),
        ("/var/log/app.log.json", "/var/log/app.log.json"),
        ("/var/log/app-older.log", "/var/log/app-older.log"),
        ("/var/log.1/app.log", "/var/log.1/app.log"),
        ("/var/log/20260101", "/var/log/20260101"),
        ("/var/log/.1", "/var/log/.1"),
    ],
)
def test_name_before_rotation_is_that_of_the_original(path: str, original: str) -> None:
    assert name_before_rotation(path) == original


def test_links_and_two_patterns_are_one_file_with_all_names(tmp_path: Path) -> None:
    (tmp_path / "b.log").write_bytes(b"")
    (tmp_path / "a.log").hardlink_to(tmp_path / "b.log")
    (tmp_path / "c.log").symlink_to(tmp_path / "b.log")
    (tmp_path / "broken.log").symlink_to(tmp_path / "nothing")
    names = Discovery([f"{tmp_path}/*.log", f"{tmp_path}/b*"], OnceLogger()).find_files()
    assert list(names.values()) == [[f"{tmp_path}/a.log", f"{tmp_path}/b.log"]]


def test_brackets_are_a_class_and_a_name(tmp_path: Path) -> None:
    for name in ("app1.log", "app[1].log"):
        (tmp_path / name).write_bytes(b"")
    assert sorted(matching_paths(f"{tmp_path}/app[1].log")) == [f"{tmp_path}/app1.log", f"{tmp_path}/app[1].log"]


def test_repeated_trouble_is_reported_once_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    logger = OnceLogger()
    for _ in range(3):
        logger.report("a.log", "cannot be read")
    logger.clear("a.log")
    logger.report("a.log", "cannot be read")
    assert [record.message for record in caplog.records] == ["cannot be read"] * 2


def test_subjects_that_were_reported_take_bounded_memory() -> None:
    logger = OnceLogger()
    for number in range(3 * MAX_SUBJECTS):
        logger.report(number, "trouble")
    assert len(logger._texts) <= MAX_SUBJECTS


def test_renamed_file_is_found_by_its_inode_in_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"")
    status = path.stat()
    position = FilePosition(str(path), status.st_dev, status.st_ino)
    path.rename(tmp_path / "a.log.1")
    assert find_by_inode(position) == str(tmp_path / "a.log.1")
    os.unlink(tmp_path / "a.log.1")
    assert find_by_inode(position) is None
    assert is_mounted(position)
    assert is_mounted(replace(position, path=str(tmp_path / "removed" / "folder" / "a.log")))
    assert not is_mounted(replace(position, device=status.st_dev + 1))
