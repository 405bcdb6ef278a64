"""Futures of the log's threads awaited on an event loop: one call to the loop for all that are done together."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class LoopFutures:
    """Hands results over to ``loop``. A commit answers many appends at once: it wakes the loop once for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._done: deque[tuple[asyncio.Future[object], Future[object]]] = deque()
        self._called = False

    async def of(self, future: Future[T]) -> T:
        """The result. To give up waiting does not cancel ``future``: what the log has taken, it stores."""
        waiting: asyncio.Future[T] = self._loop.create_future()
        future.add_done_callback(lambda done: self._arrived(waiting, done))
        return await waiting

    def _arrived(self, waiting: asyncio.Future[T], done: Future[T]) -> None:
        """On any thread. Entered first, then looked whether the loop is called: so none is overlooked."""
        self._done.append((waiting, done))  # type: ignore[arg-type]
        if not self._called:
            self._called = True
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        self._called = False
        while self._done:
            waiting, done = self._done.popleft()
            if waiting.done():
                continue
            if (error := done.exception()) is not None:
                waiting.set_exception(error)
            else:
                waiting.set_result(done.result())
