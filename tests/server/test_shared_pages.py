"""Shared pages: read once for all who stand at one place, and never less than was there when a stream was woken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.counts import Origin
from penstock.log import Log
from penstock.records import body
from penstock.server.entries_api import EntriesApi
from penstock.server.read_query import Query
from penstock.server.shared_pages import MOST_BYTES, MOST_PAGES, Found, SharedPages
from penstock.slogd import slogd_pb2 as pb
from penstock.slogd.columns.encode import response

pytestmark = pytest.mark.anyio
TOPIC: Any = object()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


PLACE = TOPIC, 5, 10, None


class Reads:
    """Counts what is done on a thread; each waits until it is let go."""

    def __init__(self) -> None:
        self.count, self.go = 0, asyncio.Event()

    async def run(self, read: Callable[[], Found[bytes]]) -> Found[bytes]:
        self.count += 1
        found = read()  # what there was when it began
        await self.go.wait()
        return found


async def test_who_asks_at_once_for_the_same_place_shares_one_page() -> None:
    reads = Reads()
    pages = SharedPages()
    asking = [asyncio.create_task(pages.page(PLACE, lambda: reads.run(lambda: (6, b"x")))) for _ in range(100)]
    await asyncio.sleep(0)
    reads.go.set()
    assert await asyncio.gather(*asking) == [(6, b"x")] * 100
    assert await pages.page(PLACE, lambda: reads.run(lambda: (7, b"later"))) == (6, b"x")
    assert reads.count == 1


async def test_what_was_read_before_somebody_was_woken_does_not_count_for_him() -> None:
    reads, stored = Reads(), [(5, None)]
    pages = SharedPages()
    first = asyncio.create_task(pages.page(PLACE, lambda: reads.run(lambda: stored[-1])))
    while not reads.count:
        await asyncio.sleep(0)
    stored.append((6, b"x"))  # type: ignore[arg-type]
    second = asyncio.create_task(pages.page(PLACE, lambda: reads.run(lambda: stored[-1])))
    await asyncio.sleep(0)
    reads.go.set()
    assert (await first, await second) == ((5, None), (6, b"x"))


async def test_a_failure_is_told_to_all_and_not_kept() -> None:
    reads = Reads()
    pages = SharedPages()

    async def fails() -> Found[bytes]:
        await reads.run(lambda: (6, b"x"))
        raise ValueError

    asking = [asyncio.create_task(pages.page(PLACE, fails)) for _ in range(3)]
    await asyncio.sleep(0)
    reads.go.set()
    assert all(isinstance(one, ValueError) for one in await asyncio.gather(*asking, return_exceptions=True))
    assert await pages.page(PLACE, lambda: reads.run(lambda: (6, b"x"))) == (6, b"x")


async def test_one_who_leaves_takes_nothing_from_the_others() -> None:
    reads = Reads()
    pages = SharedPages()
    first, second = (asyncio.create_task(pages.page(PLACE, lambda: reads.run(lambda: (6, b"x")))) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    reads.go.set()
    assert await second == (6, b"x")


async def test_few_pages_are_kept_and_no_large_ones() -> None:
    reads = Reads()
    reads.go.set()
    pages = SharedPages()
    for offset in range(2 * MOST_PAGES):
        await pages.page((TOPIC, offset, 10, None), lambda: reads.run(lambda: (0, b"x")))
    await pages.page((TOPIC, -1, 10, None), lambda: reads.run(lambda: (0, bytes(MOST_BYTES + 1))))
    await asyncio.sleep(0)
    assert len(pages._pages) == MOST_PAGES
    assert (TOPIC, -1, 10, None) not in pages._pages


@pytest.mark.parametrize("late", [False, True])
async def test_many_streams_of_a_topic_have_everything_in_order(tmp_path: Path, late: bool) -> None:
    log = Log(tmp_path / "topics")
    api = EntriesApi(log)
    topic = log.topic("events", create=True)

    async def follow(number: int) -> list[bytes]:
        found: list[bytes] = []
        if late:
            await asyncio.sleep(number / 500)
        pages = await api.follow(Query.of(pb.GetLogsRequest(topic="events")), response)
        async for page in pages:
            found += [entry.raw_bytes for entry in pb.GetLogsResponse.FromString(page).logs]
            if len(found) == 300:
                break
        await pages.aclose()
        return found

    following = [asyncio.create_task(follow(number)) for number in range(40)]
    for number in range(100):
        topic.append(body([b"%d" % (3 * number + n) for n in range(3)]), Origin("x", 0, 0, 0))
        await asyncio.sleep(0.001)
    assert await asyncio.wait_for(asyncio.gather(*following), 30) == [[b"%d" % n for n in range(300)]] * 40
    api.close()
    api.release()
    log.close()
