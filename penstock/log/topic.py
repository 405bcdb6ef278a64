"""A topic: appends in groups, gaps, verification. One writer; readers work on the folder alone."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import records
from penstock.counts import Origin
from penstock.log.commit.batching import Appended, QueuedAppend
from penstock.log.commit.writer import Writer
from penstock.log.cursors import Cursors, Lag, lag, lags
from penstock.log.errors import CorruptBatch, LogClosed, LogError, LogFull, MessageTooLarge
from penstock.log.read.segment_view import StoredBatch
from penstock.log.read.topic_reader import TopicReader
from penstock.log.resources import SharedResources
from penstock.log.retention.dropping import Swept
from penstock.log.retention.maintenance import Maintenance
from penstock.log.settings import COMMIT_BYTES, MAX_BATCH_BYTES, TopicSettings
from penstock.log.store.gaps import Gap, Gaps
from penstock.log.store.producers import ProducerSequence
from penstock.records import BadBatch

T = TypeVar("T")
__all__ = ["Appended", "StoredBatch", "Topic"]
_LOGGER = logging.getLogger(__name__)
_NULL_ROW = records.body([None])
SMALL_BODY = 64 << 10
FLUSH_AFTER = 0.1
"""Seconds after which what is only written is synced also while more comes in."""


class Topic:
    """One topic, open for writing. Made by ``Log.topic``. All methods may be called from any thread.

    Raises UnknownFormat.
    """

    def __init__(self, path: Path, settings: TopicSettings, shared: SharedResources) -> None:
        self.name = path.name
        self.path = path
        self.cursors = Cursors(shared.fs, path)
        self._shared = shared
        self._queue_lock = threading.Lock()
        self._idle = threading.Condition(self._queue_lock)
        self._waiting: deque[QueuedAppend] = deque()
        self._scheduled = False
        self._unflushed_since = 0.0
        self._closed: LogError | None = None
        self._subscribers: tuple[Callable[[StoredBatch], None], ...] = ()
        self._gaps = Gaps(shared.fs, path)
        self.writer = Writer(shared, path, self._gaps, settings)
        self._writing = self.writer.lock
        self._maintenance = Maintenance(shared, path, self._gaps, self.cursors, self.writer)
        self.cursors.all()  # of a format that is not known: refused here
        with contextlib.suppress(LogFull):  # it opens all the same, and is brought in order when there is space
            self.writer.active()

    @property
    def settings(self) -> TopicSettings:
        """The settings in force; ``Log.configure`` changes them."""
        return self.writer.settings

    @property
    def start(self) -> int:
        """The first offset that can be read (``end`` when there is none)."""
        return self.reader().start

    @property
    def end(self) -> int:
        """One past the last synced offset."""
        end = self.writer.end
        return self.reader().end if end is None else end

    def reader(self) -> TopicReader:
        """A reader of this topic, for one thread."""
        return TopicReader(self.path)

    def gaps(self) -> list[Gap]:
        """All gaps, sorted by offset."""
        return self._gaps.all()

    def lag(self, cursor: str) -> Lag:
        """How far a cursor is behind; one that was never committed is at the beginning. Raises CorruptBatch."""
        return lag(self.reader(), self.cursors.all().get(cursor, 0), self._shared.clock.micros())

    def lags(self) -> dict[str, Lag]:
        """How far each cursor is behind. Raises CorruptBatch."""
        return lags(self.path, self.cursors.all(), self._shared.clock.micros())

    def buffer_position(self, buffer: str) -> int:
        """Up to which position the frames of a log buffer are stored here; 0 when there are none."""
        return self.writer.positions.get(buffer, 0)

    def subscribe(self, callback: Callable[[StoredBatch], None]) -> None:
        """Call ``callback`` for every batch once it is synced, in order, on the committing thread: never block."""
        with self._queue_lock:
            self._subscribers = (*self._subscribers, callback)

    def unsubscribe(self, callback: Callable[[StoredBatch], None]) -> None:
        """Take back a subscription."""
        with self._queue_lock:
            self._subscribers = tuple(known for known in self._subscribers if known != callback)

    def append(
        self, body: records.Body, origin: Origin, *, producer: ProducerSequence | None = None
    ) -> Future[Appended]:
        """Store the rows of ``body`` (a batch of BODY), all or none; resolved when they are as durable as configured.

        A number of a ``producer`` that is stored already is answered as it was then. The future fails with
        MessageTooLarge, OutOfSequence, LogFull, WriteFailed, LogClosed or (deleted meanwhile) UnknownTopic. An empty
        body is stored as a row of nulls in an internal topic, so that its counts have an offset; elsewhere it stores
        nothing and must have no counts. Frames of a log buffer that are stored already resolve with count 0. Raises
        ValueError for a body of another schema.
        """
        future: Future[Appended] = Future()
        if isinstance(body, pa.RecordBatch) and not body.schema.equals(records.BODY):
            raise ValueError(f"a body has the columns of records.BODY, not {body.schema}")
        if not body.num_rows:
            if not self.name.startswith("_"):
                return self._append_nothing(origin, future)
            body = _NULL_ROW
        size = _size(body)
        if (limit := exceeded(self.name, self.settings, body, size)) is not None:
            future.set_exception(limit)
            return future
        self._enqueue(QueuedAppend(body, origin, size, future, producer))
        return future

    def _append_nothing(self, origin: Origin, future: Future[Appended]) -> Future[Appended]:
        if any(origin.counts.values()):
            raise ValueError("counts without rows belong into an internal topic")
        future.set_result(Appended(self.end, 0, np.empty(0, np.int64)))
        return future

    def _enqueue(self, item: QueuedAppend) -> None:
        with self._queue_lock:
            if self._closed is not None:
                item.future.set_exception(self._closed)
                return
            self._waiting.append(item)
            if not self._scheduled:
                self._scheduled = True
                self._shared.committers.schedule(self._work)

    def _work(self) -> bool:
        """Commit once; whether there is more by then."""
        with self._writing:
            items = self._take()
            try:
                self.writer.write(items)
            except Exception as error:  # noqa: BLE001 - every append that waits gets an answer
                if isinstance(error, LogFull):
                    self._shared.refused = (self._shared.clock.monotonic(), str(error))
                _fail(items, error)
            self.announce()
            if not self.writer.flushed and self._may_flush():
                self._flush()
        with self._queue_lock:
            self._scheduled = bool(self._waiting)
            if not self._scheduled:
                self._idle.notify_all()
            return self._scheduled

    def _may_flush(self) -> bool:
        """Whether what is only written is to be synced now: nobody waits for the disk, or readers waited for long."""
        self._unflushed_since = self._unflushed_since or time.monotonic()
        return not self._waiting or time.monotonic() - self._unflushed_since > FLUSH_AFTER

    def _flush(self) -> None:
        try:
            self.writer.flush()
            self._unflushed_since = 0.0
        except LogError as error:
            _LOGGER.warning("topic %s: what was written is not synced yet: %s", self.name, error)
        self.announce()

    def _take(self) -> list[QueuedAppend]:
        taken: list[QueuedAppend] = []
        size = 0
        with self._queue_lock:
            while self._waiting and (not taken or size + self._waiting[0].size <= COMMIT_BYTES):
                taken.append(self._waiting.popleft())
                size += taken[-1].size
        return [item for item in taken if item.future.set_running_or_notify_cancel()]

    def announce(self) -> None:
        """Tell the subscribers what has become visible; holding the writer's lock."""
        for one in self.writer.take_published():
            first, last = int(one.timestamps[0]), int(one.timestamps[-1])
            event = StoredBatch(one.base, len(one.timestamps), first, last, one.origin, one.framed.length, one.load)
            for callback in self._subscribers:
                try:
                    callback(event)
                except Exception:
                    _LOGGER.exception("a subscriber of topic %s failed", self.name)

    def read_repaired(self, read: Callable[[], T]) -> T:
        """What ``read`` gives; what cannot be read is made a gap first. Raises CorruptBatch if that is no help."""
        try:
            return read()
        except CorruptBatch as bad:
            self.verify(bad.begin, bad.end)
            return read()

    def verify(self, begin: int = 0, end: int | None = None) -> list[Gap]:
        """Check the checksums of all batches with rows in [begin, end), and the indices.

        A bad batch becomes a gap, synced before this returns, its bytes copied to ``quarantine/``; an index that is
        wrong is made anew. The new gaps. Raises LogFull, WriteFailed, UnknownFormat.
        """
        self.check_open()
        return self._maintenance.verify(begin, self.end if end is None else end)

    def compact(self) -> tuple[int, int]:
        """Rewrite sealed segments in larger batches, compressed as configured: their bytes before and after.

        Raises LogFull, WriteFailed.
        """
        self.check_open()
        return self._maintenance.compact()

    def sweep(self) -> list[Swept]:
        """Close the active segment when it is old, drop what retention allows, compress; what was dropped.

        What cannot be done now (the disk is full) is left for the next time.
        """
        swept: list[Swept] = []
        try:
            self.check_open()
            swept = self._shared.reserve.for_making_room(self._expire)
            if self.settings.compression != "none":
                self._maintenance.compact()
        except (LogError, BadBatch) as error:
            _LOGGER.warning("topic %s is not swept: %s", self.name, error)
        return swept

    def _expire(self) -> list[Swept]:
        with self._writing:
            if not self.writer.flushed:  # it failed, and nothing came after it
                self._flush()
            self.writer.retire()
            self.announce()
        return self._maintenance.expire()

    def remove(self) -> None:
        """Remove everything but the gaps, which then cover all, of a closed topic. Raises LogFull, WriteFailed."""
        self._shared.reserve.for_making_room(self._maintenance.remove)

    def close(self, reason: LogError | None = None) -> None:
        """Refuse further appends; everything appended before is committed by the committers first."""
        with self._queue_lock:
            self._closed = reason or LogClosed(f"topic {self.name} is closed")

    def reopen(self) -> None:
        """Take appends again."""
        with self._queue_lock:
            self._closed = None

    @property
    def closed(self) -> bool:
        """Whether appends are refused."""
        return self._closed is not None

    def check_open(self) -> None:
        """Raises LogClosed or UnknownTopic, when appends are refused."""
        if self._closed is not None:
            raise self._closed

    def settle(self) -> None:
        """Wait until nothing is waiting any more."""
        with self._idle:
            self._idle.wait_for(lambda: not self._scheduled)

    def release(self) -> None:
        """Close the files, after the committers are done."""
        with self._writing:
            self.writer.close()


def _size(body: records.Body) -> int:
    if isinstance(body, records.Rows):
        return body.size
    size = body.get_total_buffer_size()  # five times faster than nbytes, which knows of slices
    return size if size <= SMALL_BODY else body.nbytes


def exceeded(name: str, settings: TopicSettings, body: records.Body, size: int) -> MessageTooLarge | None:
    """Why a topic does not take ``body``, which has ``size`` bytes; None where it does."""
    limit = settings.message_size_limit
    if size > MAX_BATCH_BYTES:
        return MessageTooLarge(f"{size} bytes in one append; at most {MAX_BATCH_BYTES}")
    if size > limit:
        sizes = pc.binary_length(records.as_batch(body).column("payload"))  # type: ignore[call-overload]  # the stub: no Array[Any]
        largest = pc.max(sizes).as_py() or 0
        if largest > limit:
            return MessageTooLarge(f"a message of {largest} bytes; topic {name} takes at most {limit}")
    return None


def _fail(items: list[QueuedAppend], error: Exception) -> None:
    for item in items:
        if not item.future.done():
            item.future.set_exception(error)
