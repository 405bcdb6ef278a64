"""A reader's position outlives its process, and its lock does not."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.handover.position import NotAReaderPosition, ReaderPosition

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys, time
from penstock.handover.position import ReaderPosition
with ReaderPosition(sys.argv[1]).lock():
    print("held", flush=True)
    time.sleep(60)
"""


def test_it_begins_at_the_start_and_is_kept(tmp_path: Path) -> None:
    with ReaderPosition(tmp_path / "reader", 64) as position:
        assert position.position == 64
        position.position = 1 << 40
    with ReaderPosition(tmp_path / "reader", 96) as position:
        assert position.position == 1 << 40
    assert [entry.name for entry in tmp_path.iterdir()] == ["reader"]


def test_another_process_sees_it_at_once(tmp_path: Path) -> None:
    writer, watcher = ReaderPosition(tmp_path / "reader"), ReaderPosition(tmp_path / "reader")
    writer.position = 320
    assert watcher.position == 320


@pytest.mark.parametrize("value", [-32, 1, 33])
def test_a_position_where_no_frame_can_begin_is_refused(value: int, tmp_path: Path) -> None:
    position = ReaderPosition(tmp_path / "reader")
    with pytest.raises(ValueError, match=f"position {value}"):
        position.position = value
    assert position.position == 0


def test_the_lock_is_held_by_one(tmp_path: Path) -> None:
    one, other = ReaderPosition(tmp_path / "reader"), ReaderPosition(tmp_path / "reader")
    with one.lock(), other.try_lock() as held:
        assert not held
    with one.lock(), one.try_lock() as held:
        assert not held
    with other.try_lock() as held, one.try_lock() as second:
        assert held
        assert not second
    with one.try_lock() as held:
        assert held


def test_the_kernel_releases_the_lock_of_a_killed_process(tmp_path: Path) -> None:
    path = tmp_path / "reader"
    position = ReaderPosition(path)
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with position.try_lock() as held:
            assert not held
        holder.kill()
    with position.try_lock() as held:
        assert held


@given(st.binary(max_size=5000))
def test_any_other_file_is_refused(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "reader")
        path.write_bytes(data)
        with pytest.raises(NotAReaderPosition):
            ReaderPosition(path)
        path.write_bytes(data.ljust(4096, b"\1")[:4096])
        with pytest.raises(NotAReaderPosition):
            ReaderPosition(path)
