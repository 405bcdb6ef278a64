"""What is kept with a topic: settings of its own, and that it was deleted."""

import json
from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from log_helpers import UNSYNCED, flip

from penstock.log import UnknownFormat, kept
from penstock.log.files import OS
from penstock.testing import Crashed, CrashingFileSystem


def test_changes_come_back(tmp_path):
    assert kept.read_changes(OS, tmp_path) == {}
    kept.write_changes(OS, tmp_path, {"readers": ("a", "b"), "stale_after": 4.5})
    assert kept.read_changes(OS, tmp_path) == {"readers": ("a", "b"), "stale_after": 4.5}


@pytest.mark.parametrize("name", kept.SETTINGS)
def test_one_damaged_copy_does_not_matter(tmp_path, name):
    kept.write_changes(OS, tmp_path, {"stale_after": 4.5})
    size = (tmp_path / name).stat().st_size
    for position in range(size):
        flip(tmp_path / name, position)
        assert kept.read_changes(OS, tmp_path) == {"stale_after": 4.5}
        flip(tmp_path / name, position)
    (tmp_path / name).unlink()
    assert kept.read_changes(OS, tmp_path) == {"stale_after": 4.5}


def test_without_a_copy_that_can_be_read_the_topic_is_refused(tmp_path):
    kept.write_changes(OS, tmp_path, {"readers": ("a",)})
    for name in kept.SETTINGS:
        flip(tmp_path / name, 20)
    with pytest.raises(UnknownFormat, match=r"settings\.json cannot be read"):
        kept.read_changes(OS, tmp_path)


def test_another_format_is_refused_by_its_number(tmp_path):
    text = json.dumps({"format": 7, "settings": {}}).encode()
    (tmp_path / "settings.json").write_bytes(b"%08x" % crc32c(text) + text)
    with pytest.raises(UnknownFormat, match=r"settings\.json has format 7, this Penstock knows 1"):
        kept.read_changes(OS, tmp_path)


@given(st.binary(max_size=100))
def test_any_bytes_are_settings_or_refused(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("kept")
    (folder / "settings.json").write_bytes(b"%08x" % crc32c(data) + data)
    with pytest.raises(UnknownFormat):
        kept.read_changes(OS, folder)


def test_a_power_cut_leaves_the_old_settings_or_the_new(tmp_path):
    for stop in range(14):
        fs = CrashingFileSystem(tmp_path, seed=stop)
        kept.write_changes(fs, tmp_path, {"stale_after": 1.0})
        fs.stop_after = stop
        with suppress(Crashed):
            kept.write_changes(fs, tmp_path, {"stale_after": 2.0})
        fs.crash()
        assert kept.read_changes(fs, tmp_path)["stale_after"] in (1.0, 2.0)


def test_of_a_deleted_topic_only_the_gaps_stay(tmp_path):
    for name in ("x.arrows", "gaps.jsonl", "settings.json"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "cursors").mkdir()
    (tmp_path / "cursors" / "c.cursor").write_bytes(b"x")
    kept.mark_deleted(UNSYNCED, tmp_path)
    kept.clear(UNSYNCED, tmp_path)
    assert kept.is_deleted(tmp_path)
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["DELETED", "gaps.jsonl"]
    kept.revive(UNSYNCED, tmp_path)
    assert not kept.is_deleted(tmp_path)
