"""The operating system's files."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.files.errors import Locked
from penstock.files.file_system import (
    DRAFT_AGE_S,
    MAX_PARTS,
    OS,
    SYSTEM_CLOCK,
    create_once,
    map_file,
    remove_dead_drafts,
    replace_durably,
    replacing_draft,
    set_aside,
)
from penstock.testing.crashes import CrashingFileSystem


def test_write_accepts_more_parts_than_one_system_call(tmp_path):
    parts = [b"%05d" % n for n in range(MAX_PARTS * 2 + 3)] + [b""]
    file = OS.open(tmp_path / "f", create=True)
    assert file.write(parts, 3) == 5 * (len(parts) - 1)
    file.sync()
    assert OS.read(tmp_path / "f") == bytes(3) + b"".join(parts)
    file.truncate(4)
    file.close()
    assert OS.size(tmp_path / "f") == 4


def test_short_write_is_continued(tmp_path, monkeypatch):
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, position: real(fd, [bytes(parts[0])[:2]], position))
    file = OS.open(tmp_path / "f", create=True)
    assert file.write([b"abcde", b"f", b"ghi"], 0) == 9
    file.close()
    assert OS.read(tmp_path / "f") == b"abcdefghi"


def test_replace_leaves_the_new_content_and_no_draft(tmp_path):
    replace_durably(OS, tmp_path / "f", b"old and longer")
    replace_durably(OS, tmp_path / "f", b"new")
    assert OS.names(tmp_path) == ["f"]
    assert OS.read(tmp_path / "f") == b"new"


def test_stored_integers_are_visible_in_the_file(tmp_path):
    (tmp_path / "w").write_bytes(bytes(24))
    words = OS.words(tmp_path / "w")
    words.store(1, -2, 3)
    assert (tmp_path / "w").read_bytes() == b"".join(n.to_bytes(8, "little", signed=True) for n in (1, -2, 3))
    words.close()


def test_map_stays_valid_after_the_file_is_removed(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    mapped = map_file(tmp_path / "f", 3)
    (tmp_path / "f").unlink()
    assert mapped.to_pybytes() == b"abc"
    assert map_file(tmp_path / "none", 0).size == 0


def test_lock_is_exclusive(tmp_path):
    release = OS.lock(tmp_path / "LOCK")
    with pytest.raises(Locked):
        OS.lock(tmp_path / "LOCK")
    release()
    OS.lock(tmp_path / "LOCK")()


def test_clock_returns_microseconds():
    assert 1_700_000_000_000_000 < SYSTEM_CLOCK.micros() < 1 << 53


def test_replace_without_sync_never_syncs(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    replace_durably(fs, tmp_path / "f", b"old")
    fs.failures = {"sync": errno.EIO, "sync_directory": errno.EIO}
    replace_durably(fs, tmp_path / "f", b"new", synced=False)
    assert OS.read(tmp_path / "f") == b"new"


def test_replace_leaves_the_draft_of_another_process(tmp_path):
    (tmp_path / "f.tmp").write_bytes(b"another's")
    replace_durably(OS, tmp_path / "f", b"mine", draft="f.mine")
    assert sorted(OS.names(tmp_path)) == ["f", "f.tmp"]
    assert OS.read(tmp_path / "f.tmp") == b"another's"


def test_draft_replaces_the_file_of_a_link_when_its_block_ends(tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    (tmp_path / "link").symlink_to("f")
    with replacing_draft(tmp_path / "link") as draft:
        draft.write_bytes(b"new")
        assert (tmp_path / "f").read_bytes() == b"old"
    assert sorted(OS.names(tmp_path)) == ["f", "link"]
    assert (tmp_path / "f").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()


def test_draft_is_removed_after_an_error(tmp_path):
    (tmp_path / "f").write_bytes(b"old")

    def interrupt():
        with replacing_draft(tmp_path / "f") as draft:
            draft.write_bytes(b"ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert OS.names(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"old"
    with pytest.raises(FileNotFoundError), replacing_draft(tmp_path / "absent" / "f") as draft:
        draft.write_bytes(b"new")


def test_pipe_has_no_draft(tmp_path):
    program = (
        "import pathlib; from penstock.files.file_system import replacing_draft as r\n"
        "with r(pathlib.Path('/dev/stdout')) as draft: draft.write_bytes(b'new')"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True).stdout == b"new"


def test_create_once_keeps_an_existing_file(tmp_path):
    create_once(tmp_path / "f", b"first", 0o600)
    create_once(tmp_path / "f", b"second")
    assert (tmp_path / "f").read_bytes() == b"first"
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [tmp_path / "f"]


def test_create_once_leaves_nothing_when_sync_fails(tmp_path, monkeypatch):
    def failed(_):
        raise OSError(errno.EIO, "failed")

    monkeypatch.setattr(os, "fsync", failed)
    with pytest.raises(OSError, match="failed"):
        create_once(tmp_path / "f", b"data")
    assert list(tmp_path.iterdir()) == []


def test_each_damaged_file_is_set_aside_under_a_name_of_its_own(tmp_path):
    path = tmp_path / "edge.1.json"
    for number in range(12):
        path.write_text(str(number))
        set_aside(path, OS)
    assert not path.exists()
    assert sorted(int(renamed.read_text()) for renamed in tmp_path.iterdir()) == list(range(12))
    names = {renamed.read_text(): renamed.name for renamed in tmp_path.iterdir()}
    assert [names[number] for number in ("0", "1", "11")] == ["edge.1.damaged", "edge.1.damaged2", "edge.1.damaged12"]


KILLED_WRITER = """
import os, pathlib, signal, sys
from penstock.files import file_system
with file_system.replacing_draft(pathlib.Path(sys.argv[1])) as draft:
    draft.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def leave_draft(path: Path) -> Path:
    path.touch()
    os.utime(path, (time.time() - 2 * DRAFT_AGE_S,) * 2)
    return path


def test_draft_of_a_killed_process_is_removed_by_the_next_one(tmp_path):
    path = tmp_path / "out.arrow"
    # Files of users with similar names.
    others = [leave_draft(tmp_path / name) for name in ("out.arrow.2147483.new", "out.arrow.2147483.tmp")]
    running = leave_draft(tmp_path / f".out.arrow.{os.getppid()}.tmp")
    subprocess.run([sys.executable, "-c", KILLED_WRITER, path], timeout=60, check=False)
    (draft,) = {*tmp_path.iterdir()} - {running, *others}
    with replacing_draft(path) as new:
        new.write_bytes(b"new")
    assert draft.exists(), "its process may run in another container"
    leave_draft(draft)
    with replacing_draft(path) as new:
        new.write_bytes(b"new")
    assert sorted(tmp_path.iterdir()) == sorted([running, *others, path])


def test_drafts_of_a_folder_of_our_own_are_removed(tmp_path):
    for name in ("token.2147483.new", ".a.2147483.tmp", "disk.2147483.tmp", "position.3", "a.2147483.json"):
        leave_draft(tmp_path / name)
    (tmp_path / "token.2147482.new").touch()
    remove_dead_drafts(tmp_path)
    remove_dead_drafts(tmp_path / "absent")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.2147483.json", "position.3", "token.2147482.new"]
