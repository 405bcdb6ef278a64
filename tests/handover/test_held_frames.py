"""A stopped log daemon with claimed frames: the writer continues, and the successor stores the frames."""

from __future__ import annotations

import contextlib
import errno
import functools
import shutil
import threading
import time
import tracemalloc
from collections.abc import Iterable
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import ListenerConfig
from penstock.counts import BucketClock, Counts, Name, bucket_of, by_bucket
from penstock.handover import buffer, held_frames, reader, writer
from penstock.handover.buffer import HandlerPosition
from penstock.handover.drain import drain as drain_module
from penstock.handover.drain.drain import RECEIPTS, Drain
from penstock.handover.dropped_frames import Carrier, DroppedFrameCounts, LostCounts, Move
from penstock.handover.frames.frame import intact_metadata
from penstock.handover.held_frames import HEAD, TOTAL, TOTALS, PassedFrames, read_held_frames, write_held_frames
from penstock.handover.paths import buffer_file, held_file, state_file
from penstock.handover.positions import lost_position
from penstock.handover.positions.position import UNKNOWN, ReaderPosition
from penstock.handover.reader import FrameGroup
from penstock.handover.state_page import EPOCH, SKIPPED, StatePage
from penstock.handover.writer import FrameWriter
from penstock.log import Log, LogFull
from penstock.log.commit.writer import Writer
from penstock.logbuffer import Frame
from penstock.testing.crashes import CrashingFileSystem, FakeClock
from penstock.testing.simulation.machine import VirtualTime
from tests.fuzzed import RAW
from tests.handover.drain.test_drain import payloads, refuse_topic, spoil, tagged
from tests.handover.test_writer import drop_frames, publish
from tests.ingest.ingest_life import Life, live

