"""Counts of dropped messages whose frame is damaged, dropped or taken by a power failure are entered once."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.handover import buffer, writer
from penstock.handover.held_frames import PassedFrames, read_held_frames
from penstock.handover.paths import buffer_file, held_file, state_file
from penstock.handover.positions.position import ReaderPosition
from penstock.ledger.in_buffer import BufferedCounts
from penstock.log import Log
from tests.handover.drain.test_drain import payloads
from tests.handover.test_held_frames import LISTENER, counts, drain, overflow, owe, saved_frames
from tests.handover.test_writer import publish
from tests.ingest.ingest_life import Life, live

OWED = 10
"""The messages of the counts that ``owe`` adds."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time after which a daemon counts as stopped."""
    monkeypatch.setattr(writer, "PATIENCE_S", 0.05)


@pytest.fixture
def life(tmp_path: Path, log: Log) -> Life:
    """The log has stored a frame with one message, and the next frame must carry counts of dropped messages."""
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    drain(tmp_path, log)
    owe(life)
    return life


def damage(life: Life, begin: int) -> None:
    """Flip a bit in the frame at ``begin``."""
    content = bytearray(life.publication.path.read_bytes())
    content[begin + 100] ^= 1
    with life.publication.path.open("r+b") as file:  # the same file: it is mapped
        file.write(content)


def check(log: Log, life: Life, corrupt: int = 0, owed: int = OWED) -> None:
    """Check that each message, and each of the dropped ones that were owed, has one fate."""
    total = counts(log)
    assert (total["accepted"], total["corrupt"]) == (life.publisher.total + owed, corrupt)
    assert total["policy_drop.log"] == total["accepted"] - corrupt - len(payloads(log))


@pytest.mark.parametrize("is_read_before", [False, True])
@pytest.mark.parametrize("messages", [(), (b"second",)])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_counts_that_a_frame_carries_are_entered_once_if_it_is_damaged_or_not(
    tmp_path: Path, life: Life, log: Log, is_damaged: bool, messages: tuple[bytes, ...], is_read_before: bool
) -> None:
    begin = life.publication.position
    publish(life, *messages)
    if is_damaged:
        damage(life, begin)
    if is_read_before:
        drain(tmp_path, log)
    publish(life, b"third")
    publish(life, b"fourth")
    drain(tmp_path, log)
    check(log, life, corrupt=len(messages) if is_damaged else 0)


@pytest.mark.parametrize("is_read_before", [False, True])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_counts_are_entered_once_if_the_frame_that_repeats_them_is_dropped(
    tmp_path: Path, life: Life, log: Log, is_damaged: bool, is_read_before: bool
) -> None:
    begin = life.publication.position
    publish(life, b"second")
    if is_damaged:
        damage(life, begin)
    if is_read_before:
        drain(tmp_path, log)
    overflow(life)
    drain(tmp_path, log)
    assert life.position.floor > begin
    check(log, life, corrupt=int(is_damaged))


def test_counts_are_not_entered_again_if_the_topic_of_their_frame_is_deleted(
    tmp_path: Path, life: Life, log: Log
) -> None:
    publish(life, b"second")
    drain(tmp_path, log)
    log.delete("in")
    publish(life, b"third")
    drain(tmp_path, log)
    assert counts(log) == {"seen": 1, "accepted": 1}, "the gap has the counts of the others"


@pytest.mark.parametrize("ends_term", [False, True])
def test_skip_that_would_end_between_both_frames_takes_both(
    tmp_path: Path, life: Life, log: Log, monkeypatch: pytest.MonkeyPatch, ends_term: bool
) -> None:
    if ends_term:
        publish(life)
        term_length = life.publication.parameters.term_length
        while (room := -life.publication.position % term_length) > 6000:
            publish(life, b"x" * 1000)
            drain(tmp_path, log)
        owe(life)
        publish(life, b"x" * (room - 2000))
        assert -life.publication.position % term_length < 1000, "the next frame begins in the next term"
    else:
        publish(life, b"second")
    publish(life, b"x" * 1000)
    end = life.publication.position
    monkeypatch.setattr(writer, "MAX_SKIP_BYTES", 1)
    while not life.position.floor:
        publish(life, b"x" * 1000)
    assert life.position.floor >= end
    drain(tmp_path, log)
    check(log, life, owed=OWED * (1 + ends_term))


