"""A batcher for single payloads with a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType

from penstock.client.log.batching.batch_queue import BatchQueue, QueuedEntry
from penstock.client.log.calls import log_entry
from penstock.client.log.types import ClientError, Payload
from penstock.slogd.slogd_pb2 import LogEntry

Send = Callable[[Sequence[LogEntry]], Sequence[int]]
Batch = list[QueuedEntry["Future[int]"]]


class Batcher:
    """Appends to one topic from any threads, in the order of the calls; use it in a ``with``, or close it.

    If a batch cannot be appended (after all retries), the entries behind it are not appended either, because that
    would break their order. From then on ``append``, ``flush`` and ``close`` raise that error.
    """

    def __init__(self, send: Send, max_entries: int = 1000, linger: float = 0.05) -> None:
        self._send, self._linger = send, linger
        self._waiting: BatchQueue[Future[int]] = BatchQueue(max_entries)
        self._since = 0.0
        self._sending = 0
        self._flushing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="penstock-batcher", daemon=True)
        self._thread.start()

    def append(
        self, payload: Payload, annotations: Mapping[str, str] | None = None, key: bytes | None = None
    ) -> Future[int]:
        """Return a future of the entry's offset. Waits while the queue is full. Raises ClientError, TypeError."""
        entry = log_entry(payload, annotations, key)
        future = Future[int]()
        # An appended entry cannot be cancelled: its request may be under way.
        future.set_running_or_notify_cancel()
        with self._changed:
            self._changed.wait_for(lambda: self._waiting.has_room)
            if not self._waiting:
                self._since = time.monotonic()
            self._waiting.add(entry, future)
            # Fast path: the thread is woken by the first entry, which starts the linger, and by a full batch only.
            if len(self._waiting) == 1 or self._waiting.is_full:
                self._changed.notify_all()
        return future

    def flush(self) -> None:
        """Wait until every appended entry is stored. Raises ClientError."""
        with self._changed:
            self._flushing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not (self._waiting or self._sending) or self._waiting.error is not None)
            self._flushing = False
            self._waiting.check()

    def close(self) -> None:
        """Flush, and end the thread. Raises ClientError."""
        try:
            self.flush()
        finally:
            with self._changed:
                self._waiting.closed = True
                self._changed.notify_all()
            self._thread.join()

    def _run(self) -> None:
        while batch := self._next_batch():
            try:
                offsets = self._send([entry for entry, _, _ in batch])
            except BaseException as error:  # noqa: BLE001 - any end of the thread must reach the waiting callers
                self._fail(batch, error)
                return
            for (_, _, future), offset in zip(batch, offsets, strict=True):
                future.set_result(offset)
            with self._changed:
                self._sending = 0
                self._changed.notify_all()

    def _next_batch(self) -> Batch:
        """Return the next batch once it is full or its first entry has lingered; an empty one at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._waiting.closed)
            while not (self._waiting.is_full or self._flushing or self._waiting.closed):
                remaining_s = self._since + self._linger - time.monotonic()
                if remaining_s <= 0 or not self._changed.wait(remaining_s):
                    break
            batch = self._waiting.cut()
            self._sending = len(batch)
            self._since = time.monotonic()
            self._changed.notify_all()
        return batch

    def _fail(self, batch: Batch, error: BaseException) -> None:
        with self._changed:
            self._waiting.error, self._sending = error, 0
            failed = [*batch, *self._waiting.clear()]
            self._changed.notify_all()
        # Outside of the lock: a future's callback may call the batcher.
        for _, _, future in failed:
            future.set_exception(error)

    def __enter__(self) -> Batcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ClientError:
            if error is None:
                raise
