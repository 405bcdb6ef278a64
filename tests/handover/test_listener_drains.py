"""The drains of listeners that come while the daemon runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.config import ListenerConfig
from penstock.handover import listener_drains
from penstock.handover.listener_drains import Drains
from penstock.log import Log, LogFull
from penstock.testing import until
from tests.handover.test_drain import payloads, publish
from tests.ingest.ingest_life import live


@pytest.fixture
def drains(tmp_path: Path) -> Iterator[Drains]:
    log = Log(tmp_path / "topics")
    made = Drains(tmp_path, log)
    yield made
    made.stop()
    log.close()


LISTENER = ListenerConfig.model_validate({"name": "a", "protocol": "udp", "handlers": [{"type": "log", "topic": "in"}]})


def test_of_a_listener_that_is_gone_what_waits_is_stored_and_the_drain_ends(tmp_path: Path, drains: Drains) -> None:
    wake = os.eventfd(0, os.EFD_NONBLOCK)
    life = live(tmp_path, LISTENER)
    publish(life, b"one", b"two")
    life.end()
    drains.start({"a": wake, "b": None})
    drains.keep(["b"])
    assert running() == ["log-b"]
    assert payloads(drains._log) == [b"one", b"two"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(wake)
    drains.start({"a": None})
    assert running() == ["log-a", "log-b"]


def test_a_drain_that_cannot_store_what_waits_goes_on_until_it_can(
    tmp_path: Path, drains: Drains, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_drains, "PATIENCE", 0.1)
    life = live(tmp_path, LISTENER)
    publish(life, b"one")
    life.end()
    real = drains._log.topic
    monkeypatch.setattr(drains._log, "topic", full)
    drains.start({"a": None})
    drains.keep([])
    assert running() == ["log-a"]
    monkeypatch.setattr(drains._log, "topic", real)
    until(lambda: running() == [])
    drains.keep([])
    assert payloads(drains._log) == [b"one"]


def full(*_: object, **__: object) -> None:
    raise LogFull("no space left")


def running() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("log-"))


def test_one_drain_for_each_listener_also_where_it_comes_again(drains: Drains) -> None:
    drains.start({"a": None})
    drains.start({"b": None, "a": None})
    assert running() == ["log-a", "log-b"]


def test_none_is_started_any_more_once_all_have_ended(drains: Drains) -> None:
    drains.start({"a": None})
    drains.stop()
    drains.start({"b": None})
    assert running() == []


def test_of_a_listener_that_comes_again_the_eventfd_before_is_closed(drains: Drains) -> None:
    old, new = (os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2))
    drains.start({"a": old})
    drains.start({"a": new})
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(old)
    os.fstat(new)
