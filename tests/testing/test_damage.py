"""Files are damaged as disks and crashes do it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.testing.damage import cut_tail, damage_one, data_files, flip_bit, zero_page


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(b"\xff" * 10_000)
    return path


def test_one_bit_is_flipped(file: Path) -> None:
    flip_bit(file, random.Random(1))
    bits = int.from_bytes(file.read_bytes(), "big").bit_count()
    assert bits == 80_000 - 1


def test_the_end_is_cut_off(file: Path) -> None:
    cut_tail(file, random.Random(1))
    assert 10_000 - 4096 <= file.stat().st_size < 10_000


def test_a_page_is_zeroed(file: Path) -> None:
    zero_page(file, random.Random(1))
    data = file.read_bytes()
    assert len(data) == 10_000
    assert data.count(0) in (4096, 10_000 % 4096)


def test_secrets_locks_tables_and_empty_files_are_left_alone(tmp_path: Path) -> None:
    for name in ("token", "lock", "topics/t/LOCK", "tables/landed/part.parquet", "topics/t/0.arrows"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "topics/t/DELETED").touch()
    assert data_files(tmp_path) == [tmp_path / "topics/t/0.arrows"]
    assert damage_one(tmp_path, random.Random(1)).startswith("topics/t/0.arrows: ")


def test_an_empty_folder_has_nothing_to_damage(tmp_path: Path) -> None:
    assert damage_one(tmp_path, random.Random(1)) == "no file to damage"
