"""Rows dropped by retention and deleted topics in the balance: named, numbered, and unchanged after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from penstock.counts import Counts, Origin, prefix_with_bucket
from penstock.ledger.balance_from_topics import balance_of
from penstock.ledger.book.book_from_topics import load
from penstock.ledger.ledger import Ledger
from penstock.log import Log, TopicSettings
from penstock.records import EMPTY_BODY, body
from penstock.testing import FakeClock

COUNTS = {"taken": 5, "unboxed": 4, "empty": 1, "seen": 4, "accepted": 4}
ORIGIN = Origin("events-udp", 60, 0, 0, "plog", Counts(COUNTS))
STALE = 100


class Books:
    """A log on a fake clock with its ledger."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.open()

    def open(self) -> None:
        settings = TopicSettings(stale_after=STALE)
        self.log = Log(self.folder / "topics", settings, overrides={"_receipts": settings}, clock=self.clock)
        self.ledger = Ledger(self.log, self.folder, ["events-udp"])

    def restart(self) -> None:
        self.log.close()
        self.open()

    def append(self, topic: str = "events", **more: Any) -> None:
        internal = topic.startswith("_")
        opened = self.log.topic(topic, create=True, internal=internal)
        opened.append(EMPTY_BODY if internal else body([b"x"] * 4), replace(ORIGIN, **more)).result()
        opened.wait_until_idle()

    def land(self, begin: int, through: int, **counts: int) -> None:
        landed = [{"source": "events-udp", "bucket": 60, "counts": counts}]
        post = {"tier": "landed", "topic": "events", "version": through, "through": through, "counts": landed}
        assert self.ledger.post(post)

    def expire(self) -> None:
        self.clock.advance(STALE + 1)
        self.log.sweep()

    def picture(self) -> dict[str, Any]:
        return self.ledger.balance().document()

    def check(self, **fates: int) -> None:
        """Check that the balance closes with these fates of the topic: live, rebuilt from the files, and after a
        restart.
        """
        live = self.picture()
        assert live["unaccounted"] == 0
        assert live["topics"][0]["fates"] == fates
        pages = load(self.log.directory).snapshot()
        assert [asdict(route) for route in balance_of(pages, self.log.directory, {}).routes] == [
            {key: value for key, value in route.items() if key != "unaccounted"} for route in live["routes"]
        ]
        self.restart()
        assert self.picture() == live


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Books]:
    instance = Books(tmp_path)
    yield instance
    instance.log.close()


def test_rows_that_expire_unread_are_named_and_read_rows_keep_their_fate(books: Books) -> None:
    books.append()
    books.append(bucket=120)
    books.land(0, 3, **{"landed.message": 3})
    books.expire()
    books.append(bucket=180)
    books.check(**{"landed.message": 3, "gap.expired_unread": 5})
    assert books.picture()["pending"] == 4


def test_gap_reached_by_the_pipeline_is_counted_once(books: Books) -> None:
    books.append()
    books.land(0, 1, **{"landed.message": 1})
    books.expire()
    books.check(**{"landed.message": 1, "gap.expired_unread": 3})
    books.land(1, 3, **{"gap.expired_unread": 2})
    books.check(**{"landed.message": 1, "gap.expired_unread": 3})
    books.land(3, 4, **{"gap.expired_unread": 1})
    books.check(**{"landed.message": 1, "gap.expired_unread": 3})


def test_counts_of_receivers_outlive_the_retention(books: Books) -> None:
    more = {**COUNTS, **prefix_with_bucket(0, {"taken": 2, "empty": 2})}
    books.append(counts=Counts(more))
    books.append("_receipts", counts=Counts({"taken": 7, "empty": 7}))
    before = books.picture()["listeners"]
    books.expire()
    books.restart()
    assert books.picture()["listeners"] == before
    assert before[0]["counts"] == {"taken": 14, "unboxed": 4, "empty": 10, "seen": 4, "accepted": 4}
    assert books.log.topic("_receipts", internal=True).start == 1
    assert books.picture()["unaccounted"] == 0


def test_posts_to_the_ledger_never_expire(books: Books) -> None:
    books.append()
    books.land(0, 4, **{"landed.message": 4})
    books.expire()
    books.check(**{"landed.message": 4})


def test_expired_topic_without_a_pipeline_closes(books: Books) -> None:
    books.append()
    books.expire()
    books.append()
    live = books.picture()
    assert (live["unaccounted"], live["topics"][0]["logged"]) == (0, 8)
    books.restart()
    assert books.picture() == live


@pytest.mark.parametrize("recreated", [False, True])
def test_deleted_topic_ends_in_a_gap_and_can_be_created_again(books: Books, recreated: bool) -> None:
    books.append()
    books.append()
    books.land(0, 5, **{"landed.message": 5})
    books.log.delete("events")
    if recreated:
        books.append()
    books.check(**{"landed.message": 5, "gap.deleted": 3})
    books.land(5, 8, **{"gap.deleted": 3})
    books.check(**{"landed.message": 5, "gap.deleted": 3})


def test_topic_of_another_format_is_left_out_and_the_balance_closes(books: Books) -> None:
    books.append()
    books.append("zzz")
    settings = books.log.directory / "zzz" / "settings.json"
    books.log.close()
    settings.write_bytes(b"from the future")
    books.open()
    live = books.picture()
    assert [topic["topic"] for topic in live["topics"]] in (["events"], ["events", "zzz"])
    assert live["unaccounted"] == 0
