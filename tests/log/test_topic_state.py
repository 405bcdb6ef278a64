"""The state stored with a topic: its settings, and whether it was deleted."""

import json
from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.files.file_system import OS
from penstock.log import UnknownFormat, topic_state
from penstock.testing import Crashed, CrashingFileSystem
from tests.log.log_helpers import UNSYNCED, flip


def test_changes_are_read_back(tmp_path):
    assert topic_state.read_changes(OS, tmp_path) == {}
    topic_state.write_changes(OS, tmp_path, {"readers": ("a", "b"), "stale_after": 4.5})
    assert topic_state.read_changes(OS, tmp_path) == {"readers": ("a", "b"), "stale_after": 4.5}


@pytest.mark.parametrize("name", topic_state.SETTINGS)
def test_one_damaged_copy_is_tolerated(tmp_path, name):
    topic_state.write_changes(OS, tmp_path, {"stale_after": 4.5})
    size = (tmp_path / name).stat().st_size
    for position in range(size):
        flip(tmp_path / name, position)
        assert topic_state.read_changes(OS, tmp_path) == {"stale_after": 4.5}
        flip(tmp_path / name, position)
    (tmp_path / name).unlink()
    assert topic_state.read_changes(OS, tmp_path) == {"stale_after": 4.5}


@pytest.mark.parametrize("name", topic_state.SETTINGS)
@pytest.mark.parametrize("harm", ["flipped", "missing"])
def test_damaged_copy_is_rewritten_from_the_other_copy(tmp_path, name, harm):
    topic_state.write_changes(OS, tmp_path, {"stale_after": 4.5})
    good = (tmp_path / name).read_bytes()
    flip(tmp_path / name, 20) if harm == "flipped" else (tmp_path / name).unlink()
    topic_state.read_changes(OS, tmp_path)
    assert [(tmp_path / copy_name).read_bytes() for copy_name in topic_state.SETTINGS] == [good, good]


def test_topic_without_a_readable_copy_is_refused(tmp_path):
    topic_state.write_changes(OS, tmp_path, {"readers": ("a",)})
    for name in topic_state.SETTINGS:
        flip(tmp_path / name, 20)
    with pytest.raises(UnknownFormat, match=r"settings\.json cannot be read"):
        topic_state.read_changes(OS, tmp_path)


def test_other_format_is_refused_by_its_number(tmp_path):
    text = json.dumps({"format": 7, "settings": {}}).encode()
    (tmp_path / "settings.json").write_bytes(b"%08x" % crc32c(text) + text)
    with pytest.raises(UnknownFormat, match=r"settings\.json has format 7, this version of Penstock reads 1"):
        topic_state.read_changes(OS, tmp_path)


@given(st.binary(max_size=100))
def test_random_bytes_are_settings_or_refused(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("kept")
    (folder / "settings.json").write_bytes(b"%08x" % crc32c(data) + data)
    with pytest.raises(UnknownFormat):
        topic_state.read_changes(OS, folder)


def test_power_cut_leaves_the_old_or_the_new_settings(tmp_path):
    for stop in range(14):
        fs = CrashingFileSystem(tmp_path, seed=stop)
        topic_state.write_changes(fs, tmp_path, {"stale_after": 1.0})
        fs.stop_after = stop
        with suppress(Crashed):
            topic_state.write_changes(fs, tmp_path, {"stale_after": 2.0})
        fs.crash()
        assert topic_state.read_changes(fs, tmp_path)["stale_after"] in (1.0, 2.0)


def test_only_the_gaps_of_a_deleted_topic_remain(tmp_path):
    for name in ("x.arrows", "gaps.jsonl", "settings.json"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "cursors").mkdir()
    (tmp_path / "cursors" / "c.cursor").write_bytes(b"x")
    topic_state.mark_deleted(UNSYNCED, tmp_path)
    topic_state.clear(UNSYNCED, tmp_path)
    assert topic_state.is_deleted(tmp_path)
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["DELETED", "gaps.jsonl"]
    topic_state.revive(UNSYNCED, tmp_path)
    assert not topic_state.is_deleted(tmp_path)
