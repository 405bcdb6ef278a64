"""Making calls, again while the server is away where that does no harm, with the errors of ``types``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeVar

import grpc

from penstock.client.log import calls
from penstock.client.log.admin_calls import describe
from penstock.client.log.calls import Call
from penstock.client.log.channels import Channel
from penstock.client.log.connection import Endpoint, ProducerPool, RetryBackoff
from penstock.client.log.types import ClientError, Start, Unsupported

T = TypeVar("T")
OnRetry = Callable[[ClientError], None]


class RetryingCaller:
    """What the operations of a client share: its channel, for how long they try, and their producers (``lanes``)."""

    def __init__(
        self, channel: Channel, link: Endpoint, timeout: float, retry_for: float, on_retry: OnRetry | None
    ) -> None:
        self.link, self.lanes = link, ProducerPool()
        self._channel, self._timeout, self._retry_for, self._on_retry = channel, timeout, retry_for, on_retry
        self._closed = False

    async def do(self, call: Call[T]) -> T:
        """The answer of a call, made again while the server is away if that does no harm."""
        return await self.attempt(call, self.patience() if call.again else RetryBackoff(0))

    async def attempt(self, call: Call[T], patience: RetryBackoff) -> T:
        """The answer of a call, made again for as long as ``patience`` lasts."""
        while True:
            try:
                answer = await self._channel.call(call.method, call.request, call.timeout or self._timeout)
            except grpc.RpcError as error:
                await self.pause(patience, self._typed(error, call))
            else:
                return call.answered(answer)

    async def stream(self, method: str, request: bytes, patience: RetryBackoff) -> AsyncGenerator[bytes]:
        """The answers of a call until its connection breaks, and then a pause. Raises ClientError."""
        try:
            async with aclosing(self._channel.stream(method, request, patience.reset)) as answers:
                async for answer in answers:
                    yield answer
        except grpc.RpcError as error:
            await self.pause(patience, self._typed(error))

    def patience(self) -> RetryBackoff:
        """For the tries of one call."""
        return RetryBackoff(self._retry_for, self._on_retry)

    async def pause(self, patience: RetryBackoff, error: ClientError) -> None:
        """Wait for the next try, or raise the error."""
        pause = None if self._closed else patience.pause(error)
        if pause is None:
            raise error from None
        await self._channel.sleep(pause)

    def _typed(self, error: grpc.RpcError, call: Call[Any] | None = None) -> ClientError:
        return calls.failure(error.code(), error.details() or "", self.link.address, call)

    async def settled(self, topic: str, offset: Start) -> Start:
        """``latest`` as an offset, else what is appended while a connection is made again would be left out."""
        if offset != "latest":
            return offset
        try:
            return (await self.do(describe([topic])))[0].end
        except Unsupported:
            return offset

    async def close(self) -> None:
        """Close the channel; nothing is tried again."""
        self._closed = True
        await self._channel.close()


class ClientPart:
    """Some operations of a client."""

    def __init__(self, caller: RetryingCaller) -> None:
        self._caller = caller
