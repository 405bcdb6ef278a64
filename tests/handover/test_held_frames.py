"""A log daemon that stands still with frames in its hands: the writer goes on over them, its successor stores them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import ListenerConfig
from penstock.counts import Counts, by_bucket
from penstock.handover import writer
from penstock.handover.drain import Drain
from penstock.handover.held_frames import kept_frames
from penstock.handover.paths import held_file
from penstock.handover.position import UNKNOWN
from penstock.log import Log
from tests.fuzzed import RAW
from tests.handover.test_drain import payloads
from tests.handover.test_writer import publish
from tests.ingest.ingest_life import Life, live

LISTENER = ListenerConfig.model_validate(
    {"name": "events", "protocol": "udp", "handlers": [{"type": "log", "topic": "in"}]}
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as standing still a little sooner."""
    monkeypatch.setattr(writer, "PATIENCE", 0.05)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    opened = Log(tmp_path / "topics")
    yield opened
    opened.close()


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """Of which the daemon has three messages in its hands when it stops."""
    life = live(tmp_path, LISTENER)
    publish(life, b"first", b"second")
    publish(life, b"third")
    life.position.claim = life.publication.position
    return life


@pytest.fixture
def held(tmp_path: Path) -> Path:
    return held_file(tmp_path, "events")


def overflow(life: Life) -> None:
    for _ in range(150):
        publish(life, b"x" * 1000)
    while life.publisher.owes:
        publish(life)


def drain(folder: Path, log: Log) -> None:
    thread = Drain(LISTENER.name, folder, log, None)
    thread.stop()
    thread.run()


def counts(log: Log) -> Counts:
    """Of all minutes and topics."""
    total = Counts()
    for topic in log.names(internal=True):
        for stored in log.topic(topic, internal=True).reader().whole_batches():
            for found in by_bucket(stored.origin.bucket, stored.origin.counts).values():
                total.absorb(found)
    return total


def test_it_is_kept_aside_and_the_writer_goes_on(life: Life, held: Path) -> None:
    claim = life.position.claim
    overflow(life)
    frames, total = kept_frames(held)
    assert (len(frames), frames[0].begin, frames[-1].end, total) == (2, 0, claim, 3)
    assert life.position.floor > claim


def test_its_successor_stores_it_and_the_rest_was_dropped_by_policy(tmp_path: Path, life: Life, log: Log) -> None:
    overflow(life)
    drain(tmp_path, log)
    found, total = payloads(log), counts(log)
    assert found[:3] == [b"first", b"second", b"third"]
    assert (total["accepted"], total["policy_drop.log"], total["corrupt"]) == (153, 153 - len(found), 0)
    assert total["policy_drop.log"] > 50
    assert not held_file(tmp_path, "events").exists()


def test_what_it_had_stored_already_is_not_stored_again(tmp_path: Path, log: Log) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first", b"second")
    drain(tmp_path, log)
    life.position.position, life.position.mark = 0, 0  # it was killed before it could say so
    publish(life, b"third")
    life.position.claim = life.publication.position
    overflow(life)
    drain(tmp_path, log)
    found, total = payloads(log), counts(log)
    assert found[:3] == [b"first", b"second", b"third"]
    assert found.count(b"first") == 1
    assert (total["accepted"], total["policy_drop.log"]) == (153, 153 - len(found))


def test_one_that_goes_on_by_itself_stores_it_once(tmp_path: Path, life: Life, log: Log, held: Path) -> None:
    overflow(life)
    kept = held.read_bytes()
    drain(tmp_path, log)
    stored = payloads(log)
    held.write_bytes(kept)  # it was about to be removed
    drain(tmp_path, log)
    assert payloads(log) == stored


def test_what_is_damaged_there_is_counted(tmp_path: Path, life: Life, log: Log, held: Path) -> None:
    overflow(life)
    damaged = bytearray(held.read_bytes())
    damaged[-1] ^= 1
    held.write_bytes(damaged)
    drain(tmp_path, log)
    found, total = payloads(log), counts(log)
    assert found[:2] == [b"first", b"second"]
    assert (total["accepted"], total["corrupt"]) == (153, 1)
    assert total["policy_drop.log"] == 153 - 1 - len(found)


@pytest.mark.parametrize("left", [0, 5, 12, 20])
def test_of_a_file_cut_short_nothing_is_invented(left: int, life: Life, held: Path) -> None:
    overflow(life)
    held.write_bytes(held.read_bytes()[:left])
    assert kept_frames(held) == ([], UNKNOWN if left < 12 else 3)


def test_where_it_cannot_be_kept_aside_it_is_waited_for(life: Life, held: Path) -> None:
    held.with_name("events.held.tmp").mkdir()  # as on a full disk
    writing = threading.Thread(target=overflow, args=[life])
    writing.start()
    time.sleep(0.3)
    assert writing.is_alive()
    assert life.position.floor == 0
    life.position.position = life.position.claim
    writing.join(10)
    assert not writing.is_alive()


def test_a_daemon_that_is_only_slow_is_waited_for(life: Life, held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PATIENCE", 30.0)
    writing = threading.Thread(target=overflow, args=[life])
    writing.start()
    while writing.is_alive():
        life.position.position = life.position.claim
        time.sleep(0.01)
        life.position.claim = max(life.publication.position, life.position.position)
    assert not held.exists()


@given(st.lists(RAW | st.binary(min_size=24, max_size=24), max_size=4).map(b"".join))
def test_of_a_file_of_any_bytes_nothing_is_invented(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("buffers") / "held"
    path.write_bytes(data)
    frames, _ = kept_frames(path)
    assert all(not len(frame.data) for frame in frames), "no bytes at all have a checksum of 0"
