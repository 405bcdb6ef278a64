"""Events in words."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.counts import Counts
from penstock.ledger.event_words import duration_text, in_words, merged, moment
from penstock.ledger.posts import EVENT_KINDS, EventPost


def event(kind: str, at: int = 1_000, until: int = 1_400, **more: Any) -> dict[str, Any]:
    return EventPost(more.pop("id", "x"), 0, kind, at, until, **more).document()


RESTART = event("restart", id="r", what="receiver in", cause="was killed by SIGKILL", place="in")


def test_what_was_lost_during_a_restart_is_a_part_of_it() -> None:
    lost = event("loss", id="r in", place="in", during="r", lost=Counts({"kernel_dropped": 2718}))
    (found,) = merged([RESTART, lost])
    said = "receiver in was killed by SIGKILL, back after 0.4 s, 2,718 dropped by the kernel in that time"
    assert (found["text"], found["lost"]) == (said, {"kernel_dropped": 2718})
    assert merged([RESTART])[0]["text"] == "receiver in was killed by SIGKILL, back after 0.4 s"


def test_a_loss_whose_restart_is_not_kept_any_more_is_told_all_the_same() -> None:
    lost = event("loss", place="in", during="r", lost=Counts({"kernel_dropped": 5}))
    assert [one["text"] for one in merged([lost])] == ["in: 5 dropped by the kernel"]


def test_the_newest_comes_first() -> None:
    events = [event("start", id="1", at=1), event("stop", id="2", at=9), event("reload", id="3", at=5, cause="done")]
    assert [one["text"] for one in merged(events)] == ["penstock stopped", "done", "penstock started"]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            event("restart", until=0, what="log daemon", cause="ended with status 1"),
            "log daemon ended with status 1, not back yet",
        ),
        (event("disk", until=0, cause="no space left"), "the disk is full: no space left"),
        (event("disk", until=61_000), "the disk was full for 60 s"),
        (event("clock", until=0, cause="the clock is 2 days ahead"), "the clock is 2 days ahead"),
        (event("retention", what="events up to offset 9"), "retention dropped events up to offset 9"),
        (event("start", cause="it was killed"), "penstock started: it was killed"),
    ],
)
def test_each_kind_has_its_words(told: dict[str, Any], said: str) -> None:
    assert in_words(told) == said


@pytest.mark.parametrize("kind", EVENT_KINDS)
def test_every_kind_has_words(kind: str) -> None:
    told = event(kind, cause="a cause", what="a thing", place="in", lost=Counts({"corrupt": 1}))
    assert len(in_words(told)) > 5


def test_times_are_short() -> None:
    spans = (400, 12_000, 180_000, 2 * 3_600_000, 3 * 86_400_000)
    assert [duration_text(event("disk", 0, span)) for span in spans] == ["0.4 s", "12 s", "3 min", "2 h", "3 d"]
    assert (len(moment(0, now=0)), len(moment(0, now=10 * 86_400))) == (8, 19)
