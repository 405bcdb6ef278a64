"""A reader's position outlives its process, and its lock does not."""

from __future__ import annotations

import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.files.checked_word import encode_word
from penstock.handover.position import UNKNOWN, NotAReaderPosition, ReaderPosition

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


FILE = 4096


def of_before(position: int, floor: int, mark: int, claim: int, floor_mark: int, newest: int) -> bytes:
    """A file as versions before 0.2 wrote it."""
    return struct.pack("<8s6q", b"PNSTKPOS", position, floor, mark, claim, floor_mark, newest).ljust(FILE, b"\0")


def all_of(position: ReaderPosition) -> tuple[int, ...]:
    return (
        position.stored,
        position.floor,
        position.mark,
        position.claim,
        position.floor_mark,
        position.newest,
        position.total,
    )


def made(path: Path) -> tuple[int, ...]:
    with ReaderPosition(path, 64, 5) as position:
        position.position, position.floor, position.mark = 1 << 40, 320, UNKNOWN
        position.claim, position.floor_mark, position.newest, position.total = 1 << 41, 7, 96, 12345
        return all_of(position)


def test_a_file_of_before_goes_on_with_its_numbers(tmp_path: Path) -> None:
    (tmp_path / "reader").write_bytes(of_before(1 << 40, 320, -1, 1 << 41, 7, 96))
    for _ in range(2):
        with ReaderPosition(tmp_path / "reader") as position:
            assert all_of(position) == (1 << 40, 320, UNKNOWN, 1 << 41, 7, 96, 0)
    assert (tmp_path / "reader").read_bytes()[:8] == b"PNSTKPO2"


@given(st.integers(0, 8 * FILE - 1) | st.integers(8 * 512, 8 * 576) | st.integers(8 * 1024, 8 * 1088))
def test_no_flipped_bit_changes_anything(bit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "reader")
        numbers = made(path)
        data = bytearray(path.read_bytes())
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with ReaderPosition(path) as position:
            assert all_of(position) == numbers
            position.mend()
        unflipped = path.read_bytes()[:8], path.read_bytes()[520:576], path.read_bytes()[1032:1088]
        data[bit // 8] ^= 1 << bit % 8
        assert unflipped == (data[:8], data[520:576], data[1032:1088])


def test_a_number_both_copies_of_which_are_damaged_is_not_made_up(tmp_path: Path) -> None:
    made(tmp_path / "reader")
    data = bytearray((tmp_path / "reader").read_bytes())
    data[8 * 65] ^= 1
    data[8 * 129] ^= 2
    (tmp_path / "reader").write_bytes(data)
    with pytest.raises(NotAReaderPosition, match="garbage"):
        ReaderPosition(tmp_path / "reader")


@pytest.mark.parametrize("word", range(1, 8))
def test_a_kill_between_the_two_stores_leaves_the_new_number(tmp_path: Path, word: int) -> None:
    made(tmp_path / "reader")
    with ReaderPosition(tmp_path / "reader") as position:
        position._words[64 + word] = encode_word(3)  # and then it is killed
    with ReaderPosition(tmp_path / "reader") as position:
        position.mend()
        assert position._words[128 + word] == encode_word(3)


def test_damage_is_told_with_the_files_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made(tmp_path / "reader")
    with ReaderPosition(tmp_path / "reader") as position:
        position.mend()
        assert caplog.messages == []
        position._words[65] ^= 1
        position.mend()
    assert str(tmp_path / "reader") in caplog.messages[0]


def test_no_two_numbers_share_a_word(tmp_path: Path) -> None:
    with ReaderPosition(tmp_path / "reader") as position:
        for number in range(7):
            before = all_of(position)
            name = ("position", "floor", "mark", "claim", "floor_mark", "newest", "total")[number]
            setattr(position, name, 32 * (number + 1))
            assert [one != other for one, other in zip(before, all_of(position), strict=True)].count(True) == 1
