"""The change log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.files import change_log
from penstock.files.change_log import ChangeLog


def test_newest_changes_come_first(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path)
    assert log.newest() == []
    log.record("ann", "mute PenstockAway", "10.0.0.7", note="n\nm")
    ChangeLog(tmp_path).record("bob", "send a message", "10.0.0.8")
    newest, oldest = log.newest()
    assert (newest["who"], newest["what"], newest["from"]) == ("bob", "send a message", "10.0.0.8")
    assert oldest["note"] == "n\nm"
    assert oldest["at"] <= newest["at"]
    assert [change["who"] for change in log.newest(1)] == ["bob"]
    assert all(json.loads(line) for line in (tmp_path / change_log.FILE_NAME).read_text().splitlines())


def test_change_log_is_bounded_by_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "MAX_FILE_BYTES", 1_000)
    log = ChangeLog(tmp_path)
    for number in range(200):
        log.record("ann", f"change {number}", "console")
    files = [*tmp_path.glob(f"{change_log.FILE_NAME}*")]
    assert len(files) == change_log.OLD_FILES + 1
    assert all(file.stat().st_size <= 1_000 for file in files)
    numbers = [int(change["what"].split()[1]) for change in log.newest(1_000)]
    assert numbers == list(range(199, 199 - len(numbers), -1))


def test_line_that_was_cut_off_loses_no_other_line(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path)
    log.record("ann", "first", "console")
    with open(tmp_path / change_log.FILE_NAME, "ab") as file:
        file.write(b'{"at": "2026')
    log.record("bob", "second", "console")
    assert [change["what"] for change in log.newest()] == ["second", "first"]


def test_failure_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ChangeLog(tmp_path / "missing").record("ann", "first", "console")
    assert "cannot record 'first' of 'ann'" in caplog.text


def test_line_that_a_full_disk_cuts_off_is_logged(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path)
    log.record("ann", "first", "console")
    room = (tmp_path / change_log.FILE_NAME).stat().st_size + 10
    # Like a full disk, the limit makes a write end early without an error.
    script = (
        "import resource, sys\nfrom pathlib import Path\nfrom penstock.files.change_log import ChangeLog\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))\n"
        "ChangeLog(Path(sys.argv[1])).record('bob', 'second', 'console')\n"
    )
    completed = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=True)
    assert "cannot record 'second' of 'bob': [Errno 28] No space left on device" in completed.stderr
    log.record("eve", "third", "console")
    assert [change["what"] for change in log.newest()] == ["third", "first"]


if os.geteuid() == 0:  # only root gives files away

    def test_files_that_root_creates_belong_to_the_account_of_the_folder(tmp_path: Path) -> None:
        os.chown(tmp_path, 12_345, 12_346)
        ChangeLog(tmp_path).record("root", "first", "console")
        owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in tmp_path.iterdir()}
        assert owners == dict.fromkeys((change_log.FILE_NAME, change_log.LOCK_NAME), (12_345, 12_346))


def test_link_in_the_folder_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other_file = tmp_path / "other"
    other_file.write_text("other")
    for name in (change_log.LOCK_NAME, change_log.FILE_NAME):
        (tmp_path / name).symlink_to(other_file)
        ChangeLog(tmp_path).record("ann", "first", "console")
        (tmp_path / name).unlink()
    assert caplog.text.count("cannot record") == 2
    assert other_file.read_text() == "other"


@given(st.binary(max_size=200))
def test_any_bytes_are_changes_or_skipped(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / change_log.FILE_NAME).write_bytes(content)
    assert all(isinstance(change[name], str) for change in ChangeLog(folder).newest() for name in change_log.FIELDS)
