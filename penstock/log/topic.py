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
from penstock.log import index, segment
from penstock.log.batching import Appended, Prepared, Waiting, grouped, index_record, prepare, resolve
from penstock.log.committers import Committers
from penstock.log.cursors import Cursors
from penstock.log.errors import NO_SPACE, LogClosed, LogError, LogFull, MessageTooLarge, WriteFailed, write_error
from penstock.log.files import Clock, FileSystem
from penstock.log.gaps import Gap, Gaps
from penstock.log.reader import TopicReader
from penstock.log.recovery import Recovery
from penstock.log.segment import Segment
from penstock.log.settings import COMMIT_BYTES, MAX_BATCH_BYTES, TopicSettings
from penstock.log.verify import find_bad
from penstock.log.view import Stored

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
        self._clock = clock
        self._fs = fs
        self._committers = committers
        self._queue_lock = threading.Lock()
        self._idle = threading.Condition(self._queue_lock)
        self._waiting: deque[Waiting] = deque()
        self._scheduled = False
        self._closed = False
        self._writing = threading.Lock()
        self._refused: dict[str, int] = {}
        self._subscribers: list[Callable[[Stored], None]] = []
        self._gaps = Gaps(fs, path)
        self._segment: Segment | None = None
        self._positions: dict[str, int] = {}
        with contextlib.suppress(LogFull):  # it opens all the same, and is brought in order when there is space
            self._active()

    @property
    def start(self) -> int:
        """The first offset that can be read (``end`` when there is none)."""
        return self.reader().start

    @property
    def end(self) -> int:
        """One past the last synced offset."""
        active = self._segment
        return active.state.end if active is not None else self.reader().end

    def reader(self) -> TopicReader:
        """A reader of this topic, for one thread."""
        return TopicReader(self.path)

    def gaps(self) -> list[Gap]:
        """All gaps, sorted by offset."""
        return self._gaps.all()

    def buffer_position(self, buffer: str) -> int:
        """Up to which position the frames of a log buffer are stored here; 0 when there are none."""
        return self._positions.get(buffer, 0)

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
        admitted = [item for item in items if self._admit(item)]
        try:
            fresh = self._skip_stored(admitted)
            stored = self._store(fresh) if fresh else []
        except LogError:
            self._refuse([item for item in admitted if not item.future.done()])
            raise
        for prepared in stored:
            resolve(prepared)
        self._announce(stored)

    def _admit(self, item: Waiting) -> bool:
        """Whether an append may go on: not while an earlier frame of its log buffer has failed and not come again.

        Else a later frame would be stored, and the failed one then be skipped as stored already.
        """
        buffer, begin = item.origin.buffer, item.origin.begin
        failed = self._refused.get(buffer)
        if failed is None or begin <= failed:
            self._refused.pop(buffer, None)
            return True
        self._refused[buffer] = begin
        item.future.set_exception(WriteFailed(f"an earlier frame of buffer {buffer} failed: begin again there"))
        return False

    def _refuse(self, items: list[Waiting]) -> None:
        for origin in (item.origin for item in items if item.origin.buffer):
            self._refused[origin.buffer] = max(origin.begin, self._refused.get(origin.buffer, 0))

    def _skip_stored(self, items: list[Waiting]) -> list[Waiting]:
        """Resolve what is stored already; the rest."""
        if not any(item.origin.buffer for item in items):
            return items
        self._active()  # knows the positions
        reached = dict(self._positions)
        fresh: list[Waiting] = []
        for item in items:
            buffer, end = item.origin.buffer, item.origin.end
            if buffer and end <= reached.get(buffer, 0):
                item.future.set_result(Appended(self.end, 0, np.empty(0, np.int64)))
                continue
            if buffer:
                reached[buffer] = end
            fresh.append(item)
        return fresh

    def _store(self, items: list[Waiting]) -> list[Prepared]:
        """Write the items as one group of batches. Raises LogFull or WriteFailed, and then none is stored."""
        active = self._active()
        now = self._clock.micros()
        if self._is_due(active, now):
            active = self._roll(active)
        base, position, time = active.state.end, active.state.length, max(active.state.last + 1, now)
        prepared: list[Prepared] = []
        for group in grouped(items):
            prepared.append(prepare(group, base, time, position))
            base, time, position = base + group.rows, time + group.rows, position + prepared[-1].framed.length
        parts = [part for one in prepared for part in one.framed.parts]
        try:
            active.append(parts, index.pack(map(index_record, prepared)), sync=self.settings.durability == "synced")
        except OSError as error:
            raise write_error(error) from error
        for origin in (one.origin for one in prepared if one.origin.buffer):
            self._positions[origin.buffer] = max(origin.end, self._positions.get(origin.buffer, 0))
        return prepared

    def _active(self) -> Segment:
        """The active segment; opened by recovery, which is tried again while the disk was full. Raises LogFull."""
        if self._segment is None:
            try:
                self._segment, self._positions = Recovery(self._fs, self.path, self._gaps).run()
            except OSError as error:
                if error.errno in NO_SPACE:
                    raise write_error(error) from error
                raise
        return self._segment

    def _is_due(self, active: Segment, now: int) -> bool:
        """Whether the next append begins a new segment: by size, or by the age of the oldest entry."""
        state, settings = active.state, self.settings
        aged = now - state.oldest >= settings.rotate_after * 1e6
        return state.batches > 0 and (state.length >= settings.segment_size_limit or aged)

    def _roll(self, active: Segment) -> Segment:
        try:
            active.sync()
            following = segment.create(self._fs, self.path, active.state.end, self._positions, active.state.last)
        except OSError as error:
            raise write_error(error) from error
        self._segment = following
        active.close()
        return following

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
        with self._writing:
            try:
                return find_bad(self._fs, self.path, self._gaps, begin, end)
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
            if self._segment is not None:
                with contextlib.suppress(OSError):
                    self._segment.sync()
                self._segment.close()
                self._segment = None


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _fail(items: list[Waiting], error: Exception) -> None:
    for item in items:
        if not item.future.done():
            item.future.set_exception(error)
