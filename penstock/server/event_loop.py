"""Calls, results and wake-ups from threads to an event loop, with one wake-up of the loop for many of them.

Waking a loop costs a system call. A commit answers many appends and wakes many streams at once, so all of them share
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any, TypeVar

from penstock.log import StoredBatch

T = TypeVar("T")


class LoopCalls:
    """Calls from any thread that run on ``loop`` in their order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False

    def soon(self, call: Callable[..., object], *arguments: Any) -> None:
        """Run ``call`` on the loop. Thread-safe; never blocks."""
        # Order: enqueue before testing the wake flag; otherwise the loop could clear the flag in between and miss it.
        self._waiting.append((call, arguments))
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                self.loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        # Order: clear the flag before emptying the queue: a call that is enqueued from here on wakes the loop again.
        self._woken = False
        while self._waiting:
            call, arguments = self._waiting.popleft()
            call(*arguments)


class LoopFutures:
    """Futures of the log's threads, awaited on one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._calls = LoopCalls(loop)

    async def wait(self, future: Future[T]) -> T:
        """Return the outcome of ``future``. Cancelling the wait does not cancel the append: the log stores it."""
        waiter: asyncio.Future[T] = self._calls.loop.create_future()
        future.add_done_callback(lambda finished: self._calls.soon(_settle, waiter, finished))
        return await waiter


def _settle(waiter: asyncio.Future[T], finished: Future[T]) -> None:
    # The request may have been cancelled; the append is stored nevertheless.
    if waiter.done():
        return
    if (error := finished.exception()) is not None:
        waiter.set_exception(error)
    else:
        waiter.set_result(finished.result())


class Wake:
    """Wakes one stream from the log's threads; one call to the loop for all batches stored until it runs again."""

    def __init__(self, loop: asyncio.AbstractEventLoop, topics: Collection[str]) -> None:
        self._loop, self.topics = loop, topics
        self._event = asyncio.Event()
        self.clear, self.set = self._event.clear, self._event.set

    async def wait_until(self, deadline: float) -> None:
        """Return when a batch was stored, or at ``deadline`` in the loop's time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline if deadline < math.inf else None):
                await self._event.wait()

    def on_stored(self, _: StoredBatch | None = None) -> None:
        """Wake the stream; called by the log after each synced commit. Thread-safe; never blocks."""
        if not self._event.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._event.set)
