"""The ledger: updated by the log itself, and unchanged after a restart."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.counts import Counts, Origin, bucket_of
from penstock.files.file_system import OS
from penstock.ledger.balance_from_topics import balance_of
from penstock.ledger.book import checkpoint
from penstock.ledger.book.book_from_topics import load
from penstock.ledger.book.book_pages import BookPages
from penstock.ledger.book.daily_rollup import day_of
from penstock.ledger.ledger import CURSOR, MAX_HELD_EVENTS, Ledger
from penstock.ledger.posts import BadPost, ClientPost, LacksPosts
from penstock.ledger.receipt import losses_of
from penstock.log import Log
from penstock.log.errors import LogFull
from penstock.log.store.segment_files import SegmentFiles, read_synced, write_synced
from penstock.records import EMPTY_BODY, body
from penstock.testing import CrashingFileSystem, FakeClock

ORIGIN = Origin("events-udp", 60, 0, 0, "plog", Counts({"taken": 3, "unboxed": 3, "seen": 3, "accepted": 3}))
LANDED: dict[str, Any] = {
    "tier": "landed",
    "topic": "events",
    "version": 0,
    "through": 2,
    "counts": [{"source": "events-udp", "bucket": 60, "counts": {"landed.message": 2}}],
}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    opened = Log(tmp_path / "topics")
    yield opened
    opened.close()


def append(log: Log, rows: int = 3, origin: Origin = ORIGIN) -> None:
    log.topic("events", create=True).append(body([b"x"] * rows), origin).result()
    log.topic("events").wait_until_idle()


def test_batches_are_entered_when_they_are_stored(log: Log, tmp_path: Path) -> None:
    ledger = Ledger(log, tmp_path, ["events-udp"])
    append(log)
    result = ledger.balance()
    assert (result.unaccounted, result.routes[0].accepted, result.routes[0].delivered) == (0, 3, 3)


def test_frame_metadata_without_messages_is_counted(log: Log, tmp_path: Path) -> None:
    ledger = Ledger(log, tmp_path, ["events-udp"])
    topic = log.topic("_receipts", create=True, internal=True)
    topic.append(EMPTY_BODY, Origin("events-udp", 60, 0, 0, counts={"taken": 1, "invalid.type": 1})).result()
    topic.wait_until_idle()
    assert ledger.balance().listeners[0].counts == {"taken": 1, "invalid.type": 1}


def test_landed_post_moves_the_cursor(log: Log, tmp_path: Path) -> None:
    ledger = Ledger(log, tmp_path, ["events-udp"])
    append(log)
    assert ledger.post(LANDED)
    result = ledger.balance()
    assert (result.unaccounted, result.pending, result.topics[0].fates) == (0, 1, {"landed.message": 2})
    assert log.topic("events").cursors.offsets() == {CURSOR: 2}
    assert not ledger.post(LANDED)


def test_message_that_is_stored_while_watermarks_are_read_holds_them(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(log, tmp_path, ["events-udp"], now=lambda: 10_000.0)
    append(log, 2, replace(ORIGIN, counts=Counts({"accepted": 2})))
    ledger.post(LANDED)
    assert [mark.until for mark in ledger.watermarks()] == [9960]
    waiting = {("events-udp", 120): Counts({"accepted": 1})}

    def store() -> None:
        if waiting:
            waiting.clear()
            append(log, 1, replace(ORIGIN, bucket=120, counts=Counts({"accepted": 1})))

    def counts(_: object) -> dict[tuple[str, int], Counts]:
        found = dict(waiting)
        store()
        return found

    def snapshot(take: Callable[[], BookPages] = ledger._book.snapshot) -> BookPages:
        pages = take()
        store()
        return pages

    monkeypatch.setattr(ledger._buffered, "counts", counts)
    monkeypatch.setattr(ledger._book, "snapshot", snapshot)
    assert [mark.until for mark in ledger.watermarks()] == [120]


def test_files_of_topics_without_waiting_rows_are_not_opened(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(log, tmp_path, ["events-udp"])
    append(log)
    single = Origin("grpc", 60, 0, 0, counts={"accepted": 1})
    log.topic("unread", create=True).append(body([b"x"]), single).result()
    log.topic("unread").wait_until_idle()
    ledger.post({**LANDED, "through": 3, "counts": [{**LANDED["counts"][0], "counts": {"landed.message": 3}}]})
    before = ledger.balance()

    def opens(_: Path) -> None:
        raise AssertionError("there may be thousands, and the balance is asked for every second")

    monkeypatch.setattr("penstock.ledger.balance_from_topics.TopicReader", opens)
    assert ledger.balance() == before
    assert (before.unaccounted, before.pending, len(before.topics)) == (0, 0, 2)


@pytest.mark.survives("ledger", "changed configuration")
def test_invalid_post_of_an_earlier_version_does_not_stop_the_start(log: Log, tmp_path: Path) -> None:
    ledger = Ledger(log, tmp_path, ["events-udp"])
    append(log)
    topic = log.topic("_ledger", create=True, internal=True)
    beyond = {**LANDED, "counts": [{"source": "events-udp", "bucket": 10**30, "counts": {"landed.message": 2}}]}
    topic.append(body([json.dumps(beyond).encode(), b"no JSON"]), Origin("ledger", 60, 0, 0)).result()
    assert ledger.post(LANDED)
    assert Ledger(log, tmp_path, ["events-udp"]).balance().topics[0].fates == {"landed.message": 2}


def test_rows_landed_out_of_order_are_counted_once(log: Log, tmp_path: Path) -> None:
    ledger = Ledger(log, tmp_path, ["events-udp"])
    append(log)
    post = {**LANDED, "through": 0, "refill": 1, "ahead": [[1, 3]]}
    assert ledger.post(post)
    assert not ledger.post(post)
    result = ledger.balance()
    assert (result.unaccounted, result.pending, result.topics[0].fates) == (0, 1, {"landed.message": 2})
    assert log.topic("events").cursors.offsets() == {}
    entry = [{"source": "events-udp", "bucket": 60, "counts": {"landed.message": 1}}]
    assert ledger.post({**LANDED, "version": 1, "through": 3, "counts": entry})
    assert (ledger.balance().unaccounted, ledger.balance().pending) == (0, 0)
    assert Ledger(log, tmp_path, ["events-udp"]).landed() == ledger.landed()
    with pytest.raises(BadPost, match="it ends at 3"):
        ledger.post({**post, "version": 2, "ahead": [[3, 4]]})


def test_repeated_post_is_accepted_although_the_log_has_lost_its_rows(tmp_path: Path) -> None:
    """A disk that lies about syncs loses rows that have landed; the pipeline repeats its last post after a kill."""
    topics = tmp_path / "topics"
    with contextlib.closing(Log(topics)) as log:
        append(log)
        assert Ledger(log, tmp_path, ["events-udp"]).post(LANDED)
    shutil.rmtree(topics / "events")
    with contextlib.closing(Log(topics)) as log:
        append(log, rows=1)
        ledger = Ledger(log, tmp_path, ["events-udp"])
        assert not ledger.post(LANDED)
        with pytest.raises(BadPost, match="has no 1 offsets from 2 to 3"):
            ledger.post(LANDED | {"through": 3, "counts": [LANDED["counts"][0] | {"counts": {"landed.message": 1}}]})


def test_post_is_refused_if_earlier_ones_of_its_topic_are_lost(log: Log, tmp_path: Path) -> None:
    """The ledger knows only the end of the counted offsets: the later post would hide the loss."""
    ledger = Ledger(log, tmp_path, ["events-udp"])
    append(log)
    entry = [{"source": "events-udp", "bucket": 60, "counts": {"landed.message": 1}}]
    later = {**LANDED, "version": 1, "through": 3, "counts": entry, "after": 2}
    with pytest.raises(LacksPosts, match="'events' has landed up to 0 here, and not 2"):
        ledger.post(later)
    assert ledger.landed() == {}
    assert ledger.post(LANDED)
    assert ledger.post(later)
    assert ledger.balance().topics[0].fates == {"landed.message": 3}


def test_post_for_an_unknown_topic_is_refused(log: Log, tmp_path: Path) -> None:
    with pytest.raises(BadPost, match="no topic 'events'"):
        Ledger(log, tmp_path, ["events-udp"]).post(LANDED)


@pytest.mark.parametrize(
    ("change", "error_text"),
    [
        ({"through": 4}, "has no 2 offsets from 0 to 4"),
        ({"through": 1}, "has no 2 offsets from 0 to 1"),
        ({"tier": "client", "listener": "x", "sender": "a", "version": 1, "counts": {}}, "there is no listener 'x'"),
    ],
)
def test_impossible_post_is_refused(log: Log, tmp_path: Path, change: dict[str, object], error_text: str) -> None:
    ledger = Ledger(log, tmp_path, ["events-udp"])
    append(log)
    with pytest.raises(BadPost, match=error_text):
        ledger.post({**LANDED, **change})
    assert ledger.post(LANDED)


def test_balance_is_unchanged_after_a_restart(log: Log, tmp_path: Path) -> None:
    ledger = Ledger(log, tmp_path, ["events-udp"])
    append(log)
    ledger.post(LANDED)
    ledger.post({"tier": "client", "listener": "events-udp", "sender": "a", "version": 1, "counts": {"datagrams": 3}})
    before = ledger.balance()
    log.close()
    reopened = Log(tmp_path / "topics")
    assert Ledger(reopened, tmp_path, ["events-udp"]).balance() == before
    reopened.close()


def test_rebuild_leaves_out_posts_of_the_tables(log: Log, tmp_path: Path) -> None:
    ledger = Ledger(log, tmp_path, ["events-udp"])
    append(log)
    ledger.post(LANDED)
    pages = load(log.directory, (ClientPost,)).snapshot()
    assert pages.landed == {}
    assert balance_of(pages, log.directory, {}).unaccounted == 0


def test_corrupt_batch_is_a_gap_in_the_balance_after_a_restart(log: Log, tmp_path: Path) -> None:
    for number in range(3):
        append(log, origin=Origin("events-udp", 60 * number, 0, 0, counts=ORIGIN.counts))
    log.close()
    (segment,) = (tmp_path / "topics" / "events").glob("*.arrows")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    reopened = Log(tmp_path / "topics")
    result = Ledger(reopened, tmp_path, ["events-udp"]).balance()
    assert result.topics[0].fates == {"gap.corrupt": 3}
    assert (result.unaccounted, result.topics[0].end) == (0, 9)
    reopened.close()


def test_rows_of_a_writer_that_was_killed_before_it_published_them_are_in_the_first_balance(tmp_path: Path) -> None:
    log = Log(tmp_path / "topics")
    append(log)
    files = SegmentFiles(log.topic("events").path, 0)
    log.close()
    write_synced(OS, files, 0, 0)
    log = Log(tmp_path / "topics")
    result = Ledger(log, tmp_path, ["events-udp"]).balance()
    assert (result.unaccounted, result.routes[0].accepted, result.routes[0].delivered) == (0, 3, 3)
    log.close()


def test_losses_follow_the_balance(log: Log, tmp_path: Path) -> None:
    ledger = Ledger(log, tmp_path, ["events-udp"])
    steps: list[tuple[Callable[[], object], dict[str, Counts]]] = [
        (lambda: append(log), {}),
        (lambda: append(log, origin=Origin("events-udp", 120, 0, 0, counts={"invalid.type": 2})), {}),
        (lambda: damage(log.directory / "events"), {}),
        (lambda: log.topic("events").verify(), {"events": Counts({"gap.corrupt": 3})}),
    ]
    for step, losses_of_topics in steps:
        step()
        losses = ledger.losses()
        assert losses == losses_of(ledger.balance().document())
        assert {origin: counts for origin, counts in losses.items() if origin == "events"} == losses_of_topics
        assert ledger.losses() is losses


def damage(topic: Path) -> None:
    """Change a byte of the second batch."""
    (segment,) = topic.glob("*.arrows")
    content = bytearray(segment.read_bytes().rstrip(b"\0"))
    content[-100] ^= 1
    with segment.open("r+b") as file:
        file.write(content)


def killed_before_the_last_was_published(topics: Path, name: str, unpublished: Callable[[Log], object]) -> None:
    """Leave a log as after a kill between the write and the publication of the append that ``unpublished`` makes."""
    log, files = Log(topics), SegmentFiles(topics / name, 0)
    append(log)
    Ledger(log, topics, ["events-udp"]).write_checkpoint()
    synced = read_synced(OS, files) if files.data.exists() else None
    unpublished(log)
    log.close()
    assert synced, "there is something before it"
    write_synced(OS, files, *synced)


@pytest.mark.survives("ledger", "full disk")
def test_topic_repaired_after_a_full_disk_is_counted_like_one_repaired_at_opening(
    tmp_path: Path,
) -> None:
    topics = tmp_path / "topics"
    killed_before_the_last_was_published(topics, "events", append)
    fs = CrashingFileSystem(tmp_path)
    fs.free = 0
    log = Log(topics, fs=fs)
    ledger = Ledger(log, tmp_path, ["events-udp"])
    assert ledger.balance().topics[0].end == 3, "what is not published is not counted either"
    fs.free = None
    log.topic("events").sweep()
    assert (ledger.balance().topics[0].end, ledger.balance().unaccounted) == (6, 0)
    append(log)
    result = ledger.balance()
    assert (result.topics[0].logged, result.routes[0].delivered, result.unaccounted) == (9, 9, 0)
    log.close()
    read = balance_of(load(topics).snapshot(), topics, {})
    assert (read.topics, read.routes, read.listeners) == (result.topics, result.routes, result.listeners)


def test_posts_published_after_a_full_disk_are_entered(tmp_path: Path) -> None:
    topics = tmp_path / "topics"
    post = {"tier": "client", "listener": "events-udp", "sender": "a", "version": 1, "counts": {"datagrams": 3}}

    def first(log: Log) -> None:
        Ledger(log, topics, ["events-udp"]).post(LANDED)

    log = Log(topics)
    append(log)
    first(log)
    log.close()
    killed_before_the_last_was_published(topics, "_ledger", lambda log: Ledger(log, topics, ["events-udp"]).post(post))
    fs = CrashingFileSystem(tmp_path)
    fs.free = 0
    log = Log(topics, fs=fs)
    ledger = Ledger(log, tmp_path, ["events-udp"])
    assert ledger.balance().listeners[0].sent is None
    fs.free = None
    log.topic("_ledger", internal=True).sweep()
    assert ledger.balance().listeners[0].sent == {"datagrams": 3}
    log.close()


def test_kafka_partition_has_its_posted_counts(log: Log, tmp_path: Path) -> None:
    ledger = Ledger(log, tmp_path, [])
    fates = {"landed.event": 4, "segment": 2, "not_a_message.control": 1, "duplicate": 1}
    post = {"tier": "landed", "topic": "events/0", "version": 0, "through": 8, "end": 10}
    assert ledger.post({**post, "counts": [{"source": "kafka", "bucket": 60, "counts": fates}]})
    (topic,) = ledger.balance().topics
    assert (topic.topic, topic.end, topic.pending, topic.fates) == ("events/0", 10, 2, fates)
    assert ledger.balance().unaccounted == 0
    second_post = {**post, "version": 1, "through": 11, "end": 11}
    assert ledger.post({**second_post, "counts": [{"source": "kafka", "bucket": 60, "counts": {"landed.event": 2}}]})
    assert ledger.balance().unaccounted == 1, "one offset has no fate"
    with pytest.raises(BadPost, match="has no 5 offsets from 11 to 12"):
        ledger.post({**post, "through": 12, "counts": [{"source": "kafka", "bucket": 60, "counts": {"duplicate": 5}}]})
    reloaded = load(log.directory)
    assert reloaded.snapshot().landed["events/0"].through == 11


@pytest.mark.survives("ledger", "wrong clock")
def test_wrong_clock_stops_the_roll_up_and_an_early_roll_up_is_reverted(
    tmp_path: Path,
) -> None:
    year, clock = 365 * 86_400, FakeClock(1_790_000_000.0)
    minute = bucket_of(clock.now)

    def opened() -> tuple[Log, Ledger]:
        log = Log(tmp_path / "topics", clock=clock)
        return log, Ledger(log, tmp_path / "buffers", [], now=clock.time)

    def received(ledger: Ledger) -> list[tuple[str, int]]:
        return sorted(ledger._book.snapshot().received)

    log, ledger = opened()
    counted_origin = Origin("events", minute, 1, 2, counts=Counts({"accepted": 1, "seen": 1}))
    log.topic("t", create=True).append(body([b"a"]), counted_origin).result(10)
    clock.jump(year)
    ledger.write_checkpoint()
    assert received(ledger) == [("events", minute)]
    ledger._book.roll_up(day_of(int(clock.now)))  # as a version did that believed any clock
    ledger._cover_posts()
    checkpoint.write(tmp_path / "topics", ledger._book.snapshot())
    log.close()
    clock.jump(-year)
    log, ledger = opened()
    assert received(ledger) == [("events", minute)]
    log.close()


def test_true_post_waits_for_the_recovery_of_its_topic(tmp_path: Path) -> None:
    """A power cut has set the synced length back, and the start finds the disk full."""
    with contextlib.closing(Log(tmp_path / "topics")) as log:
        log.topic("events", create=True)
        synced = tmp_path / "topics/events" / f"{0:020}.synced"
        outdated = synced.read_bytes()
        append(log)
    synced.write_bytes(outdated)
    fs = CrashingFileSystem(tmp_path)
    fs.failures["open"] = errno.ENOSPC
    with contextlib.closing(Log(tmp_path / "topics", fs=fs)) as log:
        log.topic("events")
        fs.failures.clear()
        ledger = Ledger(log, tmp_path, ["events-udp"])
        fs.failures["open"] = errno.ENOSPC
        with pytest.raises(LogFull):
            ledger.post(LANDED)
        fs.failures.clear()
        assert ledger.post(LANDED)


@pytest.mark.survives("alarms", "full disk")
def test_events_that_wait_for_space_are_limited_to_the_newest(log: Log, tmp_path: Path) -> None:
    ledger = Ledger(log, tmp_path, ["events-udp"])
    event = {"tier": "event", "version": 0, "kind": "restart", "at": 1, "what": "receiver in", "cause": "cannot start"}
    ids = [f"supervisor 1.{number}" for number in range(MAX_HELD_EVENTS + 2)]
    for event_id in ids:
        ledger.hold_event({**event, "id": event_id, "place": "in"})
    ledger.hold_event({**event, "id": ids[2], "place": "in", "version": 1})  # now the newest
    ledger.hold_event({**event, "id": "supervisor 1.new", "place": "in"})
    assert [held.id for held in ledger.events()] == [*ids[4:], ids[2], "supervisor 1.new"]
    ledger.post({**event, "id": ids[2], "place": "in", "version": 1})
    log.topic("_ledger", internal=True).wait_until_idle()
    assert {held.id for held in ledger.events()} == {*ids[4:], ids[2], "supervisor 1.new"}


def test_checkpoint_is_written_only_if_anything_is_new(log: Log, tmp_path: Path) -> None:
    ledger = Ledger(log, tmp_path, ["events-udp"])
    append(log)
    ledger.write_checkpoint()
    file = log.directory / checkpoint.FILE
    assert checkpoint.read(log.directory).covered["events"].end == 3
    file.unlink()
    ledger.write_checkpoint()
    assert not file.exists()
    append(log)
    ledger.write_checkpoint()
    assert checkpoint.read(log.directory).covered["events"].end == 6


def append_behind(log: Log, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Append rows with losses once, behind the next snapshot of the ledger's book."""
    snapshot = getattr(ledger._book, name)

    def take_and_append() -> object:
        pages = snapshot()
        monkeypatch.setattr(ledger._book, name, snapshot)
        append(log, origin=Origin("events-udp", 120, 0, 0, counts={"invalid.type": 2}))
        return pages

    monkeypatch.setattr(ledger._book, name, take_and_append)


