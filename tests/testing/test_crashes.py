"""The fake clock, and the file system that crashes."""

import errno
import os
from contextlib import suppress
from functools import partial

import pytest

from penstock.files.errors import Locked
from penstock.files.file_system import replace_durably
from penstock.testing import SECTOR, Crashed, CrashingFileSystem, FakeClock


def write(fs, path, data, position=0, sync=False):
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


def test_clock_moves_only_on_request():
    clock = FakeClock(10.0)
    assert (clock.time(), clock.monotonic(), clock.micros()) == (10.0, 0.0, 10_000_000)
    clock.advance(1.5)
    clock.jump(-5)
    assert (clock.time(), clock.monotonic(), clock.micros()) == (6.5, 1.5, 6_500_000)


def test_synced_content_survives_every_crash(tmp_path):
    def work(fs):
        write(fs, tmp_path / "f", b"kept", sync=True)
        fs.sync_directory(tmp_path)

    assert all(after_crash(tmp_path, seed, work) == {"f": b"kept"} for seed in range(20))


def test_unsynced_content_may_survive_in_part(tmp_path):
    def work(fs):
        write(fs, tmp_path / "f", b"", sync=True)
        fs.sync_directory(tmp_path)
        write(fs, tmp_path / "f", b"x" * (SECTOR * 3))

    outcomes = {after_crash(tmp_path, seed, work)["f"] for seed in range(60)}
    assert {b"", b"x" * (SECTOR * 3)} < outcomes
    assert any(b"\0" in image for image in outcomes)
    assert all(len(set(image[n : n + SECTOR])) == 1 for image in outcomes for n in range(0, len(image), SECTOR))


def test_new_name_may_be_lost_before_its_folder_is_synced(tmp_path):
    outcomes = {
        len(after_crash(tmp_path, seed, lambda fs: write(fs, tmp_path / "f", b"x", sync=True))) for seed in range(20)
    }
    assert outcomes == {0, 1}


def test_replace_leaves_old_or_new_content_at_every_crash(tmp_path):
    def work(stop, fs):
        replace_durably(fs, tmp_path / "f", b"old")
        fs.stop_after = stop
        with suppress(Crashed):
            replace_durably(fs, tmp_path / "f", b"new")

    outcomes = [{after_crash(tmp_path, seed, partial(work, stop))["f"] for seed in range(10)} for stop in range(7)]
    assert all(contents <= {b"old", b"new"} for contents in outcomes)
    assert (outcomes[0], outcomes[6]) == ({b"old"}, {b"new"})


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


def test_full_disk_accepts_what_fits_and_fails(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    fs.free = 6
    write(fs, tmp_path / "f", b"abcd")
    with pytest.raises(OSError, match="No space") as full:
        write(fs, tmp_path / "f", b"efgh", 4)
    assert full.value.errno == errno.ENOSPC
    assert (tmp_path / "f").read_bytes() == b"abcdef"
    write(fs, tmp_path / "f", b"ABCDEF")
    fs.remove(tmp_path / "f")
    assert fs.free == 6


def test_operation_can_be_made_to_fail(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    fs.failures["sync"] = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        write(fs, tmp_path / "f", b"x", sync=True)


def test_pages_of_a_failed_sync_are_lost(tmp_path):
    def work(fs):
        write(fs, tmp_path / "f", b"kept", sync=True)
        fs.sync_directory(tmp_path)
        fs.failures["sync"] = errno.EIO
        with suppress(OSError):
            write(fs, tmp_path / "f", b"lost", 4, sync=True)
        fs.failures.clear()
        write(fs, tmp_path / "f", b"", sync=True)
        assert (tmp_path / "f").read_bytes() == b"keptlost"

    assert all(after_crash(tmp_path, seed, work) == {"f": b"kept"} for seed in range(20))


def test_crash_names_files_that_lost_what_a_lying_sync_claimed(tmp_path):
    def work(fs):
        write(fs, tmp_path / "true", b"x" * SECTOR, sync=True)
        fs.lies = True
        write(fs, tmp_path / "claimed", b"y" * SECTOR, sync=True)
        fs.sync_directory(tmp_path)
        work.files = fs

    lost = set()
    for seed in range(20):
        contents = after_crash(tmp_path, seed, work)
        assert contents["true"] == b"x" * SECTOR
        is_lost = contents["claimed"] != b"y" * SECTOR
        assert work.files.lost_to_lies == ([tmp_path / "claimed"] if is_lost else [])
        lost.add(is_lost)
    assert lost == {True, False}


def test_failed_sync_keeps_what_a_lying_sync_claimed_before(tmp_path):
    def work(fs):
        fs.lies = True
        write(fs, tmp_path / "f", b"y" * SECTOR, sync=True)
        fs.sync_directory(tmp_path)
        fs.lies, fs.failures = False, {"sync": errno.EIO}
        with suppress(OSError):
            write(fs, tmp_path / "f", b"z", SECTOR, sync=True)

    assert {after_crash(tmp_path, seed, work)["f"] for seed in range(20)} == {b"", b"y" * SECTOR}


def test_files_of_a_killed_process_are_closed(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    descriptors = len(os.listdir("/proc/self/fd"))
    for end in (fs.kill, fs.crash):
        fs.open(tmp_path / "file", create=True)
        end()
    assert len(os.listdir("/proc/self/fd")) == descriptors
