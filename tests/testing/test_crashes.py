"""What tests rely on: the fake clock and the file system that crashes."""

import errno
from contextlib import suppress
from functools import partial

import pytest

from penstock.files.errors import Locked
from penstock.files.file_system import replace_durably
from penstock.testing import SECTOR, Crashed, CrashingFileSystem, FakeClock


def put(fs, path, data, position=0, sync=False):
    file = fs.open(path, create=True)
    file.write([data], position)
    if sync:
        file.sync()
    file.close()


def after_crash(folder, seed, work):
    for old in folder.iterdir():
        old.unlink()
    fs = CrashingFileSystem(folder, seed)
    work(fs)
    fs.crash()
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_clock_moves_only_when_told():
    clock = FakeClock(10.0)
    assert (clock.time(), clock.monotonic(), clock.micros()) == (10.0, 0.0, 10_000_000)
    clock.advance(1.5)
    clock.jump(-5)
    assert (clock.time(), clock.monotonic(), clock.micros()) == (6.5, 1.5, 6_500_000)


def test_what_was_synced_survives_every_crash(tmp_path):
    def work(fs):
        put(fs, tmp_path / "f", b"kept", sync=True)
        fs.sync_directory(tmp_path)

    assert all(after_crash(tmp_path, seed, work) == {"f": b"kept"} for seed in range(20))


def test_what_was_not_synced_may_be_there_in_part_in_whole_or_not_at_all(tmp_path):
    def work(fs):
        put(fs, tmp_path / "f", b"", sync=True)
        fs.sync_directory(tmp_path)
        put(fs, tmp_path / "f", b"x" * (SECTOR * 3))

    found = {after_crash(tmp_path, seed, work)["f"] for seed in range(60)}
    assert {b"", b"x" * (SECTOR * 3)} < found
    assert any(b"\0" in image for image in found)
    assert all(len(set(image[n : n + SECTOR])) == 1 for image in found for n in range(0, len(image), SECTOR))


def test_a_new_name_may_be_lost_until_its_folder_is_synced(tmp_path):
    found = {
        len(after_crash(tmp_path, seed, lambda fs: put(fs, tmp_path / "f", b"x", sync=True))) for seed in range(20)
    }
    assert found == {0, 1}


def test_replace_leaves_the_old_or_the_new_content_wherever_it_stops(tmp_path):
    def work(stop, fs):
        replace_durably(fs, tmp_path / "f", b"old")
        fs.stop_after = stop
        with suppress(Crashed):
            replace_durably(fs, tmp_path / "f", b"new")

    found = [{after_crash(tmp_path, seed, partial(work, stop))["f"] for seed in range(10)} for stop in range(7)]
    assert all(contents <= {b"old", b"new"} for contents in found)
    assert (found[0], found[6]) == ({b"old"}, {b"new"})


def test_open_files_and_locks_do_not_survive_a_crash(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    fs.lock(tmp_path / "LOCK")
    with pytest.raises(Locked):
        fs.lock(tmp_path / "LOCK")
    file = fs.open(tmp_path / "f", create=True)
    fs.crash()
    with pytest.raises(Crashed):
        file.write([b"x"], 0)
    fs.lock(tmp_path / "LOCK")()


def test_a_full_disk_takes_what_fits_and_then_fails(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    fs.free = 6
    put(fs, tmp_path / "f", b"abcd")
    with pytest.raises(OSError, match="No space") as full:
        put(fs, tmp_path / "f", b"efgh", 4)
    assert full.value.errno == errno.ENOSPC
    assert (tmp_path / "f").read_bytes() == b"abcdef"
    put(fs, tmp_path / "f", b"ABCDEF")
    fs.remove(tmp_path / "f")
    assert fs.free == 6


def test_an_operation_can_be_made_to_fail(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    fs.failures["sync"] = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        put(fs, tmp_path / "f", b"x", sync=True)


def test_what_a_sync_that_failed_was_to_bring_to_the_disk_is_not_brought_there_by_the_next_one(tmp_path):
    def work(fs):
        put(fs, tmp_path / "f", b"kept", sync=True)
        fs.sync_directory(tmp_path)
        fs.failures["sync"] = errno.EIO
        with suppress(OSError):
            put(fs, tmp_path / "f", b"lost", 4, sync=True)
        fs.failures.clear()
        put(fs, tmp_path / "f", b"", sync=True)
        assert (tmp_path / "f").read_bytes() == b"keptlost"

    assert all(after_crash(tmp_path, seed, work) == {"f": b"kept"} for seed in range(20))
