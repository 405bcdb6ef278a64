"""Named cursors."""

import errno
import json
from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given

from penstock.log import Gap, Lag, LogFull, TopicSettings, UnknownFormat, WriteFailed
from penstock.log.cursors import LAST_OFFSET, Cursors
from penstock.log.store.batch_format import PREAMBLE
from penstock.testing import CrashingFileSystem, FakeClock
from tests.fuzzed import documents
from tests.log.log_helpers import UNSYNCED, fill, opened


@pytest.mark.survives("cursors", "SIGKILL")
def test_cursor_survives_a_restart_and_can_be_removed(tmp_path):
    with opened(tmp_path) as topic:
        assert topic.cursors.offsets() == {}
        topic.cursors.commit("spark", 7)
        topic.cursors.commit("spark", 9)
        topic.cursors.commit("other.one", 1)
    with opened(tmp_path) as topic:
        assert topic.cursors.offsets() == {"other.one": 1, "spark": 9}
        topic.cursors.remove("spark")
        topic.cursors.remove("none")
        assert topic.cursors.offsets() == {"other.one": 1}


@pytest.mark.parametrize(("name", "offset"), [("", 0), ("../x", 0), ("A", 0), ("x" * 201, 0), ("x", -1)])
def test_bad_names_and_offsets_are_value_errors(tmp_path, name, offset):
    with opened(tmp_path) as topic, pytest.raises(ValueError, match=r"cursor|negative"):
        topic.cursors.commit(name, offset)


@pytest.mark.survives("cursors", "damaged bytes")
def test_damaged_or_lost_cursor_is_restored_from_its_copy(tmp_path, caplog):
    with opened(tmp_path) as topic:
        folder = topic.path / "cursors"
        for name in ("flipped", "empty", "lost"):
            topic.cursors.commit(name, 5)
            topic.cursors.commit(name, 7, "note")
        (folder / "flipped.cursor").write_bytes(b"garbage")
        (folder / "empty.cursor").write_bytes(b"")
        (folder / "lost.cursor").unlink()
        assert topic.cursors.position("empty") == (7, "note")
        assert topic.cursors.offsets() == {"flipped": 7, "empty": 7, "lost": 7}
        reports = [record.getMessage() for record in caplog.records]
        assert sorted(reports) == [
            f"{folder / name}.cursor was damaged or lost and is restored from its copy"
            for name in ("empty", "flipped", "lost")
        ]
        topic.cursors.offsets()
        assert len(caplog.records) == 3, "a repaired cursor is reported once"
        assert (folder / "lost.cursor").read_bytes() == (folder / "lost.cursor.copy").read_bytes()


def test_cursor_with_both_copies_damaged_is_set_to_0_and_reported_once(tmp_path, caplog):
    with opened(tmp_path) as topic:
        topic.cursors.commit("a", 1)
        (topic.path / "cursors" / "a.cursor").write_bytes(b"garbage")
        (topic.path / "cursors" / "a.cursor.copy").write_bytes(b"")
        assert topic.cursors.offsets() == topic.cursors.offsets() == {"a": 0}, "at 0 retention drops nothing as read"
        assert [record.getMessage() for record in caplog.records] == [
            f"{topic.path}/cursors/a.cursor and its copy are damaged: the cursor is set to 0"
        ]


@pytest.mark.survives("cursors", "other format")
def test_topic_with_cursors_of_another_format_is_not_opened(tmp_path):
    with opened(tmp_path) as topic:
        topic.cursors.commit("a", 1)
        path = topic.path / "cursors" / "a.cursor"
        text = json.dumps({"format": 2, "offset": 1}).encode()
        path.write_bytes(b"%08x" % crc32c(text) + text)
    with pytest.raises(UnknownFormat, match=r"topic 't' is not opened: a\.cursor has format 2"), opened(tmp_path):
        pass


@pytest.mark.survives("cursors", "power cut")
def test_power_cut_leaves_the_old_or_the_new_offset(tmp_path):
    for stop in range(6):
        fs = CrashingFileSystem(tmp_path, seed=stop)
        with opened(tmp_path, fs=fs) as topic:
            topic.cursors.commit("a", 1)
            fs.stop_after = stop
            written = False
            try:
                topic.cursors.commit("a", 2)
                written = True
            except WriteFailed:
                pass
            fs.crash()
        with opened(tmp_path, fs=fs) as topic:
            assert topic.cursors.offsets()["a"] in ((2,) if written else (1, 2))


