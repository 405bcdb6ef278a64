"""Appends to the active segment."""

import errno
import io
import os
from contextlib import suppress

import polars as pl
import pyarrow as pa
import pytest

from penstock.files.file_system import OS
from penstock.log.commit.batching import QueuedAppend, prepare
from penstock.log.store import batch_copies, index, segment, segment_files
from penstock.log.store.batch_format import PREAMBLE
from penstock.log.store.gaps import Gaps
from penstock.log.store.producers import Producers
from penstock.log.store.recovery import Recovery
from penstock.log.store.segment_files import SegmentFiles, StartState
from penstock.testing import CrashingFileSystem
from penstock.testing.simulation.machine import Machine
from tests.log.log_helpers import flip, origin, rows


def prepared(active, *payloads):
    state = active.state
    return prepare([QueuedAppend(rows(*payloads), origin(), 0, None)], state.end, state.last + 1, state.length)


def recover(folder):
    """Recover the topic in a folder; return its payloads and its gaps."""
    gaps = Gaps(OS, folder)
    active, _ = Recovery(OS, folder, gaps, Producers(60)).run()
    active.release()
    stored = pa.ipc.open_stream(active.files.data.read_bytes()).read_all().column("payload").to_pylist()
    return stored, gaps.sorted()


def append(active, *payloads):
    pending = prepared(active, *payloads)
    mark = active.state.copy()
    try:
        active.append(pending.parts, [index.record(pending.message)])
        active.sync()
        active.publish()
    except OSError:
        with suppress(OSError):
            active.roll_back(mark)
        raise


def test_new_segment_is_an_empty_arrow_stream(tmp_path):
    segment.create(OS, tmp_path, 5, StartState({"b": 64}), 9).release()
    assert pa.ipc.open_stream(SegmentFiles(tmp_path, 5).data.read_bytes()).read_all().num_rows == 0
    assert segment_files.read_start_state(OS, SegmentFiles(tmp_path, 5)) == StartState({"b": 64})
    assert segment_files.read_synced(OS, SegmentFiles(tmp_path, 5)) == (PREAMBLE.size, 5)


def test_each_append_is_published_with_its_index_record(tmp_path):
    active = segment.create(OS, tmp_path, 5, StartState(), 0)
    append(active, b"a", b"b")
    append(active, b"c")
    files = active.files
    records = index.unpack(files.index.read_bytes()[index.HEADER_SIZE :])
    assert index.dense(records, 5, PREAMBLE.size)
    assert segment_files.read_synced(OS, files) == (active.state.length, 8) == (active.state.length, active.state.end)
    assert (active.state.batches, active.state.oldest, active.state.last) == (2, 1, 3)
    active.release()
    assert files.data.stat().st_size == active.state.length


def test_small_appends_are_written_into_preallocated_zeros(tmp_path):
    active = segment.create(OS, tmp_path, 0, StartState(), 0)
    sizes = []
    for number in range(1000):
        append(active, b"%d" % number)
        sizes.append(active.files.data.stat().st_size)
        assert (
            active.state.length
            <= sizes[-1]
            <= max(1.5 * active.state.length, active.state.length + segment.MAX_PREALLOCATED_BYTES)
        )
    assert len(set(sizes)) < 30
    data = active.files.data.read_bytes()
    assert not any(data[active.state.length :])
    assert pa.ipc.open_stream(data).read_all().num_rows == pl.read_ipc_stream(io.BytesIO(data)).height == 1000
    active.seal()
    assert active.files.data.stat().st_size == active.state.length
    active.release()


def test_preallocation_is_limited(tmp_path):
    active = segment.create(OS, tmp_path, 0, StartState(), 0)
    append(active, bytes(3 * segment.MAX_PREALLOCATED_BYTES))
    append(active, b"small")
    assert active.room == segment.MAX_PREALLOCATED_BYTES
    active.release()


