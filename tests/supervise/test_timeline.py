"""What the supervisor tells the ledger of, until it is written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from penstock.ledger.posts import EventPost, parse
from penstock.supervise import timeline as module
from penstock.supervise.timeline import LONGEST_TEXT, MOST_WAITING, Timeline
from penstock.testing import FakeClock

DAEMON = 7


class Way:
    """A way to a daemon that answers when it is told to."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.number = self.answered = 0

    def send_events(self, events: Sequence[Mapping[str, Any]]) -> int:
        self.sent += [dict(event) for event in events]
        self.number += 1
        return self.number

    def hear(self) -> int:
        return self.answered


@pytest.fixture
def way() -> Way:
    return Way()


def test_a_death_is_told_at_once_and_its_end_when_the_process_is_back(way: Way) -> None:
    clock = FakeClock(10.0)
    told = Timeline(way, clock)
    told.died("receiver in", "was killed by SIGKILL", "in")
    told.deliver(DAEMON)
    assert (told.away, told.knows("receiver in")) == (["receiver in"], False)
    way.answered = 1
    told.deliver(DAEMON)
    assert told.knows("receiver in")
    clock.advance(0.4)
    clock.jump(-86_400)  # dates go by the wall clock, how long it took by the monotonic one
    told.back("receiver in")
    told.deliver(DAEMON)
    first, last = map(parse, way.sent)
    assert isinstance(first, EventPost)
    assert isinstance(last, EventPost)
    assert (first.id, first.version, first.at, first.until) == (last.id, 0, 10_000, 0)
    assert (last.version, last.at, last.until, last.place) == (1, 10_000, 10_400, "in")
    assert told.away == []


def test_a_process_that_dies_again_before_it_is_back_is_one_event(way: Way) -> None:
    told = Timeline(way)
    for cause in ("was killed by SIGKILL", "ended with status 1", "ended with status 1"):
        told.died("receiver in", cause)
        told.deliver(DAEMON)
    assert len({event["id"] for event in way.sent}) == 1
    assert (way.sent[-1]["version"], way.sent[-1]["cause"]) == (2, "ended with status 1")


def test_what_a_daemon_has_not_answered_for_its_successor_is_told(way: Way) -> None:
    told = Timeline(way)
    told.happened("reload", "nothing has changed")
    told.deliver(None)
    assert way.sent == []
    told.deliver(DAEMON)
    told.deliver(DAEMON)
    assert (len(way.sent), told.told) == (1, False)
    told.deliver(DAEMON + 1)
    assert (len(way.sent), way.sent[0] == way.sent[1]) == (2, True)
    way.answered = way.number
    told.deliver(DAEMON + 1)
    assert told.told


def test_what_is_not_answered_for_is_sent_again(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_AFTER", 0.0)
    told = Timeline(way)
    told.happened("start")
    told.deliver(DAEMON)
    told.deliver(DAEMON)
    assert len(way.sent) == 2


def test_what_nobody_takes_is_bounded_in_number_and_length(way: Way) -> None:
    told = Timeline(way)
    for _ in range(MOST_WAITING + 10):
        told.happened("reload", "x" * 10_000)
    for _ in range(MOST_WAITING):
        told.deliver(DAEMON)
    assert len(way.sent) == MOST_WAITING
    assert len(way.sent[0]["cause"]) < LONGEST_TEXT + 10
