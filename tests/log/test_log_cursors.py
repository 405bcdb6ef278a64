"""Named cursors."""

import pytest
from log_helpers import opened

from penstock.log import LogFull, WriteFailed
from penstock.testing import CrashingFileSystem


def test_a_cursor_is_there_after_a_restart_and_can_be_removed(tmp_path):
    with opened(tmp_path) as topic:
        assert topic.cursors.read() == {}
        topic.cursors.commit("spark", 7)
        topic.cursors.commit("spark", 9)
        topic.cursors.commit("other.one", 1)
    with opened(tmp_path) as topic:
        assert topic.cursors.read() == {"other.one": 1, "spark": 9}
        topic.cursors.remove("spark")
        topic.cursors.remove("none")
        assert topic.cursors.read() == {"other.one": 1}


@pytest.mark.parametrize(("name", "offset"), [("", 0), ("../x", 0), ("A", 0), ("x" * 201, 0), ("x", -1)])
def test_bad_names_and_offsets_are_value_errors(tmp_path, name, offset):
    with opened(tmp_path) as topic, pytest.raises(ValueError, match=r"cursor|negative"):
        topic.cursors.commit(name, offset)


def test_a_damaged_cursor_counts_as_none(tmp_path):
    with opened(tmp_path) as topic:
        topic.cursors.commit("a", 1)
        (topic.path / "cursors" / "a.cursor").write_bytes(b"garbage")
        (topic.path / "cursors" / "b.cursor").write_bytes(b"")
        assert topic.cursors.read() == {}


def test_a_power_cut_leaves_the_old_offset_or_the_new_one(tmp_path):
    for stop in range(6):
        fs = CrashingFileSystem(tmp_path, seed=stop)
        with opened(tmp_path, fs=fs) as topic:
            topic.cursors.commit("a", 1)
            fs.stop_after = stop
            done = False
            try:
                topic.cursors.commit("a", 2)
                done = True
            except WriteFailed:
                pass
            fs.crash()
        with opened(tmp_path, fs=fs) as topic:
            assert topic.cursors.read()["a"] in ((2,) if done else (1, 2))


def test_on_a_full_disk_the_old_offset_stays(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, fs=fs) as topic:
        topic.cursors.commit("a", 1)
        fs.free = 0
        with pytest.raises(LogFull):
            topic.cursors.commit("a", 2)
        fs.free = None
        assert topic.cursors.read() == {"a": 1}
