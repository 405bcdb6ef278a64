"""Running totals equal the sums of all posts and batches, through kills, power failures and damaged checkpoints."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Collection
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.counts import Counts, Origin
from penstock.ledger.balance import Balance, with_hosts, with_kafka_hosts
from penstock.ledger.balance_from_topics import balance_of
from penstock.ledger.book.book import Book
from penstock.ledger.book.book_from_topics import load
from penstock.ledger.book.book_pages import BookPages
from penstock.ledger.book.checkpoint import FILE
from penstock.ledger.book.source_totals import SourceTotals
from penstock.ledger.ledger import Ledger
from penstock.ledger.posts import LandedPost
from penstock.ledger.rebuild import rebuild_balance
from penstock.log import Log, LogError, Topic, TopicSettings
from penstock.records import body
from penstock.testing import Crashed, CrashingFileSystem, FakeClock
from penstock.testing.simulation.daemon import SteppedCommitters

SOURCES = ("in", "a/events", "a/more", "b/events")
FATES = ("landed.event", "landed.message", "duplicate")
DAY = 86_400


class StoppedCommitters(SteppedCommitters):
    """Committers that give up once their disk has stopped."""

    def __init__(self, fs: CrashingFileSystem) -> None:
        super().__init__()
        self._fs = fs

    def wait(self, futures: Collection[Future[Any]]) -> None:
        while not all(future.done() for future in futures):
            if self._fs.stop_after is not None and self._fs.stop_after < 0:
                raise Crashed("the machine has stopped")
            self.run_once()


class Daemon:
    """A log and its ledger on a disk that can fail at any write; ``acknowledged`` are the rows that were stored."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.folder, self.dice = folder, dice
        self.fs = CrashingFileSystem(folder, dice.randrange(1 << 30))
        self.clock, self.versions, self.acknowledged = FakeClock(), 0, 0
        self.start()

    def start(self) -> None:
        settings = TopicSettings(segment_size_limit=4096)
        self.log = Log(
            self.folder / "topics", settings, clock=self.clock, fs=self.fs, committers=StoppedCommitters(self.fs)
        )
        self.ledger = Ledger(self.log, self.folder, ["in"], self.clock.time, self.fs)

    def append(self) -> None:
        rows, bucket = self.dice.randint(1, 9), int(self.clock.time()) // 60 * 60
        counts = Counts(seen=rows + 1, accepted=rows, bad_checksum=1)
        topic = self.log.topic(self.dice.choice(("events", "logs")), create=True)
        origin = Origin(self.dice.choice(SOURCES), bucket, 0, 0, counts=counts)
        self.append_rows(topic, rows, origin)

    def append_rows(self, topic: Topic, rows: int, origin: Origin) -> None:
        stored = topic.append(body([b"x"] * rows), origin)
        self.log.committers.wait([stored])
        stored.result()
        self.acknowledged += rows

    def land(self) -> None:
        for name in self.log.names():
            end, landed = self.log.topic(name).end, self.ledger.landed().get(name)
            if end > (begin := landed.through if landed else 0):
                fates = {self.dice.choice(FATES): end - begin}
                self.post_landed(name, end, fates, {"rows.landed.event": 1, "sum.landed.event": end << 60})

    def land_from_kafka(self) -> None:
        landed = self.ledger.landed().get("kt/0")
        through = (landed.through if landed else 0) + self.dice.randint(1, 5)
        self.post_landed("kt/0", through, {"landed.event": 1})

    def post_landed(self, topic: str, through: int, fates: dict[str, int], uuids: dict[str, int] | None = None) -> None:
        entry = {"source": self.dice.choice(SOURCES), "bucket": int(self.clock.time()) // 60 * 60, "counts": fates}
        entry |= {"uuids": uuids} if uuids else {}
        post = {"tier": "landed", "topic": topic, "version": through, "through": through, "counts": [entry]}
        self.ledger.post(post)

    def delete_rows(self) -> None:
        for topic, landed in self.ledger.landed().items():
            for (source, bucket), counts in landed.counts.items():
                if counts["landed.event"] > 0:
                    moved = {"counts": {"deleted.asked": 1}, "taken": {"landed.event": 1}}
                    entry = {"source": source, "bucket": bucket, **moved}
                    post = {"tier": "landed", "topic": topic, "version": 0, "through": 0, "counts": [entry]}
                    self.ledger.post(post | {"deletion": landed.deletion + 1})
                    return

    def report(self) -> None:
        self.versions += 1
        counts = {"datagrams": self.versions}
        post = {"tier": "client", "listener": "in", "sender": "me", "version": self.versions, "counts": counts}
        self.ledger.post(post)

    def write_checkpoint(self) -> None:
        self.ledger.write_checkpoint()

    def advance(self) -> None:
        self.clock.advance(self.dice.choice((60, DAY, 9 * DAY)))

    def restart(self, how: str) -> None:
        self.fs.crash() if how == "power" else self.fs.kill()
        checkpoint = self.folder / "topics" / FILE
        if checkpoint.exists() and how in ("deleted", "torn"):
            kept = checkpoint.read_bytes()[: self.dice.randrange(1 << 9)]
            checkpoint.unlink()
            if how == "torn":
                checkpoint.write_bytes(kept)
            self.fs = CrashingFileSystem(self.folder, self.dice.randrange(1 << 30))
        self.start()

    def check(self) -> None:
        """Compare the running totals with the sums over all buckets of the book, and over all files."""
        pages = self.ledger._book.snapshot()
        totals = self.ledger._book.summary().totals
        assert totals is not None
        fresh = load(self.folder / "topics").snapshot()
        assert comparable(totals) == comparable(pages.add_up(), totals) == comparable(fresh.add_up(), totals)
        assert self.ledger.balance() == added_up(self, pages)
        rebuilt = rebuild_balance(self.folder / "topics", self.folder, ["in"], (), lambda: None)
        accepted = {entry["source"]: entry["accepted"] for entry in rebuilt["routes"]}
        of_log = Counts(accepted)
        assert of_log.total() >= self.acknowledged


def added_up(daemon: Daemon, pages: BookPages) -> Balance:
    """Return the balance of the same moment by adding up all buckets."""
    return with_kafka_hosts(with_hosts(balance_of(pages, daemon.folder / "topics", {}, None, daemon.folder), {}), {})


def comparable(totals: SourceTotals, running: SourceTotals | None = None) -> dict[str, Any]:
    """Return totals without zeros. A rolled-up bucket is known only by its day, so ``last_seen`` is compared by day."""

    def pruned(counts: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        return {key: dict(Counts(named).pruned()) for key, named in counts.items()}

    return {
        "received": pruned(totals.received),
        "last_seen": {source: bucket // DAY for source, bucket in totals.last_seen.items()},
        "delivered": totals.delivered,
        "logged": totals.logged,
        "fates": {topic: pruned(fates) for topic, fates in totals.fates.items() if fates},
        "uuids": pruned(totals.uuids),
    }


STEPS = ("append", "append", "land", "land_from_kafka", "delete_rows", "report", "write_checkpoint", "advance")
RESTARTS = ("kill", "power", "deleted", "torn")


@pytest.mark.survives("ledger", "SIGKILL")
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 40)), min_size=5, max_size=25),
    st.sampled_from(RESTARTS),
    st.randoms(use_true_random=False),
)
def test_totals_equal_the_sums_after_a_stop_at_any_write(
    steps: list[tuple[str, int]], how: str, dice: random.Random
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), dice)
        for step, operations in steps:
            # One step in four stops at one of its writes.
            stops = operations < 10
            daemon.fs.stop_after = operations if stops else None
            try:
                getattr(daemon, step)()
            except (OSError, LogError):
                assert stops
            if stops:
                daemon.restart(how)
            daemon.check()
        daemon.restart(how)
        daemon.check()


