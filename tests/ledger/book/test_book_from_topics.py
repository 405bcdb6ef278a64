"""Resuming from a checkpoint equals reading everything; a checkpoint that does not fit is ignored."""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.counts import Counts, Origin
from penstock.ledger.book.book_from_topics import load, recompute, resume
from penstock.ledger.book.book_pages import BookPages
from penstock.ledger.book.bucket_tables import CountTable
from penstock.ledger.book.checkpoint import FILE, read, write
from penstock.ledger.book.daily_rollup import DAY, counts_by_day
from penstock.ledger.checkpoint_keeper import CheckpointKeeper
from penstock.ledger.ledger import Ledger
from penstock.log import Log, Topic, TopicReader, TopicSettings
from penstock.records import EMPTY_BODY, body
from penstock.testing import FakeClock

STALE = 100
SEGMENT = 4096
TIERS = ("received", "logged", "ends", "landed", "clients", "audits")


class Reported(logging.Handler):
    """A log handler that stores the lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Daemon:
    """The part of the log daemon that the ledger sees; ``reported`` has the ledger's log lines."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.folder, self.topics = folder, folder / "topics"
        self.clock, self.versions, reported = FakeClock(), 0, Reported()
        self.reported = reported.lines
        logging.getLogger("penstock.ledger").handlers = [reported]
        self.settings = TopicSettings(stale_after=STALE, segment_size_limit=SEGMENT, durability="written", **more)
        self.start()

    def start(self) -> None:
        internal = {"_receipts": self.settings, "_ledger": TopicSettings(segment_size_limit=8 * SEGMENT)}
        self.log = Log(self.topics, self.settings, overrides=internal, clock=self.clock)
        self.ledger = Ledger(self.log, self.folder, ["in"], self.clock.time)

    def end(self, clean: bool = True) -> None:
        """End the daemon; ``clean`` as on SIGTERM, else as on SIGKILL, which writes no checkpoint."""
        if clean:
            self.ledger.write_checkpoint()
        self.log.close()

    def append(self, topic: str = "events", rows: int = 3) -> None:
        bucket = int(self.clock.time()) // 60 * 60
        origin = Origin(
            "in", bucket, 0, 0, counts=Counts(dict.fromkeys(("taken", "unboxed", "seen", "accepted"), rows))
        )
        opened = self.log.topic(topic, create=True, internal=topic.startswith("_"))
        opened.append(body([b"x" * 100] * rows) if rows else EMPTY_BODY, origin).result()
        opened.wait_until_idle()

    def land(self) -> None:
        end, through = self.log.topic("events").end, self.ledger.landed()
        begin = through["events"].through if through else 0
        counts = [{"source": "in", "bucket": 60, "counts": {"landed.event": end - begin}}] if end > begin else []
        self.ledger.post({"tier": "landed", "topic": "events", "version": end, "through": end, "counts": counts})

    def post_events(self) -> None:
        self.versions += 1
        counts = {"datagrams": self.versions}
        post = {"tier": "client", "listener": "in", "sender": "me", "version": self.versions, "counts": counts}
        self.ledger.post(post)

    def expire(self) -> None:
        self.clock.advance(STALE + 1)
        self.log.sweep()

    def check_equals_rebuild(self) -> None:
        """Check that the checkpoint plus later batches equals a book of all batches."""
        fresh = load(self.topics)
        resumed = self.ledger._book.snapshot()
        fresh.roll_up(resumed.rolled)
        assert tiers(resumed) == tiers(fresh.snapshot())


def tiers(pages: BookPages) -> dict[str, Any]:
    return {name: getattr(pages, name) for name in TIERS}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon_in_folder = Daemon(tmp_path)
    yield daemon_in_folder
    daemon_in_folder.log.close()


def fill(daemon: Daemon) -> None:
    for _ in range(8):
        daemon.append()
    daemon.append("_receipts", 0)
    daemon.land()
    daemon.post_events()


