"""The client of the log for asyncio.

>>> async with AsyncLog("127.0.0.1:8845") as log:
...     await log.append("events", [b"one", b"two"])
...     async for entry in log.follow("events", "earliest"):
...         print(entry.offset, entry.payload)
"""

from __future__ import annotations

from types import TracebackType

from penstock.client.log.batching.async_batcher import AsyncBatcher
from penstock.client.log.channels import AioChannel
from penstock.client.log.connection import RETRY_FOR, TIMEOUT, Endpoint
from penstock.client.log.operations import Operations
from penstock.client.log.retrying_caller import OnRetry, RetryingCaller
from penstock.client.log.transaction import AsyncTransaction
from penstock.client.log.types import Tls


class AsyncLog(Operations):
    """The asyncio client, with the arguments of ``Log``; created and used on one event loop."""

    def __init__(
        self,
        rpc_address: str,
        *,
        timeout: float = TIMEOUT,
        retry_for: float = RETRY_FOR,
        token: str | None = None,
        tls: Tls | None = None,
        on_retry: OnRetry | None = None,
    ) -> None:
        link = Endpoint(rpc_address, token, tls)
        super().__init__(RetryingCaller(AioChannel(link), link, timeout, retry_for, on_retry))

    def batcher(self, topic: str, *, max_entries: int = 1000, linger: float = 0.05) -> AsyncBatcher:
        """Return a batcher for an ``async with``; arguments as for ``Log.batcher``."""
        return AsyncBatcher(lambda entries: self.append_entries(topic, entries), max_entries, linger)

    def transaction(self, timeout: float | None = None) -> AsyncTransaction:
        """Return a transaction for an ``async with``; arguments as for ``Log.transaction``."""
        return AsyncTransaction(self._caller, timeout)

    async def __aenter__(self) -> AsyncLog:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
