"""The drains of listeners that come while the daemon runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.handover.listener_drains import Drains
from penstock.log import Log


@pytest.fixture
def drains(tmp_path: Path) -> Iterator[Drains]:
    log = Log(tmp_path / "topics")
    made = Drains(tmp_path, log)
    yield made
    made.stop()
    log.close()


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
