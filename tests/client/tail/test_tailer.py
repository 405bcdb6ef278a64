"""Each line of the files is appended once, through kills and rotations."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.log.types import Exhausted
from penstock.client.tail import tailer
from penstock.client.tail.file_content import MAX_LINE_BYTES, write_decompressed
from penstock.client.tail.positions import BadPositions
from penstock.files.checked_document import encode
from penstock.files.errors import DamagedFile
from penstock.files.file_system import OS
from tests.client.tail.following import Following, Killed, Step, killed, stop
from tests.debian_packages import CannotFetchDebian, library_environment, unpacked


@pytest.fixture
def here(tmp_path: Path) -> Following:
    return Following(tmp_path)


def test_lines_are_appended_as_they_come_with_the_name_of_their_file(here: Following) -> None:
    here.write(b"one\ntwo\r\nthr")
    assert here.run() == [b"one", b"two"]
    here.write(b"ee\n\n")
    here.write(b"other\n", "b.log")
    assert here.run() == [b"one", b"two", b"three", b"", b"other"]
    assert dict(here.topic.rows[-1]["annotations"]) == {"file": str(here.path("b.log"))}


def test_first_start_from_end_appends_new_lines_and_the_begun_one(tmp_path: Path) -> None:
    here = Following(tmp_path, from_end=True, annotations={"host": "web-1"})
    here.write(b"old\nbeg")
    assert here.run() == []
    here.write(b"un\n")
    here.write(b"new\n", "b.log")
    assert here.run() == [b"begun", b"new"]
    assert dict(here.topic.rows[0]["annotations"]) == {"host": "web-1", "file": str(here.path())}


def test_first_start_from_end_of_utf16_begins_at_a_whole_character(tmp_path: Path) -> None:
    here = Following(tmp_path, from_end=True)
    here.write("\ufeff\u0a0a old\nbeg".encode("utf-16-le"))
    assert here.run() == []
    here.write("un\n".encode("utf-16-le"))
    assert here.run() == [b"begun"]


def test_renamed_file_is_read_to_its_end_and_its_successor_from_its_beginning(here: Following) -> None:
    here.write(b"one\n")
    here.run()
    here.write(b"two\n")
    here.path().rename(here.path("a.log.1"))
    here.write(b"three, by a writer that does not know yet\nlast without end", "a.log.1")
    here.write(b"four\n")
    assert sorted(here.run()) == sorted([b"one", b"two", b"three, by a writer that does not know yet", b"four"])
    here.clock.advance(61)
    assert here.run()[-1] == b"last without end"


def test_file_that_was_renamed_during_a_stop_is_read_to_its_end(here: Following) -> None:
    here.write(b"one\n")
    here.run()
    here.kill()
    here.write(b"two\n")
    here.path().rename(here.path("a.log.1"))
    here.write(b"three\n")
    assert sorted(here.run()) == [b"one", b"three", b"two"]


CREATE = ("create", "nocreate", "olddir old", "rotate 0", "rotate 1", "extension .log", "dateext\ndateformat -%s")
ROTATIONS = [*CREATE, *(f"{way}\ncompress" for way in CREATE), "compress\ndelaycompress", "copytruncate"]
CUTS = ["copytruncate\ncompress", "copytruncate\ncompress\ndelaycompress", "copytruncate\nrotate 1"]


@pytest.fixture(scope="session")
def logrotate() -> Path:
    """Return the folder of the unpacked package."""
    try:
        return unpacked("logrotate", ["logrotate"])
    except CannotFetchDebian as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("pattern", ["*.log", "*.log*"])
@pytest.mark.parametrize("directives", [*ROTATIONS, *CUTS])
def test_logrotate_loses_and_repeats_no_line(tmp_path: Path, logrotate: Path, directives: str, pattern: str) -> None:
    """Lines behind the last turn are read from renamed and removed files; a cut file has lost them."""
    here, sent = Following(tmp_path, pattern), list[bytes]()
    here.path("old").mkdir()
    settings = here.path("rotate.conf")
    settings.write_text(f"{here.path('*.log')} {{\nmissingok\nrotate 9\nsu root root\n{directives}\n}}\n")
    settings.chmod(0o644)
    for number in range(12):
        sent.append(b"line %d, written by a program" % number)
        here.write(sent[-1] + b"\n")
        if number % 2 == 0 or "copytruncate" in directives:
            here.run()
        if number % 2:
            command = [logrotate / "usr/sbin/logrotate", "-f", "-s", here.path("rotations"), settings]
            environment = library_environment(logrotate)
            subprocess.run(command, check="dateext" not in directives, stderr=subprocess.DEVNULL, env=environment)
    here.run()
    here.clock.advance(61)
    assert sorted(here.run()) == sorted(sent)
    assert here.tailer is not None
    assert here.tailer.unread_lines == 0


@pytest.mark.parametrize("more", [b"new\n", b"new, and longer than what was there before\n"])
def test_cut_file_is_read_from_its_beginning_and_reported(
    here: Following, more: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    here.write(b"one\ntwo\n")
    here.run()
    shutil.copy(here.path(), here.path("a.log.1"))
    here.path().write_bytes(more)
    assert here.run() == [b"one", b"two", more[:-1]]
    assert f"{here.path()} was cut after 8 bytes" in caplog.text


def test_line_longer_than_a_message_becomes_several(here: Following) -> None:
    long = bytes(range(32, 127)) * (3 * MAX_LINE_BYTES // 95)
    here.write(long + b"\nnext\n")
    appended = here.run()
    assert b"".join(appended[:-1]) == long
    assert max(map(len, appended)) == MAX_LINE_BYTES
    assert appended[-1] == b"next"


def test_long_line_of_utf16_is_cut_between_characters(here: Following) -> None:
    here.write(("\ufeffx" + "\U0001f600" * MAX_LINE_BYTES + "\n").encode("utf-16-be"))
    appended = here.run()
    assert len(appended) > 2
    assert b"".join(appended).decode() == "x" + "\U0001f600" * MAX_LINE_BYTES


@pytest.mark.survives("tail", "SIGKILL")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_append_that_a_kill_interrupted_is_made_once(here: Following, moment: str) -> None:
    here.write(b"one\n")
    here.run()
    here.write(b"two\n")
    here.topic.dies = moment
    with pytest.raises(Killed):
        here.run()
    here.topic.dies = ""
    here.kill()
    here.write(b"three\n")
    here.path().rename(here.path("b.log"))
    assert here.run() == [b"one", b"two", b"three"]


def test_log_that_forgot_the_producer_gets_new_lines(here: Following) -> None:
    here.write(b"one\n")
    here.run()
    here.topic.forget()
    here.write(b"two\n")
    assert here.run() == [b"one", b"two"]


def test_pending_append_of_lost_bytes_does_not_stop_others(here: Following) -> None:
    here.write(b"one\n")
    here.topic.dies = "after"
    with pytest.raises(Killed):
        here.run()
    here.topic.dies = ""
    here.kill()
    here.path().write_bytes(b"cut\n")
    assert here.run() == [b"one", b"cut"]


def test_append_that_fails_is_made_again_with_the_same_rows(here: Following) -> None:
    here.write(b"one\n")
    here.topic.failure = Exhausted("no space left on device")
    with pytest.raises(Exhausted):
        here.run()
    here.write(b"two\n")
    with pytest.raises(Exhausted):
        here.run()
    here.topic.failure = None
    assert here.run() == [b"one", b"two"]


def test_full_disk_of_the_state_file_appends_nothing_until_there_is_space(
    here: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.run()
    here.write(b"one\n")
    with monkeypatch.context() as patch:
        patch.setattr(type(OS), "rename", _no_space)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                here.run()
            assert here.topic.lines == []
    assert here.run() == [b"one"]


def _no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_file_that_cannot_be_read_is_reported_once_and_read_later(
    here: Following, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here.write(b"one\n")
    here.write(b"other\n", "b.log")
    bad_inode, read = here.path().stat().st_ino, os.pread

    def failing(descriptor: int, length: int, offset: int) -> bytes:
        if os.fstat(descriptor).st_ino == bad_inode:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(descriptor, length, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", failing)
        here.run()
        assert here.run() == [b"other"]
    assert caplog.text.count("a.log cannot be read: Input/output error") == 1
    assert sorted(here.run()) == [b"one", b"other"]


@pytest.mark.parametrize("end", [stop, Following.kill, killed("after"), killed("before")])
def test_file_that_becomes_unreadable_goes_on_where_it_was(
    here: Following, end: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write(b"zero\n")
    here.run()
    here.write(b"one\n")
    end(here)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", _denied_to(here.path(), os.open))
        here.write(b"other\n", "b.log")
        assert b"other" in here.run()
        here.kill()
        here.write(b"more\n", "b.log")
        assert b"more" in here.run()
    here.write(b"two\n")
    assert sorted(here.run()) == [b"more", b"one", b"other", b"two", b"zero"]
    here.kill()
    assert len(here.run()) == 5


def test_interrupted_append_of_a_removed_file_is_reported(
    here: Following, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here.write(b"one\n")
    killed("after")(here)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", _denied_to(here.path(), os.open))
        assert here.run() == [b"one"]
    here.path().unlink()
    here.write(b"other\n", "b.log")
    assert here.run() == [b"one", b"other"]
    assert "a.log was cut: its last lines before a kill may be missing from the topic, or occur twice" in caplog.text
    stop(here)
    assert stored_state(here)["interrupted"] == []


def _denied_to(denied: Path, real_open: Callable[..., int]) -> Callable[..., int]:
    """Return an ``open`` that fails for one file, as root may open all."""

    def opened(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path) == str(denied):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real_open(path, *arguments, **options)

    return opened


def test_patterns_without_a_followable_file_are_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "fifo.log")
    (tmp_path / "old.log.gz").write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\0\n")
    here = Following(tmp_path, "nothing*.log", "fifo.log", "*.gz", ".")
    here.run()
    assert here.run() == []
    assert sorted(record.message for record in caplog.records) == sorted(
        [
            f"{tmp_path}/nothing*.log matches no file",
            f"{tmp_path}/fifo.log is a FIFO, not a file: not followed",
            f"{tmp_path}/fifo.log matches no file",
            f"{tmp_path}/old.log.gz is compressed (gzip): not read",
            f"{tmp_path} is a directory, not a file: not followed",
            f"{tmp_path} matches no file",
        ]
    )


def test_compressed_file_that_grows_is_decompressed_a_few_times(
    here: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[str] = []

    def write(path: str, compression: str, content: Any) -> bool:
        counts.append(path)
        return write_decompressed(path, compression, content)

    monkeypatch.setattr(tailer, "write_decompressed", write)
    here.run()
    for number in range(600):
        with gzip.open(here.path("new.log"), "ab") as file:
            file.write(b"line %d\n" % number)
        os.utime(here.path("new.log"), ns=(number, number))
        here.run()
        here.clock.advance(1)
    assert len(counts) == 1
    here.clock.advance(3600)
    here.run()
    assert here.tailer is not None
    assert (len(counts), here.tailer.unread_lines, here.topic.lines) == (2, 600, [])


@pytest.mark.parametrize("is_there_at_start", [False, True])
@pytest.mark.parametrize("is_rotated", [False, True])
def test_new_file_with_the_inode_of_a_compressed_one_is_read(
    tmp_path: Path, is_rotated: bool, is_there_at_start: bool
) -> None:
    """File systems such as ext4 give the inode of a removed archive to the next file; here it is overwritten."""
    here, archive = Following(tmp_path, "*.log*"), tmp_path / "a.log.1.gz"
    if not is_there_at_start:
        here.run()
    archive.write_bytes(gzip.compress(b"%d old lines\n" % 1))
    here.run()
    inode = archive.stat().st_ino
    if is_rotated:
        archive.write_bytes(gzip.compress(b"one\ntwo\n"))
        here.run()
        assert here.tailer is not None
        assert here.tailer.unread_lines == 2 + (not is_there_at_start)
    archive.rename(here.path())
    with here.path().open("wb") as file:
        for number in range(3):
            file.write(b"line %d\n" % number)
            file.flush()
            here.run()
    assert here.path().stat().st_ino == inode
    assert here.topic.lines == [b"line 0", b"line 1", b"line 2"]


def test_pattern_whose_file_is_rotated_away_is_not_reported(here: Following, caplog: pytest.LogCaptureFixture) -> None:
    here.write(b"one\n")
    here.run()
    here.path().rename(here.path("a.log.1"))
    here.run()
    assert "matches no file" not in caplog.text


def test_nuls_of_a_hole_are_left_out_counted_and_reported(here: Following, caplog: pytest.LogCaptureFixture) -> None:
    here.write(b"\0" * 700 + b"one\n" + b"\0" * 50 + b"two\n\0end\0ed\n")
    assert here.run() == [b"one", b"two", b"end\0ed"]
    assert here.tailer is not None
    assert here.tailer.skipped_nuls == 751
    assert "left out 751 NUL bytes" in caplog.text


def test_unfinished_line_is_reported_at_the_end_of_a_run(here: Following, caplog: pytest.LogCaptureFixture) -> None:
    here.write(b"one\ntwo")
    assert here.run(is_final=True) == [b"one"]
    assert here.tailer is not None
    here.tailer.report_unfinished()
    assert f"{here.path()}: the last 3 bytes have no line end yet" in caplog.text


def test_copy_that_a_user_makes_is_a_file_of_its_own_after_a_while(here: Following) -> None:
    here.write(b"one\n")
    here.run()
    shutil.copy(here.path(), here.path("b.log"))
    assert here.run() == [b"one"]
    here.clock.advance(5)
    assert here.run() == [b"one", b"one"]


def test_short_beginning_that_is_the_same_by_chance_is_no_copy(here: Following) -> None:
    here.write(b"started\n")
    here.run()
    here.write(b"started\nworking\n", "b.log")
    here.path().write_bytes(b"")
    assert here.run() == [b"started", b"started", b"working"]


@pytest.mark.survives("tail", "wrong clock")
def test_clock_that_is_set_wrong_drops_no_position(here: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    here.write(b"one\n")
    here.run()
    os.utime(here.path(), (0, 0))
    here.kill()
    ahead = time.time() + 730 * 86400
    monkeypatch.setattr(time, "time", lambda: ahead)
    here.clock.jump(730 * 86400)
    assert here.run() == [b"one"]
    os.utime(here.path(), (ahead, ahead))
    here.write(b"two\n")
    assert here.run() == [b"one", b"two"]


def stored_state(here: Following) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((here.folder / "state" / "positions.json").read_bytes()[8:])
    return state


def store_state(here: Following, state: dict[str, Any]) -> None:
    del state["format"]
    (here.folder / "state" / "positions.json").write_bytes(encode(state))


@pytest.mark.survives("tail", "power cut")
def test_device_number_that_changes_at_a_reboot_repeats_no_line(here: Following) -> None:
    here.write(b"one\n")
    here.run_once()
    state = stored_state(here)
    state["files"][0]["device"] += 1
    store_state(here, state)
    here.write(b"two\n")
    assert here.run() == [b"one", b"two"]
    here.run_once()
    assert len(stored_state(here)["files"]) == 1


def test_position_of_a_file_system_that_is_not_mounted_is_retained(
    here: Following, caplog: pytest.LogCaptureFixture
) -> None:
    here.write(b"one\n")
    here.run_once()
    state = stored_state(here)
    share = {**state["files"][0], "path": str(here.folder / "share" / "x.log"), "device": 1 << 40, "inode": 1 << 41}
    gone = {**state["files"][0], "path": str(here.folder / "gone" / "x.log"), "inode": 1 << 41}
    store_state(here, {**state, "files": [*state["files"], share, gone]})
    here.run_once()
    assert share in stored_state(here)["files"]
    assert gone not in stored_state(here)["files"]
    assert "the file system of" in caplog.text
    assert "gone/x.log is gone: what was not read of it cannot be" in caplog.text


@pytest.mark.survives("tail", "damaged bytes")
@pytest.mark.parametrize("damage", [b"", b"\0" * 300, b'{"producer": 5}'])
def test_damaged_state_appends_nothing_and_says_what_to_do(here: Following, damage: bytes) -> None:
    here.write(b"one\n")
    here.run_once()
    path = here.folder / "state" / "positions.json"
    path.write_bytes(damage)
    with pytest.raises((DamagedFile, BadPositions), match=f"restore it, or remove {path}"):
        here.start()
    assert here.topic.lines == [b"one"]
    assert path.read_bytes() == damage


def test_reads_of_idle_files_cost_one_look_and_no_read(here: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    here.write(b"one\n")
    here.run()
    here.run()

    def no_read(*_: object) -> bytes:
        raise AssertionError("an idle file was read")

    monkeypatch.setattr(os, "pread", no_read)
    assert here.run() == [b"one"]


def write(here: Following) -> None:
    """Write a line and the beginning of the next one: never the same ones, as the lines of a log have times."""
    here.number += 1
    here.write(b"line %d\nand %d " % (here.number, here.number))


def rotate(here: Following) -> None:
    if here.path().exists():
        here.write(b"end %d\n" % here.number)
        count = len(list(here.folder.glob("a.log.*")))
        here.path().rename(here.path(f"a.log.{count}"))


def copytruncate(here: Following) -> None:
    """Cut the file, with a copy as logrotate makes it, after all is read: what is not read would be lost."""
    if here.path().exists():
        here.write(b"end %d\n" % here.number)
        here.topic.dies = ""
        here.run()
        here.kill()
        count = len(list(here.folder.glob("a.log.*")))
        shutil.copyfile(here.path(), here.path(f"a.log.{count}"))
        here.path().write_bytes(b"")


def dying(moment: str) -> Callable[[Following], None]:
    def act(here: Following) -> None:
        here.topic.dies = moment
        try:
            here.run()
        except Killed:
            here.kill()
        here.topic.dies = ""

    return act


ACTS = st.sampled_from([write, rotate, copytruncate, Following.kill, Following.run, dying("before"), dying("after")])


@settings(max_examples=100)
@given(st.lists(ACTS, max_size=14))
def test_each_line_is_appended_once_in_any_order_of_events(acts: list[Callable[[Following], Any]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        # Renamed files match too: else one that is created and renamed between two looks is not seen.
        here, written = Following(Path(name), "a.log*"), b""
        plain_write = here.write

        def record(data: bytes, name: str = "a.log") -> None:
            nonlocal written
            written += data
            plain_write(data, name)

        here.write = record  # type: ignore[method-assign]
        for act in acts:
            act(here)
        here.write(b"end\n")
        here.run()
        here.clock.advance(5)
        here.run()
        assert sorted(here.topic.lines) == sorted(written.split(b"\n")[:-1])
        here.kill()
