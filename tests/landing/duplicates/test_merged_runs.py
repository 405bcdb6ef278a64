"""Runs of keys made one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.landing.duplicates import merged_runs
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.hash_run import HashRun
from penstock.landing.duplicates.merged_runs import merge_runs
from tests.landing.duplicates.events import One, events_of, seen
from tests.landing.duplicates.test_hash_run import random_events


def columns(run: HashRun) -> list[tuple[int, int, int, str]]:
    """In one order: of several keys with one upper half any may come first."""
    topics = [run.topics[topic] for topic in run.topic.tolist()]
    return sorted(zip(run.high.tolist(), run.low.tolist(), run.micros.tolist(), topics, strict=True))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(events_of(), min_size=1, max_size=4), st.integers(1, 9))
def test_a_merged_run_is_the_run_of_all_its_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, several: list[list[One]], step: int
) -> None:
    monkeypatch.setattr(merged_runs, "STEP", step)
    parts = [seen(events) for events in several]
    checksum = merge_runs([HashRun.of(part) for part in parts], tmp_path / "merged")
    merged, whole = HashRun.open(tmp_path / "merged", checksum), HashRun.of(EventsSeen.concat(parts))
    assert columns(merged) == columns(whole)
    assert merged.filter.tobytes() == whole.filter.tobytes()
    assert (merged.high[:-1] <= merged.high[1:]).all()


def test_a_merged_run_of_many_keys_is_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_runs, "STEP", 1000)
    events = random_events(20_000)
    runs = [HashRun.of(seen(events[begin::3])) for begin in range(3)]
    found = HashRun.open(tmp_path / "merged", merge_runs(runs, tmp_path / "merged"))
    rows, micros = found.find(seen(events).high, seen(events).low)
    assert dict(zip(rows.tolist(), micros.tolist(), strict=True)) == {n: one.micros for n, one in enumerate(events)}
    assert (found.high[:-1] <= found.high[1:]).all()
