"""Senders are acknowledged once the log has their messages."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.config import ListenerConfig
from penstock.counts import Counts
from penstock.handover.drain.drain import Drain
from penstock.handover.stored_waits import EPOLL_STEP_S, MAX_POLL_S, MIN_POLL_S, Fate, StoredWaits, epoll_timeout
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
    """Write a frame and return its start."""
    begin = life.publisher.position
    life.publisher.publish(body(list(payloads)), Counts({"seen": len(payloads), "accepted": len(payloads)}), 0)
    return begin


def test_sender_waits_shorter_while_the_disk_is_full(life: Life) -> None:
    now = [0.0]
    waits: StoredWaits[str] = StoredWaits(life.publisher, life.readers, clock=lambda: now[0], full_patience=1.0)
    waits.expect(publish(life, b"one"), "sender")
    life.position.shortage = "disk"
    assert (waits.take_decided(), waits.shortage) == ([], Fate.DISK_FULL)
    now[0] = 1.0
    assert waits.take_decided() == [("sender", Fate.DISK_FULL)]
    life.position.shortage = ""
    waits.expect(publish(life, b"two"), "sender")
    now[0] = 9.0
    assert (waits.take_decided(), waits.shortage) == ([], None)


def test_no_poll_without_waiting_senders(waits: StoredWaits[str]) -> None:
    assert waits.pause is None
    assert waits.take_decided() == []


def test_senders_are_acknowledged_in_order(life: Life, waits: StoredWaits[str]) -> None:
    waits.expect(publish(life, b"one"), "first")
    between = life.publisher.position
    waits.expect(publish(life, b"two"), "second")
    assert waits.take_decided() == []
    life.position.claim = life.publisher.position  # in the log's hands is not stored
    assert waits.take_decided() == []
    life.position.position = between
    assert waits.take_decided() == [("first", Fate.STORED)]
    life.position.position = life.publisher.position
    assert waits.take_decided() == [("second", Fate.STORED)]
    assert len(waits) == 0


def test_sender_is_acknowledged_after_the_sync(tmp_path: Path, life: Life, waits: StoredWaits[str]) -> None:
    waits.expect(publish(life, b"one", b"two"), "sender")
    log, wake = Log(tmp_path / "topics", TopicSettings()), os.eventfd(0, os.EFD_NONBLOCK)
    drain = Drain(LISTENER.name, tmp_path, log, wake)
    drain.stop()
    drain.run()
    assert waits.take_decided() == [("sender", Fate.STORED)]
    assert log.topic("in").end == 2
    log.close()
    os.close(wake)


def test_sender_of_dropped_frames_is_told_dropped(life: Life, waits: StoredWaits[str]) -> None:
    waits.expect(publish(life, b"missed"), "early")
    while not life.position.floor:
        begin = publish(life, b"x" * 1000)
    waits.expect(begin, "late")
    life.position.position = life.publisher.position
    assert waits.take_decided() == [("early", Fate.DROPPED), ("late", Fate.STORED)]


def test_move_of_the_reader_is_no_acknowledgement(life: Life, waits: StoredWaits[str]) -> None:
    waits.expect(publish(life, b"in its hands"), "sender")
    life.position.claim = life.publisher.position
    life.position.floor = life.publisher.position
    assert waits.take_decided() == []


def test_wait_ends_at_the_timeout(life: Life) -> None:
    now = [0.0]
    waits: StoredWaits[str] = StoredWaits(life.publisher, life.readers, patience=20.0, clock=lambda: now[0])
    waits.expect(publish(life, b"one"), "sender")
    now[0] = 19.9
    assert waits.take_decided() == []
    now[0] = 20.0
    assert waits.take_decided() == [("sender", Fate.LATE)]


def test_poll_interval_grows_without_progress(life: Life, waits: StoredWaits[str]) -> None:
    waits.expect(publish(life, b"one"), "sender")
    assert waits.pause == MIN_POLL_S
    pauses = []
    for _ in range(30):
        waits.take_decided()
        pauses.append(waits.pause or 0.0)
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_POLL_S
    waits.expect(publish(life, b"two"), "another")
    assert waits.pause == MIN_POLL_S


def test_room_ends_when_the_log_lags_by_a_term(life: Life, waits: StoredWaits[str]) -> None:
    while waits.has_room(2000):
        publish(life, b"x" * 1000)
    assert life.publisher.position > 1 << 15
    assert life.position.floor == 0
    life.position.position = life.publisher.position
    assert waits.has_room(2000)


def test_without_log_handler_the_other_handlers_acknowledge(tmp_path: Path) -> None:
    listener = ListenerConfig.model_validate(
        {"name": "events", "protocol": "tcp", "handlers": [{"type": "discard"}, {"type": "console"}]}
    )
    life = live(tmp_path, listener)
    waits: StoredWaits[str] = StoredWaits(life.publisher, life.readers)
    waits.expect(publish(life, b"one"), "sender")
    log, *rest = (reader.position for reader in life.readers)
    log.position = rest[0].position = life.publisher.position
    assert waits.take_decided() == []
    rest[1].position = life.publisher.position
    assert waits.take_decided() == [("sender", Fate.STORED)]
    life.end()


def test_running_log_acknowledges_many_senders(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER, drop=False)
    log, wake = Log(tmp_path / "topics", TopicSettings()), os.eventfd(0, os.EFD_NONBLOCK)
    drain = Drain(LISTENER.name, tmp_path, log, wake)
    drain.start()
    waits: StoredWaits[int] = StoredWaits(life.publisher, life.readers, patience=60.0)
    answered: list[tuple[int, Fate]] = []
    for number in range(200):
        waits.expect(publish(life, b"%d" % number), number)
        os.eventfd_write(wake, 1)
        answered += waits.take_decided()
    until = time.monotonic() + 60
    while waits.pause is not None and time.monotonic() < until:
        threading.Event().wait(waits.pause)
        answered += waits.take_decided()
    assert answered == [(number, Fate.STORED) for number in range(200)]
    assert log.topic("in").end == 200
    drain.stop()
    drain.join(30)
    life.end()
    log.close()
    os.close(wake)


@pytest.mark.parametrize("pause", [0.0012, 0.0025, 0.0161])
def test_waits_of_epoll_take_as_long_as_asked_on_average(pause: float) -> None:
    pauses = [pause + shift / 1e5 for shift in range(100)]
    taken = [math.ceil(epoll_timeout(each) / EPOLL_STEP_S) * EPOLL_STEP_S for each in pauses]
    assert sum(taken) == pytest.approx(sum(pauses), rel=0.02)


def test_reader_learns_until_where_senders_wait(life: Life, waits: StoredWaits[str]) -> None:
    begin = publish(life, b"one")
    assert not life.position.is_awaited(begin)
    waits.expect(begin, "sender")
    assert life.position.is_awaited(begin)
    assert not life.position.is_awaited(publish(life, b"two"))
