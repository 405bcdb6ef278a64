"""Senders are answered once the log has what they sent, and told where it will not."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.config import ListenerConfig
from penstock.counts import Counts
from penstock.handover.drain import Drain
from penstock.handover.stored_waits import LONGEST, SHORTEST, Fate, StoredWaits
from penstock.log import Log, TopicSettings
from penstock.records import body
from tests.ingest.ingest_life import Life, live

LISTENER = ListenerConfig.model_validate(
    {"name": "events", "protocol": "tcp", "handlers": [{"type": "log", "topic": "in"}]}
)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    opened = live(tmp_path, LISTENER)
    yield opened
    opened.end()


@pytest.fixture
def waits(life: Life) -> StoredWaits[str]:
    return StoredWaits(life.publisher, life.readers)


def publish(life: Life, *payloads: bytes) -> int:
    """Where it begins."""
    begin = life.publisher.position
    life.publisher.publish(body(list(payloads)), Counts({"seen": len(payloads), "accepted": len(payloads)}), 0)
    return begin


def test_nobody_looks_while_nobody_waits(waits: StoredWaits[str]) -> None:
    assert waits.pause is None
    assert waits.decided() == []


def test_senders_are_answered_in_order_once_the_position_is_past_their_frames(
    life: Life, waits: StoredWaits[str]
) -> None:
    waits.expect(publish(life, b"one"), "first")
    between = life.publisher.position
    waits.expect(publish(life, b"two"), "second")
    assert waits.decided() == []
    life.position.claim = life.publisher.position  # in the log's hands is not stored
    assert waits.decided() == []
    life.position.position = between
    assert waits.decided() == [("first", Fate.STORED)]
    life.position.position = life.publisher.position
    assert waits.decided() == [("second", Fate.STORED)]
    assert len(waits) == 0


def test_it_is_answered_only_when_the_log_has_synced_it(tmp_path: Path, life: Life, waits: StoredWaits[str]) -> None:
    waits.expect(publish(life, b"one", b"two"), "sender")
    log, wake = Log(tmp_path / "topics", TopicSettings()), os.eventfd(0, os.EFD_NONBLOCK)
    drain = Drain(LISTENER.name, tmp_path, log, wake)
    drain.stop()
    drain.run()
    assert waits.decided() == [("sender", Fate.STORED)]
    assert log.topic("in").end == 2
    log.close()
    os.close(wake)


def test_whose_frames_the_log_misses_by_policy_is_told_so_also_where_the_log_goes_on_behind_them(
    life: Life, waits: StoredWaits[str]
) -> None:
    waits.expect(publish(life, b"missed"), "early")
    while not life.position.floor:
        begin = publish(life, b"x" * 1000)
    waits.expect(begin, "late")
    life.position.position = life.publisher.position
    assert waits.decided() == [("early", Fate.DROPPED), ("late", Fate.STORED)]


def test_frames_in_the_hands_of_a_daemon_that_was_moved_on_are_not_stored_by_that(
    life: Life, waits: StoredWaits[str]
) -> None:
    waits.expect(publish(life, b"in its hands"), "sender")
    life.position.claim = life.publisher.position
    life.position.floor = life.publisher.position
    assert waits.decided() == []


def test_a_sender_is_not_kept_waiting_for_ever(life: Life) -> None:
    now = [0.0]
    waits: StoredWaits[str] = StoredWaits(life.publisher, life.readers, patience=20.0, clock=lambda: now[0])
    waits.expect(publish(life, b"one"), "sender")
    now[0] = 19.9
    assert waits.decided() == []
    now[0] = 20.0
    assert waits.decided() == [("sender", Fate.LATE)]


def test_looks_become_rarer_while_nothing_happens(life: Life, waits: StoredWaits[str]) -> None:
    waits.expect(publish(life, b"one"), "sender")
    assert waits.pause == SHORTEST
    pauses = []
    for _ in range(30):
        waits.decided()
        pauses.append(waits.pause or 0.0)
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST
    waits.expect(publish(life, b"two"), "another")
    assert waits.pause == SHORTEST


def test_there_is_room_until_the_log_lags_by_a_term(life: Life, waits: StoredWaits[str]) -> None:
    while waits.has_room(2000):
        publish(life, b"x" * 1000)
    assert life.publisher.position > 1 << 15
    assert life.position.floor == 0
    life.position.position = life.publisher.position
    assert waits.has_room(2000)


def test_where_messages_do_not_go_to_the_log_the_other_handlers_are_waited_for(tmp_path: Path) -> None:
    listener = ListenerConfig.model_validate(
        {"name": "events", "protocol": "tcp", "handlers": [{"type": "discard"}, {"type": "console"}]}
    )
    life = live(tmp_path, listener)
    waits: StoredWaits[str] = StoredWaits(life.publisher, life.readers)
    waits.expect(publish(life, b"one"), "sender")
    log, *others = (reader.position for reader in life.readers)
    log.position = others[0].position = life.publisher.position
    assert waits.decided() == []
    others[1].position = life.publisher.position
    assert waits.decided() == [("sender", Fate.STORED)]
    life.end()


def test_a_running_log_answers_many_senders(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER, drop=False)
    log, wake = Log(tmp_path / "topics", TopicSettings()), os.eventfd(0, os.EFD_NONBLOCK)
    drain = Drain(LISTENER.name, tmp_path, log, wake)
    drain.start()
    waits: StoredWaits[int] = StoredWaits(life.publisher, life.readers, patience=60.0)
    answered: list[tuple[int, Fate]] = []
    for number in range(200):
        waits.expect(publish(life, b"%d" % number), number)
        os.eventfd_write(wake, 1)
        answered += waits.decided()
    until = time.monotonic() + 60
    while waits.pause is not None and time.monotonic() < until:
        threading.Event().wait(waits.pause)
        answered += waits.decided()
    assert answered == [(number, Fate.STORED) for number in range(200)]
    assert log.topic("in").end == 200
    drain.stop()
    drain.join(30)
    life.end()
    log.close()
    os.close(wake)
