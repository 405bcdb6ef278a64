"""A file of keys that landed."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.landing.duplicates.hash_run import BadRun, HashRun
from tests.landing.duplicates.events import One, events_of, seen

ANY_PATH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def random_events(count: int, seed: int = 1) -> list[One]:
    chance = random.Random(seed)
    return [One((chance.getrandbits(64), chance.getrandbits(64)), number, offset=number) for number in range(count)]


def answers(run: HashRun, events: list[One]) -> list[tuple[int, int]]:
    asked = seen(events)
    rows, micros = run.find(asked.high, asked.low)
    return sorted(zip(rows.tolist(), micros.tolist(), strict=True))


def plain_answers(landed: list[One], events: list[One]) -> list[tuple[int, int]]:
    return sorted((row, old.micros) for row, one in enumerate(events) for old in landed if old.key == one.key)


@ANY_PATH
@given(events_of(), events_of())
def test_keys_are_found_with_all_their_times_also_after_they_were_written(
    tmp_path: Path, landed: list[One], events: list[One]
) -> None:
    run, path = HashRun.of(seen(landed)), tmp_path / "run"
    assert answers(run, events) == plain_answers(landed, events)
    checksum = run.write(path)
    opened = HashRun.open(path, checksum)
    assert answers(opened, events) == plain_answers(landed, events)
    assert (len(opened), opened.topics) == (len(landed), seen(landed).topics)


def test_many_random_keys_are_all_found_and_others_are_not(tmp_path: Path) -> None:
    landed, others = random_events(20_000), random_events(20_000, seed=2)
    run = HashRun.of(seen(landed))
    run.write(tmp_path / "run")
    for one in (run, HashRun.open(tmp_path / "run")):
        assert answers(one, landed) == [(row, event.micros) for row, event in enumerate(landed)]
        assert answers(one, others) == []


def test_what_was_taken_in_comes_out_again() -> None:
    landed = [One((n % 3, n), n, topic="ab"[n % 2]) for n in range(9)]
    again = HashRun.of(seen(landed)).seen()
    found = zip(again.high.tolist(), again.low.tolist(), again.micros.tolist(), again.topic.tolist(), strict=True)
    assert sorted((high, low, at, again.topics[topic]) for high, low, at, topic in found) == sorted(
        (*one.key, one.micros, one.topic) for one in landed
    )


@pytest.mark.parametrize("count", [0, 1, 3])
def test_no_truncation_is_taken_for_a_run(tmp_path: Path, count: int) -> None:
    path = tmp_path / "run"
    checksum = HashRun.of(seen(random_events(count))).write(path)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(BadRun, match="run is damaged"):
            HashRun.open(path, checksum)


def test_without_a_checksum_what_is_too_short_is_refused(tmp_path: Path) -> None:
    """The end may be padding: what is opened is whole, or is not opened."""
    path, events = tmp_path / "run", random_events(20)
    HashRun.of(seen(events)).write(path)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        try:
            assert answers(HashRun.open(path), events) == plain_answers(events, events)
        except BadRun:
            continue


@ANY_PATH
@given(st.data())
def test_no_flipped_bit_is_overlooked(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "run"
    checksum = HashRun.of(seen(random_events(50))).write(path)
    damaged = bytearray(path.read_bytes())
    bit = data.draw(st.integers(0, 8 * len(damaged) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    path.write_bytes(damaged)
    with pytest.raises(BadRun):
        HashRun.open(path, checksum)


@ANY_PATH
@given(st.binary(max_size=300))
def test_no_other_file_raises_anything_but_that_it_is_no_run(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run"
    path.write_bytes(content)
    with pytest.raises(BadRun):
        HashRun.open(path)


def test_a_run_of_a_later_version_is_refused_and_one_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "run"
    HashRun.of(seen(random_events(3))).write(path)
    path.write_bytes(path.read_bytes().replace(b'"version": 2', b'"version": 9'))
    with pytest.raises(BadRun, match="another version"):
        HashRun.open(path)
    with pytest.raises(FileNotFoundError):
        HashRun.open(tmp_path / "gone")


def test_who_has_a_run_mapped_keeps_it_when_another_is_written_in_its_place(tmp_path: Path) -> None:
    path, events = tmp_path / "run", random_events(5000)
    HashRun.of(seen(events)).write(path)
    mapped = HashRun.open(path)
    HashRun.of(seen(random_events(3, seed=2))).write(path)
    assert answers(mapped, events) == answers(HashRun.of(seen(events)), events)
    assert len(HashRun.open(path)) == 3


def test_columns_begin_where_they_can_be_mapped(tmp_path: Path) -> None:
    HashRun.of(seen(random_events(33))).write(tmp_path / "run")
    run = HashRun.open(tmp_path / "run")
    assert all(getattr(run, name).ctypes.data % 8 == 0 for name in ("high", "low", "micros", "topic", "filter"))
    assert isinstance(run.high.base, np.ndarray)
