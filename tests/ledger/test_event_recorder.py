"""The timeline as the daemon writes it down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.counts import Counts, Origin
from penstock.ledger import checkpoint
from penstock.ledger.book import MAX_EVENTS, Book
from penstock.ledger.book_from_topics import load
from penstock.ledger.event_recorder import LOSS_PAUSE_MS, EventRecorder
from penstock.ledger.event_words import merged
from penstock.ledger.ledger import Ledger
from penstock.ledger.posts import EventPost
from penstock.ledger.receipt import receipt
from penstock.log import Log, Swept, TopicSettings
from penstock.log.plausible_clock import STEADY_AFTER_S
from penstock.records import EMPTY_BODY, body
from penstock.testing import FakeClock

NOW = 1_800_000_000.0


class Watched:
    """A log with its ledger and a recorder, whose clock stands still until it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, FakeClock(NOW)
        self.open()

    def open(self) -> None:
        self.log = Log(self.folder / "topics", clock=self.clock)
        self.ledger = Ledger(self.log, self.folder, ["in"], now=self.clock.time)
        self.recorder = EventRecorder(self.ledger, self.log)
        self.recorder.look()

    def reopen(self) -> None:
        self.log.close()
        self.open()

    def lose(self, **counts: int) -> None:
        named = {name.replace("__", "."): n for name, n in counts.items()}
        topic = self.log.topic("_receipts", create=True, internal=True)
        topic.append(EMPTY_BODY, Origin("in", 60, 0, 0, counts=named)).result()
        topic.settle()

    def look(self, later: float = 1.0) -> list[str]:
        self.clock.advance(later)
        self.recorder.look()
        return self.said()

    def said(self) -> list[str]:
        return [event["text"] for event in merged([one.document() for one in self.ledger.events()])]

    def died(self, back: bool = True, **more: Any) -> None:
        at = int(self.clock.now * 1000)
        event = {"tier": "event", "id": f"r{at}", "version": 0, "kind": "restart", "at": at, "what": "receiver in"}
        event |= {"cause": "was killed by SIGKILL", "place": "in", **more}
        self.ledger.post(event)
        if back:
            self.ledger.post(event | {"version": 1, "until": at + 400})


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.log.close()


