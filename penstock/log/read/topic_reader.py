"""Reading a topic from its folder alone, also while another process writes it. Only synced data is looked at."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.log.errors import CorruptBatch
from penstock.log.read.segment_view import SegmentView, Stored, piece, timestamps
from penstock.log.store import gaps, segment
from penstock.log.store.gaps import Gap
from penstock.log.store.visibility import ReaderGate

SETTLED = 0.1
"""A folder that changed less than this many seconds before it was listed is listed again: its time may stand still."""
MAX_VIEWS = 64
"""Segments that are kept open at once."""
JOINED = 1 << 20
"""Bytes of small batches that are read as one."""
ATTEMPTS = 5
"""How often a listing is tried again when a segment was removed meanwhile."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What there is of a topic: offsets [start, end) but for ``gaps``, and when its first and its last row were stored
    (microseconds; None where there is no row).
    """

    start: int
    end: int
    gaps: list[Gap]
    oldest: int | None = None
    newest: int | None = None


class TopicReader:
    """Reads a topic's folder. Not for several threads at once; each takes its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._views: dict[int, SegmentView] = {}
        self._firsts: list[int] = []
        self._listed = 0
        self._gaps: list[Gap] = []
        self._gaps_path = str(path / gaps.FILE_NAME)
        self._gaps_file: tuple[int, int, int] | None = None
        self._gate = ReaderGate(path.parent)

    @property
    def start(self) -> int:
        """The first offset that can be read (``end`` when there is none)."""
        return self.span()[0]

    @property
    def end(self) -> int:
        """One past the last synced offset."""
        self._refresh()
        return self._end()

    def gaps(self) -> list[Gap]:
        """All gaps, sorted by offset."""
        self._refresh()
        return list(self._gaps)

    def span(self) -> tuple[int, int, list[Gap]]:
        """``start``, ``end`` and ``gaps`` by one look at the folder."""
        self._refresh()
        start, stop = (self._firsts[0] if self._firsts else 0), self._end()
        begin, _ = next(gaps.uncovered(self._gaps, start, stop), (stop, stop))
        return begin, stop, list(self._gaps)

    def extent(self) -> Extent:
        """``span``, and the times of its first and last row. Raises CorruptBatch."""
        self._refresh()
        known, end = list(self._gaps), self._end()
        parts = list(gaps.uncovered(known, self._firsts[0] if self._firsts else 0, end))
        if not parts:
            return Extent(end, end, known)
        first, last = parts[0][0], parts[-1][1] - 1
        return Extent(first, end, known, self._time_of(first), self._time_of(last))

    def _end(self) -> int:
        last = self._gaps[-1].end if self._gaps else 0
        return max(self._view(len(self._firsts) - 1).end, last) if self._firsts else last

    def _refresh(self) -> None:
        """Look for new segments, gaps and synced data."""
        for _ in range(ATTEMPTS):
            try:
                self._list()
                self._load_gaps()
                if self._firsts:
                    self._seen(self._firsts[-1]).refresh(sealed=False)
                return
            except FileNotFoundError:  # removed since it was listed: list again
                self._listed = 0
        raise FileNotFoundError(f"{self.path} is no topic")

    def _list(self) -> None:
        changed = os.stat(self.path).st_mtime_ns
        if changed == self._listed:
            return
        now = time.time_ns()
        self._firsts = segment.first_offsets(os.listdir(self.path))
        self._views = {first: view for first, view in self._views.items() if first in set(self._firsts)}
        self._listed = changed if now - changed > SETTLED * 1e9 else 0

    def _load_gaps(self) -> None:
        try:
            found = os.stat(self._gaps_path)
            file = found.st_ino, found.st_size, found.st_mtime_ns
            if file != self._gaps_file:
                self._gaps = gaps.load(Path(self._gaps_path))
                self._gaps_file = file
        except FileNotFoundError:
            self._gaps = []

    def _view(self, number: int) -> SegmentView:
        """Segment ``number``; sealed ones are looked at once."""
        view = self._seen(self._firsts[number])
        last = number == len(self._firsts) - 1
        if not view.sealed and (not last or not view.length):
            view.refresh(sealed=not last)
        return view

    def _seen(self, first: int) -> SegmentView:
        """The segment that begins at ``first``, as it was looked at before."""
        view = self._views.get(first)
        if view is None:
            if len(self._views) >= MAX_VIEWS:
                del self._views[next(iter(self._views))]
            view = self._views[first] = SegmentView(self.path, first, self._gate)
        return view

    def read(
        self, offset: int, *, max_rows: int | None = None, max_bytes: int | None = None, end: int | None = None
    ) -> Iterator[Stored]:
        """Batches from ``offset`` on, up to ``end`` or what is synced now; the first and last may be parts.

        Stops after ``max_rows`` rows, or before a batch that would exceed ``max_bytes`` (but never before the first).
        Gaps are skipped. Raises CorruptBatch for a batch that cannot be read and is no gap yet.
        """
        stop = self.end if end is None else min(self.end, end)
        rows, size = max_rows, 0
        for view, number, begin, limit in self._pieces(offset, stop):
            if rows is not None and rows <= 0:
                return
            size += int(view.records["length"][number])
            if max_bytes is not None and size > max_bytes and size > int(view.records["length"][number]):
                return
            limit = limit if rows is None else min(limit, begin + rows)
            found = piece(view.stored(number), begin, limit)
            rows = rows if rows is None else rows - found.rows
            yield found

    def read_joined(
        self, offset: int, *, max_rows: int | None = None, room: int = JOINED, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of ``read`` (SCHEMA), in fewer pieces: small batches that follow each other come as one.

        Such a piece has about ``room`` bytes. ``end`` is what this reader said last: then it does not look again, nor
        for gaps.
        """
        offset, stop, rows = max(offset, 0), self.end if end is None else end, max_rows
        while part := next(gaps.uncovered(self._gaps, offset, stop), None):
            begin, limit = part
            view = self._view_of(begin, stop)
            if view is None:
                continue
            limit = limit if rows is None else min(limit, begin + rows)
            if limit <= begin:
                return
            batch, base = view.joined(view.stored_from(begin), limit, room)
            found = batch.slice(begin - base, limit - begin)
            rows = rows if rows is None else rows - len(found)
            offset = begin + len(found)
            yield found

    def read_back(self, before: int) -> Iterator[Stored]:
        """As ``read``, of what is below ``before``, the newest batch first."""
        stop = min(before, self.end)
        while (number := bisect_right(self._firsts, stop - 1) - 1) >= 0:
            first = self._firsts[number]
            for view, batch, begin, limit in reversed(list(self._pieces(first, stop))):
                yield piece(view.stored(batch), begin, limit)
            stop = first

    def documents(self, offset: int = 0) -> Iterator[Stored]:
        """All whole batches with rows at or behind ``offset`` that are not in a gap, none of them loaded."""
        done = -1
        for view, number, _, _ in self._pieces(offset, self.end):
            stored = view.stored(number)
            if stored.base > done:
                done = stored.base
                yield stored

    def rows_by_origin(self, offset: int, end: int) -> dict[tuple[str, int], int]:
        """How many rows of [offset, end) came from which source in which bucket, by the index alone; gaps left out.

        A source that the index does not know is ``unknown``. Raises CorruptBatch where a whole segment is missing.
        """
        rows: dict[tuple[str, int], int] = {}
        for view, number, begin, limit in self._pieces(offset, min(end, self.end)):
            record = view.records[number]
            key = (record["source"].decode(errors="replace") or "unknown", int(record["bucket"]))
            rows[key] = rows.get(key, 0) + limit - begin
        return rows

    def ahead(self, offset: int) -> tuple[int, int, int]:
        """Entries from ``offset`` on, their bytes as stored, and the first one's timestamp (microseconds; 0: none)."""
        stop = self.end
        parts = list(gaps.uncovered(self._gaps, max(offset, 0), stop))
        entries = sum(end - begin for begin, end in parts)
        if not entries:
            return 0, 0, 0
        begin, size = parts[0][0], 0
        for number in range(max(0, bisect_right(self._firsts, begin) - 1), len(self._firsts)):
            records = self._view(number).records
            size += int(records["length"][records["base"] + records["rows"] > begin].sum())
        return entries, size, self._time_of(begin)

    def _time_of(self, offset: int) -> int:
        """The timestamp of a row that is there: of the first and the last of a batch the index has it."""
        view, number, _, _ = next(self._pieces(offset, offset + 1))
        record = view.records[number]
        if record["base"] == offset:
            return int(record["first"])
        if record["base"] + record["rows"] == offset + 1:
            return int(record["last"])
        return next(self.read(offset, max_rows=1)).first

    def at_timestamp(self, micros: int) -> int:
        """The first offset whose timestamp is ``micros`` or later; ``end`` when there is none yet."""
        self._refresh()
        for number in range(self._segment_at_timestamp(micros), len(self._firsts)):
            view = self._view(number)
            batch = int(np.searchsorted(view.records["last"], micros))
            if batch < len(view.records):
                return self._row_at_timestamp(view, batch, micros)
        return self._end()

    def _segment_at_timestamp(self, micros: int) -> int:
        """The first segment whose last timestamp is ``micros`` or later, or an empty one before it."""
        low, high = 0, len(self._firsts)
        while low < high:
            middle = (low + high) // 2
            records = self._view(middle).records
            if len(records) and records["last"][-1] < micros:
                low = middle + 1
            else:
                high = middle
        return low

    def _row_at_timestamp(self, view: SegmentView, batch: int, micros: int) -> int:
        record = view.records[batch]
        base, end = int(record["base"]), int(record["base"] + record["rows"])
        if micros <= record["first"] or not any(gaps.uncovered(self._gaps, base, end)):
            return base
        return base + int(np.searchsorted(timestamps(view.stored(batch).batch), micros))

    def _pieces(self, offset: int, stop: int) -> Iterator[tuple[SegmentView, int, int, int]]:
        """Segment, batch number, and the part [begin, end) of the batch, for all rows of [offset, stop)."""
        offset = max(offset, 0)
        while part := next(gaps.uncovered(self._gaps, offset, stop), None):
            begin, limit = part
            view = self._view_of(begin, stop)
            if view is None:
                continue
            number = view.stored_from(begin)
            offset = min(limit, int(view.records["base"][number] + view.records["rows"][number]))
            yield view, number, begin, offset

    def _view_of(self, offset: int, stop: int) -> SegmentView | None:
        """The segment that holds ``offset``; None when files changed and it is to be tried again."""
        for _ in range(ATTEMPTS):
            number = bisect_right(self._firsts, offset) - 1
            try:
                if number >= 0 and (view := self._view(number)).end > offset >= view.first:
                    return view
            except FileNotFoundError:  # removed since it was listed; its gap was entered before
                self._listed = 0
                self._refresh()
                if not any(gaps.uncovered(self._gaps, offset, offset + 1)):
                    return None
                continue
            break
        following = self._firsts[number + 1] if number + 1 < len(self._firsts) else stop
        raise CorruptBatch(offset, min(following, stop))