def test_wrong_total_is_detected_by_a_rebuild(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, random.Random(1))
    origin = Origin("a/events", 60, 0, 0, counts=Counts(seen=3, accepted=3))
    daemon.append_rows(daemon.log.topic("events", create=True), 3, origin)
    topics, book = tmp_path / "topics", daemon.ledger._book
    landed = {"source": "a/events", "bucket": 60, "counts": {"landed.event": 3}}
    daemon.ledger.post({"tier": "landed", "topic": "events", "version": 3, "through": 3, "counts": [landed]})
    posts = list(load_posts(topics))

    def differs() -> list[str]:
        document = daemon.ledger.balance().document()
        differences: list[str] = rebuild_balance(topics, tmp_path, ["in"], posts, lambda: document)["differs"]
        return differences

    assert differs() == []
    book._totals.received["a/events"]["seen"] += 1
    (line,) = differs()
    assert line.startswith("listener a/events: seen 4 in the ledger, 3 computed;")
    book._totals.received["a/events"]["seen"] -= 1
    fates = book._totals.fates["events"]
    fates["b/events"] = fates.pop("a/events")
    assert differs() == ["fates of host a to relay: missing in the ledger"]


def load_posts(topics: Path) -> list[Any]:
    return [
        LandedPost(topic, fates.version, fates.through, fates.counts)
        for topic, fates in load(topics).snapshot().landed.items()
    ]


def test_last_minute_of_a_source_is_its_day_once_it_is_rolled_up() -> None:
    book = Book()
    book.enter("events", Origin("a/events", DAY + 120, 0, 0, counts=Counts(seen=1, accepted=1)), 0, 1)
    book.enter("events", Origin("a/events", DAY + 60, 0, 0, counts=Counts(seen=1, accepted=1)), 1, 1)
    book.roll_up(2 * DAY)
    resumed = Book(book.snapshot())
    last_seen = []
    for pages in (book.summary(), resumed.summary()):
        (host,) = balance_of(pages, Path("missing"), {}).hosts
        last_seen.append(host.last_seen)
    assert last_seen == [DAY, DAY]


def test_summary_does_not_grow_with_time() -> None:
    book = Book()
    for minute in range(100):
        counts = Counts(seen=1, accepted=1)
        book.enter("events", Origin("a/events", 60 * minute, 0, 0, counts=counts), minute, 1)
    pages = book.summary()
    assert (pages.received, pages.logged) == ({}, {"events": {}})
    assert pages.totals is not None
    assert (pages.totals.received, pages.totals.delivered) == (
        {"a/events": {"seen": 100, "accepted": 100}},
        {"a/events": 100},
    )