def test_appends_are_refused_while_the_disk_refuses_to_sync(tmp_path):
    """Limit: unsynced parts stay in memory, so that only one append may wait for the sync."""
    fs = CrashingFileSystem(tmp_path)
    active = segment.create(fs, tmp_path, 0, StartState(), 0)
    pending = prepared(active, b"a")
    active.append(pending.parts, [index.record(pending.message)])
    fs.failures = {"sync": errno.EIO}
    with pytest.raises(OSError, match=r"\[Errno"):
        active.sync()
    length, later = active.state.length, prepared(active, b"b")
    with pytest.raises(OSError, match=r"\[Errno"):
        active.append(later.parts, [index.record(later.message)])
    assert active.state.length == length
    fs.failures = {}
    active.append(later.parts, [index.record(later.message)])
    active.sync()
    fs.crash()
    assert recover(tmp_path) == ([b"a", b"b"], [])


@pytest.mark.parametrize("sync_failed", [False, True])
def test_part_of_an_append_on_a_full_disk_is_cut(tmp_path, sync_failed):
    fs = CrashingFileSystem(tmp_path)
    active = segment.create(fs, tmp_path, 0, StartState(), 0)
    if sync_failed:
        pending = prepared(active, b"a")
        active.append(pending.parts, [index.record(pending.message)])
        fs.failures = {"sync": errno.EIO}
        with pytest.raises(OSError, match=r"\[Errno"):
            active.sync()
        fs.failures = {}
    fs.free = 300
    with pytest.raises(OSError, match="No space"):
        append(active, b"a" * 1000)
    assert active.files.data.stat().st_size == active.state.length
    active.release()


