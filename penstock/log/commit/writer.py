"""The one writer of a topic: appends become batches of the active segment. One thread at a time: hold ``lock``."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from penstock.log.commit.batching import Prepared, QueuedAppend, group_appends, prepare, resolve
from penstock.log.commit.deduplication import Deduplicator, answer_others
from penstock.log.errors import LogError, write_error
from penstock.log.plausible_clock import MAX_DRIFT_S
from penstock.log.resources import SharedResources
from penstock.log.settings import Durability, TopicSettings
from penstock.log.store import batch_copies, index, segment
from penstock.log.store.gaps import Gaps
from penstock.log.store.producers import Producers
from penstock.log.store.recovery import Recovery
from penstock.log.store.segment import Segment, SegmentState, StartState

_LOGGER = logging.getLogger(__name__)


class Writer:
    """Writes the topic in ``path``. ``positions`` are the log buffers' positions up to which frames are stored."""

    def __init__(self, shared: SharedResources, path: Path, gaps: Gaps, settings: TopicSettings) -> None:
        self.lock = threading.Lock()
        self.settings = settings
        self.positions: dict[str, int] = {}
        self.producers = Producers(shared.producer_memory, path.name)
        self.owes: Callable[[], None] | None = None
        """What must be done (it raises OSError) before anything is written: a transaction could not be taken back."""
        self._shared = shared
        self._path = path
        self._gaps = gaps
        self._internal = path.name.startswith("_")
        self._admission = Deduplicator()
        self._segment: Segment | None = None
        self._unseen: list[Prepared] = []
        self._seen: list[Prepared] = []

    @property
    def end(self) -> int | None:
        """One past the last published offset; None while the topic is not open."""
        active = self._segment
        return None if active is None else active.published.end

    def active(self) -> Segment:
        """The active segment; opened by recovery, which is tried again after it failed. Raises LogError."""
        try:
            if self.owes is not None:
                self.owes()
                self.owes = None
            return self._segment or self._recover()
        except OSError as error:
            raise write_error(error) from error

    def _recover(self) -> Segment:
        self.producers.clear()
        recovery = Recovery(self._shared.fs, self._path, self._gaps, self.producers)
        self._segment, self.positions = recovery.run()
        for observer in self._shared.recovered:
            observer(self._path.name, self._segment.published.end)
        return self._segment

    def write(self, items: list[QueuedAppend]) -> None:
        """Store what is not stored already, as one group, and answer. Raises LogError, and then nothing is stored."""
        level = self._admission.durability = self.level
        try:
            active = self.active()
            admitted = self._admission.sort(items, self.positions, self.producers)
        except LogError:
            self._admission.refuse(items)
            raise
        if admitted.fresh:
            try:
                stored = self._store(active, admitted.fresh)
            except LogError:
                self._admission.refuse(admitted.fresh)
                raise
            for one in stored:
                resolve(one, level)
        answer_others(admitted, self._end, level)

    def admit(self, items: list[QueuedAppend]) -> list[QueuedAppend]:
        """Those of a transaction's appends that are to be stored. Raises OutOfSequence, LogError."""
        self.active()
        self._admission.durability = "synced"
        fresh = self._admission.sort(items, self.positions, self.producers).fresh
        for item in items:
            if item.future.done():
                item.future.result()
        return fresh

    @property
    def level(self) -> Durability:
        """What an answer promises."""
        return "synced" if self.settings.durability == "synced" else "written"

    @property
    def _end(self) -> int:
        return self._segment.state.end if self._segment is not None else 0

    def _store(self, active: Segment, items: list[QueuedAppend]) -> list[Prepared]:
        active = self._fresh(active)
        mark = active.state.copy()
        stored = self.append(items)
        if self.level == "synced":
            try:
                active.sync()
                self.publish()
            except OSError as error:
                self.roll_back(mark)
                raise write_error(error) from error
        self.enter(stored)
        return stored

    def append(self, items: list[QueuedAppend]) -> list[Prepared]:
        """Write items to the active segment as one group, neither synced nor published. Raises LogError."""
        active = self.active()
        prepared = self._prepare(active, items, self._shared.clock.micros())
        parts = [part for one in prepared for part in one.framed.parts]
        messages = [one.message for one in prepared]
        lines = zip(messages, prepared, strict=True)
        copies = b"".join([batch_copies.line(active.files, message, one.framed.parts) for message, one in lines])
        size = sum(one.framed.length for one in prepared) + len(prepared) * index.RECORD.itemsize + len(copies)
        if not self._internal:
            self._shared.reserve.check()
            self._shared.budget.check(size)
        try:
            active.append(parts, list(map(index.record, messages)), copies)
        except OSError as error:
            raise write_error(error) from error
        self._shared.budget.add(size)
        self._shared.handles.used(self)
        self._unseen += prepared
        return prepared

    def roll_back(self, mark: SegmentState) -> None:
        """Take back what was appended since the active segment was at ``mark``; again later, where that fails now."""
        self._unseen = [one for one in self._unseen if one.base < mark.end]
        if self._segment is not None:
            with contextlib.suppress(OSError):
                self._segment.roll_back(mark)

    def enter(self, stored: list[Prepared]) -> None:
        """Remember the positions and numbers of what is stored."""
        for one in stored:
            if one.origin.buffer:
                reached = self.positions.get(one.origin.buffer, 0)
                self.positions[one.origin.buffer] = max(one.origin.end, reached)
            self.producers.enter_all(one.producers)

    def _prepare(self, active: Segment, items: list[QueuedAppend], now: int) -> list[Prepared]:
        """Give the items their offsets, strictly increasing timestamps and places."""
        state = active.state
        base, position, time = state.end, state.length, max(state.last + 1, now)
        prepared: list[Prepared] = []
        for group in group_appends(items):
            prepared.append(prepare(group, base, time, position))
            base, time, position = base + group.rows, time + group.rows, position + prepared[-1].framed.length
        return prepared

    def flush(self) -> None:
        """Sync and publish what is only written. Raises LogError."""
        if self._segment is None or self._segment.clean:
            return
        try:
            self._segment.sync()
            self.publish()
        except OSError as error:
            raise write_error(error) from error

    def publish(self) -> None:
        """Let readers see what is synced. Raises OSError."""
        if self._segment is not None:
            self._segment.publish()
            self._seen += self._unseen
            self._unseen = []

    def take_published(self) -> list[Prepared]:
        """The batches that were published since this was last asked."""
        seen, self._seen = self._seen, []
        return seen

    @property
    def size(self) -> int:
        """Bytes of the active segment."""
        return 0 if self._segment is None else self._segment.state.length

    @property
    def room(self) -> int:
        """Bytes of the active segment's file in which nothing is yet."""
        return 0 if self._segment is None else self._segment.room

    @property
    def flushed(self) -> bool:
        """Whether all that was written is published."""
        return not self._unseen

    def begin_at_exact_position(self) -> SegmentState:
        """All is published and the next append goes to this place of the active segment. Raises LogError."""
        active = self.active()
        self.flush()
        return self._fresh(active).state.copy()

    def _fresh(self, active: Segment) -> Segment:
        """The segment to append to: a new one where the active one is large or old enough. Raises LogError."""
        state, settings = active.state, self.settings
        clock = self._shared.clock
        now = clock.micros()
        aged = now - state.oldest >= settings.rotate_after * 1e6
        ahead = state.last > now + MAX_DRIFT_S * 1e6 and clock.right
        if state.batches > 0 and (state.length >= settings.segment_size_limit or aged or ahead):
            active = self._roll(active)
        if ahead:  # a wrong clock gave those times: in a segment of their own, the right ones go on
            active.state.last = now
        return active

    def retire(self) -> None:
        """Begin a new segment where the entries of the active one are old; forget producers. Raises LogError."""
        active, now = self.active(), self._shared.clock.micros()
        self._forget_producers()
        state, settings = active.state, self.settings
        aged = now - state.oldest >= settings.rotate_after * 1e6 or now - state.last > settings.stale_after * 1e6
        if state.batches > 0 and aged:
            self._roll(active)

    def _roll(self, active: Segment) -> Segment:
        self.flush()
        self._forget_producers()
        known = StartState(self.positions, self.producers.document())
        try:
            active.seal()
            following = segment.create(self._shared.fs, self._path, active.state.end, known, active.state.last)
        except OSError as error:
            raise write_error(error) from error
        self._segment = following
        active.release()
        return following

    def _forget_producers(self) -> None:
        if self._shared.clock.right:
            self.producers.forget(self._shared.clock.micros())

    def release(self) -> None:
        """Close the files; they are opened again when they are needed."""
        if self._segment is not None:
            self._segment.release()

    def close(self) -> None:
        """Sync and close the files. The index need not be synced: it is compared with the data at the next start."""
        self._shared.handles.forget(self)
        if self._segment is not None:
            try:
                self.flush()
            except LogError as error:
                _LOGGER.warning("topic %s is closed with rows that are written, not synced: %s", self._path.name, error)
            self._segment.release()
            self._segment = None