def test_change_during_a_checkpoint_is_written_by_the_next(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(log, tmp_path, ["events-udp"])
    append(log)
    append_behind(log, ledger, monkeypatch, "snapshot")
    for end in (3, 6):
        ledger.write_checkpoint()
        assert checkpoint.read(log.directory).covered["events"].end == end


def test_change_during_a_look_at_losses_is_in_the_next(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(log, tmp_path, ["events-udp"])
    append(log)
    append_behind(log, ledger, monkeypatch, "summary")
    assert ledger.losses() == {}
    assert ledger.losses() == losses_of(ledger.balance().document()) != {}


def test_event_waits_for_space_until_it_is_stored(tmp_path: Path) -> None:
    fs = CrashingFileSystem(tmp_path)
    event = {"tier": "event", "version": 0, "kind": "restart", "at": 1, "what": "receiver in", "cause": "cannot start"}
    event |= {"id": "supervisor 1.1", "place": "in"}
    with contextlib.closing(Log(tmp_path / "topics", fs=fs)) as log:
        ledger = Ledger(log, tmp_path, ["events-udp"])
        append(log)
        ledger.post(LANDED)
        ledger.hold_event(event)
        fs.free = 0
        with pytest.raises(LogFull):
            ledger.post(event)
        assert [held.id for held in ledger.events()] == [event["id"]]
        fs.free = None
        assert ledger.post(event)
        assert [held.id for held in ledger.events()] == [event["id"]]
