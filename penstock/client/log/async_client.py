"""The client of the log for asyncio.

>>> async with AsyncLog("127.0.0.1:8845") as log:
...     await log.append("events", [b"one", b"two"])
...     async for entry in log.follow("events", "earliest"):
...         print(entry.offset, entry.payload)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import grpc
import grpc.aio
import pyarrow as pa

from penstock.client.log import admin_calls as admin
from penstock.client.log import calls
from penstock.client.log.admin import AsyncAdministration
from penstock.client.log.arrow_reads import AsyncArrowReading
from penstock.client.log.async_batcher import AsyncBatcher
from penstock.client.log.calls import PAGE, Call
from penstock.client.log.connection import RETRY_FOR, SERVICE, TIMEOUT, Lanes, Link, Patience, as_it_is
from penstock.client.log.transaction import AsyncTransaction, Doing
from penstock.client.log.types import (
    ClientError,
    Entry,
    OutOfSequence,
    Page,
    Payload,
    Start,
    Tls,
    Unavailable,
    Unsupported,
)
from penstock.slogd.slogd_pb2 import LogEntry

T = TypeVar("T")


class AsyncLog(AsyncAdministration, AsyncArrowReading):
    """As ``Log``, with coroutines; made and used on one event loop."""

    def __init__(
        self,
        rpc_address: str,
        *,
        timeout: float = TIMEOUT,
        retry_for: float = RETRY_FOR,
        token: str | None = None,
        tls: Tls | None = None,
        on_retry: Callable[[ClientError], None] | None = None,
    ) -> None:
        self._link = Link(rpc_address, token, tls)
        credentials, options = self._link.credentials, self._link.options
        self._channel = (
            grpc.aio.secure_channel(rpc_address, credentials, options)
            if credentials
            else grpc.aio.insecure_channel(rpc_address, options)
        )
        self._timeout, self._retry_for, self._on_retry = timeout, retry_for, on_retry
        self._lanes = Lanes()
        self._closed = False

    async def append(
        self, topic: str, payloads: Iterable[Payload], annotations: Mapping[str, str] | None = None
    ) -> Sequence[int]:
        """As ``Log.append``."""
        return await self.append_entries(topic, calls.log_entries(payloads, annotations))

    async def append_entries(self, topic: str, entries: Sequence[LogEntry]) -> list[int]:
        """As ``Log.append_entries``."""
        if not entries:
            return await self._do(calls.append(topic, entries))
        return await self._append(topic, lambda producer: calls.append(topic, entries, producer))

    async def append_batch(self, topic: str, body: pa.RecordBatch) -> list[int]:
        """As ``Log.append_batch``."""
        return await self._append(topic, lambda producer: calls.append_batch(topic, body, producer))

    async def _append(self, topic: str, call: Callable[[tuple[str, int]], Call[list[int]]]) -> list[int]:
        try:
            with self._lanes.producer(topic) as producer:
                return await self._do(call(producer))
        except OutOfSequence:  # the server lost what it knew of us; it has stored nothing of this
            self._lanes.forget(topic)
            with self._lanes.producer(topic) as producer:
                return await self._do(call(producer))

    def batcher(self, topic: str, *, max_entries: int = 1000, linger: float = 0.05) -> AsyncBatcher:
        """As ``Log.batcher``, for an ``async with``."""
        return AsyncBatcher(lambda entries: self.append_entries(topic, entries), max_entries, linger)

    def transaction(self, timeout: float | None = None) -> AsyncTransaction:
        """As ``Log.transaction``, for an ``async with``."""
        doing = Doing(self._do, self._pause, lambda: Patience(self._retry_for, self._on_retry), self._lanes)
        return AsyncTransaction(doing, timeout)

    async def read(
        self, topic: str, offset: Start = "earliest", max_messages: int = PAGE, *, filter: str | None = None
    ) -> list[Entry]:
        """As ``Log.read``."""
        entries: list[Entry] = []
        start = offset
        while len(entries) < max_messages:
            page = await self._do(calls.get(topic, start, max_messages - len(entries), filter))
            if page is None:
                break
            entries += page.entries
            start = page.next
        return entries

    async def pages(self, topic: str, offset: Start = "earliest", *, filter: str | None = None) -> AsyncGenerator[Page]:
        """As ``Log.pages``."""
        start = await self._settled(topic, offset)
        while (page := await self._do(calls.get(topic, start, PAGE, filter))) is not None:
            yield page
            start = page.next

    async def follow(self, topic: str, offset: Start = "latest", *, filter: str | None = None) -> AsyncGenerator[Entry]:
        """As ``Log.follow``, but where it starts is settled by the first entry that is asked for."""
        async with contextlib.aclosing(self.follow_pages(topic, offset, filter=filter)) as pages:
            async for page in pages:
                for entry in page.entries:
                    yield entry

    async def follow_pages(
        self, topic: str, offset: Start = "latest", *, filter: str | None = None
    ) -> AsyncGenerator[Page]:
        """As ``follow``, the entries as they come together; with a filter also pages without any."""
        start, patience = await self._settled(topic, offset), Patience(self._retry_for, self._on_retry)
        stream = self._channel.unary_stream(f"{SERVICE}StreamLogs", as_it_is, as_it_is)
        while True:
            call = self._invoke(stream, calls.logs_request(topic, start, filter=filter))
            try:
                await call.initial_metadata()  # the server sends it as soon as it serves us
                if not call.done():
                    patience.reset()
                async for data in call:
                    if (page := calls.page(data, start)) is not None:
                        yield page
                        start = page.next
            except grpc.RpcError as error:
                await self._pause(patience, self._typed(error))
            finally:
                call.cancel()

    async def _settled(self, topic: str, offset: Start) -> Start:
        """``latest`` as an offset, else what is appended while a connection is made again would be left out."""
        if offset != "latest":
            return offset
        try:
            return (await self._do(admin.describe([topic])))[0].end
        except Unsupported:
            return offset

    async def check(self) -> None:
        """As ``Log.check``."""
        await self._once(calls.names(), Patience(0))

    async def close(self) -> None:
        """Close the connection; calls under way end with Unavailable."""
        self._closed = True
        await self._channel.close(None)

    async def _do(self, call: Call[T]) -> T:
        return await self._once(call, Patience(self._retry_for if call.again else 0, self._on_retry))

    async def _once(self, call: Call[T], patience: Patience) -> T:
        method = self._channel.unary_unary(SERVICE + call.method, as_it_is, as_it_is)
        while True:
            try:
                answer = await self._invoke(method, call.request, call.timeout or self._timeout)
            except grpc.RpcError as error:
                await self._pause(patience, self._typed(error, call))
            else:
                return call.take(answer)

    def _invoke(self, method: Callable[..., Any], request: bytes, timeout: float | None = None) -> Any:
        try:
            return method(request, timeout=timeout, metadata=self._link.metadata)
        except grpc.aio.UsageError as error:  # what gRPC raises on a closed channel
            raise Unavailable("the client was closed") from error

    async def _pause(self, patience: Patience, error: ClientError) -> None:
        pause = None if self._closed else patience.pause(error)
        if pause is None:
            raise error from None
        await asyncio.sleep(pause)

    def _typed(self, error: grpc.RpcError, call: Call[Any] | None = None) -> ClientError:
        if not isinstance(error, grpc.aio.AioRpcError):
            return ClientError(str(error))
        return calls.failure(error.code(), error.details() or "", self._link.address, call)

    async def __aenter__(self) -> AsyncLog:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
