from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from penstock.client import Exhausted
from penstock.client.log.batching.async_batcher import AsyncBatcher
from penstock.client.log.batching.batch_queue import MAX_BYTES, WAITING
from penstock.client.log.batching.batcher import Batcher
from penstock.slogd.slogd_pb2 import LogEntry


class Sink:
    """A sink that accepts batches and returns offsets."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.error: Exception | None = None

    def send(self, entries: Sequence[LogEntry]) -> list[int]:
        assert self.go_on.wait(20)
        if self.error:
            raise self.error
        first = sum(map(len, self.batches))
        self.batches.append([entry.raw_bytes for entry in entries])
        return list(range(first, first + len(entries)))

    async def send_async(self, entries: Sequence[LogEntry]) -> list[int]:
        while not self.go_on.is_set():
            await asyncio.sleep(0.01)
        return self.send(entries)


def test_waiting_entries_form_one_batch() -> None:
    sink = Sink()
    with Batcher(sink.send, max_entries=3, linger=60) as batcher:
        futures = [batcher.append(b"%d" % number) for number in range(7)]
        assert [future.result(20) for future in futures[:6]] == [0, 1, 2, 3, 4, 5]
    assert sink.batches == [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6"]]
    assert futures[6].result() == 6


def test_no_entry_waits_longer_than_linger() -> None:
    sink = Sink()
    with Batcher(sink.send, linger=0.05) as batcher:
        assert batcher.append(b"x").result(20) == 0
    assert sink.batches == [[b"x"]]


def test_batch_of_large_entries_has_fewer_entries() -> None:
    sink = Sink()
    with Batcher(sink.send, linger=60) as batcher:
        for _ in range(5):
            batcher.append(b"x" * (MAX_BYTES // 2 - 100))
    assert [len(batch) for batch in sink.batches] == [2, 2, 1]


def test_flush_waits_for_all_entries() -> None:
    sink = Sink()
    batcher = Batcher(sink.send, linger=60)
    futures = [batcher.append(b"x") for _ in range(10)]
    batcher.flush()
    assert all(future.done() for future in futures)
    batcher.flush()
    batcher.append(b"y")
    batcher.close()
    assert len(sink.batches) == 2
    with pytest.raises(ValueError, match="closed"):
        batcher.append(b"z")
    batcher.close()


@pytest.mark.survives("client", "slow peer")
def test_append_blocks_while_the_queue_is_full() -> None:
    sink = Sink()
    sink.go_on.clear()
    batcher = Batcher(sink.send, max_entries=2, linger=60)
    appended: list[int] = []

    def run() -> None:
        for number in range(100):
            batcher.append(b"%d" % number)
            appended.append(number)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.3)
    assert len(appended) <= 2 * WAITING + 2
    sink.go_on.set()
    thread.join(20)
    batcher.close()
    assert [payload for batch in sink.batches for payload in batch] == [b"%d" % number for number in range(100)]


def test_nothing_is_sent_after_a_failure() -> None:
    sink = Sink()
    sink.go_on.clear()
    sink.error = Exhausted("full")
    batcher = Batcher(sink.send, max_entries=2, linger=60)
    futures = [batcher.append(b"%d" % number) for number in range(5)]
    sink.go_on.set()
    for future in futures:
        assert isinstance(future.exception(20), Exhausted)
    sink.error = None
    for call in (lambda: batcher.append(b"more"), batcher.flush, batcher.close):
        with pytest.raises(Exhausted):
            call()
    assert sink.batches == []


def test_appended_entry_cannot_be_cancelled() -> None:
    sink = Sink()
    with Batcher(sink.send, linger=60) as batcher:
        future = batcher.append(b"x")
        assert not future.cancel()
    assert future.result() == 0


def test_error_of_the_caller_is_not_hidden_by_an_error_of_the_batcher() -> None:
    sink = Sink()
    sink.error = Exhausted("full")
    with pytest.raises(Exhausted, match="full"), Batcher(sink.send) as batcher:
        batcher.append(b"x")
    with pytest.raises(KeyError), Batcher(sink.send) as batcher:
        {}[batcher.append(b"x")]


def test_invalid_payload_is_refused_immediately() -> None:
    with Batcher(Sink().send) as batcher, pytest.raises(TypeError, match="not int"):
        batcher.append(5)  # type: ignore[arg-type]


def on_a_loop(body: Callable[[Sink, AsyncBatcher], object], sink: Sink, **options: float) -> None:
    async def run() -> None:
        batcher = AsyncBatcher(sink.send_async, **options)  # type: ignore[arg-type]
        await body(sink, batcher)  # type: ignore[misc]

    asyncio.run(asyncio.wait_for(run(), 30))


def test_async_batches_fill_and_linger() -> None:
    async def body(sink: Sink, batcher: AsyncBatcher) -> None:
        async with batcher:
            futures = [await batcher.append(b"%d" % number) for number in range(7)]
            assert [await future for future in futures[:6]] == [0, 1, 2, 3, 4, 5]
        assert [len(batch) for batch in sink.batches] == [3, 3, 1]
        assert await futures[6] == 6
        with pytest.raises(ValueError, match="closed"):
            await batcher.append(b"z")
        async with AsyncBatcher(sink.send_async, linger=0.05) as quick:
            assert await (await quick.append(b"x")) == 7

    on_a_loop(body, Sink(), max_entries=3, linger=60)


def test_async_append_waits_while_the_queue_is_full() -> None:
    async def body(sink: Sink, batcher: AsyncBatcher) -> None:
        sink.go_on.clear()
        appended: list[int] = []

        async def run() -> None:
            for number in range(100):
                await batcher.append(b"%d" % number)
                appended.append(number)

        task = asyncio.create_task(run())
        await asyncio.sleep(0.2)
        assert len(appended) <= 2 * WAITING + 2
        sink.go_on.set()
        await task
        await batcher.close()
        assert [payload for batch in sink.batches for payload in batch] == [b"%d" % number for number in range(100)]

    on_a_loop(body, Sink(), max_entries=2, linger=60)


def test_async_failure_ends_the_batcher() -> None:
    async def body(sink: Sink, batcher: AsyncBatcher) -> None:
        sink.error = Exhausted("full")
        futures = [await batcher.append(b"%d" % number) for number in range(2)]
        for future in futures:
            with pytest.raises(Exhausted):
                await future
        sink.error = None
        with pytest.raises(Exhausted):
            await batcher.append(b"more")
        with pytest.raises(Exhausted):
            await batcher.close()
        assert sink.batches == []

    on_a_loop(body, Sink(), max_entries=2, linger=60)