def test_length_that_could_not_be_published_is_published_later(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    active = segment.create(fs, tmp_path, 0, StartState(), 0)
    pending = prepared(active, b"a")
    active.append(pending.parts, [index.record(pending.message)])
    active.sync()
    fs.failures = {"store": errno.EIO}
    with pytest.raises(OSError, match=r"\[Errno"):
        active.publish()
    assert not active.clean
    fs.failures = {}
    active.publish()
    assert segment_files.read_synced(OS, active.files) == (active.state.length, 1)
    active.release()


@pytest.mark.survives("log", "power cut")
@pytest.mark.parametrize("topic", ["t", "_internal"])
def test_append_leaves_no_gap_after_a_power_cut_at_any_operation(tmp_path, topic):
    for stop_after in range(6):
        for seed in range(12):
            folder = tmp_path / f"{stop_after} {seed}" / topic
            folder.mkdir(parents=True)
            fs = CrashingFileSystem(folder, seed)
            active = segment.create(fs, folder, 0, StartState(), 0)
            append(active, b"a")
            fs.stop_after = stop_after
            with suppress(OSError):
                append(active, b"b")
            fs.crash()
            stored, gaps = recover(folder)
            assert (stored[:1], gaps) == ([b"a"], [])


def test_flipped_bit_in_the_last_batch_of_an_internal_topic_is_mended_after_a_power_cut(tmp_path):
    for seed in range(12):
        folder = tmp_path / f"{seed}" / "_internal"
        folder.mkdir(parents=True)
        fs = CrashingFileSystem(folder, seed)
        active = segment.create(fs, folder, 0, StartState(), 0)
        pending = prepared(active, b"a")
        copy = batch_copies.line(active.files, pending.message, pending.parts)
        active.append(pending.parts, [index.record(pending.message)], copy)
        active.sync()
        active.publish()
        fs.crash()
        flip(active.files.data, pending.message.position + pending.message.length // 2)
        assert recover(folder) == ([b"a"], [])


def test_large_appends_get_no_preallocated_space(tmp_path):
    active = segment.create(OS, tmp_path, 0, StartState(), 0)
    for _ in range(20):
        append(active, bytes(segment.MAX_SMALL_APPEND_BYTES))
        assert active.files.data.stat().st_size == active.state.length
    append(active, b"small")
    assert active.files.data.stat().st_size == active.state.length + active.state.length // 2
    append(active, bytes(segment.MAX_SMALL_APPEND_BYTES))
    append(active, bytes(segment.MAX_SMALL_APPEND_BYTES))
    active.seal()
    assert pa.ipc.open_stream(active.files.data.read_bytes()).read_all().num_rows == 23
    active.release()


def test_rewritten_tail_is_followed_by_zeros(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    active = segment.create(fs, tmp_path, 0, StartState(), 0)
    for _ in range(40):
        append(active, b"a" * 100)
    assert active.room
    fs.failures = {"sync": errno.EIO}
    with pytest.raises(OSError, match=r"\[Errno"):
        append(active, b"lost" * 200)
    fs.failures = {}
    assert active.room == 0
    append(active, b"b")
    data = active.files.data.read_bytes()
    assert b"lost" not in data
    assert len(data) == active.state.length + active.room > active.state.length
    active.release()
    assert active.files.data.stat().st_size == active.state.length


@pytest.mark.parametrize("broken", ["truncate", "sync"])
def test_failed_truncation_is_retried_when_the_segment_is_sealed_again(tmp_path, broken):
    fs = CrashingFileSystem(tmp_path)
    active = segment.create(fs, tmp_path, 0, StartState(), 0)
    for _ in range(40):
        append(active, b"a" * 100)
    fs.failures = {broken: errno.EIO}
    with pytest.raises(OSError, match=r"\[Errno"):
        active.seal()
    active.release()
    fs.failures = {}
    active.seal()
    active.release()
    fs.crash()
    assert active.files.data.stat().st_size == active.state.length


def test_disk_without_space_for_preallocation_accepts_appends(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    active = segment.create(fs, tmp_path, 0, StartState(), 0)
    for _ in range(40):
        append(active, b"a" * 100)
    fs.free = 30_000
    with suppress(OSError):
        for _ in range(100):
            append(active, b"b" * 100)
    batch_size = active.state.length // active.state.batches
    assert fs.free < 2 * batch_size + active.room
    active.release()
    rows = pa.ipc.open_stream(active.files.data.read_bytes()).read_all().column("payload").to_pylist()
    assert rows[40:] == [b"b" * 100] * (len(rows) - 40)
    assert len(rows) - 40 >= (30_000 - 2 * batch_size) // batch_size


def test_failed_append_is_undone_even_if_the_first_undo_fails(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    active = segment.create(fs, tmp_path, 0, StartState(), 0)
    append(active, b"a")
    size = active.files.data.stat().st_size
    for broken in ({"sync": errno.EIO}, {"sync": errno.EIO, "truncate": errno.EIO}, {"write": errno.ENOSPC}):
        fs.failures = broken
        with pytest.raises(OSError, match=r"\[Errno"):
            append(active, b"lost")
        assert segment_files.read_synced(OS, active.files) == (size, 1)
    fs.failures = {}
    append(active, b"b")
    assert pa.ipc.open_stream(active.files.data.read_bytes()).read_all().column("payload").to_pylist() == [b"a", b"b"]
    active.release()


def test_refused_row_is_not_recovered_if_its_cut_fails_too(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    active = segment.create(fs, tmp_path, 0, StartState(), 0)
    append(active, b"a")
    stored = active.files.data.read_bytes()[: active.state.length]
    fs.failures = {"sync": errno.EIO, "truncate": errno.EIO}
    with pytest.raises(OSError, match=r"\[Errno"):
        append(active, b"lost")
    # The process is killed here: recovery cuts zeros at the end, and would keep a whole row.
    content = active.files.data.read_bytes()
    assert content[: len(stored)] == stored
    assert not any(content[len(stored) :])


@pytest.mark.parametrize("topic", ["t", "_internal"])
@pytest.mark.parametrize("free", [50, 100, 600])
def test_refused_row_leaves_no_gap_after_a_power_cut(tmp_path, topic, free):
    """The disk is full within the index record, within the copy, or behind both."""
    for seed in range(100):
        folder = tmp_path / f"{seed}" / topic
        folder.mkdir(parents=True)
        fs = CrashingFileSystem(folder, seed)
        active = segment.create(fs, folder, 0, StartState(), 0)
        append(active, b"a")
        pending, before = prepared(active, b"refused"), active.state.copy()
        fs.free = pending.message.length + free
        active.append(pending.parts, [index.record(pending.message)], b"c" * 500)
        with suppress(OSError):
            active.sync()
        fs.stop_after = seed // 2 % 6 if seed % 2 else None
        with suppress(OSError):
            active.roll_back(before)
        is_cut = fs.stop_after is None or fs.stop_after >= 0
        fs.crash()
        stored, gaps = recover(folder)
        assert gaps == []
        assert stored == [b"a"] or (not is_cut and stored == [b"a", b"refused"])


def test_cut_that_could_not_be_synced_is_repeated(tmp_path):
    machine = Machine(tmp_path, 0)
    active = segment.create(machine.files, machine.topics, 0, StartState(), 0)
    pending, before = prepared(active, b"refused"), active.state.copy()
    active.append(pending.parts, [index.record(pending.message)])
    interrupted = []

    def fail_third_sync(operation):
        interrupted.append(operation)
        if interrupted.count("sync") == 3:
            machine.files.failing["sync"] = errno.EIO, 1

    machine.files.interrupt = fail_third_sync
    with pytest.raises(OSError, match=r"\[Errno"):
        active.roll_back(before)
    assert interrupted[-2:] == ["truncate", "sync"], "the cut of the data"
    assert not active.clean
    machine.files.interrupt = lambda operation: None
    active.undo_failure()
    assert active.clean
    active.release()


@pytest.mark.parametrize("fails", ["truncate", "sync"])
def test_kill_while_a_refused_append_is_cleared_leaves_no_gap(tmp_path, monkeypatch, fails):
    monkeypatch.setattr(segment, "MAX_PREALLOCATED_BYTES", 700)
    outcomes = set()
    for kill_after in range(30):
        folder = tmp_path / f"{kill_after}"
        folder.mkdir()
        fs = CrashingFileSystem(folder)
        active = segment.create(fs, folder, 0, StartState(), 0)
        append(active, b"a")
        before = active.state.copy()
        for payload in (b"b", b"c", b"d"):
            pending = prepared(active, payload)
            active.append(pending.parts, [index.record(pending.message)])
        if fails == "truncate":
            active.sync()
        fs.failures, fs.stop_after = {fails: errno.EIO, "truncate": errno.EIO}, kill_after
        with pytest.raises(OSError, match=r"\[Errno"):
            active.sync() if fails == "sync" else active.roll_back(before)
        if fails == "sync":
            with pytest.raises(OSError, match=r"\[Errno"):
                active.roll_back(before)
        fs.kill()
        stored, gaps = recover(folder)
        assert gaps == []
        outcomes.add(b"".join(stored))
    assert outcomes == {b"abcd", b"abc", b"ab", b"a"}


class PiecewiseFiles(CrashingFileSystem):
    """A file system that records the largest write."""

    largest = 0

    def open(self, path, *, create=False):
        file = super().open(path, create=create)
        write = file.write

        def record(parts, position):
            self.largest = max([self.largest, *map(len, parts)])
            return write(parts, position)

        file.write = record
        return file


def test_long_refused_row_is_cleared_in_pieces(tmp_path):
    fs = PiecewiseFiles(tmp_path)
    active = segment.create(fs, tmp_path, 0, StartState(), 0)
    stored = active.state.length
    fs.failures = {"truncate": errno.EIO}
    active.undo_failure()
    with open(active.files.data, "ab") as file:
        file.write(b"x" * (2 * segment.MAX_PREALLOCATED_BYTES + 5))
    active._dirty = True
    with pytest.raises(OSError, match=r"\[Errno"):
        active.undo_failure()
    content = active.files.data.read_bytes()
    assert len(content) == stored + 2 * segment.MAX_PREALLOCATED_BYTES + 5
    assert not any(content[stored:])
    assert fs.largest == segment.MAX_PREALLOCATED_BYTES


def test_failed_cut_of_a_file_that_is_too_short_is_an_os_error(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    active = segment.create(fs, tmp_path, 0, StartState(), 0)
    active.undo_failure()
    os.truncate(active.files.data, active.state.length - 1)
    fs.failures = {"truncate": errno.EIO}
    active._dirty = True
    with pytest.raises(OSError, match=r"\[Errno"):
        active.undo_failure()


def test_failed_index_write_undoes_the_append(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    active = segment.create(fs, tmp_path, 0, StartState(), 0)
    append(active, b"a")
    size = active.files.data.stat().st_size
    fs.free = size - PREAMBLE.size + 50
    with pytest.raises(OSError, match="No space"):
        append(active, b"a")
    assert (active.files.data.stat().st_size, active.files.index.stat().st_size) == (size, 64 + 96)
    active.release()
