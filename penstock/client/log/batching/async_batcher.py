"""A batcher for single payloads on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType

from penstock.client.log.batching.batch_queue import BatchQueue, QueuedEntry
from penstock.client.log.calls import log_entry
from penstock.client.log.types import ClientError, Payload
from penstock.slogd.slogd_pb2 import LogEntry

Send = Callable[[Sequence[LogEntry]], Awaitable[Sequence[int]]]
Batch = list[QueuedEntry["asyncio.Future[int]"]]


class AsyncBatcher:
    """The asyncio counterpart of ``Batcher``: use it in an ``async with``, on one event loop."""

    def __init__(self, send: Send, max_entries: int = 1000, linger: float = 0.05) -> None:
        self._send, self._linger = send, linger
        self._waiting: BatchQueue[asyncio.Future[int]] = BatchQueue(max_entries)
        self._hurry = asyncio.Event()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def append(
        self, payload: Payload, annotations: Mapping[str, str] | None = None, key: bytes | None = None
    ) -> asyncio.Future[int]:
        """Return a future of the entry's offset; waits and errors as for ``Batcher.append``."""
        entry = log_entry(payload, annotations, key)
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieve_exception)
        if not self._waiting.has_room:
            async with self._changed:
                await self._changed.wait_for(lambda: self._waiting.has_room)
        self._waiting.add(entry, future)
        if self._waiting.is_full:
            self._hurry.set()
        if self._task is None or self._task.done():
            # The task ends with an empty queue, so that an idle batcher leaves no task on the loop.
            self._task = asyncio.create_task(self._run())
        return future

    async def flush(self) -> None:
        """Wait until every appended entry is stored. Raises ClientError."""
        while self._task is not None and not self._task.done():
            self._hurry.set()
            await asyncio.wait([self._task])
        self._waiting.check()

    async def close(self) -> None:
        """Flush, and accept no further entries. Raises ClientError."""
        self._waiting.closed = True
        await self.flush()

    async def _run(self) -> None:
        """Send batches until the queue is empty, each once it is full or has lingered."""
        while self._waiting:
            if not (self._waiting.is_full or self._waiting.closed):
                # Cleared only while no batch is due: `append` and `flush` set it to end the linger early.
                self._hurry.clear()
                await _within(self._hurry, self._linger)
            batch = self._waiting.cut()
            try:
                offsets = await self._send([entry for entry, _, _ in batch])
            except BaseException as error:
                self._fail(batch, error)
                # A cancellation of the task continues; any other error is raised by the next call.
                if not isinstance(error, Exception):
                    raise
            else:
                for (_, _, future), offset in zip(batch, offsets, strict=True):
                    # Unlike those of a `Batcher`, these futures can be cancelled by who awaits them.
                    if not future.done():
                        future.set_result(offset)
            async with self._changed:
                self._changed.notify_all()

    def _fail(self, batch: Batch, error: BaseException) -> None:
        self._waiting.error = error
        failed = [*batch, *self._waiting.clear()]
        for _, _, future in failed:
            if not future.done():
                future.set_exception(error)

    async def __aenter__(self) -> AsyncBatcher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except ClientError:
            if error is None:
                raise


async def _within(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return


def _retrieve_exception(future: asyncio.Future[int]) -> None:
    """Mark the error as retrieved, so that asyncio does not log it: the batcher raises it itself."""
    if not future.cancelled():
        future.exception()