def test_removed_cursor_does_not_come_back_after_a_power_cut(tmp_path):
    for seed in range(8):
        fs = CrashingFileSystem(tmp_path, seed)
        with opened(tmp_path, fs=fs) as topic:
            topic.cursors.commit("a", 1)
            topic.cursors.commit("b", 2)
            topic.cursors.remove("a")
            fs.crash()
        with opened(tmp_path, fs=fs) as topic:
            assert topic.cursors.offsets() == {"b": 2}


def test_interrupted_removal_leaves_the_synced_file_and_not_its_copy(tmp_path):
    for seed in range(40):
        fs = CrashingFileSystem(tmp_path, seed)
        with opened(tmp_path, fs=fs) as topic:
            topic.cursors.commit("a", 1)
            topic.cursors.commit("a", 2)
            fs.stop_after = 1
            with pytest.raises(WriteFailed):
                topic.cursors.remove("a")
            fs.crash()
        with opened(tmp_path, fs=fs) as topic:
            assert topic.cursors.offsets() == {"a": 2}


@pytest.mark.parametrize("operation", ["remove", "sync_directory"])
def test_removal_that_the_disk_refuses_is_an_error_of_the_log(tmp_path, operation):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, fs=fs) as topic:
        topic.cursors.commit("a", 1)
        fs.failures = {operation: errno.EIO}
        with pytest.raises(WriteFailed):
            topic.cursors.remove("a")
        fs.failures = {}
        topic.cursors.remove("a")
        assert topic.cursors.offsets() == {}


def test_folder_of_cursors_is_synced_again_after_its_sync_failed(tmp_path, monkeypatch):
    (tmp_path / "t").mkdir()
    fs = CrashingFileSystem(tmp_path)
    cursors = Cursors(fs, tmp_path / "t")
    fs.failures = {"sync_directory": errno.EIO}
    with pytest.raises(WriteFailed):
        cursors.commit("spark", 1)
    fs.failures = {}
    synced, sync = [], fs.sync_directory
    monkeypatch.setattr(fs, "sync_directory", lambda path: synced.append(path.name) or sync(path))
    cursors.commit("spark", 1)
    cursors.commit("spark", 2)
    assert synced == ["t", "cursors", "cursors"]


@pytest.mark.survives("cursors", "full disk")
def test_old_offset_stays_on_a_full_disk(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, fs=fs) as topic:
        topic.cursors.commit("a", 1)
        fs.free = 0
        with pytest.raises(LogFull):
            topic.cursors.commit("a", 2)
        fs.free = None
        assert topic.cursors.offsets() == {"a": 1}


def test_lag_has_unread_entries_bytes_and_seconds(tmp_path):
    clock = FakeClock(1000.0)
    with opened(tmp_path, clock=clock, settings=TopicSettings(segment_size_limit=1500)) as topic:
        assert topic.lag("c") == Lag(0, 0, 0.0)
        for number in range(6):
            fill(topic, [b"%d" % number] * 2)
            clock.advance(10)
        complete = topic.lag("c")
        assert (complete.entries, complete.seconds) == (12, 60.0)
        assert complete.bytes == sum(p.stat().st_size - PREAMBLE.size for p in topic.path.glob("*.arrows"))
        topic.cursors.commit("c", 9)
        half = topic.lag("c")
        assert (half.entries, half.seconds) == (3, pytest.approx(20.0, abs=0.01))
        assert half.bytes == complete.bytes // 3
        topic.cursors.commit("c", 12)
        assert topic.lag("c") == Lag(0, 0, 0.0)


def test_lag_leaves_out_gaps(tmp_path):
    with opened(tmp_path) as topic:
        fill(topic, [b"a"], [b"b", b"b"], [b"c"])
        topic._gaps.add([Gap(0, 1, "expired_read"), Gap(1, 3, "corrupt")])
        assert topic.lag("c").entries == 1


def test_impossible_offset_is_refused_and_a_stored_one_is_repaired(tmp_path):
    with opened(tmp_path) as topic:
        topic.cursors.commit("last", 2**63 - 1)
        with pytest.raises(ValueError, match="is not one of 0 to 9223372036854775807"):
            topic.cursors.commit("beyond", 2**63)
        text = json.dumps({"format": 1, "offset": 2**64}).encode()
        (topic.path / "cursors" / "old.cursor").write_bytes(b"%08x" % crc32c(text) + text)
        assert topic.cursors.offsets() == {"last": 2**63 - 1, "old": 0}


@given(documents("offset"))
def test_random_bytes_give_a_readable_offset(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("topic")
    (folder / "cursors").mkdir()
    (folder / "cursors" / "a.cursor").write_bytes(data)
    with suppress(UnknownFormat):
        assert 0 <= Cursors(UNSYNCED, folder).offsets()["a"] <= LAST_OFFSET