@pytest.mark.survives("log buffer", "power cut")
@pytest.mark.parametrize("messages", [(), (b"second",)])
def test_counts_are_not_entered_again_if_a_power_failure_damages_their_stored_frame(
    tmp_path: Path, life: Life, log: Log, monkeypatch: pytest.MonkeyPatch, messages: tuple[bytes, ...]
) -> None:
    on_disk, begin = life.position.path.read_bytes(), life.publication.position
    publish(life, *messages)
    drain(tmp_path, log)
    publish(life, b"third")
    life.end()
    damage(life, begin)
    life.position.path.write_bytes(on_disk)
    monkeypatch.setattr(buffer, "boot_id", lambda: "next")
    life = live(tmp_path, LISTENER)
    publish(life, b"fourth")
    drain(tmp_path, log)
    check(log, life)


def test_waiting_frames_have_the_counts_once(tmp_path: Path, life: Life, log: Log) -> None:
    publish(life, b"second")
    publish(life, b"third")
    for stored_position in (None, log.buffer_position):
        waiting = BufferedCounts(tmp_path).counts([LISTENER.name], stored_position)
        assert sum(entry["accepted"] for entry in waiting.values()) == 2 + OWED


@pytest.mark.survives("log buffer", "power cut")
def test_floor_that_only_a_saved_frame_names_is_restored(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    while life.publication.position < 3 << 15:
        publish(life, b"x" * 1000)
        if life.publication.position < 1 << 16:
            paths = (buffer_file(tmp_path, "events"), life.position.path, state_file(tmp_path, "events"))
            on_disk = {path: path.read_bytes() for path in paths}
    floor = life.position.floor
    publish(life, b"last before the kill")
    life.position.claim = life.publication.position
    life.position.position, life.position.mark = floor, life.position.floor_mark
    overflow(life)
    assert any(b"last before the kill" in bytes(frame.data) for frame in saved_frames(held_file(tmp_path, "events")))
    life.end()
    for path, content in on_disk.items():
        path.write_bytes(content)
    monkeypatch.setattr(buffer, "boot_id", lambda: "next")
    life = live(tmp_path, LISTENER)
    assert life.position.floor >= floor > 0
    drain(tmp_path, log)
    assert b"last before the kill" in payloads(log)
    assert b"first" not in payloads(log), "it is counted as dropped"


class Killed(BaseException):
    """The daemon was killed."""


@pytest.mark.survives("log buffer", "SIGKILL")
def test_damage_among_saved_frames_is_counted_once_if_the_daemon_dies_between_mark_and_position(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    begin = life.publication.position
    publish(life, b"second", b"third")
    damage(life, begin)
    life.position.claim = life.publication.position
    overflow(life)
    life.position.claim = life.publication.position
    overflow(life)
    entries = list(read_held_frames(held_file(tmp_path, "events"))[0])
    passed = [entry for entry in entries if isinstance(entry, PassedFrames)][-1]
    stored = ReaderPosition.position

    def store(position: ReaderPosition, value: int) -> None:
        if value == passed.begin:
            raise Killed
        stored.__set__(position, value)

    with monkeypatch.context() as killed:
        killed.setattr(ReaderPosition, "position", property(stored.__get__, store))
        with pytest.raises(Killed):
            drain(tmp_path, log)
    drain(tmp_path, log)
    total = counts(log)
    assert (total["accepted"], total["corrupt"]) == (life.publisher.total, 2)
    assert total["policy_drop.log"] == total["accepted"] - 2 - len(payloads(log))
