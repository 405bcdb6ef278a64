"""Files are damaged as by disks and crashes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.testing.damage import cut_tail, damage, data_files, flip_bit, kind_of, zero_page


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(b"\xff" * 10_000)
    return path


def test_flip_bit_changes_one_bit(file: Path) -> None:
    flip_bit(file, random.Random(1))
    bits = int.from_bytes(file.read_bytes(), "big").bit_count()
    assert bits == 80_000 - 1


def test_cut_tail_shortens_the_file(file: Path) -> None:
    cut_tail(file, random.Random(1))
    assert 10_000 - 4096 <= file.stat().st_size < 10_000


def test_zero_page_zeroes_one_page(file: Path) -> None:
    zero_page(file, random.Random(1))
    data = file.read_bytes()
    assert len(data) == 10_000
    assert data.count(0) in (4096, 10_000 % 4096)


def create_files(data_dir: Path, *names: str) -> None:
    for name in names:
        (data_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (data_dir / name).write_bytes(bytes(10_000))


def test_data_files_excludes_secrets_locks_tables_and_empty_files(tmp_path: Path) -> None:
    foreign = ("landed/part.parquet", "_checkpoints/landed/offsets/0", "_checkpoints/landed.lock")
    create_files(tmp_path, "token", "lock", "topics/t/LOCK", *(f"tables/{name}" for name in foreign))
    own_files = ["tables/_checkpoints/landed.commits.jsonl", "tables/_types/1.json", "topics/t/0.arrows"]
    create_files(tmp_path, *own_files)
    (tmp_path / "topics/t/DELETED").touch()
    assert data_files(tmp_path) == [tmp_path / name for name in own_files]


def test_empty_folder_has_nothing_to_damage(tmp_path: Path) -> None:
    assert damage(tmp_path, random.Random(1)) == []


def test_each_kind_is_damaged_before_a_file_of_the_same_kind(tmp_path: Path) -> None:
    topics = ["topics/a/0.arrows", "topics/a/9.arrows", "topics/b/0.arrows", "topics/_ledger/0.arrows"]
    create_files(tmp_path, "buffers/a.state", "topics/a/0.state", *topics)
    for seed in range(10):
        damages = damage(tmp_path, random.Random(seed), 4)
        assert {damaged.kind for damaged in damages} == {
            "buffers/*.state",
            "topics/*.state",
            "topics/*.arrows",
            "topics/_ledger/*.arrows",
        }
    every = damage(tmp_path, random.Random(1), 100)
    assert len({damaged.words.partition(":")[0] for damaged in every}) == len(every) == 6


def test_file_and_its_copy_are_not_both_damaged(tmp_path: Path) -> None:
    create_files(
        tmp_path, "topics/a/0.arrows", "topics/a/0.copies", "topics/a/settings.json", "topics/a/settings.copy.json"
    )
    for seed in range(10):
        names = {damaged.words.partition(":")[0] for damaged in damage(tmp_path, random.Random(seed), 9)}
        assert len(names) == 2
        assert len(names & {"topics/a/0.arrows", "topics/a/0.copies"}) == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("endpoints.json", "endpoints.json"),
        ("topics/CLOCK", "topics/CLOCK"),
        ("topics/a/gaps.jsonl", "topics/gaps.jsonl"),
        ("topics/a/gaps.copy.jsonl", "topics/gaps.jsonl"),
        ("topics/a/0.copies", "topics/*.arrows"),
        ("topics/a/settings.copy.json", "topics/settings.json"),
        ("topics/a/cursors/me.cursor", "topics/cursors/*.cursor"),
        ("topics/a/quarantine/0-1-2", "topics/quarantine/*"),
        ("buffers/a.log.position", "buffers/*.position"),
        ("buffers/a.log.position.unusable-1795342752548626387", "buffers/*.unusable-"),
        ("tables/_checkpoints/landed.proofs.jsonl", "tables/_checkpoints/landed.proofs.jsonl"),
        ("tables/_types/t1.json", "tables/_types/*.json"),
    ],
)
def test_kind_is_the_path_without_names(name: str, kind: str) -> None:
    assert kind_of(name) == kind
