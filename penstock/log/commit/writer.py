"""The writer of a topic: turns waiting appends into synced, published batches of the active segment.

Invariant: an append is answered only after its rows are as durable as the topic's settings promise, and a refused
append leaves no rows. An append whose rows could not be cut is answered as in doubt. Start at `Writer.write`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from penstock.counts import advance_positions
from penstock.log.commit.batching import PreparedBatch, QueuedAppend, group_appends, prepare, resolve
from penstock.log.commit.deduplication import Deduplicator, answer_duplicates
from penstock.log.errors import LogError, in_doubt, write_error
from penstock.log.plausible_clock import MAX_DRIFT_S
from penstock.log.resources import SharedResources
from penstock.log.settings import Durability, TopicSettings
from penstock.log.store import batch_copies, index, segment
from penstock.log.store.gaps import Gaps
from penstock.log.store.producers import Producers
from penstock.log.store.recovery import Recovery
from penstock.log.store.segment import Segment, SegmentState
from penstock.log.store.segment_files import StartState

_LOGGER = logging.getLogger(__name__)


class Writer:
    """The only writer of the topic in ``path``. The caller holds ``lock`` during every method that writes.

    ``positions`` are the stored positions of the log buffers (``advance_positions``). Lives as long as its Topic; a
    failed recovery is repeated at the next use.
    """

    def __init__(self, shared: SharedResources, path: Path, gaps: Gaps, settings: TopicSettings) -> None:
        self.lock = threading.Lock()
        self.settings = settings
        self.positions: dict[str, int] = {}
        self.recovered_positions: dict[str, int] = {}
        """``positions`` as of the last recovery."""
        self.producers = Producers(shared.producer_memory, path.name, shared.clock.monotonic)
        self.pending_rollback: Callable[[], None] | None = None
        """Rollback of a failed transaction that must succeed before anything is written; it raises OSError."""
        self.is_recovered = False
        """Whether the files were recovered once; until then rows behind an outdated synced length are not visible."""
        self._shared = shared
        self._path = path
        self._gaps = gaps
        self._internal = path.name.startswith("_")
        self._deduplicator = Deduplicator()
        self._segment: Segment | None = None
        self._unpublished: list[PreparedBatch] = []
        self._published: list[PreparedBatch] = []

    @property
    def end(self) -> int | None:
        """Return the offset after the last published row; None while the segment is not open."""
        active = self._segment
        return None if active is None else active.published.end

    def active(self) -> Segment:
        """Return the active segment; the first call runs the recovery. Raises LogError."""
        try:
            self.finish_pending_rollback()
            return self._segment or self._shared.handles.retry_with_room(self, self._recover)
        except OSError as error:
            raise write_error(error) from error

    def finish_pending_rollback(self) -> None:
        """Cut the rows of an aborted transaction, before an append could follow them or a flush publish them.

        Raises OSError.
        """
        if self.pending_rollback is not None:
            self.pending_rollback()
            self.pending_rollback = None

    def _recover(self) -> Segment:
        # A recovery that failed halfway may have filled them in part.
        self.producers.clear()
        recovery = Recovery(self._shared.fs, self._path, self._gaps, self.producers)
        self._segment, self.positions = recovery.run()
        self.recovered_positions = self.positions.copy()
        self.is_recovered = True
        for observer in self._shared.recovered:
            observer(self._path.name, self._segment.published.end)
        return self._segment

    def write(self, appends: list[QueuedAppend]) -> None:
        """Store the new appends among ``appends`` as one group, and answer all. Raises LogError; then nothing is
        stored.
        """
        durability = self._deduplicator.durability = self.promised_durability
        try:
            active = self.active()
            # A log buffer whose frame failed must retry it before later frames are accepted, see `Deduplicator`.
            admitted = self._deduplicator.sort(appends, self.positions, self.producers)
        except LogError:
            self._deduplicator.refuse(appends, self.producers)
            raise
        if admitted.fresh:
            try:
                stored = self._append_and_sync(active, admitted.fresh)
            except LogError:
                self._deduplicator.refuse(admitted.fresh, self.producers)
                raise
            for batch in stored:
                # Order: answered after sync and publish. Duplicates are answered last, because they refer to the
                # stored appends.
                resolve(batch, durability)
        answer_duplicates(admitted, self._written_end, durability)

    def admit(self, appends: list[QueuedAppend]) -> list[QueuedAppend]:
        """Return the appends of a transaction that must be stored. Raises OutOfSequence and LogError."""
        self.active()
        self._deduplicator.durability = "synced"
        new_appends = self._deduplicator.sort(appends, self.positions, self.producers).fresh
        # `sort` has answered repeated and refused appends. The error of a refused one is raised here.
        for append in appends:
            if append.future.done():
                append.future.result()
        return new_appends

    @property
    def promised_durability(self) -> Durability:
        """Return the durability that an answer promises."""
        return "synced" if self.settings.durability == "synced" else "written"

    @property
    def _written_end(self) -> int:
        return self._segment.state.end if self._segment is not None else 0

    def _append_and_sync(self, active: Segment, appends: list[QueuedAppend]) -> list[PreparedBatch]:
        active = self._roll_if_due(active)
        before = active.state.copy()
        stored = self.append(appends)
        if self.promised_durability == "synced":
            try:
                active.sync()
                self.publish()
            except OSError as error:
                # Crash: a failed sync may have written some of the pages. The rows are cut, because their senders are
                # told that they failed and will send them again. If the cut fails too, they learn that.
                self.roll_back(before)
                raise write_error(error) from error
        self.enter(stored)
        return stored

    def append(self, appends: list[QueuedAppend]) -> list[PreparedBatch]:
        """Write appends to the active segment as one group, neither synced nor published. Raises LogError."""
        active = self.active()
        prepared = self._prepare(active, appends, self._shared.clock.micros())
        parts = [part for batch in prepared for part in batch.parts]
        copies = b"".join([batch_copies.line(active.files, batch.message, batch.parts) for batch in prepared])
        size = sum(batch.message.length for batch in prepared) + len(prepared) * index.RECORD.itemsize + len(copies)
        # Limit: checked before the write. Internal topics are exempt: they hold the counts and posts of the balance,
        # which must go on while events are refused.
        if not self._internal:
            self._shared.reserve.check()
            self._shared.budget.check(size)
        try:
            # One write for the whole group, so that an error cuts all of it: the group is stored or refused as a whole.
            records = [index.record(batch.message) for batch in prepared]
            self._shared.handles.retry_with_room(self, lambda: active.append(parts, records, copies))
        except OSError as error:
            raise write_error(error) from error
        self._shared.budget.add(size)
        self._shared.handles.touch(self)
        self._unpublished += prepared
        return prepared

    def forget_unpublished(self) -> None:
        """Announce none of the appends that are not published: a transaction that failed has written them."""
        self._unpublished = []

    def roll_back(self, before: SegmentState) -> None:
        """Discard the appends behind ``before``.

        Raises OutcomeInDoubt if a crash may still store them; the segment repeats the cut before the next write.
        """
        self._unpublished = [batch for batch in self._unpublished if batch.message.base < before.end]
        if self._segment is not None:
            try:
                self._segment.roll_back(before)
            except OSError as error:
                raise in_doubt(error) from error

    def enter(self, batches: list[PreparedBatch]) -> None:
        """Record the log buffer positions and producer numbers of stored batches."""
        for batch in batches:
            advance_positions(self.positions, batch.message.origin)
            self.producers.enter_all(batch.message.producers)

    def _prepare(self, active: Segment, appends: list[QueuedAppend], now: int) -> list[PreparedBatch]:
        """Assign offsets, strictly increasing timestamps and file positions."""
        state = active.state
        # Invariant: timestamps grow even if the clock jumps back; searches by time rely on it.
        base, position, time = state.end, state.length, max(state.last + 1, now)
        prepared: list[PreparedBatch] = []
        for group in group_appends(appends):
            prepared.append(batch := prepare(group, base, time, position))
            message = batch.message
            base, time, position = base + message.rows, time + message.rows, position + message.length
        return prepared

    def flush(self) -> None:
        """Sync and publish appends that are only written. Raises LogError."""
        if self._segment is None or self._segment.clean:
            return
        try:
            self.finish_pending_rollback()
            self._segment.sync()
            self.publish()
        except OSError as error:
            raise write_error(error) from error

    def publish(self) -> None:
        """Make synced appends visible to readers. Raises OSError."""
        if self._segment is not None:
            self._segment.publish()
            self._published += self._unpublished
            self._unpublished = []

    def take_published(self) -> list[PreparedBatch]:
        """Return the batches published since the last call."""
        batches, self._published = self._published, []
        return batches

    @property
    def size(self) -> int:
        """Return the length of the active segment in bytes."""
        return 0 if self._segment is None else self._segment.state.length

    @property
    def room(self) -> int:
        """Return the number of preallocated bytes of the active segment."""
        return 0 if self._segment is None else self._segment.room

    @property
    def flushed(self) -> bool:
        """Report whether all written appends are published."""
        return not self._unpublished

    def begin_at_exact_position(self) -> SegmentState:
        """Publish everything and return the exact state of the segment that the next append goes to. Raises
        LogError.

        A transaction records this state before it writes, so that a crash can be rolled back to it.
        """
        active = self.active()
        self.flush()
        return self._roll_if_due(active).state.copy()

    def _roll_if_due(self, active: Segment) -> Segment:
        """Return the segment to append to: a new one if the active one is large or old enough. Raises LogError."""
        state, settings = active.state, self.settings
        clock = self._shared.clock
        now = clock.micros()
        aged = now - state.oldest >= settings.rotate_after * 1e6
        ahead = state.last > now + MAX_DRIFT_S * 1e6 and clock.right
        if state.batches > 0 and (state.length >= settings.segment_size_limit or aged or ahead):
            active = self._roll(active)
        # A wrong clock stamped the last rows too far in the future. They stay in a segment of their own, and correct
        # timestamps go on in the next one; otherwise all later rows would carry the wrong time.
        if ahead:
            active.state.last = now
        return active

    def retire(self) -> None:
        """Start a new segment if the rows of the active one are old, and forget silent producers. Raises LogError."""
        active, now = self.active(), self._shared.clock.micros()
        self.producers.forget()
        state, settings = active.state, self.settings
        aged = now - state.oldest >= settings.rotate_after * 1e6 or now - state.last > settings.stale_after * 1e6
        if state.batches > 0 and aged:
            self._roll(active)

    def _roll(self, active: Segment) -> Segment:
        self.flush()
        self.producers.forget()
        start_state = StartState(self.positions, self.producers.document())
        try:
            # Order: the old segment is complete on the disk before the next one exists. Crash: in between, recovery
            # resumes the sealed segment.
            active.seal()
            state, fs = active.state, self._shared.fs
            following = self._shared.handles.retry_with_room(
                self, lambda: segment.create(fs, self._path, state.end, start_state, state.last)
            )
        except OSError as error:
            raise write_error(error) from error
        self._segment = following
        active.release()
        return following

    def release(self) -> None:
        """Close the files; the next use opens them again."""
        if self._segment is not None:
            self._segment.release()

    def close(self) -> None:
        """Publish what is written, as far as possible, and close the files."""
        # The index is not synced: the next start compares it with the data.
        self._shared.handles.forget(self)
        if self._segment is not None:
            try:
                self.flush()
            except LogError as error:
                _LOGGER.warning(
                    "topic %s: closed with rows that are written but not synced: %s", self._path.name, error
                )
            self._segment.release()
            self._segment = None
