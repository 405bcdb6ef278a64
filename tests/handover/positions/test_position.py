"""The position of a reader outlives its process; its lock does not."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.files.checked_word import encode_word
from penstock.handover.paths import position_file
from penstock.handover.positions.lost_position import last_known_of_all
from penstock.handover.positions.position import UNKNOWN, NotAReaderPosition, ReaderPosition

ROOT = Path(__file__).parents[3]
HOLDER = """
import sys, time
from penstock.handover.positions.position import ReaderPosition
with ReaderPosition(sys.argv[1]).lock():
    print("held", flush=True)
    time.sleep(60)
"""


def test_position_starts_at_its_start_and_persists(tmp_path: Path) -> None:
    with ReaderPosition(tmp_path / "reader", 64) as position:
        assert position.position == 64
        position.position = 1 << 40
    with ReaderPosition(tmp_path / "reader", 96) as position:
        assert position.position == 1 << 40
    assert [entry.name for entry in tmp_path.iterdir()] == ["reader"]


def test_position_is_visible_to_another_process(tmp_path: Path) -> None:
    writer, watcher = ReaderPosition(tmp_path / "reader"), ReaderPosition(tmp_path / "reader")
    writer.position = 320
    assert watcher.position == 320


@pytest.mark.parametrize("value", [-32, 1, 33])
def test_unaligned_position_is_refused(value: int, tmp_path: Path) -> None:
    position = ReaderPosition(tmp_path / "reader")
    with pytest.raises(ValueError, match=f"frame-aligned: {value}"):
        position.position = value
    assert position.position == 0


def test_lock_is_exclusive(tmp_path: Path) -> None:
    first, frame_second = ReaderPosition(tmp_path / "reader"), ReaderPosition(tmp_path / "reader")
    with first.lock(), frame_second.try_lock() as held:
        assert not held
    with first.lock(), first.try_lock() as held:
        assert not held
    with frame_second.try_lock() as held, first.try_lock() as second:
        assert held
        assert not second
    with first.try_lock() as held:
        assert held


def test_kernel_releases_the_lock_of_a_killed_process(tmp_path: Path) -> None:
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
def test_arbitrary_file_is_refused(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "reader")
        path.write_bytes(data)
        with pytest.raises(NotAReaderPosition):
            ReaderPosition(path)
        path.write_bytes(data.ljust(4096, b"\1")[:4096])
        with pytest.raises(NotAReaderPosition):
            ReaderPosition(path)


FILE = 4096


def read_numbers(position: ReaderPosition) -> tuple[int, ...]:
    return (
        position.stored,
        position.floor,
        position.mark,
        position.claim,
        position.floor_mark,
        position.newest,
        position.total,
    )


def created(path: Path) -> tuple[int, ...]:
    with ReaderPosition(path, 64, 5) as position:
        position.position, position.floor, position.mark = 1 << 40, 320, UNKNOWN
        position.claim, position.floor_mark, position.newest, position.total = 1 << 41, 7, 96, 12345
        return read_numbers(position)


@given(st.integers(0, 8 * FILE - 1) | st.integers(8 * 512, 8 * 576) | st.integers(8 * 1024, 8 * 1088))
def test_flipped_bit_changes_nothing(bit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "reader")
        numbers = created(path)
        data = bytearray(path.read_bytes())
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with ReaderPosition(path) as position:
            assert read_numbers(position) == numbers
            position.repair()
        unflipped = path.read_bytes()[:8], path.read_bytes()[520:576], path.read_bytes()[1032:1088]
        data[bit // 8] ^= 1 << bit % 8
        assert unflipped == (data[:8], data[520:576], data[1032:1088])


def test_shortage_is_seen_by_others_and_ends(tmp_path: Path) -> None:
    created(tmp_path / "reader")
    with ReaderPosition(tmp_path / "reader") as reader, ReaderPosition(tmp_path / "reader") as writer:
        assert writer.shortage == ""
        for shortage in ("disk", "log", ""):
            reader.shortage = shortage
            assert writer.shortage == shortage


def test_two_damaged_copies_are_an_error(tmp_path: Path) -> None:
    created(tmp_path / "reader")
    data = bytearray((tmp_path / "reader").read_bytes())
    data[8 * 65] ^= 1
    data[8 * 129] ^= 2
    (tmp_path / "reader").write_bytes(data)
    with pytest.raises(NotAReaderPosition, match="garbage"):
        ReaderPosition(tmp_path / "reader")


@pytest.mark.parametrize("word", range(1, 8))
def test_kill_between_two_stores_leaves_the_new_number(tmp_path: Path, word: int) -> None:
    created(tmp_path / "reader")
    with ReaderPosition(tmp_path / "reader") as position:
        position._words[64 + word] = encode_word(3)  # and then it is killed
    with ReaderPosition(tmp_path / "reader") as position:
        position.repair()
        assert position._words[128 + word] == encode_word(3)


@pytest.mark.parametrize("word", range(1, 8))
@pytest.mark.parametrize("copy", [64, 128])
def test_garbage_that_passes_its_check_raises_no_total(tmp_path: Path, copy: int, word: int) -> None:
    path = position_file(tmp_path, "events", "gone")
    with ReaderPosition(path, 64, 5) as position:
        position.floor_mark = 7
        position._words[copy + word] = encode_word(1 << 50)
    assert last_known_of_all(tmp_path, "events").total in (5, 7)


def test_position_that_cannot_be_opened_raises_no_total(tmp_path: Path) -> None:
    position_file(tmp_path, "events", "gone").mkdir(parents=True)
    assert last_known_of_all(tmp_path, "events").total == 0


def test_damage_is_logged_with_the_file_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    created(tmp_path / "reader")
    with ReaderPosition(tmp_path / "reader") as position:
        position.repair()
        assert caplog.messages == []
        position._words[65] ^= 1
        position.repair()
    assert str(tmp_path / "reader") in caplog.messages[0]


def test_numbers_have_separate_words(tmp_path: Path) -> None:
    with ReaderPosition(tmp_path / "reader") as position:
        for number in range(7):
            before = read_numbers(position)
            name = ("position", "floor", "mark", "claim", "floor_mark", "newest", "total")[number]
            setattr(position, name, 32 * (number + 1))
            assert [old != new for old, new in zip(before, read_numbers(position), strict=True)].count(True) == 1
