"""Tests of files of landed keys, and of their merging."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.landing.duplicates import hash_run
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.hash_run import BadRun, HashRun, merge_runs
from tests.landing.duplicates.events import Event, as_seen, draw_events

ANY_PATH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def random_events(count: int, seed: int = 1) -> list[Event]:
    chance = random.Random(seed)
    return [Event((chance.getrandbits(64), chance.getrandbits(64)), number, offset=number) for number in range(count)]


def matches(run: HashRun, events: list[Event]) -> list[tuple[int, int]]:
    lookup = as_seen(events)
    rows, micros = run.find_keys(lookup.high, lookup.low)
    return sorted(zip(rows.tolist(), micros.tolist(), strict=True))


def expected_matches(landed: list[Event], events: list[Event]) -> list[tuple[int, int]]:
    return sorted(
        (row, landed_event.micros)
        for row, event in enumerate(events)
        for landed_event in landed
        if landed_event.key == event.key
    )


@ANY_PATH
@given(draw_events(), draw_events())
def test_find_returns_all_timestamps_also_after_write(tmp_path: Path, landed: list[Event], events: list[Event]) -> None:
    run, path = HashRun.from_events(as_seen(landed)), tmp_path / "run"
    assert matches(run, events) == expected_matches(landed, events)
    checksum = run.write(path)
    opened = HashRun.open(path, checksum)
    assert matches(opened, events) == expected_matches(landed, events)
    assert (len(opened), opened.topics) == (len(landed), as_seen(landed).topics)


def test_find_returns_all_random_keys_and_no_absent_one(tmp_path: Path) -> None:
    landed, absent = random_events(20_000), random_events(20_000, seed=2)
    run = HashRun.from_events(as_seen(landed))
    run.write(tmp_path / "run")
    for tested_run in (run, HashRun.open(tmp_path / "run")):
        assert matches(tested_run, landed) == [(row, event.micros) for row, event in enumerate(landed)]
        assert matches(tested_run, absent) == []


def test_seen_returns_all_keys() -> None:
    landed = [Event((n % 3, n), n, topic="ab"[n % 2]) for n in range(9)]
    events = HashRun.from_events(as_seen(landed)).seen()
    columns_of_events = zip(
        events.high.tolist(), events.low.tolist(), events.micros.tolist(), events.topic.tolist(), strict=True
    )
    assert sorted(
        (high, low, micros, events.topics[topic]) for high, low, micros, topic in columns_of_events
    ) == sorted((*event.key, event.micros, event.topic) for event in landed)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_truncated_file_is_refused(tmp_path: Path, count: int) -> None:
    path = tmp_path / "run"
    checksum = HashRun.from_events(as_seen(random_events(count))).write(path)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(BadRun, match="run is damaged"):
            HashRun.open(path, checksum)


def test_short_file_is_refused_without_checksum(tmp_path: Path) -> None:
    """A file may end with padding, so a shorter file may be complete: it is refused, or all of its keys are found."""
    path, events = tmp_path / "run", random_events(20)
    HashRun.from_events(as_seen(events)).write(path)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        try:
            assert matches(HashRun.open(path), events) == expected_matches(events, events)
        except BadRun:
            continue


@ANY_PATH
@given(st.data())
def test_flipped_bit_is_detected(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "run"
    checksum = HashRun.from_events(as_seen(random_events(50))).write(path)
    damaged = bytearray(path.read_bytes())
    bit = data.draw(st.integers(0, 8 * len(damaged) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    path.write_bytes(damaged)
    with pytest.raises(BadRun):
        HashRun.open(path, checksum)


@ANY_PATH
@given(st.binary(max_size=300))
def test_any_other_file_raises_bad_run(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run"
    path.write_bytes(content)
    with pytest.raises(BadRun):
        HashRun.open(path)


def test_later_version_and_missing_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    HashRun.from_events(as_seen(random_events(3))).write(path)
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 9'))
    with pytest.raises(BadRun, match="another version"):
        HashRun.open(path)
    with pytest.raises(FileNotFoundError):
        HashRun.open(tmp_path / "gone")


def test_mapped_run_is_unchanged_by_overwrite(tmp_path: Path) -> None:
    path, events = tmp_path / "run", random_events(5000)
    HashRun.from_events(as_seen(events)).write(path)
    mapped = HashRun.open(path)
    HashRun.from_events(as_seen(random_events(3, seed=2))).write(path)
    assert matches(mapped, events) == matches(HashRun.from_events(as_seen(events)), events)
    assert len(HashRun.open(path)) == 3


def test_columns_are_aligned(tmp_path: Path) -> None:
    HashRun.from_events(as_seen(random_events(33))).write(tmp_path / "run")
    run = HashRun.open(tmp_path / "run")
    assert all(getattr(run, name).ctypes.data % 8 == 0 for name in ("high", "low", "micros", "topic", "filter"))
    assert isinstance(run.high.base, np.ndarray)


def columns(run: HashRun) -> list[tuple[int, int, int, str]]:
    """Return the keys sorted: keys with the same upper half may be in any order."""
    topics = [run.topics[topic] for topic in run.topic.tolist()]
    return sorted(zip(run.high.tolist(), run.low.tolist(), run.micros.tolist(), topics, strict=True))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(draw_events(), min_size=1, max_size=4), st.integers(1, 9))
def test_merged_run_equals_run_of_all_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event_lists: list[list[Event]], step: int
) -> None:
    monkeypatch.setattr(hash_run, "KEYS_PER_STEP", step)
    parts = [as_seen(events) for events in event_lists]
    checksum = merge_runs([HashRun.from_events(part) for part in parts], tmp_path / "merged")
    merged, expected = HashRun.open(tmp_path / "merged", checksum), HashRun.from_events(EventsSeen.concat(parts))
    assert columns(merged) == columns(expected)
    assert merged.filter.tobytes() == expected.filter.tobytes()
    assert (merged.high[:-1] <= merged.high[1:]).all()


def test_merged_run_of_many_keys_is_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_run, "KEYS_PER_STEP", 1000)
    events = random_events(20_000)
    runs = [HashRun.from_events(as_seen(events[begin::3])) for begin in range(3)]
    merged = HashRun.open(tmp_path / "merged", merge_runs(runs, tmp_path / "merged"))
    rows, micros = merged.find_keys(as_seen(events).high, as_seen(events).low)
    assert dict(zip(rows.tolist(), micros.tolist(), strict=True)) == {n: event.micros for n, event in enumerate(events)}
    assert (merged.high[:-1] <= merged.high[1:]).all()
