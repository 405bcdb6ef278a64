"""The drains of listeners that come while the daemon runs."""

from __future__ import annotations

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
