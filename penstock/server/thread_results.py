"""What threads have for an event loop: one call to the loop for all that comes together."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopCalls:
    """Calls from any thread to be made on ``loop``, in their order; the loop is woken once for many."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False

    def soon(self, call: Callable[..., object], *arguments: Any) -> None:
        """Entered first, then looked whether the loop is woken: so none is overlooked."""
        self._waiting.append((call, arguments))
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                self.loop.call_soon_threadsafe(self._make)

    def _make(self) -> None:
        self._woken = False
        while self._waiting:
            call, arguments = self._waiting.popleft()
            call(*arguments)


class LoopFutures:
    """Awaits futures of the log's threads. A commit answers many appends at once: it wakes the loop once for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._calls = LoopCalls(loop)

    async def of(self, future: Future[T]) -> T:
        """The result. To give up waiting does not cancel ``future``: what the log has taken, it stores."""
        waiting: asyncio.Future[T] = self._calls.loop.create_future()
        future.add_done_callback(lambda done: self._calls.soon(_settle, waiting, done))
        return await waiting


def _settle(waiting: asyncio.Future[T], done: Future[T]) -> None:
    if waiting.done():
        return
    if (error := done.exception()) is not None:
        waiting.set_exception(error)
    else:
        waiting.set_result(done.result())
