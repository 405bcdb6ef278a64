"""Drains of listeners that are added and removed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.config import ListenerConfig
from penstock.handover.drain import listener_drains
from penstock.handover.drain.listener_drains import Drains
from penstock.log import Log, LogFull
from penstock.testing import wait_until
from tests.handover.drain.test_drain import payloads, publish
from tests.ingest.ingest_life import live


@pytest.fixture
def drains(tmp_path: Path) -> Iterator[Drains]:
    log = Log(tmp_path / "topics")
    created = Drains(tmp_path, log)
    yield created
    created.stop()
    log.close()


LISTENER = ListenerConfig.model_validate({"name": "a", "protocol": "udp", "handlers": [{"type": "log", "topic": "in"}]})


def test_drain_of_a_removed_listener_stores_the_rest_and_ends(tmp_path: Path, drains: Drains) -> None:
    wake = os.eventfd(0, os.EFD_NONBLOCK)
    life = live(tmp_path, LISTENER)
    publish(life, b"one", b"two")
    life.end()
    drains.start({"a": wake, "b": None})
    drains.retain(["b"])
    assert running() == ["log-b"]
    assert payloads(drains._log) == [b"one", b"two"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(wake)
    drains.start({"a": None})
    assert running() == ["log-a", "log-b"]


def test_drain_retries_until_it_can_store(tmp_path: Path, drains: Drains, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_drains, "JOIN_TIMEOUT_S", 0.1)
    life = live(tmp_path, LISTENER)
    publish(life, b"one")
    life.end()
    real = drains._log.topic
    monkeypatch.setattr(drains._log, "topic", full)
    drains.start({"a": None})
    drains.retain([])
    assert running() == ["log-a"]
    monkeypatch.setattr(drains._log, "topic", real)
    wait_until(lambda: running() == [])
    drains.retain([])
    assert payloads(drains._log) == [b"one"]


def full(*_: object, **__: object) -> None:
    raise LogFull("no space left")


def running() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("log-"))


def test_returning_listener_has_one_drain(drains: Drains) -> None:
    drains.start({"a": None})
    drains.start({"b": None, "a": None})
    assert running() == ["log-a", "log-b"]


def test_no_drain_starts_after_the_end(drains: Drains) -> None:
    drains.start({"a": None})
    drains.stop()
    drains.start({"b": None})
    assert running() == []


def test_old_eventfd_of_a_returning_listener_is_closed(drains: Drains) -> None:
    old, new = (os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2))
    drains.start({"a": old})
    drains.start({"a": new})
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(old)
    os.fstat(new)
