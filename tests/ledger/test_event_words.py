"""Texts of events."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.counts import Counts
from penstock.files.disk_space import NO_SPACE_TEXT
from penstock.ledger.event_words import duration_text, in_words, merged, moment, not_started, unwritten_text
from penstock.ledger.posts import CANNOT_START, EVENT_KINDS, EventPost


def event(kind: str, begin_ms: int = 1_000, end_ms: int = 1_400, **more: Any) -> dict[str, Any]:
    return EventPost(more.pop("id", "x"), 0, kind, begin_ms, end_ms, **more).document()


RESTART = event("restart", id="r", what="receiver in", cause="was killed by SIGKILL", place="in")


def test_loss_during_a_restart_is_part_of_its_text() -> None:
    lost = event("loss", id="r in", place="in", during="r", losses=Counts({"kernel_dropped": 2718}))
    (restart,) = merged([RESTART, lost])
    event_text = "receiver in was killed by SIGKILL, back after 0.4 s, 2,718 dropped by the kernel in that time"
    assert (restart["text"], restart["lost"]) == (event_text, {"kernel_dropped": 2718})
    assert merged([RESTART])[0]["text"] == "receiver in was killed by SIGKILL, back after 0.4 s"


def test_stopped_receiver_is_the_cause_of_its_loss() -> None:
    stopped = event("stopped", id="s", end_ms=13_400, what="receiver in", place="in")
    lost = event("loss", id="s in", place="in", during="s", losses=Counts({"kernel_dropped": 9918}))
    (merged_event,) = merged([stopped, lost])
    assert merged_event["text"] == "9,918 dropped by the kernel while receiver in was stopped for 12.4 s"


def test_loss_without_its_restart_has_a_text() -> None:
    lost = event("loss", place="in", during="r", losses=Counts({"kernel_dropped": 5}))
    assert [entry["text"] for entry in merged([lost])] == ["in: 5 dropped by the kernel"]


def test_newest_event_is_first() -> None:
    events = [
        event("start", id="1", begin_ms=1),
        event("stop", id="2", begin_ms=9),
        event("reload", id="3", begin_ms=5, cause="done"),
    ]
    assert [entry["text"] for entry in merged(events)] == ["penstock stopped", "done", "penstock started"]


@pytest.mark.parametrize(
    ("event_document", "event_text"),
    [
        (
            event("restart", end_ms=0, what="log daemon", cause="ended with status 1"),
            "log daemon ended with status 1, not back yet",
        ),
        (event("stopped", end_ms=0, what="receiver in"), "receiver in is stopped"),
        (event("stopped", end_ms=13_400, what="receiver in"), "receiver in was stopped for 12.4 s"),
        (event("stopped", end_ms=0, what="forwarder in kafka"), "forwarder in kafka is silent"),
        (event("stopped", end_ms=13_400, what="forwarder in kafka"), "forwarder in kafka was silent for 12.4 s"),
        (event("stopped", end_ms=181_000, what="receiver in"), "receiver in was stopped for 3 min"),
        (event("disk", end_ms=0, cause="no space left"), "the disk is full: no space left"),
        (event("disk", end_ms=0, cause=NO_SPACE_TEXT), "the disk is full"),
        (event("disk", end_ms=61_000), "the disk was full for 60 s"),
        (
            event("disk", end_ms=61_000, cause=NO_SPACE_TEXT, losses=Counts({"policy_drop.log": 9})),
            "the disk was full for 60 s; 9 messages lost because the log could not be written",
        ),
        (event("disk", end_ms=0, cause="log.max_bytes: 9 of 9"), "the log is full: log.max_bytes: 9 of 9"),
        (event("clock", end_ms=0, cause="the clock is 2 days ahead"), "the clock is 2 days ahead"),
        (event("retention", what="events up to offset 9"), "retention dropped events up to offset 9"),
        (event("start", cause="it was killed"), "penstock started: it was killed"),
    ],
)
def test_each_kind_has_its_text(event_document: dict[str, Any], event_text: str) -> None:
    assert in_words(event_document) == event_text


@pytest.mark.parametrize("kind", EVENT_KINDS)
def test_every_kind_has_a_text(kind: str) -> None:
    event_document = event(kind, cause="a cause", what="a thing", place="in", losses=Counts({"corrupt": 1}))
    assert len(in_words(event_document)) > 5


def test_full_disk_has_its_times() -> None:
    since, until = moment(1_000), moment(61_000)
    cases = {
        f"the log cannot be written since {since} because the disk is full": {"until": 0, "full": "disk"},
        f"the log could not be written from {since} to {until} because the log was full": {
            "until": 61_000,
            "full": "log",
        },
    }
    assert [unwritten_text({"unwritten": {"since": 1_000, **case}}) for case in cases.values()] == list(cases)
    assert unwritten_text({}) == ""


def test_times_are_short() -> None:
    spans = (400, 12_000, 180_000, 2 * 3_600_000, 3 * 86_400_000)
    assert [duration_text(event("disk", 0, span)) for span in spans] == ["0.4 s", "12 s", "3 min", "2 h", "3 d"]
    assert (len(moment(0, now=0)), len(moment(0, now=10 * 86_400))) == (8, 19)


@pytest.mark.parametrize("failed_at", [90_000, 110_000])
def test_process_that_cannot_start_is_named_whatever_the_clock_does_after_the_start(failed_at: int) -> None:
    former = EventPost("a", 0, "restart", 120_000, what="receiver old", cause=f"{CANNOT_START}: no space")
    started = EventPost("b", 0, "start", 100_000, 100_000)
    failed = EventPost("c", 0, "restart", failed_at, what="receiver in", cause=f"{CANNOT_START}: no space")
    assert [entry["process"] for entry in not_started([former, started, failed])] == ["receiver in"]
    assert not_started([former, failed, started]) == []
