"""The timeline as recorded by the daemon."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.counts import Counts, Origin
from penstock.handover.heartbeat import Pulse
from penstock.handover.landing_failure import LandingFailure
from penstock.ledger.book import checkpoint
from penstock.ledger.book.book import Book
from penstock.ledger.book.book_from_topics import load
from penstock.ledger.book.book_pages import MAX_EVENTS
from penstock.ledger.event_recorder import CHECK_INTERVAL_S, LOSS_PAUSE_MS, MAX_CPU_SHARE, EventRecorder
from penstock.ledger.event_words import merged
from penstock.ledger.ledger import Ledger
from penstock.ledger.posts import DISK, EventPost
from penstock.ledger.receipt import receipt
from penstock.log import Log, Swept, TopicSettings
from penstock.log.errors import LogFull
from penstock.log.plausible_clock import STEADY_AFTER_S
from penstock.records import EMPTY_BODY, body
from penstock.testing import FakeClock

NOW = 1_800_000_000.0


class Watched:
    """A log with its ledger and a recorder, on a clock that moves only on request."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, FakeClock(NOW)
        self.pulses: dict[str, Pulse] = {}
        self.open()

    def open(self) -> None:
        self.log = Log(self.folder / "topics", clock=self.clock)
        self.ledger = Ledger(self.log, self.folder, ["in"], now=self.clock.time)
        self.recorder = EventRecorder(self.ledger, self.log, lambda: self.pulses)
        self.recorder.check()

    def reopen(self) -> None:
        self.log.close()
        self.open()

    def lose(self, **counts: int) -> None:
        named = {name.replace("__", "."): n for name, n in counts.items()}
        topic = self.log.topic("_receipts", create=True, internal=True)
        topic.append(EMPTY_BODY, Origin("in", 60, 0, 0, counts=named)).result()
        topic.wait_until_idle()

    def check_again(self, later: float = 1.0) -> list[str]:
        self.clock.advance(later)
        self.recorder.check()
        return self.texts()

    def texts(self) -> list[str]:
        return [entry["text"] for entry in merged([recorded.document() for recorded in self.ledger.events()])]

    def record_restart(self, back: bool = True, **more: Any) -> None:
        died_ms = int(self.clock.now * 1000)
        event = {
            "tier": "event",
            "id": f"r{died_ms}",
            "version": 0,
            "kind": "restart",
            "at": died_ms,
            "what": "receiver in",
        }
        event |= {"cause": "was killed by SIGKILL", "place": "in", **more}
        self.ledger.post(event)
        if back:
            self.ledger.post(event | {"version": 1, "until": died_ms + 400})


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    instance = Watched(tmp_path)
    yield instance
    instance.log.close()


