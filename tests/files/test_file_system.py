"""The real files."""

import errno
import os

import pytest

from penstock.files.errors import Locked
from penstock.files.file_system import MAX_PARTS, OS, SYSTEM_CLOCK, create_once, map_file, replace_durably
from penstock.testing.crashes import CrashingFileSystem


def test_parts_are_written_one_after_the_other_also_more_than_one_call_takes(tmp_path):
    parts = [b"%05d" % n for n in range(MAX_PARTS * 2 + 3)] + [b""]
    file = OS.open(tmp_path / "f", create=True)
    assert file.write(parts, 3) == 5 * (len(parts) - 1)
    file.sync()
    assert OS.read(tmp_path / "f") == bytes(3) + b"".join(parts)
    file.truncate(4)
    file.close()
    assert OS.size(tmp_path / "f") == 4


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: real(fd, [bytes(parts[0])[:2]], at))
    file = OS.open(tmp_path / "f", create=True)
    assert file.write([b"abcde", b"f", b"ghi"], 0) == 9
    file.close()
    assert OS.read(tmp_path / "f") == b"abcdefghi"


def test_replace_leaves_the_new_content_and_no_temporary(tmp_path):
    replace_durably(OS, tmp_path / "f", b"old and longer")
    replace_durably(OS, tmp_path / "f", b"new")
    assert OS.names(tmp_path) == ["f"]
    assert OS.read(tmp_path / "f") == b"new"


def test_stored_words_are_seen_through_the_file(tmp_path):
    (tmp_path / "w").write_bytes(bytes(24))
    words = OS.words(tmp_path / "w")
    words.store(1, -2, 3)
    assert (tmp_path / "w").read_bytes() == b"".join(n.to_bytes(8, "little", signed=True) for n in (1, -2, 3))
    words.close()


def test_a_map_stays_valid_when_the_file_grows_or_goes(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    mapped = map_file(tmp_path / "f", 3)
    (tmp_path / "f").unlink()
    assert mapped.to_pybytes() == b"abc"
    assert map_file(tmp_path / "none", 0).size == 0


def test_a_lock_is_held_once(tmp_path):
    release = OS.lock(tmp_path / "LOCK")
    with pytest.raises(Locked):
        OS.lock(tmp_path / "LOCK")
    release()
    OS.lock(tmp_path / "LOCK")()


def test_the_clock_gives_microseconds():
    assert 1_700_000_000_000_000 < SYSTEM_CLOCK.micros() < 1 << 53


def test_what_nobody_needs_after_a_power_cut_is_replaced_at_once_and_not_synced(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    replace_durably(fs, tmp_path / "f", b"old")
    fs.failures = {"sync": errno.EIO, "sync_directory": errno.EIO}
    replace_durably(fs, tmp_path / "f", b"new", synced=False)
    assert OS.read(tmp_path / "f") == b"new"


def test_processes_that_write_the_same_file_have_drafts_of_their_own(tmp_path):
    (tmp_path / "f.tmp").write_bytes(b"another's")
    replace_durably(OS, tmp_path / "f", b"mine", draft="f.mine")
    assert sorted(OS.names(tmp_path)) == ["f", "f.tmp"]
    assert OS.read(tmp_path / "f.tmp") == b"another's"


def test_of_several_that_make_a_file_the_first_one_stands(tmp_path):
    create_once(tmp_path / "f", b"first", 0o600)
    create_once(tmp_path / "f", b"second")
    assert (tmp_path / "f").read_bytes() == b"first"
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [tmp_path / "f"]


def test_a_file_that_cannot_be_synced_is_not_made(tmp_path, monkeypatch):
    def failed(_):
        raise OSError(errno.EIO, "failed")

    monkeypatch.setattr(os, "fsync", failed)
    with pytest.raises(OSError, match="failed"):
        create_once(tmp_path / "f", b"data")
    assert list(tmp_path.iterdir()) == []
