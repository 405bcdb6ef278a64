"""Which messages of a topic a page shows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from penstock.console.topic_reading import PAGE, TopicReading
from tests.server.running import Running


class Asked:
    """The daemon's HTTP API, and how often it was asked."""

    def __init__(self, running: Running) -> None:
        self._running, self.times = running, 0

    async def get(self, path: str, **parameters: object) -> Any:
        self.times += 1
        status, document = await asyncio.to_thread(self._running.ask_json, "GET", f"{path}?{urlencode(parameters)}")
        assert status == 200, document
        return document


class Page:
    """A page of topic ``t``, and what it has shown."""

    def __init__(self, running: Running, wanted: str = "") -> None:
        self.daemon, self.shown = Asked(running), 0
        self.reading = TopicReading(self.daemon, "t", self._changed, wanted)

    def _changed(self) -> None:
        self.shown += 1

    def offsets(self) -> list[int]:
        return [int(entry["offset"]) for entry in self.reading.entries]


@pytest.fixture
def filled(running: Running) -> Running:
    add(running, 3 * PAGE)
    return running


def add(running: Running, count: int) -> None:
    logs = [{"raw_bytes": "YXBwbGU=" if n % 10 else "cGVhcg=="} for n in range(count)]  # apple, pear
    assert running.ask("POST", "/topic/t/logs", {"logs": logs})[0] == 200


def test_pages_are_turned_from_the_newest_to_the_oldest_and_back(filled: Running) -> None:
    async def turned() -> None:
        page = Page(filled)
        await page.reading.newest()
        assert page.offsets() == list(range(100, 150))
        await page.reading.older()
        await page.reading.older()
        assert page.offsets() == list(range(50))
        assert (page.reading.begin, page.reading.start) == (0, 0)
        await page.reading.newer()
        assert page.offsets() == list(range(50, 100))
        await page.reading.go_to({"offset": "77"})
        assert page.offsets()[0] == 77
        assert not page.reading.searching

    asyncio.run(turned())


def test_following_shows_what_comes_and_nothing_again_when_nothing_comes(filled: Running) -> None:
    async def followed() -> None:
        page = Page(filled)
        await page.reading.newest()
        shown = page.shown
        await page.reading.follow()
        assert page.shown == shown
        await asyncio.to_thread(add, filled, 2)
        await page.reading.follow()
        assert page.offsets() == list(range(102, 152))

    asyncio.run(followed())


def test_a_search_goes_on_request_by_request_and_can_be_stopped(
    filled: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.reading.search.MAX_SCAN_S", -1.0)  # each request looks at one batch
    add(filled, 1)
    add(filled, 1)

    async def searched() -> None:
        page = Page(filled, "pear")
        await page.reading.newest()
        assert page.offsets() == [*range(0, 150, 10), 150, 151]
        assert (page.daemon.times, page.reading.searched) == (3, 152)
        await asyncio.to_thread(add, filled, 3)
        await page.reading.follow()
        assert page.offsets()[-1] == 152
        stopped = Page(filled, "nowhere")
        stopped.daemon.get, get = _stops(stopped), stopped.daemon.get  # type: ignore[method-assign]
        stopped.get = get  # type: ignore[attr-defined]
        await stopped.reading.newest()
        assert (stopped.daemon.times, stopped.reading.searching) == (1, False)

    asyncio.run(searched())


def _stops(page: Any) -> Any:
    async def get(path: str, **parameters: object) -> Any:
        found = await page.get(path, **parameters)
        page.reading.stop_searching()
        return found

    return get


def test_a_later_look_ends_an_earlier_one(filled: Running) -> None:
    async def both() -> None:
        page = Page(filled)
        await asyncio.gather(page.reading.newest(), page.reading.go_to({"offset": "5"}))
        assert page.offsets()[0] == 5

    asyncio.run(both())


def test_a_topic_s_name_is_no_path(tmp_path: Path) -> None:
    class Says:
        async def get(self, path: str, **parameters: object) -> Any:
            assert path == "/topic/..%2Fbalance/search"
            return {"begin": "0", "end": "0", "start": "0", "stop": "0"}

    asyncio.run(TopicReading(Says(), "../balance", lambda: None).newest())