def test_count_seen_on_both_sides_of_a_handover_is_reported_once(
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
    assert watched.check_again() == ["in: 5 dropped by the kernel"]
    assert watched.check_again() == watched.texts()


def test_growing_loss_is_one_event_until_it_pauses(watched: Watched) -> None:
    watched.lose(kernel_dropped=5)
    assert watched.check_again() == ["in: 5 dropped by the kernel"]
    watched.lose(kernel_dropped=2, invalid__header=1)
    assert watched.check_again(4.0) == ["in: 7 dropped by the kernel, 1 invalid header within 4.0 s"]
    assert watched.check_again(LOSS_PAUSE_MS / 1000 + 1) == watched.texts()
    watched.lose(kernel_dropped=1)
    assert watched.check_again()[0] == "in: 1 dropped by the kernel"


def test_loss_during_a_restart_belongs_to_the_restart(watched: Watched) -> None:
    watched.record_restart()
    watched.lose(kernel_dropped=2718, incomplete__crash=1)
    watched.check_again()
    watched.lose(kernel_dropped=1)
    losses = "2,719 dropped by the kernel, 1 incomplete crash in that time"
    assert watched.check_again() == [f"receiver in was killed by SIGKILL, back after 0.4 s, {losses}"]


def test_loss_unrelated_to_a_restart_is_a_separate_event(watched: Watched) -> None:
    watched.record_restart()
    watched.lose(invalid__header=3, kernel_dropped=1)
    assert watched.check_again() == [
        "in: 3 invalid header",
        "receiver in was killed by SIGKILL, back after 0.4 s, 1 dropped by the kernel in that time",
    ]
    watched.clock.advance(30)
    watched.lose(kernel_dropped=4)
    assert watched.check_again()[0] == "in: 4 dropped by the kernel, 3 invalid header within 31 s"


def test_restart_of_the_log_daemon_covers_all_listeners(watched: Watched) -> None:
    watched.record_restart(what="log daemon", place="*", back=False)
    watched.lose(policy_drop__log=9)
    assert watched.check_again() == [
        "log daemon was killed by SIGKILL, not back yet, 9 too fast for handler log in that time"
    ]


def test_timeline_has_each_loss_of_the_receipt_after_any_kill(watched: Watched) -> None:
    for round_ in range(8):
        watched.lose(kernel_dropped=3, refused__oversize=round_)
        if round_ % 2:
            watched.check_again(0.3)  # too soon to be written down again: told in memory alone
        if round_ % 3 == 2:
            watched.reopen()
    watched.check_again()
    event_losses = sum(sum(event.losses.values()) for event in watched.ledger.events())
    assert event_losses == receipt(watched.ledger.balance().document()).lost == 8 * 3 + sum(range(8))


def test_losses_before_the_first_timeline_are_one_event(watched: Watched) -> None:
    watched.log.close()
    log = Log(watched.folder / "topics", clock=watched.clock)
    Ledger(log, watched.folder, ["in"])
    log.topic("_receipts", create=True, internal=True).append(
        EMPTY_BODY, Origin("in", 60, 0, 0, counts={"corrupt": 4})
    ).result()
    log.close()
    watched.open()
    assert watched.texts() == ["in: 4 corrupt in a log buffer (counted when the log daemon started)"]
    watched.reopen()
    assert len(watched.texts()) == 1


def test_continuing_loss_is_not_stored_every_second(watched: Watched) -> None:
    for _ in range(20):
        watched.lose(kernel_dropped=1)
        watched.check_again(0.02)
    assert watched.texts() == ["in: 20 dropped by the kernel"]
    assert watched.log.topic("_ledger", internal=True).end < 5
    watched.recorder.check(last=True)
    (event,) = load(watched.folder / "topics").events().values()
    assert event.losses == {"kernel_dropped": 20}


@pytest.mark.survives("alarms", "full disk")
def test_full_disk_has_a_beginning_and_an_end(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.log.close()
    watched.log = Log(tmp_path / "topics", clock=watched.clock, max_bytes=1)
    watched.ledger = Ledger(watched.log, tmp_path, ["in"], now=watched.clock.time)
    watched.recorder = EventRecorder(watched.ledger, watched.log)
    refused = watched.log.topic("events", create=True).append(body([b"x" * 100]), Origin("in", 60, 0, 0))
    assert refused.exception(20)
    assert watched.check_again()[0].startswith("the log is full: log.max_bytes")
    assert watched.check_again(29) == ["the log was full for 29 s"]
    watched.log.close()


@pytest.mark.survives("alarms", "full disk")
def test_messages_that_the_log_misses_on_a_full_disk_are_part_of_its_event(watched: Watched) -> None:
    refused = Log(watched.folder / "full", clock=watched.clock, max_bytes=1)
    append = refused.topic("events", create=True).append(body([b"x"]), Origin("in", 60, 0, 0))
    assert append.exception(20)
    watched.log._shared.refused = refused._shared.refused
    watched.log.note_refusal("in")
    watched.lose(policy_drop__log=9, policy_drop__kafka=2)
    other, full = sorted(watched.check_again())
    assert other == "in: 2 too fast for handler kafka"
    assert full.startswith("the log is full: log.max_bytes")
    assert full.endswith("; 9 messages lost because the log could not be written")
    watched.lose(policy_drop__log=1)
    ended = "the log was full for 29 s; 10 messages lost because the log could not be written"
    assert ended in watched.check_again(29)
    watched.check_again(120)
    watched.lose(policy_drop__log=3)
    assert "in: 3 too fast for handler log" in watched.check_again()
    refused.close()


def test_wrong_clock_has_a_beginning_and_an_end_across_a_restart(watched: Watched) -> None:
    watched.clock.jump(-7200)
    assert watched.check_again()[0].startswith("the clock is 2 hours behind what it should say")
    watched.reopen()
    watched.log.clock.accept()
    (event_text,) = watched.check_again()
    assert event_text.startswith("the clock is 2 hours behind what it should say; believed again after")


@pytest.mark.parametrize("jump", [-365 * 86_400, 365 * 86_400])
@pytest.mark.parametrize("cure", ["accepted", "set right"])
def test_timeline_has_the_duration_of_a_wrong_clock(watched: Watched, jump: float, cure: str) -> None:
    watched.clock.jump(jump)
    assert watched.check_again()[0].startswith("the clock is 365 days")
    watched.clock.advance(900)
    if cure == "accepted":
        watched.log.clock.accept()
    else:
        watched.clock.jump(-jump)
        watched.check_again()
        watched.clock.advance(STEADY_AFTER_S)
    (event_text,) = watched.check_again()
    passed = "15 min" if cure == "accepted" else "25 min"
    assert event_text.endswith(f"what it should say; believed again after {passed}")


def test_restart_dated_by_a_fast_clock_takes_no_later_losses(watched: Watched) -> None:
    watched.clock.jump(365 * 86_400)
    watched.record_restart()
    watched.clock.jump(-365 * 86_400)
    watched.clock.advance(60)
    watched.lose(kernel_dropped=7)
    assert "in: 7 dropped by the kernel" in watched.check_again()


def test_rows_dropped_by_retention_within_an_hour_are_one_event(watched: Watched) -> None:
    for _ in range(2):
        for name in "abcd":
            watched.recorder._collect_sweeps(
                [Swept(name, 0, 7, 100, "expired_read"), Swept("_ledger", 0, 1, 1, "expired_read")]
            )
        watched.check_again()
    watched.recorder._collect_sweeps([Swept("a", 7, 9, 100, "expired_unread")])
    assert watched.check_again() == [
        "retention dropped a up to offset 9 (unread), b up to offset 7, c up to offset 7 and 1 more"
    ]


def test_sweeps_of_the_log_are_recorded(tmp_path: Path) -> None:
    clock = FakeClock(NOW)
    log = Log(tmp_path / "topics", TopicSettings(stale_after=0.0, rotate_after=0.0), clock=clock)
    ledger = Ledger(log, tmp_path, [])
    recorder = EventRecorder(ledger, log)
    log.topic("events", create=True).append(body([b"x"]), Origin("grpc", 60, 0, 0)).result()
    clock.advance(60)
    log.sweep()
    log.sweep()
    recorder.check()
    assert [event.what for event in ledger.events() if event.kind == "retention"] == ["events up to offset 1"]
    log.close()


def test_checkpoint_has_the_timeline(watched: Watched) -> None:
    watched.record_restart()
    watched.lose(kernel_dropped=5)
    watched.check_again()
    watched.ledger.write_checkpoint()
    restored = checkpoint.read(watched.folder / "topics")
    assert restored.event_losses == {"in": Counts({"kernel_dropped": 5})}
    assert list(restored.events.values()) == watched.ledger.events()
    before = watched.texts()
    watched.reopen()
    assert watched.texts() == before


def test_oldest_events_are_dropped_and_their_losses_are_retained() -> None:
    book = Book()
    for number in range(MAX_EVENTS + 5):
        book.post(EventPost(str(number), 0, "loss", number, place="in", losses=Counts({"corrupt": 1})))
    assert (len(book.events()), next(iter(book.events()))) == (MAX_EVENTS, "5")
    assert book.event_losses() == {"in": {"corrupt": MAX_EVENTS + 5}}


def test_highest_version_of_an_event_counts() -> None:
    book = Book()
    versions = [EventPost("x", n, "loss", 0, place="in", losses=Counts({"corrupt": 10 * n})) for n in (1, 3, 2)]
    assert [book.post(version) for version in versions] == [True, True, False]
    assert (book.event_losses(), book.events()["x"].version) == ({"in": {"corrupt": 30}}, 3)


def test_stopped_receiver_is_one_event_with_its_losses(watched: Watched) -> None:
    watched.pulses = {"receiver in": Pulse(0.4), "receiver other": Pulse(0.4)}
    assert watched.check_again() == []
    watched.pulses["receiver in"] = Pulse(4.0)
    assert watched.check_again() == ["receiver in is stopped"]
    watched.pulses["receiver in"] = Pulse(0.1, paused_at_s=100.0, pause_s=12.4)
    watched.lose(kernel_dropped=9918)
    text = "9,918 dropped by the kernel while receiver in was stopped for 12.4 s"
    assert watched.check_again(8.5) == [text]
    watched.reopen()
    assert watched.check_again(60) == [text]


def test_pause_between_two_looks_is_an_event(watched: Watched) -> None:
    watched.pulses = {"receiver in": Pulse(0.4)}
    watched.check_again()
    watched.pulses["receiver in"] = Pulse(0.4, paused_at_s=100.0, pause_s=3.2)
    watched.lose(kernel_dropped=3)
    assert watched.check_again() == ["3 dropped by the kernel while receiver in was stopped for 3.2 s"]
    assert watched.check_again() == watched.texts()


def test_pause_ends_when_its_receiver_is_replaced_during_an_absence_of_the_daemon(watched: Watched) -> None:
    watched.pulses = {"receiver in": Pulse(4.0)}
    watched.check_again()
    watched.pulses = {"receiver in": Pulse(0.1)}
    watched.reopen()
    assert watched.check_again() == ["receiver in was stopped for 4.0 s"]
    # The supervisor reports a process that has ended.
    watched.pulses = {"receiver in": Pulse(9.0, is_running=False)}
    assert len(watched.check_again()) == 1


def test_silent_forwarder_is_an_event_that_explains_what_was_dropped_for_it_alone(watched: Watched) -> None:
    watched.pulses = {"receiver in": Pulse(0.4), "forwarder in kafka": Pulse(4.0)}
    assert watched.check_again() == ["forwarder in kafka is silent"]
    watched.lose(kernel_dropped=5, policy_drop__kafka=7)
    watched.pulses["forwarder in kafka"] = Pulse(0.1, paused_at_s=100.0, pause_s=6.0)
    lost_in, silent = watched.check_again()
    assert lost_in == "in: 5 dropped by the kernel"
    assert silent.startswith("7 ")
    assert silent.endswith(" while forwarder in kafka was silent for 6.0 s")


def test_stopped_pipeline_is_in_the_timeline(watched: Watched) -> None:
    watched.pulses["pipeline"] = Pulse(silent_s=4.0)
    assert watched.check_again() == ["pipeline is stopped"]
    watched.pulses["pipeline"] = Pulse(paused_at_s=100.0, pause_s=12.4)
    assert watched.check_again() == ["pipeline was stopped for 12.4 s"]


def test_failing_pipeline_is_an_event_until_it_lands_again(watched: Watched) -> None:
    failure: list[LandingFailure | None] = [LandingFailure("Python worker failed to connect back", "", 1, 1)]
    watched.recorder = EventRecorder(watched.ledger, watched.log, landing_failure=lambda: failure[0])
    watched.recorder.check()
    assert watched.texts() == ["the pipeline fails, and messages wait: Python worker failed to connect back"]
    failure[0] = None
    assert watched.check_again(12) == ["the pipeline failed for 12 s: Python worker failed to connect back"]


@pytest.mark.survives("alarms", "full disk")
def test_each_event_that_earlier_daemons_left_open_is_closed(watched: Watched) -> None:
    started = int(watched.clock.now * 1000)
    for age_ms in (60_000, 20_000):
        at = started - age_ms
        watched.ledger.post(EventPost(f"disk {at}", 0, DISK, at, what="log", cause="a text").document())
    watched.reopen()
    assert watched.texts() == ["the log was full for 20 s", "the log was full for 40 s"]


@pytest.mark.survives("alarms", "full disk")
def test_loss_after_the_grace_of_a_full_disk_is_no_part_of_it(watched: Watched) -> None:
    watched.log._shared.refused = (watched.clock.monotonic(), LogFull("log.max_bytes.of_a_user is wrong"))
    watched.log.note_refusal("in")
    assert watched.check_again() == ["the disk is full: log.max_bytes.of_a_user is wrong"]
    watched.check_again(11)
    watched.check_again(10)
    watched.lose(policy_drop__log=3)
    assert watched.check_again() == ["in: 3 too fast for handler log", "the disk was full for 11 s"]


@pytest.mark.survives("alarms", "full disk")
def test_loss_of_a_listener_whose_messages_the_log_took_is_no_part_of_a_full_disk(watched: Watched) -> None:
    watched.log._shared.refused = (watched.clock.monotonic(), LogFull("the API's append does not fit"))
    watched.log.note_refusal("another")
    watched.lose(policy_drop__log=3)
    assert set(watched.check_again()) == {
        "in: 3 too fast for handler log",
        "the disk is full: the API's append does not fit",
    }


@pytest.mark.parametrize(("older_rows", "state"), [(0, "is gone"), (2, "ends at 2")])
def test_topic_without_its_counted_entries_is_reported_once(watched: Watched, older_rows: int, state: str) -> None:
    topic = watched.log.topic("events", create=True)
    older = watched.folder / "older"
    for rows in (2, 3):
        topic.append(body([b"x"] * rows), Origin("in", 60, 0, 0)).result()
        topic.wait_until_idle()
        if rows == 2:
            shutil.copytree(topic.path, older)
    watched.ledger.write_checkpoint()
    watched.log.close()
    shutil.rmtree(topic.path)
    if older_rows:
        older.rename(topic.path)
    text = (
        f"topic events {state}: {5 - older_rows} entries that the balance had are missing, because files were removed "
        "or come from an older copy"
    )
    for _ in range(2):
        watched.open()
        assert watched.check_again() == [text]
        watched.log.close()
    watched.open()
    watched.ledger.write_checkpoint()
    watched.reopen()
    assert watched.check_again() == [text]


def test_topic_that_is_deleted_has_no_missing_entries(watched: Watched) -> None:
    watched.log.topic("events", create=True).append(body([b"x"]), Origin("in", 60, 0, 0)).result()
    watched.log.topic("events").wait_until_idle()
    watched.ledger.write_checkpoint()
    watched.log.delete("events")
    watched.reopen()
    assert watched.check_again() == []


def test_recorder_pauses_longer_after_a_check_that_takes_longer(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    class Ended:
        def wait(self, pause: float) -> bool:
            pauses.append(pause)
            return len(pauses) == 3

    monkeypatch.setattr(watched.recorder, "_stop", Ended())
    times = iter((0.0, 0.0, 0.0, 1.0))
    monkeypatch.setattr("penstock.ledger.event_recorder.time.thread_time", lambda: next(times))
    watched.recorder._run()
    assert pauses == [0.0, CHECK_INTERVAL_S, 1.0 / MAX_CPU_SHARE]
