"""Calls of gRPC that a coroutine on the event loop answers. Calls of the server's thread: ``process.servers.calls``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # the stubs know public names

from penstock.errors import PenstockError
from penstock.process.servers.calls import OK, address_of, status_operation
from penstock.server.event_loop import LoopCalls

UNKNOWN = int(grpc.StatusCode.UNKNOWN.value[0])
UNIMPLEMENTED = int(grpc.StatusCode.UNIMPLEMENTED.value[0])
_UNAVAILABLE = int(grpc.StatusCode.UNAVAILABLE.value[0])
_NO_FLAGS = 0
_LOGGER = logging.getLogger(__name__)


class CallEnded(PenstockError, ConnectionError):
    """The client has left, or the call already has a status."""


class LoopCall:
    """A call whose handler is a coroutine; offers what handlers use of grpc.aio's context. Lives on the event loop."""

    def __init__(
        self, call: Any, metadata: Any, loop: LoopCalls, on_request: Callable[[], None], on_end: Callable[[], None]
    ) -> None:
        """Create the call; ``on_request`` runs when the first request arrives or the client leaves, ``on_end`` at
        the end.
        """
        self._call, self._metadata, self._loop = call, metadata, loop
        self._on_request, self._on_end = on_request, on_end
        self._has_sent_metadata = self._has_ended = False
        self.unanswered = 0
        """Requests that have begun to take effect and whose outcome is not known yet: their connection stays open.

        An answer that the client does not read is not one of them, else clients that read nothing could keep all
        connections.
        """
        self.last_message_s = time.monotonic()
        """Monotonic time of the last request or answer, or of the call itself."""
        self._task: asyncio.Task[None] | None = None

    def serve(self, handler: Any) -> None:
        """Run the method; called on the server's thread."""
        self._call.start_server_batch((cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),), self._closed)
        self._loop.soon(self._start, handler)

    def _closed(self, event: Any) -> None:
        self._on_request()
        self._on_end()
        if event.batch_operations[0].cancelled():
            # Thread: grpc's thread only schedules; the task belongs to the event loop.
            self._loop.soon(self._cancel)

    def _cancel(self) -> None:
        self._has_ended = True
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

    def cut_off(self, reason: str) -> None:
        """End the call, whether the client reads or not; the client may repeat it. Thread-safe."""
        self._call.cancel(_UNAVAILABLE, reason)

    async def _answer(self, handler: Any) -> None:
        request = self._requests(handler) if handler.request_streaming else await self._request(handler)
        self._serialize = handler.response_serializer or bytes
        request_kind, answer_kind = (
            "stream" if is_stream else "unary" for is_stream in (handler.request_streaming, handler.response_streaming)
        )
        self.unanswered += not handler.response_streaming
        response = getattr(handler, f"{request_kind}_{answer_kind}")(request, self)
        if not handler.response_streaming:
            await self.end(OK, "", self._message(await response))
            return
        if hasattr(response, "__aiter__"):
            async with contextlib.aclosing(response):
                async for answer in response:
                    await self.write(answer)
        else:
            await response
        await self.end(OK, "")

    async def _request(self, handler: Any) -> Any:
        async for request in self._requests(handler):
            return request
        raise CallEnded("the caller has left")

    async def _requests(self, handler: Any) -> AsyncIterator[Any]:
        deserialize = handler.request_deserializer or bytes
        while True:
            event = await self._batch(cygrpc.ReceiveMessageOperation(_NO_FLAGS))
            self._on_request()
            self.last_message_s = time.monotonic()
            data = event.batch_operations[0].message()
            if data is None:
                return
            yield deserialize(data)

    async def write(self, answer: Any) -> None:
        """Send one of several answers. Raises CallEnded."""
        self.last_message_s = time.monotonic()
        await self._send(self._message(answer))
        # Also once it is sent: a large answer takes a slow client longer than a silent one may.
        self.last_message_s = time.monotonic()

    async def send_initial_metadata(self, _: Any) -> None:
        """Tell the client that the call is being served. Raises CallEnded."""
        await self._send()

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        """End the call with an error; always raises CallEnded."""
        await self.end(code.value[0], details)
        raise CallEnded(details)

    def invocation_metadata(self) -> Any:
        """Return the names and values that the client sent with the call."""
        return self._metadata

    def client_address(self) -> str:
        """Return the address of the client; "" for a Unix socket."""
        return address_of(self.peer())

    def peer(self) -> bytes | str:
        """Return gRPC's name of the client. Thread-safe."""
        name: bytes | str = self._call.peer()
        return name

    def count_outcome(self, _: Any) -> None:
        """Note that the outcome of one of the ``unanswered`` requests is known."""
        self.unanswered -= 1

    def _message(self, answer: Any) -> Any:
        return cygrpc.SendMessageOperation(self._serialize(answer), _NO_FLAGS)

    async def end(self, code: int, text: str, *message: Any) -> None:
        """Send ``message``, if any, and the status. Raises CallEnded."""
        self.unanswered, self.last_message_s = 0, time.monotonic()
        await self._send(*message, status_operation(code, text))
        self._has_ended = True

    async def _send(self, *operations: Any) -> None:
        if self._has_ended:
            raise CallEnded("the call has its status")
        # Order: grpc sends initial metadata once, before anything else of the call.
        metadata = () if self._has_sent_metadata else (cygrpc.SendInitialMetadataOperation(None, _NO_FLAGS),)
        self._has_sent_metadata = True
        if not (metadata or operations):
            return
        event = await self._batch(*metadata, *operations)
        if not event.success:
            raise CallEnded("the caller has left")

    async def _batch(self, *operations: Any) -> Any:
        finished = self._loop.loop.create_future()
        self._call.start_server_batch(operations, lambda event: self._loop.soon(_settle, finished, event))
        return await finished


def _settle(finished: asyncio.Future[Any], event: Any) -> None:
    # A cancelled handler no longer waits for the operation, which grpc completes nevertheless.
    if not finished.done():
        finished.set_result(event)