LISTENER = ListenerConfig.model_validate(
    {"name": "events", "protocol": "udp", "handlers": [{"type": "log", "topic": "in"}]}
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time after which a daemon counts as stopped, and stop the clock of the frames.

    The tests claim a whole buffer, which is a term and no more: a daemon's group ends with a term. A minute that ends
    among the frames would make those with its counts longer, and the claim longer than a term.
    """
    monkeypatch.setattr(writer, "PATIENCE_S", 0.05)
    now = time.time()
    monkeypatch.setattr(BucketClock, "stamp", lambda clock: (bucket_of(now), int(now * 1_000_000)))


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """Publish messages; the daemon has claimed three when it stops."""
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
    """Return the sum over all minutes and topics."""
    total = Counts()
    for topic in log.names(internal=True):
        for stored in log.topic(topic, internal=True).reader().whole_batches():
            for collected in by_bucket(stored.origin.bucket, stored.origin.counts).values():
                total.absorb(collected)
    return total


def saved_frames(path: Path) -> list[Frame]:
    return [entry for entry in read_held_frames(path)[0] if isinstance(entry, Frame)]


def test_claimed_frames_are_saved_and_the_writer_continues(life: Life, held: Path) -> None:
    claim = life.position.claim
    overflow(life)
    frames, number = saved_frames(held), read_held_frames(held)[1]
    assert (len(frames), frames[0].begin, frames[-1].end, number) == (2, 0, claim, 3)
    assert life.position.floor > claim


def test_mark_is_stored_before_the_floor_that_it_belongs_to(
    life: Life, held: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between the two stores: a floor with an older mark would count the saved messages as lost."""
    floor, marks = ReaderPosition.floor, []

    def store(position: ReaderPosition, value: int) -> None:
        marks.append(position.floor_mark)
        floor.__set__(position, value)

    monkeypatch.setattr(ReaderPosition, "floor", property(floor.__get__, store))
    overflow(life)
    assert saved_frames(held)
    assert marks[0] == 3
    assert marks[-1] == life.position.floor_mark


def test_successor_stores_saved_frames_and_the_rest_is_dropped(tmp_path: Path, life: Life, log: Log) -> None:
    overflow(life)
    drain(tmp_path, log)
    collected, total = payloads(log), counts(log)
    assert collected[:3] == [b"first", b"second", b"third"]
    assert (total["accepted"], total["policy_drop.log"], total["corrupt"]) == (153, 153 - len(collected), 0)
    assert total["policy_drop.log"] > 50
    assert not held_file(tmp_path, "events").exists()


def test_removal_of_saved_frames_is_synced_by_the_next_start_if_it_was_killed_before(
    tmp_path: Path, life: Life, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    overflow(life)
    drain(tmp_path, log)
    assert not held_file(tmp_path, "events").exists()
    synced: list[Path] = []
    monkeypatch.setattr(drain_module.OS, "sync_directory", synced.append)
    drain(tmp_path, log)
    assert synced == [tmp_path]


def test_frames_dropped_between_saved_ones_are_not_corrupt_as_well(tmp_path: Path, life: Life, log: Log) -> None:
    overflow(life)
    rounds = Drain(LISTENER.name, tmp_path, log, None).rounds()
    next(rounds)  # it has stored the saved frames, and has not read a group
    rounds.close()
    assert not held_file(tmp_path, "events").exists()
    life.position.claim = life.publication.position
    overflow(life)
    assert held_file(tmp_path, "events").exists()
    drain(tmp_path, log)
    collected, total = payloads(log), counts(log)
    assert (total["accepted"], total["policy_drop.log"], total["corrupt"]) == (303, 303 - len(collected), 0)


@pytest.fixture
def saved_sets(life: Life, held: Path) -> list[Frame | PassedFrames]:
    """Save claimed frames three times, with dropped ones in between, before a drain reads them; return the entries."""
    for _ in range(2):
        overflow(life)
        life.position.claim = life.publication.position
    overflow(life)
    entries = list(read_held_frames(held)[0])
    assert [isinstance(entry, PassedFrames) for entry in entries].count(True) == 3
    return entries


def check_all_sets(log: Log, corrupt: int) -> None:
    """Check that each of the messages that ``saved_sets`` has written is stored, dropped or corrupt."""
    total = counts(log)
    assert (total["accepted"], total["corrupt"]) == (453, corrupt)
    assert total["policy_drop.log"] == 453 - corrupt - len(payloads(log))
    assert len(set(payloads(log)) & {b"first", b"second", b"third"}) == 3 or corrupt


@pytest.mark.usefixtures("saved_sets")
def test_frames_dropped_between_sets_in_one_file_are_not_corrupt_as_well(tmp_path: Path, log: Log) -> None:
    drain(tmp_path, log)
    check_all_sets(log, 0)
    assert not held_file(tmp_path, "events").exists()


class DyingDrain(Drain):
    """Ends as a killed daemon does, after ``dies_after`` groups."""

    dies_after = 0

    @functools.cached_property
    def handled(self) -> list[FrameGroup]:
        return []

    def handle(self, group: FrameGroup, position: ReaderPosition) -> None:
        if len(self.handled) == self.dies_after:
            raise KeyboardInterrupt
        self.handled.append(group)
        super().handle(group, position)


@pytest.mark.parametrize("dies_after", range(1, 6))
@pytest.mark.usefixtures("saved_sets")
def test_sets_in_one_file_are_counted_once_if_the_daemon_dies_between(
    tmp_path: Path, log: Log, dies_after: int
) -> None:
    daemon = DyingDrain(LISTENER.name, tmp_path, log, None)
    daemon.dies_after, daemon._group_bytes = dies_after, 30_000
    daemon.stop()
    with pytest.raises(KeyboardInterrupt):
        daemon.run()
    drain(tmp_path, log)
    check_all_sets(log, 0)


@pytest.mark.parametrize("is_saved_again", [False, True])
@pytest.mark.parametrize("damaged", ["number", 0, 1, "last of set", "passed", "behind passed", "last"])
def test_damage_among_sets_in_one_file_counts_the_messages_that_are_lost_with_it(
    tmp_path: Path,
    life: Life,
    log: Log,
    held: Path,
    saved_sets: list[Frame | PassedFrames],
    damaged: str | int,
    is_saved_again: bool,
) -> None:
    passed = [index for index, entry in enumerate(saved_sets) if isinstance(entry, PassedFrames)][1]
    places = {"last of set": passed - 1, "passed": passed, "behind passed": passed + 1, "last": len(saved_sets) - 1}
    index = damaged if isinstance(damaged, int) else places.get(damaged, -1)
    content = bytearray(held.read_bytes())
    size = sum(len(entry.data) if isinstance(entry, Frame) else TOTALS.size for entry in saved_sets[: index + 1])
    content[12 + 24 * (index + 1) + size - 1] ^= 1
    held.write_bytes(content)
    lost_entries = [] if damaged == "number" else saved_sets[index:]
    lost = sum(accepted(entry) for entry in lost_entries)
    # Counts of dropped frames that a damaged one carries are lost with it, wherever it is.
    messages = 453 - sum(accepted(entry, is_carried=True) for entry in lost_entries)
    if is_saved_again:
        life.position.claim = life.publication.position
        overflow(life)
        messages += 150
    drain(tmp_path, log)
    total = counts(log)
    assert (total["accepted"], total["corrupt"]) == (messages, lost)
    assert total["policy_drop.log"] == messages - lost - len(payloads(log))


def accepted(entry: Frame | PassedFrames, *, is_carried: bool = False) -> int:
    """Return the number of a frame's own messages, or of dropped ones whose counts it carries."""
    metadata = None if isinstance(entry, PassedFrames) else intact_metadata(entry)
    named = metadata.origin.counts if metadata else Counts()
    if is_carried:
        return sum(count for name, count in named.items() if name.endswith(f"@{Name.ACCEPTED}"))
    return named.get(Name.ACCEPTED, 0)


@pytest.mark.survives("log buffer", "power cut")
def test_frames_dropped_before_saved_ones_are_not_corrupt_as_well_if_a_power_failure_takes_the_position(
    tmp_path: Path, log: Log, held: Path
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    drain(tmp_path, log)
    before = life.position.position, life.position.mark
    overflow(life)
    # As after a restart of the machine: see ``FrameWriter``.
    life.position.mark, life.position.position = life.position.reached_mark, life.position.floor
    life.position.claim = life.publication.position
    overflow(life)
    assert saved_frames(held)
    life.position.position, life.position.mark = before
    drain(tmp_path, log)
    total = counts(log)
    assert (total["accepted"], total["corrupt"]) == (301, 0)
    assert total["policy_drop.log"] == 301 - len(payloads(log))


def test_frames_that_are_saved_after_the_successor_has_begun_are_stored(tmp_path: Path, life: Life, log: Log) -> None:
    successor = Drain(LISTENER.name, tmp_path, log, None)
    rounds = successor.rounds()
    next(rounds)  # it has looked for saved frames, and has not read a group
    overflow(life)
    successor.stop()
    for pause in rounds:
        pause()
    collected, total = payloads(log), counts(log)
    assert collected[:3] == [b"first", b"second", b"third"]
    assert (total["accepted"], total["policy_drop.log"], total["corrupt"]) == (153, 153 - len(collected), 0)
    assert not held_file(tmp_path, "events").exists()


@pytest.mark.survives("log buffer", "failing disk")
@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), FileNotFoundError()])
def test_receiver_starts_beside_saved_frames_that_cannot_be_read(
    tmp_path: Path, held: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    held.parent.mkdir(parents=True, exist_ok=True)
    held.write_bytes(b"frames")
    open_path = Path.open

    def fail(path: Path, *mode: str, **options: str) -> object:
        if path == held:
            raise error
        return open_path(path, *mode, **options)

    monkeypatch.setattr(Path, "open", fail)
    assert held_frames.saved_end(held) == (0 if isinstance(error, FileNotFoundError) else held_frames.UNREADABLE)
    publish(live(tmp_path, LISTENER), b"after the start")


def test_messages_dropped_before_saved_frames_are_not_counted_as_corrupt(tmp_path: Path, log: Log) -> None:
    life = live(tmp_path, LISTENER)
    overflow(life)

    class Died(BaseException):
        pass

    class DyingDrain(Drain):
        def handle(self, group: FrameGroup, position: ReaderPosition) -> None:
            raise Died

    with pytest.raises(Died):
        DyingDrain(LISTENER.name, tmp_path, log, None).run()
    overflow(life)
    drain(tmp_path, log)
    total = counts(log)
    assert (total["accepted"], total["corrupt"]) == (300, 0)
    assert total["policy_drop.log"] == 300 - len(payloads(log))


def test_stored_frames_among_the_saved_are_skipped(tmp_path: Path, log: Log) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first", b"second")
    drain(tmp_path, log)
    life.position.position, life.position.mark = 0, 0  # it was killed before it could say so
    publish(life, b"third")
    life.position.claim = life.publication.position
    overflow(life)
    drain(tmp_path, log)
    collected, total = payloads(log), counts(log)
    assert collected[:3] == [b"first", b"second", b"third"]
    assert collected.count(b"first") == 1
    assert (total["accepted"], total["policy_drop.log"]) == (153, 153 - len(collected))


def test_resumed_daemon_stores_its_frames_once(tmp_path: Path, life: Life, log: Log, held: Path) -> None:
    overflow(life)
    remaining = held.read_bytes()
    drain(tmp_path, log)
    stored = payloads(log)
    held.write_bytes(remaining)  # it was about to be removed
    drain(tmp_path, log)
    assert payloads(log) == stored


def test_damaged_saved_frames_are_counted(tmp_path: Path, life: Life, log: Log, held: Path) -> None:
    overflow(life)
    damaged = bytearray(held.read_bytes())
    damaged[-1] ^= 1
    held.write_bytes(damaged)
    drain(tmp_path, log)
    collected, total = payloads(log), counts(log)
    assert collected[:2] == [b"first", b"second"]
    assert (total["accepted"], total["corrupt"]) == (153, 1)
    assert total["policy_drop.log"] == 153 - 1 - len(collected)


def test_damaged_saved_frames_are_counted_once_if_the_daemon_dies_after_their_count(
    tmp_path: Path, life: Life, log: Log, held: Path
) -> None:
    overflow(life)
    damaged = bytearray(held.read_bytes())
    damaged[TOTAL.size + 14] ^= 1  # the end of the first frame
    held.write_bytes(damaged)
    mark = life.position.mark
    drain(tmp_path, log)
    collected = payloads(log)
    held.write_bytes(damaged)
    life.position.position, life.position.mark = 0, mark
    drain(tmp_path, log)
    total = counts(log)
    assert payloads(log) == collected
    assert (total["accepted"], total["corrupt"]) == (153, 3)
    assert total["policy_drop.log"] == 153 - 3 - len(collected)


def test_saved_frames_with_a_damaged_position_are_counted(tmp_path: Path, life: Life, log: Log, held: Path) -> None:
    overflow(life)
    damaged = bytearray(held.read_bytes())
    damaged[TOTAL.size + 14] ^= 1  # the end of the first frame
    held.write_bytes(damaged)
    drain(tmp_path, log)
    collected, total = payloads(log), counts(log)
    assert (total["accepted"], total["corrupt"]) == (153, 3)
    assert total["policy_drop.log"] == 153 - 3 - len(collected)
    assert collected


@given(st.data())
def test_flipped_bit_leaves_the_entries_before_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("buffers") / "held"
    entries = [PassedFrames(64, 2, 5, True), Frame(memoryview(b"one"), 64, 128, 0), PassedFrames(128, 6, 7, False)]
    entries.append(Frame(memoryview(b"two"), 160, 224, 0))
    write_held_frames(path, entries, 9)
    content = bytearray(path.read_bytes())
    flipped = data.draw(st.integers(8 * TOTAL.size, 8 * len(content) - 1))
    content[flipped // 8] ^= 1 << flipped % 8
    path.write_bytes(content)
    assert list(read_held_frames(path)[0]) in [entries[:number] for number in range(len(entries))]


def test_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    total = (9).to_bytes(8, "little")
    head = HEAD.pack(64, 128, 3, crc32c.crc32c(b"one"))
    (tmp_path / "held").write_bytes(total + crc32c.crc32c(total).to_bytes(4, "little") + head + b"one")
    frames, number = read_held_frames(tmp_path / "held")
    assert ([(bytes(frame.data), frame.begin, frame.end) for frame in frames if isinstance(frame, Frame)], number) == (
        [(b"one", 64, 128)],
        9,
    )


@pytest.mark.parametrize("remaining", [0, 5, 12, 20])
def test_truncated_file_yields_only_intact_frames(remaining: int, life: Life, held: Path) -> None:
    overflow(life)
    held.write_bytes(held.read_bytes()[:remaining])
    frames, total = read_held_frames(held)
    assert (list(frames), total) == ([], UNKNOWN if remaining < 12 else 3)


def test_writer_waits_if_frames_cannot_be_saved(life: Life, held: Path) -> None:
    held.with_name("events.held.tmp").mkdir()  # as on a full disk
    writing = threading.Thread(target=overflow, args=[life])
    writing.start()
    time.sleep(0.3)
    assert writing.is_alive()
    assert life.position.floor == 0
    life.position.position = life.position.claim
    writing.join(10)
    assert not writing.is_alive()


def test_frames_that_the_daemon_gives_back_after_they_are_saved_are_not_dropped(
    tmp_path: Path, life: Life, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip = FrameWriter._skip

    def skip_after_return(publisher: FrameWriter, reader: HandlerPosition) -> None:
        reader.position.claim = 0  # its topic has refused them
        skip(publisher, reader)

    monkeypatch.setattr(FrameWriter, "_skip", skip_after_return)
    overflow(life)
    drain(tmp_path, log)
    collected, total = payloads(log), counts(log)
    assert collected[:3] == [b"first", b"second", b"third"]
    assert (total["accepted"], total["policy_drop.log"], total["corrupt"]) == (153, 153 - len(collected), 0)


def test_writer_waits_longer_after_each_failed_save(life: Life, held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held.with_name("events.held.tmp").mkdir()  # as on a full disk
    clock, attempts = FakeClock(), list[float]()

    def write_and_record(path: Path, frames: Iterable[Frame | PassedFrames], number: int) -> None:
        attempts.append(clock.monotonic())
        held_frames.write_held_frames(path, frames, number)

    monkeypatch.setattr(writer, "PATIENCE_S", 1.0)
    monkeypatch.setattr(writer, "time", VirtualTime(clock))
    monkeypatch.setattr(lost_position, "write_held_frames", write_and_record)
    life.publisher.give_up_at = 100.0
    with pytest.raises(writer.GaveUp):
        overflow(life)
    assert [round(after - before) for before, after in pairwise(attempts)] == [2, 4, 8, 16, 30, 30]


@pytest.mark.survives("log buffer", "slow peer")
def test_writer_waits_for_a_slow_daemon(life: Life, held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PATIENCE_S", 30.0)
    writing = threading.Thread(target=overflow, args=[life])
    writing.start()
    while writing.is_alive():
        life.position.position = life.position.claim
        time.sleep(0.01)
        life.position.claim = max(life.publication.position, life.position.position)
    assert not held.exists()


@pytest.mark.survives("log buffer", "power cut")
@pytest.mark.parametrize("is_epoch_lost", [False, True])
@pytest.mark.parametrize("is_storing", [False, True])
def test_frames_stored_before_a_power_failure_are_not_dropped(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, is_storing: bool, is_epoch_lost: bool
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first", b"second")
    drain(tmp_path, log)
    publish(life, b"third")
    life.position.position, life.position.mark, life.position.claim = 0, 0, 0  # the page was not on the disk
    life.end()
    if is_epoch_lost:
        StatePage(state_file(tmp_path, "events")).write(EPOCH, None)
    monkeypatch.setattr(buffer, "boot_id", lambda: "next")
    life = live(tmp_path, LISTENER)

    class BusyDrain(Drain):
        def handle(self, group: FrameGroup, position: ReaderPosition) -> None:
            if group.begin == 0:
                overflow(life)
            super().handle(group, position)

    if not is_storing:
        overflow(life)
    successor = (BusyDrain if is_storing else Drain)(LISTENER.name, tmp_path, log, None)
    successor._group_bytes = 1  # a group is one frame
    successor.stop()
    successor.run()
    collected, total = payloads(log), counts(log)
    assert collected[:3] == [b"first", b"second", b"third"]
    assert collected.count(b"first") == 1
    assert (total["accepted"], total["policy_drop.log"], total["corrupt"]) == (153, 153 - len(collected), 0)
    assert not held_file(tmp_path, "events").exists()


@pytest.mark.survives("log buffer", "power cut")
@pytest.mark.parametrize("seed", range(4))
def test_frames_stored_behind_saved_ones_are_not_dropped_after_a_power_failure(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    folder = tmp_path / "buffers"
    folder.mkdir()
    life = live(folder, LISTENER)
    publish(life, b"first", b"second", b"third")
    life.position.claim = life.publication.position
    overflow(life)
    files = CrashingFileSystem(folder, seed)  # the disk has what the mapped files contain now
    monkeypatch.setattr(held_frames, "OS", files)
    drain(folder, log)
    life.end()
    files.crash()
    monkeypatch.setattr(buffer, "boot_id", lambda: "next")
    life = live(folder, LISTENER)
    overflow(life)
    drain(folder, log)
    collected, total = payloads(log), counts(log)
    assert (total["accepted"], total["corrupt"]) == (303, 0)
    assert total["policy_drop.log"] == 303 - len(collected)


@pytest.mark.survives("log buffer", "power cut")
def test_saved_frames_are_not_dropped_if_a_second_power_failure_takes_the_floor_behind_them(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = live(tmp_path, LISTENER)
    overflow(life)
    life.end()
    monkeypatch.setattr(buffer, "boot_id", lambda: "second")
    life = live(tmp_path, LISTENER)
    on_disk, floor = life.position.path.read_bytes(), life.position.floor
    while life.position.floor == floor:
        publish(life, b"x" * 1000)
    published = life.publisher.total
    life.end()
    life.position.path.write_bytes(on_disk)  # the page with the floor behind the saved frames was not on the disk
    monkeypatch.setattr(buffer, "boot_id", lambda: "third")
    life = live(tmp_path, LISTENER)
    overflow(life)
    drain(tmp_path, log)
    assert len(payloads(log)) + counts(log)["policy_drop.log"] == published + 150


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of buffers alone, whose files a power failure takes back."""
    folder = tmp_path / "buffers"
    folder.mkdir()
    return folder


def lose_newest_frames(folder: Path, log: Log, patch: pytest.MonkeyPatch) -> Life:
    """Store 9 messages and cut the power: the disk has the first one alone, and so the total goes back to 1."""
    life = live(folder, LISTENER)
    publish(life, b"0")
    on_disk = {path: path.read_bytes() for path in folder.iterdir()}
    for number in range(1, 9):
        publish(life, b"%d" % number)
    drain(folder, log)
    life.end()
    for path, content in on_disk.items():
        path.write_bytes(content)
    patch.setattr(buffer, "boot_id", lambda: "next")
    return live(folder, LISTENER)


@pytest.mark.survives("log buffer", "power cut")
def test_unreadable_frame_is_corrupt_although_a_larger_total_was_stored_before_a_power_failure(
    folder: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = lose_newest_frames(folder, log, monkeypatch)
    publish(life, b"spoil me")
    spoil(buffer_file(folder, "events"), b"spoil me", b"Xpoil me")
    publish(life, b"last")
    drain(folder, log)
    total = counts(log)
    assert payloads(log) == [*(b"%d" % number for number in range(9)), b"last"]
    assert (total["accepted"], total["corrupt"]) == (9 + 2, 1)


@pytest.mark.survives("log buffer", "power cut")
@pytest.mark.parametrize("readable", [0, 1])
def test_unreadable_saved_frames_are_corrupt_although_larger_ones_were_before_a_power_failure(
    folder: Path, log: Log, monkeypatch: pytest.MonkeyPatch, readable: int
) -> None:
    life = live(folder, LISTENER)
    publish(life, b"0")
    on_disk = {path: path.read_bytes() for path in folder.iterdir()}
    for is_after_power_failure in (False, True):
        if is_after_power_failure:
            life.end()
            for path, content in on_disk.items():
                path.write_bytes(content)
            monkeypatch.setattr(buffer, "boot_id", lambda: "next")
            life = live(folder, LISTENER)
            drain(folder, log)
        for _ in range(2 if is_after_power_failure else 5):
            publish(life, b"saved")
        life.position.claim = life.publication.position
        before = counts(log)
        published = life.publisher.total - life.position.mark
        overflow(life)
        held = held_file(folder, "events")
        frames, damaged = saved_frames(held), bytearray(held.read_bytes())
        # The end of the frame behind the readable ones.
        damaged[len(damaged) - sum(HEAD.size + len(frame.data) for frame in frames[readable:]) + 14] ^= 1
        held.write_bytes(damaged)
        drain(folder, log)
        total = counts(log)
        corrupt = len(frames) - readable
        assert corrupt > 0
        assert total["corrupt"] - before["corrupt"] == corrupt
        assert total["accepted"] - before["accepted"] == published + 150


@pytest.mark.survives("log buffer", "power cut")
@pytest.mark.parametrize("is_text_lost", [False, True])
@pytest.mark.parametrize("is_carried", [False, True])
def test_dropped_frames_are_not_stored_if_a_power_failure_takes_the_floor(
    tmp_path: Path,
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_carried: bool,
    is_text_lost: bool,
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    on_disk = {path: path.read_bytes() for path in (life.position.path, state_file(tmp_path, "events"))}
    drop_frames(life)
    if is_carried:
        publish(life)
    published = life.publisher.total
    floor = life.position.floor
    life.end()
    for path, content in on_disk.items():
        if path.suffix != ".state" or is_text_lost:
            path.write_bytes(content)
    monkeypatch.setattr(buffer, "boot_id", lambda: "next")
    monkeypatch.setattr(reader, "WAITS_BEFORE_WARNING", 1)
    drain(tmp_path, log)
    assert not log.names(), "the receiver has not yet restored the floor"
    assert "listener 'events': log waits for its receiver" in caplog.text
    life = live(tmp_path, LISTENER)
    # Without the text and without a frame that carries it, nothing is left of the drop.
    assert life.position.floor == (floor if is_carried or not is_text_lost else 0)
    while life.publisher.owes:
        publish(life)
    drain(tmp_path, log)
    total = counts(log)
    assert total["accepted"] == published == len(payloads(log)) + total["policy_drop.log"]
    assert not total["corrupt"]


@pytest.mark.survives("log buffer", "power cut")
def test_frames_dropped_before_saved_ones_are_not_corrupt_as_well_after_a_power_failure(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    on_disk = life.position.path.read_bytes()
    drop_frames(life)
    publish(life)
    life.end()
    life.position.path.write_bytes(on_disk)  # the page with the floor was not on the disk
    monkeypatch.setattr(buffer, "boot_id", lambda: "next")
    life = live(tmp_path, LISTENER)
    overflow(life)
    assert held_file(tmp_path, "events").exists()
    drain(tmp_path, log)
    total = counts(log)
    assert total["accepted"] == life.publisher.total == len(payloads(log)) + total["policy_drop.log"]
    assert not total["corrupt"]


@pytest.mark.survives("log buffer", "power cut")
@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("messages", [(), (b"last",)])
def test_counts_of_dropped_frames_are_entered_once_if_power_failures_take_the_frames_that_carry_them(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, messages: tuple[bytes, ...], is_stored: bool
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    on_disk = {path: path.read_bytes() for path in (life.position.path, buffer_file(tmp_path, "events"))}
    drop_frames(life)
    for boot in range(3):
        assert life.publisher.owes
        publish(life, *messages)
        if boot == 0:
            dropped = life.totals()["policy_drop.log"]
        life.end()
        if boot == 1 or is_stored:
            drain(tmp_path, log)
        for path, content in on_disk.items():
            path.write_bytes(content)
        with contextlib.closing(StatePage(state_file(tmp_path, "events"))) as page:
            # The text that the frame is in the buffer is lost as well.
            page._map[page._half_offset(SKIPPED, page._newest(SKIPPED)[0] & 1) + 20] ^= 1
        monkeypatch.setattr(buffer, "boot_id", f"after power failure {boot}".format)
        life = live(tmp_path, LISTENER)
    publish(life)
    life.end()
    drain(tmp_path, log)
    total, stored = counts(log), payloads(log) if log.names() else []
    assert total["policy_drop.log"] == dropped > 0
    assert total["accepted"] == len(stored) + dropped
    assert not total["corrupt"]


DROPPED = {f"60@{name}": 10 for name in ("seen", "accepted", "policy_drop.log")}


def owe(life: Life, *carriers: Carrier) -> None:
    """Let the next frame carry the counts of dropped messages, which ``carriers`` were to carry."""
    position, missed = life.publication.position, life.publisher._missed
    missed.skip("log", Move(position, position, life.publisher.total), DROPPED, [LostCounts(carriers, DROPPED)])
    missed.confirm_skip()


def reboot(life: Life, monkeypatch: pytest.MonkeyPatch) -> Life:
    life.end()
    monkeypatch.setattr(buffer, "boot_id", f"after {life.publisher._epoch}".format)
    return live(life.folder, LISTENER)


@pytest.mark.parametrize(
    ("boot", "frame", "topic", "is_stored"),
    [
        (0, 0, "in", True),
        (0, 1, "in", True),  # the receipts have stored it: all of its messages went to requested topics
        (0, 1, None, True),
        (0, 2, "in", False),
        (1, 2, "in", False),  # no power failure since: it was never written
    ],
)
def test_counts_of_a_lost_frame_are_entered_unless_the_log_has_stored_it(
    tmp_path: Path,
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
    boot: int,
    frame: int,
    topic: str | None,
    is_stored: bool,
) -> None:
    life = live(tmp_path, LISTENER)
    begins, epochs = list[int](), [life.publisher._epoch]
    for messages in [(b"first",), ()]:
        begins.append(life.publication.position)
        publish(life, *messages)
    drain(tmp_path, log)
    life = reboot(life, monkeypatch)
    epochs.append(life.publisher._epoch)
    begins.append(life.publication.position)
    publish(life, b"second")
    drain(tmp_path, log)
    owe(life, Carrier(epochs[boot], begins[frame], topic))
    publish(life, b"next")
    life.end()
    drain(tmp_path, log)
    assert counts(log)["policy_drop.log"] == (0 if is_stored else 10)
    assert counts(log)["accepted"] == 3 + counts(log)["policy_drop.log"]


@pytest.mark.survives("log buffer", "power cut")
@pytest.mark.parametrize("is_stored", [False, True])
def test_counts_are_entered_once_if_the_frame_that_repeats_them_is_dropped(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    drain(tmp_path, log)
    lost = Carrier(life.publisher._epoch, 0 if is_stored else life.publication.position, "in")
    life = reboot(life, monkeypatch)
    publish(life, b"second")
    drain(tmp_path, log)
    owe(life, lost)
    overflow(life)
    life.end()
    drain(tmp_path, log)
    total, stored = counts(log), len(payloads(log))
    assert stored < 152, "the frame is dropped"
    assert total["accepted"] == 152 + (0 if is_stored else 10)
    assert total["policy_drop.log"] == total["accepted"] - stored


@pytest.mark.survives("log buffer", "power cut")
def test_counts_are_entered_once_if_one_group_has_the_lost_frame_and_the_repeating_one(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    drain(tmp_path, log)
    owe(life)
    lost = Carrier(life.publisher._epoch, life.publication.position, "in")
    publish(life, b"second")  # as read from the saved frames, while the buffer has lost it
    life = reboot(life, monkeypatch)
    owe(life, lost)
    publish(life, b"third")
    life.end()
    drain(tmp_path, log)
    assert payloads(log) == [b"first", b"second", b"third"]
    assert counts(log).pruned() == {"seen": 13, "accepted": 13, "policy_drop.log": 10}


@pytest.mark.survives("log buffer", "power cut")
def test_counts_are_entered_once_if_all_messages_of_the_lost_frame_went_to_requested_topics(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    drain(tmp_path, log)
    on_disk = {path: path.read_bytes() for path in (life.position.path, buffer_file(tmp_path, "events"))}
    owe(life)
    tagged(life, second="kt:other")
    drain(tmp_path, log)
    for path, content in on_disk.items():
        path.write_bytes(content)
    with contextlib.closing(StatePage(state_file(tmp_path, "events"))) as page:
        page._map[page._half_offset(SKIPPED, page._newest(SKIPPED)[0] & 1) + 20] ^= 1
    life = reboot(life, monkeypatch)
    assert life.publisher.owes
    publish(life)
    life.end()
    drain(tmp_path, log)
    assert payloads(log, "other") == [b"second"]
    assert counts(log)["policy_drop.log"] == 10


@pytest.mark.survives("log buffer", "SIGKILL")
def test_counts_are_entered_once_if_a_kill_before_the_note_is_followed_by_another_term_length(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    drain(tmp_path, log)
    owe(life)
    with monkeypatch.context() as killed:
        killed.setattr(DroppedFrameCounts, "confirm_attached", lambda missed: None)
        publish(life, b"second")
    drain(tmp_path, log)
    life.end()
    inode = life.publication.path.stat().st_ino
    monkeypatch.setattr(writer, "epoch_of", lambda page, _, *end: buffer.epoch_of(page, inode, *end))
    life = live(tmp_path, LISTENER, 1 << 17)
    publish(life, b"third")
    life.end()
    drain(tmp_path, log)
    assert counts(log).pruned() == {"seen": 13, "accepted": 13, "policy_drop.log": 10}


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("requests", ["kt:other", ""])
def test_frame_with_counts_of_dropped_ones_is_stored_after_all_earlier_and_before_all_later_frames(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, requests: str, is_last: bool
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    drain(tmp_path, log)
    if not is_last:
        owe(life)
    publish(life, b"second")
    if is_last:
        owe(life)
    tagged(life, third=requests)
    with monkeypatch.context() as refusing:
        refuse_topic(log, refusing)
        drain(tmp_path, log)
    assert counts(log).pruned() == {"seen": 1, "accepted": 1}
    drain(tmp_path, log)
    assert counts(log).pruned() == {"seen": 13, "accepted": 13, "policy_drop.log": 10}


@pytest.mark.survives("log buffer", "power cut")
@pytest.mark.parametrize("is_carried", [False, True])
def test_drain_of_a_removed_listener_stores_no_dropped_frame_after_a_power_failure(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, is_carried: bool
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    on_disk = life.position.path.read_bytes()
    drop_frames(life)
    if is_carried:
        publish(life)
    published = life.publisher.total
    life.end()
    life.position.path.write_bytes(on_disk)
    monkeypatch.setattr(buffer, "boot_id", lambda: "next")
    thread = Drain(LISTENER.name, tmp_path, log, None)
    thread.leave()
    thread.run()
    total = counts(log)
    # The counts that no frame carries have no writer any more; the frames that the buffer still has are stored.
    assert total["accepted"] == published == len(payloads(log)) + total["policy_drop.log"]
    assert (total["corrupt"], bool(total["policy_drop.log"])) == (0, is_carried)


def test_saved_frames_are_stored_in_groups_and_once_if_the_daemon_dies_between(
    tmp_path: Path, log: Log, held: Path
) -> None:
    life = live(tmp_path, LISTENER)
    messages = [b"%d" % number + b"." * 1000 for number in range(20)]
    for message in messages:
        publish(life, message)
    life.position.claim = life.publication.position
    overflow(life)
    assert len(saved_frames(held)) == 20
    daemon = DyingDrain(LISTENER.name, tmp_path, log, None)
    daemon.dies_after, daemon._group_bytes = 2, 8192
    daemon.stop()
    with pytest.raises(KeyboardInterrupt):
        daemon.run()
    groups = daemon.handled
    assert [len(group.frames) > 1 and group.end - group.begin <= 8192 for group in groups] == [True, True]
    assert payloads(log) == messages[: sum(len(group.frames) for group in groups)]
    assert life.position.stored == groups[-1].end
    drain(tmp_path, log)
    collected, total = payloads(log), counts(log)
    assert collected[:20] == messages
    assert not set(messages) & set(collected[20:])
    assert (total["accepted"], total["policy_drop.log"], total["corrupt"]) == (170, 170 - len(collected), 0)


@pytest.mark.parametrize("owes", [False, True])
def test_frame_is_counted_once_if_its_requested_topic_is_full_and_it_is_dropped(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, owes: bool
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    drain(tmp_path, log)
    if owes:
        owe(life)
    tagged(life, second="kt:other")
    with monkeypatch.context() as context:
        # As with ``log.max_bytes``: internal topics, as the receipts are, have room in any case.
        context.setattr(log.topic("in").writer._shared.budget, "limit", 1)
        drain(tmp_path, log)
    check_that_a_dropped_frame_counts_once(life, tmp_path, log, owes)


@pytest.mark.parametrize("owes", [False, True])
def test_frame_behind_counts_that_are_refused_is_counted_once(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, owes: bool
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    drain(tmp_path, log)
    publish(life)
    if owes:
        owe(life)
    publish(life, b"second")
    refused: Future[object] = Future()
    refused.set_exception(LogFull("no space"))
    receipts = log.topic(RECEIPTS, create=True, internal=True)
    with monkeypatch.context() as context:
        context.setattr(receipts, "append", lambda *_: refused)
        drain(tmp_path, log)
    check_that_a_dropped_frame_counts_once(life, tmp_path, log, owes)


@pytest.mark.parametrize(("requests", "refused"), [(("kt:other", ""), "other"), (("", "kt:other"), "in")])
def test_frame_stored_behind_one_that_another_topic_refuses_is_counted_once(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, requests: tuple[str, str], refused: str
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    drain(tmp_path, log)
    tagged(life, second=requests[0])
    tagged(life, third=requests[1])
    full: Future[object] = Future()
    full.set_exception(LogFull("no space"))
    topic = log.topic(refused, create=True)
    with monkeypatch.context() as context:
        context.setattr(topic, "append", lambda *_: full)
        drain(tmp_path, log)
    check_that_a_dropped_frame_counts_once(life, tmp_path, log, owes=False, messages=153)


def check_that_a_dropped_frame_counts_once(life: Life, folder: Path, log: Log, owes: bool, messages: int = 152) -> None:
    """Let the writer drop the frames that went back to it, and compare the counts with what is stored."""
    overflow(life)
    life.end()
    drain(folder, log)
    total = counts(log)
    stored = sum(len(payloads(log, topic)) for topic in log.names())
    assert (total["accepted"], total["policy_drop.log"]) == (messages + 10 * owes, messages + 10 * owes - stored)


def test_counts_wait_for_a_topic_that_a_full_disk_keeps_from_its_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path / "topics")
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    drain(tmp_path, log)
    owe(life)
    lost = Carrier(life.publisher._epoch, life.publication.position, "in")
    publish(life, b"second")
    drain(tmp_path, log)
    log.close()
    life = reboot(life, monkeypatch)
    owe(life, lost)
    publish(life)
    life.end()
    log = Log(tmp_path / "topics")
    recover = Writer._recover

    def fail(topic_writer: Writer) -> object:
        if topic_writer._path.name == "in":
            raise OSError(errno.ENOSPC, "no space left")
        return recover(topic_writer)

    with monkeypatch.context() as context:
        context.setattr(Writer, "_recover", fail)
        drain(tmp_path, log)
    drain(tmp_path, log)
    assert counts(log)["policy_drop.log"] == 10
    log.close()


@pytest.mark.survives("log buffer", "power cut")
@pytest.mark.parametrize("is_last", [False, True])
def test_stored_messages_are_not_corrupt_as_well_if_a_power_failure_takes_their_frame_and_spares_the_total(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, is_last: bool
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    drain(tmp_path, log)
    buffer_path = life.publication.path
    before, begin = buffer_path.read_bytes(), life.publication.position
    publish(life, b"second", b"third")
    on_disk = life.position.path.read_bytes()
    drain(tmp_path, log)
    if is_last:
        life.end()
        buffer_path.write_bytes(before)
    else:
        publish(life, b"fourth")
        life.end()
        damaged = bytearray(buffer_path.read_bytes())
        damaged[begin + 100] ^= 1
        buffer_path.write_bytes(damaged)
    life.position.path.write_bytes(on_disk)
    life = reboot(life, monkeypatch)
    publish(life, b"last")
    life.end()
    drain(tmp_path, log)
    stored = len(payloads(log))
    assert stored == (4 if is_last else 5)
    assert counts(log).pruned() == {"seen": stored, "accepted": stored}


def test_saved_frames_are_never_in_memory_together(tmp_path: Path, held: Path) -> None:
    life = live(tmp_path, LISTENER, 1 << 24)
    for _ in range(64):
        publish(life, b"x" * (1 << 18))
    end = life.publication.position
    assert life.position.floor_mark == 16, "the others are dropped"
    tracemalloc.start()
    try:
        assert life.publisher._save(life.readers[0], life.position.position, end)
        assert life.publisher._save(life.readers[0], life.position.position, end)  # reads the file that it replaces
        frames, total = read_held_frames(held)
        assert (sum(isinstance(entry, Frame) and len(entry.data) > 1 << 18 for entry in frames), total) == (48, 48)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 << 18, "about one frame, of 48"


@given(st.lists(RAW | st.binary(min_size=24, max_size=24), max_size=4).map(b"".join))
def test_arbitrary_file_yields_only_intact_frames(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("buffers") / "held"
    path.write_bytes(data)
    assert all(not len(frame.data) for frame in saved_frames(path)), "no bytes at all have a checksum of 0"


def test_damage_is_counted_after_the_files_of_a_listener_were_gone(tmp_path: Path, log: Log) -> None:
    """The total of messages began again; the topics still have the larger one of before."""
    folder = tmp_path / "handover"
    folder.mkdir()
    life = live(folder, LISTENER)
    for _ in range(20):
        publish(life, *[b"m"] * 50)
    life.end()
    drain(folder, log)
    shutil.rmtree(folder)
    folder.mkdir()
    life = live(folder, LISTENER)
    publish(life, b"a")
    drain(folder, log)
    begin = life.publication.position
    publish(life, *[b"x"] * 30)
    publish(life, b"z")
    life.end()
    damaged = bytearray(life.publication.path.read_bytes())
    damaged[begin + 100] ^= 1
    life.publication.path.write_bytes(damaged)
    drain(folder, log)
    assert counts(log)["corrupt"] == 30
