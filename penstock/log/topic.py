"""A topic: appends in groups, gaps, verification. One writer; readers work on the folder alone."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import records
from penstock.counts import Origin
from penstock.log.batching import Appended, Prepared, Waiting, resolve
from penstock.log.committers import Committers
from penstock.log.cursors import Cursors
from penstock.log.errors import LogClosed, LogFull, MessageTooLarge, write_error
from penstock.log.files import Clock, FileSystem
from penstock.log.gaps import Gap, Gaps
from penstock.log.reader import TopicReader
from penstock.log.settings import COMMIT_BYTES, MAX_BATCH_BYTES, TopicSettings
from penstock.log.verify import find_bad
from penstock.log.view import Stored
from penstock.log.writer import Writer

__all__ = ["Appended", "Stored", "Topic"]
_LOGGER = logging.getLogger(__name__)
_NULL_ROW = records.body([None])


class Topic:
    """One topic, open for writing. Made by ``Log.topic``. All methods may be called from any thread."""

    def __init__(
        self, path: Path, settings: TopicSettings, *, clock: Clock, fs: FileSystem, committers: Committers
    ) -> None:
        self.name = path.name
        self.path = path
        self.settings = settings
        self.cursors = Cursors(fs, path)
        self._fs = fs
        self._committers = committers
        self._queue_lock = threading.Lock()
        self._idle = threading.Condition(self._queue_lock)
        self._waiting: deque[Waiting] = deque()
        self._scheduled = False
        self._closed = False
        self._writing = threading.Lock()
        self._subscribers: list[Callable[[Stored], None]] = []
        self._gaps = Gaps(fs, path)
        self._writer = Writer(fs, path, self._gaps, settings, clock)
        with contextlib.suppress(LogFull):  # it opens all the same, and is brought in order when there is space
            self._writer.active()

    @property
    def start(self) -> int:
        """The first offset that can be read (``end`` when there is none)."""
        return self.reader().start

    @property
    def end(self) -> int:
        """One past the last synced offset."""
        end = self._writer.end
        return self.reader().end if end is None else end

    def reader(self) -> TopicReader:
        """A reader of this topic, for one thread."""
        return TopicReader(self.path)

    def gaps(self) -> list[Gap]:
        """All gaps, sorted by offset."""
        return self._gaps.all()

    def buffer_position(self, buffer: str) -> int:
        """Up to which position the frames of a log buffer are stored here; 0 when there are none."""
        return self._writer.positions.get(buffer, 0)

    def subscribe(self, callback: Callable[[Stored], None]) -> None:
        """Call ``callback`` for every batch once it is synced, in order, on the committing thread: never block."""
        with self._queue_lock:
            self._subscribers = [*self._subscribers, callback]

    def unsubscribe(self, callback: Callable[[Stored], None]) -> None:
        """Take back a subscription."""
        with self._queue_lock:
            self._subscribers = [known for known in self._subscribers if known != callback]

    def append(self, body: pa.RecordBatch, origin: Origin) -> Future[Appended]:
        """Store the rows of ``body`` (schema BODY), all or none; resolved when they are as durable as configured.

        The future fails with MessageTooLarge, LogFull, WriteFailed or LogClosed. An empty body is stored as a row of
        nulls in an internal topic, so that its counts have an offset; elsewhere it stores nothing and must have no
        counts. Frames of a log buffer that are stored already resolve with count 0. Raises ValueError for a body of
        another schema.
        """
        future: Future[Appended] = Future()
        if not body.schema.equals(records.BODY):
            raise ValueError(f"a body has the columns of records.BODY, not {body.schema}")
        if not body.num_rows:
            if not self.name.startswith("_"):
                return self._append_nothing(origin, future)
            body = _NULL_ROW
        size = body.nbytes
        if (limit := self._exceeded(body, size)) is not None:
            future.set_exception(limit)
            return future
        self._enqueue(Waiting(body, origin, size, future))
        return future

    def _append_nothing(self, origin: Origin, future: Future[Appended]) -> Future[Appended]:
        if any(origin.counts.values()):
            raise ValueError("counts without rows belong into an internal topic")
        future.set_result(Appended(self.end, 0, np.empty(0, np.int64)))
        return future

    def _exceeded(self, body: pa.RecordBatch, size: int) -> MessageTooLarge | None:
        limit = self.settings.message_size_limit
        if size > MAX_BATCH_BYTES:
            return MessageTooLarge(f"{size} bytes in one append; at most {MAX_BATCH_BYTES}")
        if size > limit:
            largest = pc.max(pc.binary_length(body.column("payload"))).as_py() or 0
            if largest > limit:
                return MessageTooLarge(f"a message of {largest} bytes; topic {self.name} takes at most {limit}")
        return None

    def _enqueue(self, item: Waiting) -> None:
        with self._queue_lock:
            if self._closed:
                item.future.set_exception(LogClosed(f"topic {self.name} is closed"))
                return
            self._waiting.append(item)
            if not self._scheduled:
                self._scheduled = True
                self._committers.schedule(self._work)

    def _work(self) -> None:
        """Commit once, then queue up again behind other topics while there is more."""
        items = self._take()
        with self._writing:
            try:
                self._commit(items)
            except Exception as error:
                _fail(items, error)
        with self._queue_lock:
            self._scheduled = bool(self._waiting)
            if self._scheduled:
                self._committers.schedule(self._work)
            else:
                self._idle.notify_all()

    def _take(self) -> list[Waiting]:
        taken: list[Waiting] = []
        size = 0
        with self._queue_lock:
            while self._waiting and (not taken or size + self._waiting[0].size <= COMMIT_BYTES):
                taken.append(self._waiting.popleft())
                size += taken[-1].size
        return [item for item in taken if item.future.set_running_or_notify_cancel()]

    def _commit(self, items: list[Waiting]) -> None:
        stored = self._writer.write(items)
        for prepared in stored:
            resolve(prepared)
        self._announce(stored)

    def _announce(self, stored: list[Prepared]) -> None:
        for one in stored:
            first, last = int(one.timestamps[0]), int(one.timestamps[-1])
            batch = one.batch
            event = Stored(one.base, batch.num_rows, first, last, one.origin, partial(_same, batch))
            for callback in self._subscribers:
                try:
                    callback(event)
                except Exception:
                    _LOGGER.exception("a subscriber of topic %s failed", self.name)

    def verify(self, begin: int, end: int) -> list[Gap]:
        """Check the checksums of all batches with rows in [begin, end).

        A bad one becomes a gap, synced before this returns, its bytes copied to ``quarantine/``. The new gaps.
        Raises LogFull.
        """
        try:
            return find_bad(self._fs, self.path, self._gaps, self._writing, begin, end)
        except OSError as error:
            raise write_error(error) from error

    def close(self) -> None:
        """Refuse further appends; everything appended before is committed by the committers first."""
        with self._queue_lock:
            self._closed = True

    def settle(self) -> None:
        """Wait until nothing is waiting any more."""
        with self._idle:
            self._idle.wait_for(lambda: not self._scheduled)

    def release(self) -> None:
        """Close the files, after the committers are done."""
        with self._writing:
            self._writer.close()


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _fail(items: list[Waiting], error: Exception) -> None:
    for item in items:
        if not item.future.done():
            item.future.set_exception(error)
