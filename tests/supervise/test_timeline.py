"""Events of the supervisor until the ledger has stored them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from penstock.ledger.posts import EventPost, parse
from penstock.supervise import timeline as module
from penstock.supervise.timeline import MAX_TEXT_LENGTH, MAX_WAITING_EVENTS, Timeline
from penstock.testing import FakeClock

DAEMON = 7


class FakeTransport:
    """A transport to a daemon that answers on demand."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.number = self.answered = 0

    def send_events(self, events: Sequence[Mapping[str, Any]]) -> int:
        self.sent += [dict(event) for event in events]
        self.number += 1
        return self.number

    def poll_answers(self) -> int:
        return self.answered


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport()


def test_death_is_sent_immediately_and_updated_at_the_return(transport: FakeTransport) -> None:
    clock = FakeClock(10.0)
    timeline = Timeline(transport, clock)
    timeline.record_death("receiver in", "was killed by SIGKILL", "in")
    timeline.deliver(DAEMON)
    assert (timeline.missing_processes, timeline.is_stored("receiver in")) == (["receiver in"], False)
    transport.answered = 1
    timeline.deliver(DAEMON)
    assert timeline.is_stored("receiver in")
    clock.advance(0.4)
    clock.jump(-86_400)  # the wall clock dates events, the monotonic clock measures durations
    timeline.record_return("receiver in")
    timeline.deliver(DAEMON)
    first, last = map(parse, transport.sent)
    assert isinstance(first, EventPost)
    assert isinstance(last, EventPost)
    assert (first.id, first.version, first.at, first.until) == (last.id, 0, 10_000, 0)
    assert (last.version, last.at, last.until, last.place) == (1, 10_000, 10_400, "in")
    assert timeline.missing_processes == []


def test_repeated_deaths_before_the_return_are_a_single_event(transport: FakeTransport) -> None:
    timeline = Timeline(transport)
    for cause in ("was killed by SIGKILL", "cannot start: 1,024 are free", "cannot start: 512 are free"):
        timeline.record_death("receiver in", cause)
        timeline.deliver(DAEMON)
    assert len({event["id"] for event in transport.sent}) == 1
    # A version for each count of free bytes would take more of them.
    assert (transport.sent[-1]["version"], transport.sent[-1]["cause"]) == (1, "cannot start: 1,024 are free")


def test_unanswered_events_are_sent_to_the_next_daemon(transport: FakeTransport) -> None:
    timeline = Timeline(transport)
    timeline.record("reload", "no key differs")
    timeline.deliver(None)
    assert transport.sent == []
    timeline.deliver(DAEMON)
    timeline.deliver(DAEMON)
    assert (len(transport.sent), timeline.is_delivered) == (1, False)
    timeline.deliver(DAEMON + 1)
    assert (len(transport.sent), transport.sent[0] == transport.sent[1]) == (2, True)
    transport.answered = transport.number
    timeline.deliver(DAEMON + 1)
    assert timeline.is_delivered


def test_unanswered_events_are_sent_again(transport: FakeTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESEND_AFTER_S", 0.0)
    timeline = Timeline(transport)
    timeline.record("start")
    timeline.deliver(DAEMON)
    timeline.deliver(DAEMON)
    assert len(transport.sent) == 2


def test_waiting_events_are_limited_in_number_and_length(transport: FakeTransport) -> None:
    timeline = Timeline(transport)
    for _ in range(MAX_WAITING_EVENTS + 10):
        timeline.record("reload", "x" * 10_000)
    for _ in range(MAX_WAITING_EVENTS):
        timeline.deliver(DAEMON)
    assert len(transport.sent) == MAX_WAITING_EVENTS
    assert len(transport.sent[0]["cause"]) < MAX_TEXT_LENGTH + 10
