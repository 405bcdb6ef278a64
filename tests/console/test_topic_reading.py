"""Messages of a topic that a page shows."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from penstock.console.topic_reading import HISTOGRAM_INTERVAL, PAGE_ENTRIES, TopicReading
from tests.server.running import Running


class CountingDaemon:
    """The daemon's HTTP API with a count of requests."""

    def __init__(self, running: Running) -> None:
        self._running, self.requests = running, 0

    async def get(self, path: str, **parameters: object) -> Any:
        self.requests += 1
        status, document = await asyncio.to_thread(self._running.request_json, "GET", f"{path}?{urlencode(parameters)}")
        assert status == 200, document
        return document


class ShownPage:
    """A page of topic ``t`` with a count of its updates."""

    def __init__(self, running: Running, query: str = "") -> None:
        self.daemon, self.updates = CountingDaemon(running), 0
        self.reading = TopicReading(self.daemon, "t", self._changed, query)

    def _changed(self) -> None:
        self.updates += 1

    def offsets(self) -> list[int]:
        return [int(entry["offset"]) for entry in self.reading.entries]


@pytest.fixture
def filled(running: Running) -> Running:
    add(running, 3 * PAGE_ENTRIES)
    return running


def add(running: Running, count: int) -> None:
    logs = [{"raw_bytes": "YXBwbGU=" if n % 10 else "cGVhcg=="} for n in range(count)]  # apple, pear
    assert running.request("POST", "/topic/t/logs", {"logs": logs})[0] == 200


def test_pages_go_from_newest_to_oldest_and_back(filled: Running) -> None:
    async def turn_pages() -> None:
        page = ShownPage(filled)
        await page.reading.newest()
        assert page.offsets() == list(range(100, 150))
        await page.reading.older()
        await page.reading.older()
        assert page.offsets() == list(range(50))
        assert (page.reading.begin, page.reading.start) == (0, 0)
        await page.reading.newer()
        assert page.offsets() == list(range(50, 100))
        await page.reading.read_from({"offset": "77"})
        assert page.offsets()[0] == 77
        assert not page.reading.searching

    asyncio.run(turn_pages())


def test_follow_updates_only_when_messages_arrive(filled: Running) -> None:
    async def follow_topic() -> None:
        page = ShownPage(filled)
        await page.reading.newest()
        updates = page.updates
        await page.reading.follow()
        assert page.updates == updates
        await asyncio.to_thread(add, filled, 2)
        await page.reading.follow()
        assert page.offsets() == list(range(102, 152))

    asyncio.run(follow_topic())


def test_search_continues_by_request_and_can_be_stopped(filled: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.reading.search.MAX_SCAN_S", -1.0)  # each request looks at one batch
    add(filled, 1)
    add(filled, 1)

    async def searched() -> None:
        page = ShownPage(filled, "pear")
        await page.reading.newest()
        assert page.offsets() == [*range(0, 150, 10), 150, 151]
        assert (page.daemon.requests, page.reading.searched) == (3, 152)
        await asyncio.to_thread(add, filled, 3)
        await page.reading.follow()
        assert page.offsets()[-1] == 152
        stopped = ShownPage(filled, "nowhere")
        stopped.daemon.get, get = _stop_after_response(stopped), stopped.daemon.get  # type: ignore[method-assign]
        stopped.get = get  # type: ignore[attr-defined]
        await stopped.reading.newest()
        assert (stopped.daemon.requests, stopped.reading.searching) == (1, False)

    asyncio.run(searched())


def _stop_after_response(page: Any) -> Any:
    async def get(path: str, **parameters: object) -> Any:
        response = await page.get(path, **parameters)
        page.reading.stop_searching()
        return response

    return get


def test_conditions_select_messages_by_field(running: Running) -> None:
    payloads = [json.dumps({"user": f"u{n % 3}", "n": n, "text": "u1"}).encode() for n in range(90)]
    logs = [{"raw_bytes": base64.b64encode(data).decode()} for data in payloads]
    assert running.request("POST", "/topic/t/logs", {"logs": logs})[0] == 200

    async def select() -> None:
        page = ShownPage(running)
        page.reading.conditions = {"user": "u1"}
        await page.reading.newest()
        assert page.offsets() == list(range(1, 90, 3))
        page.reading.conditions = {"user": "u1", "n": "4"}
        await page.reading.newest()
        assert page.offsets() == [4]
        await asyncio.to_thread(running.request, "POST", "/topic/t/logs", {"logs": [logs[4], logs[5]]})
        await page.reading.follow()
        assert page.offsets() == [4, 90]

    asyncio.run(select())


def test_messages_are_counted_by_time(filled: Running) -> None:
    async def count() -> None:
        page = ShownPage(filled)
        now = datetime.now(UTC)
        counts = await page.reading.count_by_time(now + HISTOGRAM_INTERVAL)
        assert [number for _, number in counts[-2:]] == [150, 0]
        assert sum(number for _, number in counts) == 150
        assert counts[-1][0] == now

    asyncio.run(count())


def test_later_request_replaces_an_earlier_one(filled: Running) -> None:
    async def read_twice() -> None:
        page = ShownPage(filled)
        await asyncio.gather(page.reading.newest(), page.reading.read_from({"offset": "5"}))
        assert page.offsets()[0] == 5

    asyncio.run(read_twice())


def test_topic_name_is_escaped_in_the_path(tmp_path: Path) -> None:
    class FixedResponse:
        async def get(self, path: str, **parameters: object) -> Any:
            assert path == "/topic/..%2Fbalance/search"
            return {"begin": "0", "end": "0", "start": "0", "stop": "0"}

    asyncio.run(TopicReading(FixedResponse(), "../balance", lambda: None).newest())
