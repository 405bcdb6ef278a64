from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from penstock import records
from penstock.client import AsyncLog, NoSuchTopic, Refused, Unavailable
from penstock.counts import Origin
from tests.client.client_proxy import Proxy
from tests.server.running import Running


def on_a_loop(address: str, body: Callable[[AsyncLog], Awaitable[None]], **options: float) -> None:
    async def run() -> None:
        async with AsyncLog(address, **options) as log:  # type: ignore[arg-type]
            await body(log)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_appended_entries_are_read(running: Running) -> None:
    async def body(log: AsyncLog) -> None:
        assert await log.append("t", [b"bytes", "text", None], {"userid": "5"}) == [0, 1, 2]
        assert await log.append("t", []) == []
        entries = await log.read("t")
        assert [(e.payload, e.annotations) for e in entries] == [
            (p, {"userid": "5"}) for p in (b"bytes", b"text", None)
        ]
        assert [e.offset for e in await log.read("t", "latest", 2)] == [1, 2]
        assert [e.offset async for page in log.pages("t", 1) for e in page.entries] == [1, 2]
        assert [e.offset for e in await log.read("t", entries[1].timestamp)] == [1, 2]
        assert await log.read("t", datetime.now(UTC) + timedelta(hours=1)) == []
        assert await log.topics() == ["t"]

    on_a_loop(running.bound.grpc, body)


def test_batches_are_appended_and_read(running: Running) -> None:
    async def body(log: AsyncLog) -> None:
        assert await log.append_batch("t", records.body([b"%d" % n for n in range(50)])) == list(range(50))
        async with log.batcher("t") as batcher:
            assert await (await batcher.append(b"50")) == 50
        origin = Origin("host/udp", 120, 121_000_000, 122_000_000)
        relayed = [(records.body([b"%d" % n]), ("p", n), origin) for n in (1, 2)]
        assert await log.append_batches("relayed", relayed) == [[0], [1]]
        table = await log.table("t", 48, columns=["offset", "payload"])
        assert table.to_pylist() == [{"offset": n, "payload": b"%d" % n} for n in (48, 49, 50)]
        assert [batch.num_rows async for batch in log.batches("t", 10, 20)] == [10]

    on_a_loop(running.bound.grpc, body)


def test_concurrent_appends_are_all_stored(running: Running) -> None:
    async def body(log: AsyncLog) -> None:
        answers = await asyncio.gather(*(log.append("t", [b"%d" % n]) for n in range(100)))
        assert sorted(offset for answer in answers for offset in answer) == list(range(100))

    on_a_loop(running.bound.grpc, body)


def test_following_continues_at_its_offset(running: Running) -> None:
    proxy = Proxy(running.bound.grpc)

    async def body(log: AsyncLog) -> None:
        await log.append("t", [b"0"])
        entries = log.follow("t", "earliest")
        assert (await anext(entries)).offset == 0
        for expected in (1, 2):
            proxy.cut()
            await log.append("t", [b"x"])
            assert (await anext(entries)).offset == expected
        await entries.aclose()

    try:
        on_a_loop(proxy.address, body)
    finally:
        proxy.close()


def test_append_waits_for_an_unavailable_server(running: Running) -> None:
    proxy = Proxy(running.bound.grpc)
    proxy.refuse()
    threading.Timer(0.5, proxy.refuse, [False]).start()

    async def body(log: AsyncLog) -> None:
        assert await log.append("t", [b"x"]) == [0]

    try:
        on_a_loop(proxy.address, body)
    finally:
        proxy.close()


def test_errors_are_typed(running: Running) -> None:
    async def body(log: AsyncLog) -> None:
        with pytest.raises(NoSuchTopic):
            await log.read("nope")
        with pytest.raises(NoSuchTopic):
            await anext(log.follow("nope", "earliest"))
        with pytest.raises(Refused, match="must conform"):
            await log.append("NOPE", [b"x"])
        with pytest.raises(TypeError):
            await log.append("t", b"not several")
        running.stop()
        with pytest.raises(Unavailable, match="no log daemon answers"):
            await log.check()
        await log.close()
        with pytest.raises(Unavailable, match="closed"):
            await log.topics()

    on_a_loop(running.bound.grpc, body, retry_for=0)