def test_start_after_a_clean_end_reads_no_batch(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(daemon)
    before = daemon.ledger.balance()
    daemon.end()
    entered: list[int] = []
    documents = TopicReader.whole_batches

    def counted(reader: TopicReader, offset: int = 0) -> Any:
        for stored in documents(reader, offset):
            entered.append(stored.base)
            yield stored

    monkeypatch.setattr(TopicReader, "whole_batches", counted)
    daemon.start()
    assert (entered, daemon.reported) == ([], [])
    assert daemon.ledger.balance() == before
    daemon.check_equals_rebuild()


@pytest.mark.survives("ledger", "SIGKILL")
def test_start_after_a_crash_reads_the_batches_after_the_checkpoint(daemon: Daemon) -> None:
    fill(daemon)
    daemon.ledger.write_checkpoint()
    fill(daemon)
    daemon.end(clean=False)
    daemon.start()
    assert daemon.reported == []
    daemon.check_equals_rebuild()
    assert daemon.ledger.balance().topics[0].logged == 48


def opened_by_a_start(daemon: Daemon) -> list[str]:
    """Start again and return the topics that the start opened."""
    opened: list[str] = []
    open_topic = Log._open

    def noted(log: Log, name: str) -> Topic:
        opened.append(name)
        return open_topic(log, name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Log, "_open", noted)
        daemon.start()
    return opened


@pytest.fixture
def many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply the rules of topics after the first hundred to all topics."""
    monkeypatch.setattr("penstock.ledger.ledger.MAX_TOPICS_OPENED_AT_START", 0)


@pytest.mark.usefixtures("many_topics")
@pytest.mark.parametrize("clean", [True, False])
def test_start_opens_no_topic_that_is_intact(daemon: Daemon, clean: bool) -> None:
    fill(daemon)
    daemon.ledger.write_checkpoint()
    daemon.append()
    before = daemon.ledger.balance()
    daemon.end(clean)
    assert opened_by_a_start(daemon) == []
    assert daemon.ledger.balance() == before
    daemon.append()
    daemon.check_equals_rebuild()
    assert daemon.ledger.balance().topics[0].logged == before.topics[0].logged + 3


@pytest.mark.usefixtures("many_topics")
def test_start_opens_the_topic_that_a_crash_damaged(daemon: Daemon) -> None:
    fill(daemon)
    daemon.append("other")
    before = daemon.ledger.balance()
    daemon.end(clean=False)
    newest = max((daemon.topics / "events").glob("*.synced"))
    newest.unlink()
    assert opened_by_a_start(daemon) == ["events"]
    assert daemon.ledger.balance() == before
    daemon.check_equals_rebuild()


@pytest.mark.usefixtures("many_topics")
def test_batch_damaged_in_a_closed_topic_is_counted_before_and_after_discovery(
    daemon: Daemon,
) -> None:
    fill(daemon)
    daemon.append()
    before = daemon.ledger.balance()
    daemon.end()
    newest = max((daemon.topics / "events").glob("*.arrows"))
    data = bytearray(newest.read_bytes())
    data[data.rindex(b"x" * 100)] ^= 1
    newest.write_bytes(data)
    assert opened_by_a_start(daemon) == []
    assert daemon.ledger.balance() == before
    daemon.log.sweep()
    balance = daemon.ledger.balance()
    assert (balance.unaccounted, balance.topics[0].logged) == (0, before.topics[0].logged)
    assert [gap.reason for gap in daemon.log.topic("events").gaps()] == ["corrupt"]
    daemon.check_equals_rebuild()


def flip(daemon: Daemon) -> None:
    data = bytearray((daemon.topics / FILE).read_bytes())
    data[len(data) // 2] ^= 1
    (daemon.topics / FILE).write_bytes(data)


SPOILED: list[tuple[str, Callable[[Daemon], Any]]] = [
    ("there is no checkpoint", lambda d: (d.topics / FILE).unlink()),
    ("it is damaged", lambda d: (d.topics / FILE).write_bytes((d.topics / FILE).read_bytes()[:-9])),
    ("it is damaged", lambda d: (d.topics / FILE).write_bytes(b"")),
    ("it is damaged", lambda d: (d.topics / FILE).write_bytes(b"penstock" * 1000)),
    ("it is damaged", flip),
    ("Is a directory", lambda d: ((d.topics / FILE).unlink(), (d.topics / FILE).mkdir())),
]


@pytest.mark.parametrize(("why", "spoil"), SPOILED)
def test_unusable_checkpoint_is_logged_once(daemon: Daemon, why: str, spoil: Callable[[Daemon], Any]) -> None:
    fill(daemon)
    before = daemon.ledger.balance()
    daemon.end()
    spoil(daemon)
    daemon.start()
    assert len(daemon.reported) == 1
    assert why in daemon.reported[0]
    assert daemon.ledger.balance() == before


def test_folder_without_topics_logs_nothing(daemon: Daemon) -> None:
    assert daemon.reported == []


def changed_while_stopped(daemon: Daemon, change: Callable[[], Any]) -> str:
    """Write a checkpoint, change the files, and return the one line that the start logs."""
    daemon.ledger.write_checkpoint()
    change()
    daemon.end(clean=False)
    daemon.start()
    daemon.check_equals_rebuild()
    (line,) = daemon.reported
    return line


def test_segments_that_expired_past_the_checkpoint_are_read_again(daemon: Daemon) -> None:
    daemon.append()

    def change() -> None:
        daemon.append()
        daemon.expire()

    assert "offsets before and behind 3 went together" in changed_while_stopped(daemon, change)


def test_batch_partly_past_the_checkpoint_is_read_again(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, compression="zstd", rotate_after=10)
    daemon.append()

    def change() -> None:
        daemon.append()
        daemon.clock.advance(20)
        daemon.log.sweep()

    assert "offset 3 has become a part of a larger batch" in changed_while_stopped(daemon, change)


def test_batch_dropped_in_two_parts_at_the_checkpoint_is_read_again(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, compression="zstd", rotate_after=10)
    daemon.append()

    def change() -> None:
        daemon.append()
        daemon.clock.advance(20)
        daemon.log.sweep()  # joins the batches
        daemon.log.topic("events").cursors.commit("reader", 3)
        daemon.expire()

    assert "offset 3 was a part of a larger batch when it went" in changed_while_stopped(daemon, change)
    daemon.log.close()


def test_unreadable_batch_leaves_its_counts(daemon: Daemon) -> None:
    fill(daemon)
    daemon.append("_receipts", 0)
    before = tiers(daemon.ledger._book.snapshot())["received"]
    daemon.end()
    for topic in ("events", "_receipts", "_ledger"):
        segment = min((daemon.topics / topic).glob("*.arrows"))
        data = bytearray(segment.read_bytes())
        data[-100] ^= 1
        segment.write_bytes(data)
    (daemon.topics / "LEDGER").unlink()
    daemon.start()
    assert daemon.log.topic("events").gaps()
    assert tiers(daemon.ledger._book.snapshot())["received"] == before
    assert daemon.ledger.balance().unaccounted == 0
    daemon.check_equals_rebuild()
    assert daemon.ledger.balance().topics[0].fates["landed.event"] == 24


def test_unreadable_batch_covered_by_the_checkpoint_is_a_gap(daemon: Daemon) -> None:
    fill(daemon)
    daemon.end()
    segment = min((daemon.topics / "events").glob("*.arrows"))
    segment.with_suffix(".copies").unlink()
    data = bytearray(segment.read_bytes())
    data[data.index(b"x" * 100)] ^= 1
    segment.write_bytes(data)
    daemon.start()
    assert daemon.log.topic("events").verify()
    assert daemon.ledger.balance().unaccounted == 0
    daemon.reported.clear()
    daemon.end()
    assert "no checkpoint" in daemon.reported[0]
    daemon.reported.clear()
    daemon.start()
    assert "topic events: other offsets than then cannot be read" in daemon.reported[0]
    daemon.check_equals_rebuild()
    assert daemon.ledger.balance().topics[0].fates["landed.event"] == 24
    daemon.end()
    daemon.reported.clear()
    daemon.start()
    assert daemon.reported == []


@pytest.mark.parametrize("topic", ["_receipts", "_ledger"])
def test_batch_restored_while_the_ledger_reads_counts(daemon: Daemon, topic: str) -> None:
    for _ in range(40):
        daemon.append()
        daemon.land()
        counts = Counts({"seen": 2, "invalid.frame": 2})
        receipts = daemon.log.topic("_receipts", create=True, internal=True)
        receipts.append(EMPTY_BODY, Origin("in", 60, 0, 0, counts=counts)).result()
        receipts.wait_until_idle()
    before = tiers(daemon.ledger._book.snapshot())
    daemon.end(clean=False)
    first = min((daemon.topics / topic).glob("*.arrows"))
    assert len(list((daemon.topics / topic).glob("*.arrows"))) > 1, "it is sealed: nobody looks at it before it is read"
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    daemon.start()
    assert tiers(daemon.ledger._book.snapshot()) == before
    assert first.read_bytes() != data


@pytest.mark.parametrize("recreated", [False, True])
def test_checkpoint_of_a_removed_topic_is_ignored(daemon: Daemon, recreated: bool) -> None:
    fill(daemon)
    daemon.end()
    shutil.rmtree(daemon.topics / "events")
    if recreated:
        Log(daemon.topics, daemon.settings, clock=daemon.clock).close()
        second_log = Log(daemon.topics, daemon.settings, clock=FakeClock(1_600_000_000.0))
        second_log.topic("events", create=True).append(body([b"y"] * 24), Origin("in", 0, 0, 0)).result()
        second_log.close()
    daemon.start()
    assert ("another timestamp" if recreated else "topic events is gone") in daemon.reported[0]


def test_keeper_writes_checkpoints_by_interval_and_at_the_end(daemon: Daemon) -> None:
    keeper = CheckpointKeeper(daemon.ledger, interval=0.01)
    keeper.start()
    daemon.append()
    while not (daemon.topics / FILE).exists():
        pass
    fill(daemon)
    keeper.stop()
    assert read(daemon.topics).covered["events"].end == 27
    assert daemon.reported == []


def test_checkpoint_is_written_after_a_start_that_read_batches(daemon: Daemon) -> None:
    fill(daemon)
    keeper = CheckpointKeeper(daemon.ledger)
    keeper.start()
    deadline = time.monotonic() + 30
    while not (daemon.topics / FILE).exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert read(daemon.topics).covered["events"].end == 24
    keeper.stop()


def test_keeper_logs_a_failed_checkpoint(daemon: Daemon) -> None:
    daemon.append()
    (daemon.topics / FILE).mkdir()
    keeper = CheckpointKeeper(daemon.ledger)
    keeper.start()
    keeper.stop()
    assert "ledger: checkpoint was not written" in daemon.reported[0]


def test_checkpoint_with_wrong_counts_is_detected_by_a_rebuild(daemon: Daemon) -> None:
    fill(daemon)
    daemon.end()
    assert recompute(daemon.topics)[1] == []
    pages = read(daemon.topics)
    pages.received.add(next(iter(pages.received)), Counts(accepted=1))
    write(daemon.topics, pages)
    (line,) = recompute(daemon.topics)[1]
    assert line.startswith("received (")
    daemon.start()


def test_checkpoint_of_days_that_are_months_today_equals_its_files(daemon: Daemon) -> None:
    for _ in range(3):
        daemon.append()
        daemon.clock.advance(DAY)
    daemon.clock.advance(500 * DAY)
    daemon.append()
    daemon.ledger.roll_up()
    daemon.end()
    pages, received = read(daemon.topics), load(daemon.topics).snapshot().received
    old = {key: counts for key, counts in received.items() if key[1] < pages.rolled}
    # An earlier version summed by day only.
    pages.received = CountTable(
        {key: counts for key, counts in received.items() if key not in old} | counts_by_day(old)
    )
    assert len(pages.received) == 4
    write(daemon.topics, pages)
    assert recompute(daemon.topics)[1] == []
    daemon.start()
    assert len(daemon.ledger._book.snapshot().received) == 2
    daemon.check_equals_rebuild()


STEPS = ("append", "receipt", "land", "tell", "keep", "expire", "delete", "day", "kill", "stop")


@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=15), st.randoms(use_true_random=False), st.booleans())
def test_resuming_equals_reading_everything(steps: list[str], dice: random.Random, zstd: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), compression="zstd" if zstd else "none")
        daemon.append()
        for step in steps:
            run_step(daemon, step, dice)
        daemon.end(clean=False)
        daemon.start()
        daemon.check_equals_rebuild()
        assert daemon.ledger.balance().unaccounted == 0
        daemon.log.close()


def run_step(daemon: Daemon, step: str, dice: random.Random) -> None:
    if step == "append":
        daemon.append(rows=dice.randint(1, 40))
    elif step == "receipt":
        daemon.append("_receipts", 0)
    elif step == "delete":
        daemon.log.delete("events")
        daemon.append()
    elif step == "day":
        daemon.clock.advance(3 * 86_400)
    elif step in ("kill", "stop"):
        daemon.end(clean=step == "stop")
        daemon.start()
    else:
        {
            "land": daemon.land,
            "tell": daemon.post_events,
            "keep": daemon.ledger.write_checkpoint,
            "expire": daemon.expire,
        }[step]()


def test_resuming_in_an_empty_folder_gives_an_empty_book(tmp_path: Path) -> None:
    assert resume(tmp_path / "none").snapshot() == BookPages()