def test_a_count_that_is_seen_on_both_sides_while_it_is_handed_over_is_told_once(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, until = watched.ledger.balance, time.monotonic() + 0.1  # its reader has little of a processor

    def balance(*within: Any) -> Any:
        now = real(*within)
        if time.monotonic() < until:
            for listener in now.listeners:
                listener.counts["kernel_dropped"] += 5
        return now

    watched.lose(kernel_dropped=5)
    monkeypatch.setattr(watched.ledger, "balance", balance)
    assert watched.look() == ["in: 5 dropped by the kernel"]
    assert watched.look() == watched.said()


def test_a_loss_is_named_as_it_grows_until_it_is_quiet(watched: Watched) -> None:
    watched.lose(kernel_dropped=5)
    assert watched.look() == ["in: 5 dropped by the kernel"]
    watched.lose(kernel_dropped=2, invalid__header=1)
    assert watched.look(4.0) == ["in: 7 dropped by the kernel, 1 invalid header within 4.0 s"]
    assert watched.look(LOSS_PAUSE_MS / 1000 + 1) == watched.said()
    watched.lose(kernel_dropped=1)
    assert watched.look()[0] == "in: 1 dropped by the kernel"


def test_what_was_lost_while_a_receiver_was_away_is_a_part_of_its_restart(watched: Watched) -> None:
    watched.died()
    watched.lose(kernel_dropped=2718, incomplete__crash=1)
    watched.look()
    watched.lose(kernel_dropped=1)
    losses = "2,719 dropped by the kernel, 1 incomplete crash in that time"
    assert watched.look() == [f"receiver in was killed by SIGKILL, back after 0.4 s, {losses}"]


def test_what_has_nothing_to_do_with_a_restart_is_an_event_of_its_own(watched: Watched) -> None:
    watched.died()
    watched.lose(invalid__header=3, kernel_dropped=1)
    assert watched.look() == [
        "in: 3 invalid header",
        "receiver in was killed by SIGKILL, back after 0.4 s, 1 dropped by the kernel in that time",
    ]
    watched.clock.advance(30)
    watched.lose(kernel_dropped=4)
    assert watched.look()[0] == "in: 4 dropped by the kernel, 3 invalid header within 31 s"


def test_a_log_daemon_s_absence_is_that_of_all_listeners(watched: Watched) -> None:
    watched.died(what="log daemon", place="*", back=False)
    watched.lose(policy_drop__log=9)
    assert watched.look() == ["log daemon was killed by SIGKILL, not back yet, 9 too fast for handler log in that time"]


def test_the_timeline_tells_of_all_that_the_receipt_calls_lost_whatever_is_killed(watched: Watched) -> None:
    for round_ in range(8):
        watched.lose(kernel_dropped=3, refused__oversize=round_)
        if round_ % 2:
            watched.look(0.3)  # too soon to be written down again: told in memory alone
        if round_ % 3 == 2:
            watched.reopen()
    watched.look()
    event_losses = sum(sum(event.lost.values()) for event in watched.ledger.events())
    assert event_losses == receipt(watched.ledger.balance().document()).lost == 8 * 3 + sum(range(8))


def test_losses_of_before_there_was_a_timeline_are_one_event(watched: Watched) -> None:
    watched.log.close()
    log = Log(watched.folder / "topics", clock=watched.clock)
    Ledger(log, watched.folder, ["in"])
    log.topic("_receipts", create=True, internal=True).append(
        EMPTY_BODY, Origin("in", 60, 0, 0, counts={"corrupt": 4})
    ).result()
    log.close()
    watched.open()
    assert watched.said() == ["in: 4 corrupt in a log buffer (counted when the log daemon started)"]
    watched.reopen()
    assert len(watched.said()) == 1


def test_a_loss_that_goes_on_is_not_written_down_every_second(watched: Watched) -> None:
    for _ in range(50):
        watched.lose(kernel_dropped=1)
        watched.look(0.01)
    assert watched.said() == ["in: 50 dropped by the kernel"]
    assert watched.log.topic("_ledger", internal=True).end < 5
    watched.recorder.look(last=True)
    (kept,) = load(watched.folder / "topics").events().values()
    assert kept.lost == {"kernel_dropped": 50}


def test_a_full_disk_has_a_beginning_and_an_end(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.log.close()
    watched.log = Log(tmp_path / "topics", clock=watched.clock, max_bytes=1)
    watched.ledger = Ledger(watched.log, tmp_path, ["in"], now=watched.clock.time)
    watched.recorder = EventRecorder(watched.ledger, watched.log)
    refused = watched.log.topic("events", create=True).append(body([b"x" * 100]), Origin("in", 60, 0, 0))
    assert refused.exception(20)
    assert watched.look()[0].startswith("the disk is full: log.max_bytes")
    assert watched.look(29) == ["the disk was full for 29 s"]
    watched.log.close()


def test_a_clock_that_cannot_be_right_has_a_beginning_and_an_end_also_over_a_restart(watched: Watched) -> None:
    watched.clock.jump(-7200)
    assert watched.look()[0].startswith("the clock is 2 hours behind what it should say")
    watched.reopen()
    watched.log.clock.accept()
    (said,) = watched.look()
    assert said.startswith("the clock is 2 hours behind what it should say; believed again after")


@pytest.mark.parametrize("jump", [-365 * 86_400, 365 * 86_400])
@pytest.mark.parametrize("cure", ["accepted", "set right"])
def test_the_timeline_says_for_how_long_a_clock_was_not_believed(watched: Watched, jump: float, cure: str) -> None:
    watched.clock.jump(jump)
    assert watched.look()[0].startswith("the clock is 365 days")
    watched.clock.advance(900)
    if cure == "accepted":
        watched.log.clock.accept()
    else:
        watched.clock.jump(-jump)
        watched.look()
        watched.clock.advance(STEADY_AFTER_S)
    (said,) = watched.look()
    passed = "15 min" if cure == "accepted" else "25 min"
    assert said.endswith(f"what it should say; believed again after {passed}")


def test_a_restart_dated_by_a_clock_that_was_ahead_takes_no_losses_of_later(watched: Watched) -> None:
    watched.clock.jump(365 * 86_400)
    watched.died()
    watched.clock.jump(-365 * 86_400)
    watched.clock.advance(60)
    watched.lose(kernel_dropped=7)
    assert "in: 7 dropped by the kernel" in watched.look()


def test_what_retention_drops_within_an_hour_is_one_event(watched: Watched) -> None:
    for _ in range(2):
        for name in "abcd":
            watched.recorder._collect_sweeps(
                [Swept(name, 0, 7, 100, "expired_read"), Swept("_ledger", 0, 1, 1, "expired_read")]
            )
        watched.look()
    watched.recorder._collect_sweeps([Swept("a", 7, 9, 100, "expired_unread")])
    assert watched.look() == [
        "retention dropped a up to offset 9 (unread), b up to offset 7, c up to offset 7 and 1 more"
    ]


def test_sweeps_of_the_log_are_told(tmp_path: Path) -> None:
    clock = FakeClock(NOW)
    log = Log(tmp_path / "topics", TopicSettings(stale_after=0.0, rotate_after=0.0), clock=clock)
    ledger = Ledger(log, tmp_path, [])
    recorder = EventRecorder(ledger, log)
    log.topic("events", create=True).append(body([b"x"]), Origin("grpc", 60, 0, 0)).result()
    clock.advance(60)
    log.sweep()
    log.sweep()
    recorder.look()
    assert [event.what for event in ledger.events() if event.kind == "retention"] == ["events up to offset 1"]
    log.close()


def test_the_checkpoint_has_the_timeline(watched: Watched) -> None:
    watched.died()
    watched.lose(kernel_dropped=5)
    watched.look()
    watched.ledger.write_checkpoint()
    kept = checkpoint.read(watched.folder / "topics")
    assert kept.event_losses == {"in": Counts({"kernel_dropped": 5})}
    assert list(kept.events.values()) == watched.ledger.events()
    before = watched.said()
    watched.reopen()
    assert watched.said() == before


def test_the_oldest_events_go_and_what_they_told_of_is_known_still() -> None:
    book = Book()
    for number in range(MAX_EVENTS + 5):
        book.post(EventPost(str(number), 0, "loss", number, place="in", lost=Counts({"corrupt": 1})))
    assert (len(book.events()), next(iter(book.events()))) == (MAX_EVENTS, "5")
    assert book.event_losses() == {"in": {"corrupt": MAX_EVENTS + 5}}


def test_of_an_event_the_highest_version_counts() -> None:
    book = Book()
    versions = [EventPost("x", n, "loss", 0, place="in", lost=Counts({"corrupt": 10 * n})) for n in (1, 3, 2)]
    assert [book.post(one) for one in versions] == [True, True, False]
    assert (book.event_losses(), book.events()["x"].version) == ({"in": {"corrupt": 30}}, 3)
