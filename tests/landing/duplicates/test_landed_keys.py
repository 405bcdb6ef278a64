"""All keys that landed within the window, as they are kept."""

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
from penstock.landing.duplicates.landed_keys import MANIFEST, MERGED_AT, LandedKeys, mapped_runs, within_window
from tests.landing.duplicates.events import WINDOW, One, seen

ANY_PATH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)


def batch(number: int, keys: int = 5, topic: str = "t", step: int = 10) -> list[One]:
    """Events with keys of their own, stored when their number says."""
    return [One((number, key), number * step, offset=number * keys + key, topic=topic) for key in range(keys)]


def known(keys: LandedKeys, events: list[One]) -> list[bool]:
    found: list[bool] = landed_before(seen(events), keys.runs, WINDOW).tolist()
    return found


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def listed(folder: Path) -> set[str]:
    text = (folder / MANIFEST).read_text()
    return {run["file"] for run in json.loads(text[text.index("{") :])["runs"]} | {MANIFEST}


@st.composite
def batches_of(draw: st.DrawFn) -> list[list[One]]:
    """Batches of a few topics and partitions, whose time goes on, each in its own way."""
    clock = {("a", -1): 0, ("b", 0): 0, ("b", 1): 5 * WINDOW}
    found = []
    for _ in range(draw(st.integers(1, 25))):
        events = []
        for _ in range(draw(st.integers(0, 4))):
            place = topic, partition = draw(st.sampled_from([*clock]))
            clock[place] += draw(st.integers(0, WINDOW // 2))
            key = draw(st.integers(0, 9)), 10 * ord(topic) + partition
            events.append(One(key, clock[place], partition, topic=topic))
        found.append(events)
    return found


@ANY_PATH
@given(batches_of(), st.randoms())
def test_what_comes_next_is_judged_as_if_everything_were_remembered(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[One]], chance: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    keys, landed = LandedKeys(folder, WINDOW), list[One]()
    for number, events in enumerate(batches):
        near = [any(a.key == b.key and abs(a.micros - b.micros) <= WINDOW for b in landed) for a in events]
        assert known(keys, events) == near
        keys.add(number, seen(events))
        landed += events
        assert files(folder) == listed(folder), "nothing is left behind"
        if chance.random() < 0.2:
            loaded = LandedKeys.load(folder, WINDOW)
            assert loaded is not None
            assert loaded.batch == number
            keys = loaded


def test_many_batches_are_kept_in_few_files(tmp_path: Path) -> None:
    keys = LandedKeys(tmp_path, WINDOW)
    for number in range(200):
        keys.add(number, seen(batch(number)))
        assert len(keys.runs) < 2 * MERGED_AT
    assert sum(map(len, keys.runs)) == 1000
    assert all(known(keys, [one for number in range(200) for one in batch(number)]))
    assert files(tmp_path) == listed(tmp_path)


def test_a_topic_that_goes_on_leaves_its_old_keys_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landed_keys, "SMALLEST", 4)
    keys, most = LandedKeys(tmp_path, WINDOW), 0
    for number in range(300):
        keys.add(number, seen(batch(number)))
        most = max(most, sum(map(len, keys.runs)))
    assert most < 5 * (WINDOW // 10) * MERGED_AT, "a few windows at most"
    assert all(known(keys, batch(299) + batch(290)))


def test_keys_stay_when_a_wrong_clock_stamped_rows_with_a_time_to_come(tmp_path: Path) -> None:
    now = 0
    keys = LandedKeys(tmp_path, WINDOW, lambda: now)
    year = 1000 * WINDOW
    for number in range(5 * MERGED_AT):
        now = 10 * number
        ahead = year if 5 <= number < 25 else 0
        keys.add(number, seen([One((number, 0), now + ahead, offset=number)]))
        in_window = range(max(0, number - WINDOW // 10), number + 1)
        assert all(known(keys, [One((n, 0), 10 * n) for n in in_window if not 5 <= n < 25]))
    now = 3 * WINDOW + 10 * number
    keys.add(number + 1, seen([One((number + 1, 0), now)]))
    assert sum(map(len, keys.runs)) == 20 + 1, "those of the right clock have gone, those with a time to come stay"


def test_keys_are_read_from_a_table_with_times_to_come() -> None:
    rows = [seen([One((1, 0), 5)]), seen([One((2, 0), 1000 * WINDOW)])]
    assert sum(map(len, within_window(rows, WINDOW, latest_time=10))) == 2
    assert sum(map(len, within_window([rows[1], rows[0]], WINDOW, latest_time=10))) == 2


def test_many_keys_of_times_far_apart_stay_in_files_of_their_own_so_that_the_first_go_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landed_keys, "SMALLEST", 4)
    monkeypatch.setattr(landed_keys, "LARGE", 60)
    keys, most, files_at_once = LandedKeys(tmp_path, WINDOW), 0, 0
    for number in range(300):
        keys.add(number, seen(batch(number, step=1)))
        most = max(most, sum(map(len, keys.runs)))
        files_at_once = max(files_at_once, len(keys.runs))
    assert most < 1.2 * 5 * WINDOW, "hardly more than the keys of one window"
    assert files_at_once < 3 * MERGED_AT


def test_a_topic_that_rests_keeps_its_last_keys_however_long(tmp_path: Path) -> None:
    keys = LandedKeys(tmp_path, WINDOW)
    keys.add(0, seen(batch(0, topic="rests")))
    for number in range(1, 300):
        keys.add(number, seen(batch(number)))
    assert all(known(keys, batch(0, topic="rests")))


def test_a_batch_without_events_is_known_too(tmp_path: Path) -> None:
    keys = LandedKeys(tmp_path, WINDOW)
    keys.add(4, seen([]))
    loaded = LandedKeys.load(tmp_path, WINDOW)
    assert loaded is not None
    assert (loaded.batch, loaded.runs) == (4, [])
    assert mapped_runs(tmp_path, WINDOW) == (4, [])


def test_where_there_are_none_or_for_another_window_they_have_to_be_made(tmp_path: Path) -> None:
    assert LandedKeys.load(tmp_path / "none", WINDOW) is None
    LandedKeys(tmp_path, WINDOW).add(0, seen(batch(0)))
    assert LandedKeys.load(tmp_path, WINDOW + 1) is None
    assert LandedKeys.load(tmp_path, WINDOW) is not None


def test_no_damage_is_overlooked_or_raises_anything(tmp_path: Path) -> None:
    keys = LandedKeys(tmp_path, WINDOW)
    for number in range(10):
        keys.add(number, seen(batch(number)))
    chance, whole = random.Random(15), {path: path.read_bytes() for path in sorted(tmp_path.iterdir())}
    assert len(whole) > 2
    for _ in range(120):
        path = chance.choice(list(whole))
        if chance.random() < 0.2:
            path.unlink()
        elif chance.random() < 0.3:
            path.write_bytes(whole[path][: chance.randrange(len(whole[path]))])
        else:
            data = bytearray(whole[path])
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            path.write_bytes(data)
        assert LandedKeys.load(tmp_path, WINDOW) is None, path
        path.write_bytes(whole[path])
    assert LandedKeys.load(tmp_path, WINDOW) is not None


def test_keys_that_are_made_again_after_damage_do_not_mix_with_what_lies_there(tmp_path: Path) -> None:
    keys = LandedKeys(tmp_path, WINDOW)
    keys.add(0, seen(batch(0)))
    assert mapped_runs(tmp_path, WINDOW)[0] == 0
    again = LandedKeys(tmp_path, WINDOW)
    again.add(3, seen(batch(3)))
    through, runs = mapped_runs(tmp_path, WINDOW)
    assert through == 3
    assert landed_before(seen(batch(0) + batch(3)), runs, WINDOW).tolist() == [False] * 5 + [True] * 5


def test_tasks_know_the_keys_through_the_batch_that_they_say(tmp_path: Path) -> None:
    assert mapped_runs(tmp_path / "none", WINDOW) == (-1, [])
    keys = LandedKeys(tmp_path, WINDOW)
    for number in range(30):
        keys.add(number, seen(batch(number)))
        through, runs = mapped_runs(tmp_path, WINDOW)
        assert through == number
        assert landed_before(seen(batch(number) + batch(number + 1)), runs, WINDOW).tolist() == [True] * 5 + [False] * 5
    (tmp_path / MANIFEST).write_bytes(b"torn")
    assert mapped_runs(tmp_path, WINDOW) == (-1, [])


@given(batches_of(), st.randoms())
def test_of_events_read_in_any_order_those_that_can_still_have_duplicates_are_kept(
    batches: list[list[One]], chance: random.Random
) -> None:
    everything = [one for events in batches for one in events]
    newest: dict[tuple[str, int], int] = {}
    for one in everything:
        newest[one.topic, one.partition] = max(newest.get((one.topic, one.partition), 0), one.micros)
    chance.shuffle(batches)
    kept = EventsSeen.concat(list(within_window(map(seen, batches), WINDOW)))
    (kept,) = within_window([kept], WINDOW)
    floors = {place: micros - WINDOW for place, micros in newest.items()}
    needed = sorted((*one.key, one.micros) for one in everything if one.micros >= floors[one.topic, one.partition])
    assert sorted(zip(kept.high.tolist(), kept.low.tolist(), kept.micros.tolist(), strict=True)) == needed


def test_the_keys_of_the_batches_since_one_are_in_few_runs_of_late_and_else_in_all(tmp_path: Path) -> None:
    keys = LandedKeys(tmp_path, 1000 * WINDOW)
    for number in range(3 * MERGED_AT):
        keys.add(number, seen(batch(number)) if number % 4 else EventsSeen.concat([]))
    last = keys.batch
    assert keys.since(last) == []
    for since, runs in ((last - 1, 1), (last - 2, 2), (last - 3, len(keys.runs))):
        found = keys.since(since)
        assert len(found) == runs
        later = [one for number in range(since + 1, last + 1) if number % 4 for one in batch(number)]
        assert all(landed_before(seen(later), found, WINDOW))
    loaded = LandedKeys.load(tmp_path, 1000 * WINDOW)
    assert loaded is not None
    assert len(loaded.since(last - 1)) == len(loaded.runs) > 1
