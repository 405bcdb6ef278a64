"""One gRPC call: on the server's thread alone, or as a coroutine on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # the stubs know public names

from penstock.errors import PenstockError
from penstock.server.event_loop import LoopCalls

OK = int(grpc.StatusCode.OK.value[0])
CANCELLED = int(grpc.StatusCode.CANCELLED.value[0])
UNKNOWN = int(grpc.StatusCode.UNKNOWN.value[0])
UNIMPLEMENTED = int(grpc.StatusCode.UNIMPLEMENTED.value[0])
_NO_FLAGS = 0
_LOGGER = logging.getLogger(__name__)


class CallEnded(PenstockError, ConnectionError):
    """The caller has left, or the call has its status already."""


class Call:
    """A call that is asked once and answered once. On any thread."""

    def __init__(self, call: Any, metadata: Any) -> None:
        self.raw = call
        """The call as cygrpc knows it."""
        self._metadata = metadata
        self._watched = self.left = False
        """``left``: whether the caller has gone, where that is watched."""

    def invocation_metadata(self) -> Any:
        """Names and values that the caller sent along."""
        return self._metadata

    def watch(self) -> None:
        """Have ``left`` told from now on: what waits for a thread need not be done then."""
        self._watched = True
        self.raw.start_server_batch((cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),), self._closed)

    def _closed(self, event: Any) -> None:
        self.left = event.batch_operations[0].cancelled()

    def receive(self, then: Callable[[bytes, Call], None], has_come: Callable[[], None] = lambda: None) -> None:
        """Have ``then`` called with the request, on the server's thread; a caller that has left is forgotten.

        ``has_come`` is called before, also for a caller that has left.
        """

        def received(event: Any) -> None:
            has_come()
            data = event.batch_operations[0].message()
            if data is None:
                self.refuse(CANCELLED, "no request")
            else:
                then(data, self)

        self.raw.start_server_batch((cygrpc.ReceiveMessageOperation(_NO_FLAGS),), received)

    def answer(self, data: bytes) -> None:
        """Send the answer, and that all is well."""
        self._end(OK, "", cygrpc.SendMessageOperation(data, _NO_FLAGS))

    def refuse(self, code: int, text: str) -> None:
        """Send an error."""
        self._end(code, text)

    def _end(self, code: int, text: str, *message: Any) -> None:
        begin = cygrpc.SendInitialMetadataOperation(None, _NO_FLAGS)
        close = () if self._watched else (cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),)
        self.raw.start_server_batch((begin, *message, status(code, text), *close), self._ended)

    def _ended(self, _: Any) -> None:
        """Keeps the call until grpc is done with it."""


def status(code: int, text: str) -> Any:
    """The operation that ends a call."""
    return cygrpc.SendStatusFromServerOperation(None, int(code), text.encode(errors="replace"), _NO_FLAGS)


class LoopCall:
    """A call whose handler is a coroutine, with what handlers use of a context of grpc.aio."""

    def __init__(
        self, call: Any, metadata: Any, loop: LoopCalls, has_come: Callable[[], None], ended: Callable[[], None]
    ) -> None:
        """``has_come`` is called once the first request has come or the caller has left, ``ended`` at the end."""
        self._call, self._metadata, self._loop = call, metadata, loop
        self._has_come, self._ended = has_come, ended
        self._begun = self._over = False
        self._task: asyncio.Task[None] | None = None

    def serve(self, handler: Any) -> None:
        """Run the method. On the server's thread."""
        self._call.start_server_batch((cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),), self._left)
        self._loop.soon(self._start, handler)

    def _left(self, event: Any) -> None:
        self._has_come()
        self._ended()
        if event.batch_operations[0].cancelled():
            self._loop.soon(self._cancel)

    def _cancel(self) -> None:
        self._over = True
        if self._task is not None:
            self._task.cancel()

    def _start(self, handler: Any) -> None:
        self._task = self._loop.loop.create_task(self._run(handler))

    async def _run(self, handler: Any) -> None:
        try:
            await self._answer(handler)
        except CallEnded:
            pass
        except Exception:
            _LOGGER.exception("a call failed")
            with contextlib.suppress(CallEnded):
                await self.end(UNKNOWN, "Internal error")

    async def _answer(self, handler: Any) -> None:
        request = self._requests(handler) if handler.request_streaming else await self._request(handler)
        self._serialize = handler.response_serializer or bytes
        asks, answers = ("stream" if m else "unary" for m in (handler.request_streaming, handler.response_streaming))
        answering = getattr(handler, f"{asks}_{answers}")(request, self)
        if not handler.response_streaming:
            await self.end(OK, "", self._message(await answering))
            return
        if hasattr(answering, "__aiter__"):
            async with contextlib.aclosing(answering):
                async for answer in answering:
                    await self.write(answer)
        else:
            await answering
        await self.end(OK, "")

    async def _request(self, handler: Any) -> Any:
        async for request in self._requests(handler):
            return request
        raise CallEnded("the caller has left")

    async def _requests(self, handler: Any) -> AsyncIterator[Any]:
        read = handler.request_deserializer or bytes
        while True:
            event = await self._batch(cygrpc.ReceiveMessageOperation(_NO_FLAGS))
            self._has_come()
            data = event.batch_operations[0].message()
            if data is None:
                return
            yield read(data)

    async def write(self, answer: Any) -> None:
        """Send one answer of several. Raises CallEnded."""
        await self._send(self._message(answer))

    async def send_initial_metadata(self, _: Any) -> None:
        """Tell the caller that it is being served. Raises CallEnded."""
        await self._send()

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        """End the call with an error. Raises CallEnded."""
        await self.end(code.value[0], details)
        raise CallEnded(details)

    def invocation_metadata(self) -> Any:
        """Names and values that the caller sent along."""
        return self._metadata

    def _message(self, answer: Any) -> Any:
        return cygrpc.SendMessageOperation(self._serialize(answer), _NO_FLAGS)

    async def end(self, code: int, text: str, *message: Any) -> None:
        """Send the status, after ``message`` if there is one. Raises CallEnded."""
        await self._send(*message, status(code, text))
        self._over = True

    async def _send(self, *operations: Any) -> None:
        if self._over:
            raise CallEnded("the call has its status")
        begin = () if self._begun else (cygrpc.SendInitialMetadataOperation(None, _NO_FLAGS),)
        self._begun = True
        if not (begin or operations):
            return
        event = await self._batch(*begin, *operations)
        if not event.success:
            raise CallEnded("the caller has left")

    async def _batch(self, *operations: Any) -> Any:
        done = self._loop.loop.create_future()
        self._call.start_server_batch(operations, lambda event: self._loop.soon(_settle, done, event))
        return await done


def _settle(done: asyncio.Future[Any], event: Any) -> None:
    if not done.done():
        done.set_result(event)
