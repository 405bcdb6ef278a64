"""A topic that is open for writing: queues appends, commits them in groups, and runs its maintenance.

Start at `Topic.append` (queue) and `Topic._work` (commit). Readers need only the folder, not this object.
"""

from __future__ import annotations

import contextlib
import logging
import sys
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
from penstock.counts import TOTAL, Origin, series_of
from penstock.log.commit.batching import Appended, QueuedAppend
from penstock.log.commit.writer import Writer
from penstock.log.cursors import Backlog, Cursors, Lag
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
NO_START = sys.maxsize
"""The start of an epoch whose total at its beginning is unknown."""
__all__ = ["Appended", "StoredBatch", "Topic"]
_LOGGER = logging.getLogger(__name__)
_NULL_ROW = records.body([None])
SMALL_BODY_BYTES = 64 << 10
MAX_UNSYNCED_S = 0.1
"""Longest time that written rows wait for their sync, and readers for them, while further appends arrive."""


class Topic:
    """A topic, open for writing. Made by ``Log.topic``. All methods may be called from any thread.

    Locks: ``_queue_lock`` guards the queue and is held for moments only; ``_writing`` is the writer's lock, held by
    the committer during a whole commit with its fsync. Order: ``_writing`` before ``_queue_lock``, never the reverse.

    Raises UnknownFormat.
    """

    def __init__(self, path: Path, settings: TopicSettings, shared: SharedResources) -> None:
        self.name = path.name
        self.path = path
        self.cursors = Cursors(shared.fs, path)
        self._shared = shared
        self._queue_lock = threading.Lock()
        self._idle = threading.Condition(self._queue_lock)
        self._queue: deque[QueuedAppend] = deque()
        self._scheduled = False
        self._unflushed_since = 0.0
        self._closed_reason: LogError | None = None
        self._subscribers: tuple[Callable[[StoredBatch], None], ...] = ()
        self._gaps = Gaps(shared.fs, path)
        self.writer = Writer(shared, path, self._gaps, settings)
        self._writing = self.writer.lock
        self._maintenance = Maintenance(shared, path, self._gaps, self.cursors, self.writer)
        # An unknown format of the cursors must fail here: retention would drop rows that they protect.
        self.cursors.offsets()
        # On a full disk the topic is still readable; its recovery is repeated by appends and sweeps.
        with contextlib.suppress(LogFull):
            self.recover()

    @property
    def settings(self) -> TopicSettings:
        """Return the settings in force; ``Log.configure`` changes them."""
        return self.writer.settings

    @property
    def start(self) -> int:
        """Return the first readable offset; ``end`` if no row is readable."""
        return self.reader().start

    @property
    def end(self) -> int:
        """Return the offset after the last synced row."""
        end = self.writer.end
        return self.reader().end if end is None else end

    @property
    def is_recovered(self) -> bool:
        """Whether the files have been recovered since the start; see ``recover``."""
        return self.writer.is_recovered

    def recover(self) -> None:
        """Recover the files if that has not succeeded since the start. Raises LogFull, WriteFailed.

        Until then ``end`` may be before acknowledged rows: a power cut can set the synced length back.
        """
        if not self.writer.is_recovered:
            with self._writing:
                self.writer.active()

    def reader(self) -> TopicReader:
        """Return a reader of this topic, for one thread."""
        return TopicReader(self.path)

    def gaps(self) -> list[Gap]:
        """Return all gaps, sorted by offset."""
        return self._gaps.sorted()

    def lag(self, cursor: str) -> Lag:
        """Return the lag of a cursor; a cursor that was never committed starts at offset 0. Raises CorruptBatch."""
        offset = self.cursors.offsets().get(cursor, 0)
        return Backlog.from_reader(self.reader(), offset).lag(self._shared.clock.micros())

    def buffer_position(self, buffer: str) -> int:
        """Return the position up to which the frames of a log buffer are stored; 0 if none are."""
        return self.writer.positions.get(buffer, 0)

    def recovered_position(self, buffer: str) -> int:
        """Return ``buffer_position`` as of the last recovery."""
        return self.writer.recovered_positions.get(buffer, 0)

    def stored_total(self, buffer: str, begin: int, start: int = NO_START, part: str = "") -> int:
        """Return how many messages of a listener are stored from before the frame at ``begin`` of ``buffer``.

        This is the largest total stored for ``buffer`` before ``begin`` or for another epoch of its series of totals.
        ``start`` is the total at which the epoch of ``buffer`` began. Only buffers whose names end with ``part`` count.
        """
        positions, series, largest = self.writer.positions.copy(), series_of(buffer), 0
        for key, number in positions.items():
            name, is_total, _ = key.partition(TOTAL)
            is_before = name != buffer or positions[buffer] <= begin
            if is_total and is_before and name.endswith(part) and series_of(name) == series:
                # Crash: the total may have gone back at the start. Larger ones of other epochs are other messages.
                largest = max(largest, number if name == buffer else min(number, start))
        return largest

    def subscribe(self, callback: Callable[[StoredBatch], None]) -> None:
        """Call ``callback`` for every batch once it is synced, in order, on the committing thread.

        ``callback`` must not block, because the next commit waits for it.
        """
        with self._queue_lock:
            self._subscribers = (*self._subscribers, callback)

    def unsubscribe(self, callback: Callable[[StoredBatch], None]) -> None:
        """Remove a subscription."""
        with self._queue_lock:
            self._subscribers = tuple(subscriber for subscriber in self._subscribers if subscriber != callback)

    def append(
        self, body: records.Body, origin: Origin, *, producer: ProducerSequence | None = None
    ) -> Future[Appended]:
        """Queue the rows of ``body`` (a batch of BODY) to be stored all or none.

        The future resolves when they are as durable as configured. A sequence number of a ``producer`` that is stored
        already gets its first answer again; frames of a log buffer that are stored already resolve with count 0. An
        empty body becomes a row of nulls in an internal topic, so that its counts have an offset; elsewhere it stores
        nothing and must have no counts.

        The future fails with MessageTooLarge, OutOfSequence, LogFull, WriteFailed, OutcomeInDoubt, LogClosed or, if
        the topic is deleted during the wait, UnknownTopic. Raises ValueError for a body of another schema.
        """
        future: Future[Appended] = Future()
        if isinstance(body, pa.RecordBatch) and not body.schema.equals(records.BODY):
            raise ValueError(f"a body has the columns of records.BODY, not {body.schema}")
        if not body.num_rows:
            if not self.name.startswith("_"):
                return self._append_nothing(origin, future)
            body = _NULL_ROW
        size = _size(body)
        if (limit := size_error(self.name, self.settings, body, size)) is not None:
            future.set_exception(limit)
            return future
        self._enqueue(QueuedAppend(body, origin, size, future, producer))
        return future

    def find_append(self, producer: ProducerSequence) -> Future[Appended]:
        """Return the answer to the append that is stored under a producer's number, without storing anything.

        The answer has no rows if nothing is stored under the number; an append may still use it. The future fails
        with OutOfSequence, or like that of ``append``.
        """
        future: Future[Appended] = Future()
        # Order: queued like an append, so that appends that wait before it are part of the answer.
        self._enqueue(QueuedAppend(records.EMPTY_BODY, Origin("", 0, 0, 0), 0, future, producer))
        return future

    def _append_nothing(self, origin: Origin, future: Future[Appended]) -> Future[Appended]:
        if any(origin.counts.values()):
            raise ValueError("counts without rows belong into an internal topic")
        future.set_result(Appended(self.end, 0, np.empty(0, np.int64)))
        return future

    def _enqueue(self, append: QueuedAppend) -> None:
        with self._queue_lock:
            if self._closed_reason is not None:
                append.future.set_exception(self._closed_reason)
                return
            self._queue.append(append)
            if not self._scheduled:
                # Group commit: a topic is scheduled once, and appends that arrive during its commit share the next
                # fsync.
                self._scheduled = True
                self._shared.committers.schedule(self._work)

    def _work(self) -> bool:
        """Commit one group of appends; return whether more are waiting."""
        with self._writing:
            appends = self._take_group()
            try:
                self.writer.write(appends)
            except Exception as error:  # noqa: BLE001 - every append that waits gets an answer
                if isinstance(error, LogFull):
                    self._shared.refused = (self._shared.clock.monotonic(), error)
                _fail(appends, error)
            self.announce()
            # Durability ``written``: the sync follows the answers.
            if not self.writer.flushed and self._should_flush():
                self._flush()
        with self._queue_lock:
            # Under the queue's lock: an append between the test and the reset would otherwise wait without a
            # committer.
            self._scheduled = bool(self._queue)
            if not self._scheduled:
                self._idle.notify_all()
            return self._scheduled

    def _should_flush(self) -> bool:
        """Report whether to sync now: no append waits, or readers have waited for MAX_UNSYNCED_S."""
        self._unflushed_since = self._unflushed_since or time.monotonic()
        return not self._queue or time.monotonic() - self._unflushed_since > MAX_UNSYNCED_S

    def _flush(self) -> None:
        try:
            self.writer.flush()
            self._unflushed_since = 0.0
        except LogError as error:
            _LOGGER.warning("topic %s: written rows are not synced yet: %s", self.name, error)
        self.announce()

    def _take_group(self) -> list[QueuedAppend]:
        appends: list[QueuedAppend] = []
        size = 0
        with self._queue_lock:
            # Limit: COMMIT_BYTES, but at least one append, so that a large one is not stuck.
            while self._queue and (not appends or size + self._queue[0].size <= COMMIT_BYTES):
                appends.append(self._queue.popleft())
                size += appends[-1].size
        return [append for append in appends if append.future.set_running_or_notify_cancel()]

    def announce(self) -> None:
        """Call the subscribers for newly published batches. The caller holds the writer's lock, which keeps them in
        order.
        """
        for batch in self.writer.take_published():
            m = batch.message
            stored_batch = StoredBatch(m.base, m.rows, m.first, m.last, m.origin, m.length, batch.load)
            for callback in self._subscribers:
                try:
                    callback(stored_batch)
                except Exception:
                    _LOGGER.exception("a subscriber of topic %s failed", self.name)

    def read_repaired(self, read: Callable[[], T]) -> T:
        """Return ``read()``; if rows are damaged, turn them into a gap and read again.

        Raises CorruptBatch if they are still unreadable.
        """
        try:
            return read()
        except CorruptBatch as damage:
            self.verify(damage.begin, damage.end)
            return read()

    def verify(self, begin: int = 0, end: int | None = None) -> list[Gap]:
        """Check the checksums of all batches with rows in [begin, end), and the indices; return the new gaps.

        A damaged batch becomes a gap, synced on return, and its bytes are copied to ``quarantine/``; a wrong index is
        rebuilt. Raises LogFull, WriteFailed, UnknownFormat.
        """
        self.check_open()
        return self._maintenance.verify(begin, self.end if end is None else end)

    def compact(self) -> tuple[int, int]:
        """Rewrite sealed segments in larger batches, compressed as configured; return their bytes before and after.

        Raises LogFull, WriteFailed.
        """
        self.check_open()
        return self._maintenance.compact()

    def sweep(self) -> list[Swept]:
        """Close an old active segment, drop what retention allows and compress; return what was dropped.

        Work that fails now, for example on a full disk, is repeated by the next sweep.
        """
        dropped: list[Swept] = []
        try:
            self.check_open()
            dropped = self._shared.reserve.for_making_room(self._roll_and_expire)
            with contextlib.suppress(LogFull):
                self.recover()
            if self.settings.compression != "none":
                self._maintenance.compact()
        except (LogError, BadBatch) as error:
            _LOGGER.warning("topic %s: sweep failed and is repeated later: %s", self.name, error)
        return dropped

    def _roll_and_expire(self) -> list[Swept]:
        with self._writing:
            self._flush()  # a sync, or the cut of a refused append, failed, and no later append repeated it
            self.writer.retire()
            self.announce()
        return self._maintenance.expire()

    def remove(self) -> None:
        """Remove all files of a closed topic except its gaps, which then cover all offsets. Raises LogFull,
        WriteFailed.
        """
        self._shared.reserve.for_making_room(self._maintenance.remove)

    def close(self, reason: LogError | None = None) -> None:
        """Refuse further appends; the committers still store all earlier ones."""
        with self._queue_lock:
            self._closed_reason = reason or LogClosed(f"topic {self.name} is closed")

    def reopen(self) -> None:
        """Accept appends again."""
        with self._queue_lock:
            self._closed_reason = None

    @property
    def closed(self) -> bool:
        """Report whether appends are refused."""
        return self._closed_reason is not None

    def check_open(self) -> None:
        """Raise LogClosed or UnknownTopic if appends are refused."""
        if self._closed_reason is not None:
            raise self._closed_reason

    def wait_until_idle(self) -> None:
        """Wait until no append is waiting or being committed."""
        with self._idle:
            self._idle.wait_for(lambda: not self._scheduled)

    def release(self) -> None:
        """Close the files, after the committers are done."""
        with self._writing:
            self.writer.close()


def _size(body: records.Body) -> int:
    if isinstance(body, records.Rows):
        return body.size
    size = body.get_total_buffer_size()  # five times faster than nbytes, which subtracts what slices leave out
    return size if size <= SMALL_BODY_BYTES else body.nbytes


def size_error(name: str, settings: TopicSettings, body: records.Body, size: int) -> MessageTooLarge | None:
    """Return the error for a ``body`` of ``size`` bytes that exceeds a limit; None if it does not."""
    limit = settings.message_size_limit
    if size > MAX_BATCH_BYTES:
        return MessageTooLarge(f"{size} bytes in one append; at most {MAX_BATCH_BYTES}: send it in parts")
    if size > limit:
        sizes = pc.binary_length(records.as_batch(body).column("payload"))  # type: ignore[call-overload]  # the stub: no Array[Any]
        largest = pc.max(sizes).as_py() or 0
        if largest > limit:
            limit_text = f"topic {name} takes at most {limit} (message_size_limit)"
            return MessageTooLarge(f"a message of {largest} bytes; {limit_text}")
    return None


def _fail(appends: list[QueuedAppend], error: Exception) -> None:
    for append in appends:
        if not append.future.done():
            append.future.set_exception(error)
