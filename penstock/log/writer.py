"""The one writer of a topic: appends become batches of the active segment. One thread at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from penstock.log import index, segment
from penstock.log.batching import Appended, Prepared, Waiting, grouped, index_record, prepare
from penstock.log.errors import LogError, WriteFailed, write_error
from penstock.log.files import Clock, FileSystem
from penstock.log.gaps import Gaps
from penstock.log.recovery import Recovery
from penstock.log.segment import Segment
from penstock.log.settings import TopicSettings


class Writer:
    """Writes the topic in ``path``. ``positions`` are the log buffers' positions up to which frames are stored."""

    def __init__(self, fs: FileSystem, path: Path, gaps: Gaps, settings: TopicSettings, clock: Clock) -> None:
        self._fs = fs
        self._path = path
        self._gaps = gaps
        self._settings = settings
        self._clock = clock
        self._segment: Segment | None = None
        self._refused: dict[str, int] = {}
        self.positions: dict[str, int] = {}

    @property
    def end(self) -> int | None:
        """One past the last synced offset; None while the topic is not open."""
        active = self._segment
        return None if active is None else active.state.end

    def active(self) -> Segment:
        """The active segment; opened by recovery, which is tried again after it failed. Raises LogError."""
        if self._segment is None:
            try:
                self._segment, self.positions = Recovery(self._fs, self._path, self._gaps).run()
            except OSError as error:
                raise write_error(error) from error
        return self._segment

    def write(self, items: list[Waiting]) -> list[Prepared]:
        """Store what is not stored already, as one group; the batches, whose appends are still to be answered.

        Raises LogError, and then nothing is stored.
        """
        admitted = [item for item in items if self._admit(item)]
        try:
            active = self.active()
            fresh = self._not_stored(admitted)
            stored = self._store(active, fresh) if fresh else []
        except LogError:
            self._refuse(admitted)
            raise
        taken = set(map(id, fresh))
        for item in admitted:
            if id(item) not in taken:
                item.future.set_result(Appended(active.state.end, 0, np.empty(0, np.int64)))
        return stored

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

    def _refuse(self, items: Iterable[Waiting]) -> None:
        for origin in (item.origin for item in items if item.origin.buffer):
            self._refused[origin.buffer] = max(origin.begin, self._refused.get(origin.buffer, 0))

    def _not_stored(self, items: list[Waiting]) -> list[Waiting]:
        """The items whose frames are not stored yet, each frame once."""
        reached = dict(self.positions)
        fresh: list[Waiting] = []
        for item in items:
            buffer, end = item.origin.buffer, item.origin.end
            if not buffer or end > reached.get(buffer, 0):
                fresh.append(item)
            if buffer:
                reached[buffer] = max(end, reached.get(buffer, 0))
        return fresh

    def _store(self, active: Segment, items: list[Waiting]) -> list[Prepared]:
        now = self._clock.micros()
        if self._is_due(active, now):
            active = self._roll(active)
        prepared = self._prepare(active, items, now)
        parts = [part for one in prepared for part in one.framed.parts]
        try:
            active.append(parts, index.pack(map(index_record, prepared)), sync=self._settings.durability == "synced")
        except OSError as error:
            raise write_error(error) from error
        for origin in (one.origin for one in prepared if one.origin.buffer):
            self.positions[origin.buffer] = max(origin.end, self.positions.get(origin.buffer, 0))
        return prepared

    def _prepare(self, active: Segment, items: list[Waiting], now: int) -> list[Prepared]:
        """Give the items their offsets, strictly increasing timestamps and places."""
        state = active.state
        base, position, time = state.end, state.length, max(state.last + 1, now)
        prepared: list[Prepared] = []
        for group in grouped(items):
            prepared.append(prepare(group, base, time, position))
            base, time, position = base + group.rows, time + group.rows, position + prepared[-1].framed.length
        return prepared

    def _is_due(self, active: Segment, now: int) -> bool:
        """Whether the next append begins a new segment: by size, or by the age of the oldest entry."""
        state, settings = active.state, self._settings
        aged = now - state.oldest >= settings.rotate_after * 1e6
        return state.batches > 0 and (state.length >= settings.segment_size_limit or aged)

    def _roll(self, active: Segment) -> Segment:
        try:
            active.sync()
            following = segment.create(self._fs, self._path, active.state.end, self.positions, active.state.last)
        except OSError as error:
            raise write_error(error) from error
        self._segment = following
        active.close()
        return following

    def close(self) -> None:
        """Sync and close the files."""
        if self._segment is not None:
            with contextlib.suppress(OSError):
                self._segment.sync()
            self._segment.close()
            self._segment = None
