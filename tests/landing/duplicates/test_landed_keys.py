"""Tests of the stored keys of all events within the window."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.landing.duplicates import landed_keys
from penstock.landing.duplicates.decision import landed_before
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.landed_keys import MANIFEST, RUNS_PER_MERGE, LandedKeys, mapped_runs, within_window
from tests.landing.duplicates.events import WINDOW, Event, as_seen

ANY_PATH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)


def batch(number: int, keys: int = 5, topic: str = "t", step: int = 10) -> list[Event]:
    """Return events with keys of their own, whose timestamps follow from the batch's number."""
    return [Event((number, key), number * step, offset=number * keys + key, topic=topic) for key in range(keys)]


def landed_mask(keys: LandedKeys, events: list[Event]) -> list[bool]:
    is_landed: list[bool] = landed_before(as_seen(events), keys.runs, WINDOW).tolist()
    return is_landed


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def listed_files(folder: Path) -> set[str]:
    text = (folder / MANIFEST).read_text()
    return {run["file"] for run in json.loads(text[text.index("{") :])["runs"]} | {MANIFEST}


@st.composite
def draw_batches(draw: st.DrawFn) -> list[list[Event]]:
    """Generate batches of a few streams, each with a clock of its own that never goes back."""
    clock = {("a", -1): 0, ("b", 0): 0, ("b", 1): 5 * WINDOW}
    batches = []
    for _ in range(draw(st.integers(1, 25))):
        events = []
        for _ in range(draw(st.integers(0, 4))):
            stream = topic, partition = draw(st.sampled_from([*clock]))
            clock[stream] += draw(st.integers(0, WINDOW // 2))
            key = draw(st.integers(0, 9)), 10 * ord(topic) + partition
            events.append(Event(key, clock[stream], partition, topic=topic))
        batches.append(events)
    return batches


@ANY_PATH
@given(draw_batches(), st.randoms())
def test_keys_answer_as_if_all_events_were_remembered(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Event]], chance: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    keys, landed = LandedKeys(folder, WINDOW), list[Event]()
    for number, events in enumerate(batches):
        expected = [any(a.key == b.key and abs(a.micros - b.micros) <= WINDOW for b in landed) for a in events]
        assert landed_mask(keys, events) == expected
        keys.add(number, as_seen(events))
        landed += events
        assert files_in(folder) == listed_files(folder), "nothing is left behind"
        if chance.random() < 0.2:
            loaded = LandedKeys.load(folder, WINDOW)
            assert loaded is not None
            assert loaded.batch == number
            keys = loaded


def test_many_batches_are_stored_in_few_files_in(tmp_path: Path) -> None:
    keys = LandedKeys(tmp_path, WINDOW)
    for number in range(200):
        keys.add(number, as_seen(batch(number)))
        assert len(keys.runs) < 2 * RUNS_PER_MERGE
    assert sum(map(len, keys.runs)) == 1000
    assert all(landed_mask(keys, [event for number in range(200) for event in batch(number)]))
    assert files_in(tmp_path) == listed_files(tmp_path)


def test_keys_older_than_window_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landed_keys, "SMALLEST_TIER_KEYS", 4)
    keys, max_keys = LandedKeys(tmp_path, WINDOW), 0
    for number in range(300):
        keys.add(number, as_seen(batch(number)))
        max_keys = max(max_keys, sum(map(len, keys.runs)))
    assert max_keys < 5 * (WINDOW // 10) * RUNS_PER_MERGE, "a few windows at most"
    assert all(landed_mask(keys, batch(299) + batch(290)))


def test_future_timestamps_expire_no_keys(tmp_path: Path) -> None:
    now = 0
    keys = LandedKeys(tmp_path, WINDOW, lambda: now)
    year = 1000 * WINDOW
    for number in range(5 * RUNS_PER_MERGE):
        now = 10 * number
        clock_error = year if 5 <= number < 25 else 0
        keys.add(number, as_seen([Event((number, 0), now + clock_error, offset=number)]))
        in_window = range(max(0, number - WINDOW // 10), number + 1)
        assert all(landed_mask(keys, [Event((n, 0), 10 * n) for n in in_window if not 5 <= n < 25]))
    now = 3 * WINDOW + 10 * number
    keys.add(number + 1, as_seen([Event((number + 1, 0), now)]))
    assert sum(map(len, keys.runs)) == 20 + 1, "those of the right clock have gone, those with a time to come stay"


def test_within_window_ignores_future_timestamps() -> None:
    rows = [as_seen([Event((1, 0), 5)]), as_seen([Event((2, 0), 1000 * WINDOW)])]
    assert sum(map(len, within_window(rows, WINDOW, latest_time=10))) == 2
    assert sum(map(len, within_window([rows[1], rows[0]], WINDOW, latest_time=10))) == 2


def test_large_runs_far_apart_are_not_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landed_keys, "SMALLEST_TIER_KEYS", 4)
    monkeypatch.setattr(landed_keys, "LARGE_MERGE_KEYS", 60)
    keys, max_keys, max_files = LandedKeys(tmp_path, WINDOW), 0, 0
    for number in range(300):
        keys.add(number, as_seen(batch(number, step=1)))
        max_keys = max(max_keys, sum(map(len, keys.runs)))
        max_files = max(max_files, len(keys.runs))
    assert max_keys < 1.2 * 5 * WINDOW, "hardly more than the keys of one window"
    assert max_files < 3 * RUNS_PER_MERGE


def test_paused_topic_keeps_its_last_keys(tmp_path: Path) -> None:
    keys = LandedKeys(tmp_path, WINDOW)
    keys.add(0, as_seen(batch(0, topic="rests")))
    for number in range(1, 300):
        keys.add(number, as_seen(batch(number)))
    assert all(landed_mask(keys, batch(0, topic="rests")))


def test_batch_without_events_is_recorded(tmp_path: Path) -> None:
    keys = LandedKeys(tmp_path, WINDOW)
    keys.add(4, as_seen([]))
    loaded = LandedKeys.load(tmp_path, WINDOW)
    assert loaded is not None
    assert (loaded.batch, loaded.runs) == (4, [])
    assert mapped_runs(tmp_path, WINDOW) == (4, [])


def test_load_returns_none_without_files_or_for_another_window(tmp_path: Path) -> None:
    assert LandedKeys.load(tmp_path / "none", WINDOW) is None
    LandedKeys(tmp_path, WINDOW).add(0, as_seen(batch(0)))
    assert LandedKeys.load(tmp_path, WINDOW + 1) is None
    assert LandedKeys.load(tmp_path, WINDOW) is not None


def test_any_damage_makes_load_return_none(tmp_path: Path) -> None:
    keys = LandedKeys(tmp_path, WINDOW)
    for number in range(10):
        keys.add(number, as_seen(batch(number)))
    chance, intact = random.Random(15), {path: path.read_bytes() for path in sorted(tmp_path.iterdir())}
    assert len(intact) > 2
    for _ in range(120):
        path = chance.choice(list(intact))
        if chance.random() < 0.2:
            path.unlink()
        elif chance.random() < 0.3:
            path.write_bytes(intact[path][: chance.randrange(len(intact[path]))])
        else:
            damaged = bytearray(intact[path])
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
            path.write_bytes(damaged)
        assert LandedKeys.load(tmp_path, WINDOW) is None, path
        path.write_bytes(intact[path])
    assert LandedKeys.load(tmp_path, WINDOW) is not None


def test_rebuilt_keys_do_not_mix_with_old_files(tmp_path: Path) -> None:
    keys = LandedKeys(tmp_path, WINDOW)
    keys.add(0, as_seen(batch(0)))
    assert mapped_runs(tmp_path, WINDOW)[0] == 0
    rebuilt = LandedKeys(tmp_path, WINDOW)
    rebuilt.add(3, as_seen(batch(3)))
    through, runs = mapped_runs(tmp_path, WINDOW)
    assert through == 3
    assert landed_before(as_seen(batch(0) + batch(3)), runs, WINDOW).tolist() == [False] * 5 + [True] * 5


def test_mapped_runs_have_keys_through_reported_batch(tmp_path: Path) -> None:
    assert mapped_runs(tmp_path / "none", WINDOW) == (-1, [])
    keys = LandedKeys(tmp_path, WINDOW)
    for number in range(30):
        keys.add(number, as_seen(batch(number)))
        through, runs = mapped_runs(tmp_path, WINDOW)
        assert through == number
        assert (
            landed_before(as_seen(batch(number) + batch(number + 1)), runs, WINDOW).tolist() == [True] * 5 + [False] * 5
        )
    (tmp_path / MANIFEST).write_bytes(b"torn")
    assert mapped_runs(tmp_path, WINDOW) == (-1, [])


@given(draw_batches(), st.randoms())
def test_within_window_keeps_events_that_can_have_duplicates(batches: list[list[Event]], chance: random.Random) -> None:
    all_events = [event for events in batches for event in events]
    newest: dict[tuple[str, int], int] = {}
    for event in all_events:
        newest[event.topic, event.partition] = max(newest.get((event.topic, event.partition), 0), event.micros)
    chance.shuffle(batches)
    recent = EventsSeen.concat(list(within_window(map(as_seen, batches), WINDOW)))
    (recent,) = within_window([recent], WINDOW)
    floors = {stream: micros - WINDOW for stream, micros in newest.items()}
    expected = sorted(
        (*event.key, event.micros) for event in all_events if event.micros >= floors[event.topic, event.partition]
    )
    assert sorted(zip(recent.high.tolist(), recent.low.tolist(), recent.micros.tolist(), strict=True)) == expected


def test_runs_since_recent_batch_are_few_and_else_all(tmp_path: Path) -> None:
    keys = LandedKeys(tmp_path, 1000 * WINDOW)
    for number in range(3 * RUNS_PER_MERGE):
        keys.add(number, as_seen(batch(number)) if number % 4 else EventsSeen.concat([]))
    last = keys.batch
    assert keys.runs_since(last) == []
    for since, runs in ((last - 1, 1), (last - 2, 2), (last - 3, len(keys.runs))):
        recent_runs = keys.runs_since(since)
        assert len(recent_runs) == runs
        later_events = [one for number in range(since + 1, last + 1) if number % 4 for one in batch(number)]
        assert all(landed_before(as_seen(later_events), recent_runs, WINDOW))
    loaded = LandedKeys.load(tmp_path, 1000 * WINDOW)
    assert loaded is not None
    assert len(loaded.runs_since(last - 1)) == len(loaded.runs) > 1


def test_worker_keeps_no_deleted_file_mapped(tmp_path: Path) -> None:
    keys = LandedKeys(tmp_path, WINDOW)
    reused = []
    for number in range(3 * RUNS_PER_MERGE):
        keys.add(number, as_seen(batch(number, step=1)))
        _, runs = mapped_runs(tmp_path, WINDOW)
        reused.append(mapped_runs(tmp_path, WINDOW)[1][0] is runs[0])
    del runs
    mapped = {line.partition(str(tmp_path))[2] for line in Path("/proc/self/maps").read_text().splitlines()}
    assert {name.lstrip("/") for name in mapped if name} == listed_files(tmp_path) - {MANIFEST}
    assert all(reused)
