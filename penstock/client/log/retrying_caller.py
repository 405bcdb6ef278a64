"""Makes calls, retries them while the server is away if a repetition is harmless, and raises the errors of
``types``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
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
    """The shared state of a client's operations: its channel, its time-outs, and its producers (``lanes``)."""

    def __init__(
        self, channel: Channel, link: Endpoint, timeout: float, retry_for: float, on_retry: OnRetry | None
    ) -> None:
        self.link, self.lanes = link, ProducerPool()
        self._channel, self._timeout, self._retry_for, self._on_retry = channel, timeout, retry_for, on_retry
        self._closed = False

    async def do(self, call: Call[T]) -> T:
        """Return the answer of a call; retry it while the server is away if a repetition is harmless."""
        return await self.attempt(call, self.patience() if call.again else RetryBackoff(0))

    async def attempt(self, call: Call[T], patience: RetryBackoff) -> T:
        """Return the answer of a call; retry it for as long as ``patience`` lasts."""
        timeout = (call.timeout or self._timeout) + self.link.upload_time(len(call.request))
        while True:
            try:
                answer = await self._channel.call(call.method, call.request, timeout)
            except grpc.RpcError as error:
                await self.pause(patience, self._typed(error, call))
            else:
                return call.answered(answer)

    async def pipeline(self, method: str, requests: Sequence[bytes]) -> AsyncGenerator[bytes]:
        """Yield the answers to requests that are sent one behind the other. Raises ClientError; nothing is retried."""
        timeout = self._timeout + self.link.upload_time(sum(map(len, requests)))
        try:
            async with aclosing(self._channel.pipeline(method, requests, timeout)) as answers:
                async for answer in answers:
                    yield answer
        except grpc.RpcError as error:
            raise self._typed(error) from None

    async def stream(self, method: str, request: bytes, patience: RetryBackoff) -> AsyncGenerator[bytes]:
        """Yield the answers of a call until its connection breaks, then pause. Raises ClientError."""
        try:
            # Reset once the server has accepted the call: a quiet stream without entries is a success too.
            async with aclosing(self._channel.stream(method, request, patience.reset)) as answers:
                async for answer in answers:
                    yield answer
        except grpc.RpcError as error:
            await self.pause(patience, self._typed(error))

    def patience(self) -> RetryBackoff:
        """Return a retry schedule for one call."""
        return RetryBackoff(self._retry_for, self._on_retry)

    async def pause(self, patience: RetryBackoff, error: ClientError) -> None:
        """Wait until the next attempt, or raise the error."""
        # Calls on a closed channel fail like those to an absent server. They must not be retried.
        pause = None if self._closed else patience.pause(error)
        if pause is None:
            raise error from None
        await self._channel.sleep(pause)

    def _typed(self, error: grpc.RpcError, call: Call[Any] | None = None) -> ClientError:
        return calls.failure(error.code(), error.details() or "", self.link.address, call)

    async def resolve_latest(self, topic: str, offset: Start) -> Start:
        """Return the offset that ``latest`` is now; other starts unchanged.

        A reconnect must not resolve ``latest`` a second time: it would skip the entries appended in between.
        """
        if offset != "latest":
            return offset
        try:
            return (await self.do(describe([topic])))[0].end
        except Unsupported:
            # A server of slogd itself has no DescribeTopics. Each reconnect then starts at the newest entry.
            return offset

    async def close(self) -> None:
        """Close the channel; calls are no longer retried."""
        self._closed = True
        await self._channel.close()


class ClientPart:
    """A group of a client's operations."""

    def __init__(self, caller: RetryingCaller) -> None:
        self._caller = caller
