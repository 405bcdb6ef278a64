"""Two channels to the server with the same methods: gRPC's blocking channel and its asyncio channel.

The methods of ``BlockingChannel`` are coroutines too, but never wait for an event loop: ``blocking.run`` runs them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Protocol

import grpc
import grpc.aio

from penstock.client.log.connection import SERVICE, Endpoint
from penstock.client.log.types import Unavailable


class Channel(Protocol):
    """Requests and answers as bytes. All calls raise grpc.RpcError, and Unavailable once the channel is closed."""

    async def call(self, method: str, request: bytes, timeout: float) -> bytes:
        """Return the answer to one request."""

    def pipeline(self, method: str, requests: Sequence[bytes], timeout: float) -> AsyncGenerator[bytes]:
        """Yield the answers to requests that are sent one behind the other, in their order."""

    def stream(self, method: str, request: bytes, served: Callable[[], None]) -> AsyncGenerator[bytes]:
        """Yield the answers to one request, without end; call ``served`` once the server has accepted it."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    async def close(self) -> None:
        """End all calls."""


class BlockingChannel:
    """A ``Channel`` for ``Log``."""

    def __init__(self, link: Endpoint) -> None:
        self._metadata = link.metadata
        self._channel = link.open(grpc.secure_channel, grpc.insecure_channel)

    async def call(self, method: str, request: bytes, timeout: float) -> bytes:
        remote: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(SERVICE + method, None, None)
        with _unavailable_for(ValueError):
            answer: bytes = remote(request, timeout=timeout, metadata=self._metadata)
        return answer

    async def pipeline(self, method: str, requests: Sequence[bytes], timeout: float) -> AsyncGenerator[bytes]:
        remote: grpc.StreamStreamMultiCallable[bytes, bytes] = self._channel.stream_stream(SERVICE + method, None, None)
        with _unavailable_for(ValueError):
            answers = remote(iter(requests), timeout=timeout, metadata=self._metadata)
        try:
            for answer in answers:
                yield answer
        finally:
            answers.cancel()

    async def stream(self, method: str, request: bytes, served: Callable[[], None]) -> AsyncGenerator[bytes]:
        remote: grpc.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(SERVICE + method, None, None)
        with _unavailable_for(ValueError):
            answers = remote(request, metadata=self._metadata)
        try:
            # The server sends its metadata before the first answer, which may be a long time away.
            answers.initial_metadata()
            if answers.is_active():
                served()
            for answer in answers:
                yield answer
        finally:
            answers.cancel()

    async def sleep(self, seconds: float) -> None:
        # Blocks on purpose: there is no event loop to hold up.
        time.sleep(seconds)

    async def close(self) -> None:
        self._channel.close()


class AioChannel:
    """A ``Channel`` for ``AsyncLog``."""

    def __init__(self, link: Endpoint) -> None:
        self._metadata = link.metadata
        self._channel = link.open(grpc.aio.secure_channel, grpc.aio.insecure_channel)

    async def call(self, method: str, request: bytes, timeout: float) -> bytes:
        remote: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(SERVICE + method, None, None)
        with _unavailable_for(grpc.aio.UsageError):
            answer: bytes = await remote(request, timeout=timeout, metadata=self._metadata)
        return answer

    async def pipeline(self, method: str, requests: Sequence[bytes], timeout: float) -> AsyncGenerator[bytes]:
        remote: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = self._channel.stream_stream(
            SERVICE + method, None, None
        )
        with _unavailable_for(grpc.aio.UsageError):
            answers = remote(iter(requests), timeout=timeout, metadata=self._metadata)
        try:
            async for answer in answers:
                yield answer
        finally:
            answers.cancel()

    async def stream(self, method: str, request: bytes, served: Callable[[], None]) -> AsyncGenerator[bytes]:
        remote: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(
            SERVICE + method, None, None
        )
        with _unavailable_for(grpc.aio.UsageError):
            answers = remote(request, metadata=self._metadata)
        try:
            # The server sends its metadata before the first answer, which may be a long time away.
            await answers.initial_metadata()
            if not answers.done():
                served()
            async for answer in answers:
                yield answer
        finally:
            answers.cancel()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self._channel.close(None)


@contextlib.contextmanager
def _unavailable_for(raised: type[Exception]) -> Iterator[None]:
    """Raise Unavailable for the error that gRPC raises on a closed channel."""
    try:
        yield
    except raised as error:
        raise Unavailable("the client was closed") from error
