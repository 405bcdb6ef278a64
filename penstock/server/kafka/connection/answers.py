"""The answers of one connection: sent in the order of its requests, each as soon as it is there."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from penstock.process.in_flight_bytes import RequestBytes
from penstock.server.event_loop import LoopCalls
from penstock.server.kafka.calls import Answer, Later, Soon
from penstock.server.kafka.connection.frames import Frames
from penstock.server.kafka.limits import KafkaLimits
from penstock.server.kafka.schema.messages import Request, answer

UNDER_WAY = 8
"""Requests of one connection that may wait for their answers at once."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """A request, its part in what is under way, and its answer, for which ``unstored`` batches are waited for."""

    request: Request
    held: RequestBytes
    answer: Answer
    unstored: int = 0


class Answers:
    """``calls`` are made on the loop of the connection: the log's threads tell by them what is stored."""

    def __init__(self, frames: Frames, limits: KafkaLimits, calls: LoopCalls) -> None:
        self._frames, self._limits, self._calls = frames, limits, calls
        self._waiting: deque[_Waiting] = deque()
        self._pause: asyncio.Task[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self.failed: asyncio.Future[None] = calls.loop.create_future()
        """Has the error by which no more answers are sent; cancelled at the end."""

    @property
    def full(self) -> bool:
        """Whether no more requests are to be begun."""
        return len(self._waiting) >= UNDER_WAY

    async def room(self) -> None:
        """Wait until it is not full. One caller at a time."""
        while self.full:
            self._room = self._calls.loop.create_future()
            await self._room

    def add(self, request: Request, held: RequestBytes, answered: Answer) -> None:
        """The answer to the next request. ``held`` is released once it is there."""
        self._waiting.append(waiting := _Waiting(request, held, answered))
        if isinstance(answered, Soon):
            waiting.unstored = len(answered.stored)
            for stored in answered.stored:
                stored.add_done_callback(lambda _: self._calls.soon(self._stored, waiting))
        self._send()

    def _stored(self, waiting: _Waiting) -> None:
        waiting.unstored -= 1
        if not waiting.unstored:
            self._send()

    def _send(self) -> None:
        """Send what is there, up to the first answer that is not."""
        try:
            while self._may_send():
                self._send_first()
        except Exception as error:  # noqa: BLE001 - told to the connection, which ends
            self._fail(error)
        if self._room is not None and not self._room.done() and not self.full:
            self._room.set_result(None)

    def _may_send(self) -> bool:
        return bool(self._waiting) and not (self._waiting[0].unstored or self._pause or self.failed.done())

    def _send_first(self) -> None:
        first = self._waiting[0]
        given = first.answer
        if isinstance(given, Later):
            if (ready := given.ready()) is None:
                self._pause_for(self._wait_for(first, given))
                return
            given = ready
        self._end_first()
        told = given.frame(first.request) if isinstance(given, Soon) else answer(first.request, given)
        if told:
            self._frames.send(told)
        if self._frames.full:
            self._pause_for(self._frames.taken(sum(map(len, told))))

    async def _wait_for(self, first: _Waiting, later: Later) -> None:
        first.answer = await later.values()

    def _end_first(self) -> None:
        self._limits.release(self._waiting.popleft().held)

    def _pause_for(self, waiting: Coroutine[Any, Any, None]) -> None:
        """Send no more before ``waiting`` is over."""
        self._pause = asyncio.create_task(waiting)
        self._pause.add_done_callback(self._resume)

    def _resume(self, done: asyncio.Task[None]) -> None:
        self._pause = None
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            self._fail(error)
        else:
            self._send()

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    async def close(self) -> None:
        """Nobody waits for the answers any more."""
        self.failed.cancel()
        if self._pause is not None:
            self._pause.cancel()
            await asyncio.wait([self._pause])
        while self._waiting:
            self._end_first()
