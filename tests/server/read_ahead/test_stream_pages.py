"""Streams at the end of a topic: shared reads and newest batches from memory, in order and complete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.counts import Origin
from penstock.log import Log, Topic, TopicReader
from penstock.records import body
from penstock.server.api.entries import EntriesApi
from penstock.server.read_ahead.limits import (
    MAX_NEWEST_BATCH_BYTES,
    MAX_NEWEST_BATCHES,
    MAX_STREAM_PAGE_BYTES,
    MAX_STREAM_PAGES,
)
from penstock.server.read_ahead.stream_pages import FollowedTopics, SharedPages, StreamPage
from penstock.server.reading.query import Query
from penstock.slogd import slogd_pb2 as pb
from penstock.slogd.columns.encode import response

TOPIC: Any = object()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


KEY = TOPIC, 5, 10, None


class Reads:
    """Counter of reads, each of which waits for ``go``."""

    def __init__(self) -> None:
        self.count, self.go = 0, asyncio.Event()

    async def run(self, read: Callable[[], StreamPage[bytes]]) -> StreamPage[bytes]:
        self.count += 1
        page = read()  # before the wait: the state at the beginning of the read
        await self.go.wait()
        return page


@pytest.mark.anyio
async def test_simultaneous_requests_for_a_key_share_one_read() -> None:
    reads = Reads()
    pages = SharedPages()
    requests = [asyncio.create_task(pages.page(KEY, lambda: reads.run(lambda: (6, b"x")))) for _ in range(100)]
    await asyncio.sleep(0)
    reads.go.set()
    assert await asyncio.gather(*requests) == [(6, b"x")] * 100
    assert await pages.page(KEY, lambda: reads.run(lambda: (7, b"later"))) == (6, b"x")
    assert reads.count == 1


@pytest.mark.anyio
async def test_empty_page_read_before_the_wake_up_is_not_shared() -> None:
    reads, stored = Reads(), [(5, None)]
    pages = SharedPages()
    first = asyncio.create_task(pages.page(KEY, lambda: reads.run(lambda: stored[-1])))
    while not reads.count:
        await asyncio.sleep(0)
    stored.append((6, b"x"))  # type: ignore[arg-type]
    second = asyncio.create_task(pages.page(KEY, lambda: reads.run(lambda: stored[-1])))
    await asyncio.sleep(0)
    reads.go.set()
    assert (await first, await second) == ((5, None), (6, b"x"))


@pytest.mark.anyio
async def test_failed_read_is_raised_to_all_and_not_kept() -> None:
    reads = Reads()
    pages = SharedPages()

    async def fails() -> StreamPage[bytes]:
        await reads.run(lambda: (6, b"x"))
        raise ValueError

    requests = [asyncio.create_task(pages.page(KEY, fails)) for _ in range(3)]
    await asyncio.sleep(0)
    reads.go.set()
    assert all(isinstance(error, ValueError) for error in await asyncio.gather(*requests, return_exceptions=True))
    assert await pages.page(KEY, lambda: reads.run(lambda: (6, b"x"))) == (6, b"x")


@pytest.mark.anyio
async def test_cancelled_stream_does_not_cancel_the_shared_read() -> None:
    reads = Reads()
    pages = SharedPages()
    first, second = (asyncio.create_task(pages.page(KEY, lambda: reads.run(lambda: (6, b"x")))) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    reads.go.set()
    assert await second == (6, b"x")


@pytest.mark.anyio
async def test_number_and_size_of_shared_pages_are_bounded() -> None:
    reads = Reads()
    reads.go.set()
    pages = SharedPages()
    for offset in range(2 * MAX_STREAM_PAGES):
        await pages.page((TOPIC, offset, 10, None), lambda: reads.run(lambda: (0, b"x")))
    await pages.page((TOPIC, -1, 10, None), lambda: reads.run(lambda: (0, bytes(MAX_STREAM_PAGE_BYTES + 1))))
    await asyncio.sleep(0)
    assert len(pages._pages) == MAX_STREAM_PAGES
    assert (TOPIC, -1, 10, None) not in pages._pages


@pytest.mark.anyio
@pytest.mark.parametrize("late", [False, True])
async def test_many_streams_of_a_topic_receive_all_entries_in_order(tmp_path: Path, late: bool) -> None:
    log = Log(tmp_path / "topics")
    api = EntriesApi(log)
    topic = log.topic("events", create=True)

    async def follow(number: int) -> list[bytes]:
        payloads: list[bytes] = []
        if late:
            await asyncio.sleep(number / 500)
        pages = await api.follow(Query.from_request(pb.GetLogsRequest(topic="events")), response)
        async for page in pages:
            payloads += [entry.raw_bytes for entry in pb.GetLogsResponse.FromString(page).logs]
            if len(payloads) == 300:
                break
        await pages.aclose()
        return payloads

    following = [asyncio.create_task(follow(number)) for number in range(40)]
    for number in range(100):
        topic.append(body([b"%d" % (3 * number + n) for n in range(3)]), Origin("x", 0, 0, 0))
        await asyncio.sleep(0.001)
    assert await asyncio.wait_for(asyncio.gather(*following), 30) == [[b"%d" % n for n in range(300)]] * 40
    api.close()
    api.release()
    log.close()


@pytest.fixture
def log(tmp_path: Path):
    log = Log(tmp_path / "topics")
    yield log
    log.close()


def _store(topic: Topic, *messages: bytes) -> None:
    topic.append(body(list(messages)), Origin("x", 0, 0, 0)).result(10)


def test_newest_batches_continue_at_the_offset_and_end_before_a_large_batch(log: Log) -> None:
    topic, followed = log.topic("events", create=True), FollowedTopics()
    _store(topic, b"before")
    with followed.follow(topic) as newest:
        _store(topic, b"1", b"2")
        _store(topic, b"3")
        _store(topic, bytes(MAX_NEWEST_BATCH_BYTES))
        _store(topic, b"5")
        batches = newest.following(1)
        assert [batch.column("payload").to_pylist() for batch in batches] == [[b"1", b"2"], [b"3"]]
        assert [batch.column("offset")[0].as_py() for batch in batches] == [1, 3]
        assert [batch.num_rows for batch in newest.following(5)] == [1]
        assert [newest.following(offset) for offset in (0, 2, 4, 6, 99)] == [[]] * 5


def test_newest_batches_are_bounded_and_dropped_without_followers(log: Log) -> None:
    topic, followed = log.topic("events", create=True), FollowedTopics()
    with followed.follow(topic) as first:
        with followed.follow(topic) as second:
            assert first is second
            for number in range(MAX_NEWEST_BATCHES + 1):
                _store(topic, b"%d" % number)
        assert first.following(0) == []
        assert len(first.following(1)) == MAX_NEWEST_BATCHES
    _store(topic, b"unfollowed")
    assert first.following(MAX_NEWEST_BATCHES + 1) == []
    with followed.follow(topic) as later:
        assert later.following(1) == []


@pytest.mark.anyio
async def test_stream_at_the_end_reads_files_only_when_many_batches_arrive_at_once(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, topic, read_offsets = EntriesApi(log), log.topic("events", create=True), list[int]()
    read_joined = TopicReader.read_joined

    def counting(self: TopicReader, offset: int, **limits: int):
        read_offsets.append(offset)
        return read_joined(self, offset, **limits)

    monkeypatch.setattr(TopicReader, "read_joined", counting)
    pages = await api.follow(Query.from_request(pb.GetLogsRequest(topic="events")), response)
    payloads: list[bytes] = []

    async def receive(count: int) -> None:
        while len(payloads) < count:
            page = await anext(pages)
            payloads.extend(entry.raw_bytes for entry in pb.GetLogsResponse.FromString(page).logs)

    _store(topic, b"0")  # no stream follows the topic yet
    await receive(1)
    read_offsets.clear()
    for number in range(1, 20):
        _store(topic, b"%d" % number)
        await receive(number + 1)
    assert read_offsets == []
    for number in range(20, 20 + 2 * MAX_NEWEST_BATCHES):
        _store(topic, b"%d" % number)
    await receive(20 + 2 * MAX_NEWEST_BATCHES)
    assert read_offsets
    assert payloads == [b"%d" % number for number in range(20 + 2 * MAX_NEWEST_BATCHES)]
    await pages.aclose()
    api.close()
    api.release()
