"""Answers of one connection, sent in the order of its requests.

Each answer is sent as soon as it exists and all answers before it are sent. All state belongs to the event loop of the
connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from penstock.process.servers.in_flight_bytes import RequestBytes
from penstock.server.event_loop import LoopCalls
from penstock.server.kafka.calls import Answer, AnswerOnceStored, DeferredAnswer
from penstock.server.kafka.connection.frames import Frames
from penstock.server.kafka.limits import KafkaLimits
from penstock.server.kafka.schema.messages import Request, encode_answer

MAX_IN_FLIGHT = 8
"""Limit: requests of one connection that wait for their answers; the Java client sends 5 by default."""


@dataclass(eq=False, slots=True)
class _Pending:
    """A request, its bytes in flight, and its answer, which waits for ``unstored`` batches."""

    request: Request
    request_bytes: RequestBytes
    answer: Answer
    unstored: int = 0


class Answers:
    """The queue of answers of one connection. The log's threads report stored batches by ``calls``, which run on
    the loop.
    """

    def __init__(self, frames: Frames, limits: KafkaLimits, calls: LoopCalls) -> None:
        self._frames, self._limits, self._calls = frames, limits, calls
        self._pending: deque[_Pending] = deque()
        self._pause: asyncio.Task[None] | None = None
        self._room_waiter: asyncio.Future[None] | None = None
        self.failed: asyncio.Future[None] = calls.loop.create_future()
        """Holds the error that stops sending; cancelled when the connection closes."""

    @property
    def pending(self) -> bool:
        """Whether a request waits for its answer."""
        return bool(self._pending)

    @property
    def full(self) -> bool:
        """Whether no more requests may start."""
        return len(self._pending) >= MAX_IN_FLIGHT

    async def wait_for_room(self) -> None:
        """Wait until a request may start. One caller at a time."""
        while self.full:
            self._room_waiter = self._calls.loop.create_future()
            await self._room_waiter

    def add(self, request: Request, request_bytes: RequestBytes, answer: Answer) -> None:
        """Add the answer to ``request``, behind all earlier ones; ``request_bytes`` are released once it is built."""
        self._pending.append(pending := _Pending(request, request_bytes, answer))
        if isinstance(answer, AnswerOnceStored):
            pending.unstored = len(answer.stored)
            for stored in answer.stored:
                # Thread: the callback runs on a committer's thread, so it only schedules a call on the loop.
                stored.add_done_callback(lambda _: self._calls.soon(self._on_stored, pending))
        self._send_ready()

    def _on_stored(self, pending: _Pending) -> None:
        pending.unstored -= 1
        if not pending.unstored:
            self._send_ready()

    def _send_ready(self) -> None:
        """Send all answers up to the first one that does not exist yet."""
        try:
            while self._may_send():
                self._send_first()
        except Exception as error:  # noqa: BLE001 - the connection gets it, and ends
            self._fail(error)
        if self._room_waiter is not None and not self._room_waiter.done() and not self.full:
            self._room_waiter.set_result(None)

    def _may_send(self) -> bool:
        return bool(self._pending) and not (self._pending[0].unstored or self._pause or self.failed.done())

    def _send_first(self) -> None:
        first = self._pending[0]
        answer = first.answer
        if isinstance(answer, DeferredAnswer):
            if (ready := answer.ready()) is None:
                self._pause_until(self._wait_for(first, answer))
                return
            answer = ready
        self._end_first()
        parts = (
            answer.frame(first.request)
            if isinstance(answer, AnswerOnceStored)
            else encode_answer(first.request, answer)
        )
        if parts:
            self._frames.send(parts)
        # Limit: build no further answers while the client does not receive, so each connection holds one.
        if self._frames.full:
            self._pause_until(self._frames.wait_until_drained(sum(map(len, parts))))

    async def _wait_for(self, first: _Pending, later: DeferredAnswer) -> None:
        first.answer = await later.values()

    def _end_first(self) -> None:
        self._limits.release(self._pending.popleft().request_bytes)

    def _pause_until(self, pending: Coroutine[Any, Any, None]) -> None:
        """Send nothing more until ``pending`` has ended."""
        self._pause = asyncio.create_task(pending)
        self._pause.add_done_callback(self._resume)

    def _resume(self, pause: asyncio.Task[None]) -> None:
        self._pause = None
        if pause.cancelled():
            return
        if (error := pause.exception()) is not None:
            self._fail(error)
        else:
            self._send_ready()

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    async def close(self) -> None:
        """Stop sending and release all pending requests."""
        self.failed.cancel()
        if self._pause is not None:
            self._pause.cancel()
            await asyncio.wait([self._pause])
        while self._pending:
            self._end_first()
