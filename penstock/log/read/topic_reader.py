"""Reads a topic from its folder alone, also while another process writes it. It reads synced data only."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.log.errors import CorruptBatch, LogError
from penstock.log.read.segment_view import SegmentView, StoredBatch, cut_batch, timestamps
from penstock.log.store import gaps, index, segment_files
from penstock.log.store.gaps import Gap
from penstock.log.store.segment_files import SegmentFiles
from penstock.log.store.visibility import ReaderGate

LISTING_SETTLED_S = 0.1
"""Age that a folder's modification time must have for its listing to be cached. Two changes within one tick of the file
system's clock have the same time.
"""
MAX_VIEWS = 64
"""Limit: for the segments that are open, each with a mapped file."""
JOINED_BYTES = 1 << 20
"""Size of a piece that joins small batches."""
MAX_LISTINGS = 5
"""Limit for repeated listings, each caused by a segment that was removed after it was listed."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The range of a topic: offsets [start, end) but for ``gaps``.

    ``oldest`` and ``newest`` are the times at which the first and last row were stored (microseconds; None: no row).
    """

    start: int
    end: int
    gaps: list[Gap]
    oldest: int | None = None
    newest: int | None = None


class TopicReader:
    """A reader of a topic's folder. Not thread-safe: each thread needs its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._views: dict[int, SegmentView] = {}
        self._firsts: list[int] = []
        self._listed_mtime_ns = 0
        self._gaps: list[Gap] = []
        self._gaps_path = str(path / gaps.FILE_NAME)
        self._gaps_identity: tuple[int, int, int] | None = None
        self._gate = ReaderGate(path.parent)

    @property
    def start(self) -> int:
        """First offset that can be read; ``end`` if there is none."""
        return self.span()[0]

    @property
    def end(self) -> int:
        """Offset behind the last synced row."""
        self._refresh()
        return self._end()

    def ends_before(self, offset: int) -> bool:
        """Report whether ``end`` is before ``offset``, and not only because a damaged file hides the newest rows."""
        return self.end < offset and not (self._firsts and self._cached_view(self._firsts[-1]).damaged_lengths)

    def gaps(self) -> list[Gap]:
        """Return all gaps, sorted by offset."""
        self._refresh()
        return list(self._gaps)

    def span(self) -> tuple[int, int, list[Gap]]:
        """Return ``start``, ``end`` and ``gaps`` of one moment."""
        self._refresh()
        start, stop = (self._firsts[0] if self._firsts else 0), self._end()
        begin, _ = next(gaps.uncovered(self._gaps, start, stop), (stop, stop))
        return begin, stop, list(self._gaps)

    def extent(self) -> Extent:
        """Return ``span``, and the times of the first and last row. Raises CorruptBatch."""
        self._refresh()
        current_gaps, end = list(self._gaps), self._end()
        parts = list(gaps.uncovered(current_gaps, self._firsts[0] if self._firsts else 0, end))
        if not parts:
            return Extent(end, end, current_gaps)
        first, last = parts[0][0], parts[-1][1] - 1
        return Extent(first, end, current_gaps, self._time_of(first), self._time_of(last))

    def _end(self) -> int:
        last = self._gaps[-1].end if self._gaps else 0
        return max(self._view(len(self._firsts) - 1).end, last) if self._firsts else last

    def _refresh(self) -> None:
        """Load new segments, gaps and synced data."""
        for _ in range(MAX_LISTINGS):
            try:
                self._list_segments()
                self._load_gaps()
                if self._firsts:
                    self._cached_view(self._firsts[-1]).refresh(sealed=False)
                return
            except FileNotFoundError:  # retention removed it after the listing: list again
                self._listed_mtime_ns = 0
        raise FileNotFoundError(f"{self.path} is not a topic")

    def _list_segments(self) -> None:
        changed = os.stat(self.path).st_mtime_ns
        if changed == self._listed_mtime_ns:
            return
        now = time.time_ns()
        self._firsts = segment_files.first_offsets(os.listdir(self.path))
        self._views = {first: view for first, view in self._views.items() if first in set(self._firsts)}
        # A segment that is created within the clock's tick would not change the folder's time again.
        self._listed_mtime_ns = changed if now - changed > LISTING_SETTLED_S * 1e9 else 0

    def _load_gaps(self) -> None:
        try:
            status = os.stat(self._gaps_path)
            identity = status.st_ino, status.st_size, status.st_mtime_ns
            # Three fields, because a new file may reuse the inode of the one that it replaced.
            if identity != self._gaps_identity:
                self._gaps = gaps.load(Path(self._gaps_path))
                self._gaps_identity = identity
        except FileNotFoundError:
            self._gaps = []

    def _view(self, number: int) -> SegmentView:
        """Return segment ``number``, refreshed; sealed segments need that once."""
        view = self._cached_view(self._firsts[number])
        last = number == len(self._firsts) - 1
        if not view.sealed and (not last or not view.length):
            view.refresh(sealed=not last)
        return view

    def _cached_view(self, first: int) -> SegmentView:
        """Return the cached view of the segment that begins at ``first``."""
        view = self._views.get(first)
        if view is None:
            if len(self._views) >= MAX_VIEWS:
                # Limit: the view that was opened first goes, because reads move forward.
                del self._views[next(iter(self._views))]
            view = self._views[first] = SegmentView(self.path, first, self._gate)
        return view

    def read(
        self, offset: int, *, max_rows: int | None = None, max_bytes: int | None = None, end: int | None = None
    ) -> Iterator[StoredBatch]:
        """Yield batches from ``offset`` on, up to ``end`` or the synced end.

        The first and last may be parts of batches. Stops after ``max_rows`` rows, or before a batch that would exceed
        ``max_bytes`` (but never before the first). Skips gaps. Raises CorruptBatch for a damaged batch that is not a
        gap yet.
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
            stored = cut_batch(view.stored(number), begin, limit)
            rows = rows if rows is None else rows - stored.rows
            yield stored

    def read_joined(
        self, offset: int, *, max_rows: int | None = None, room: int = JOINED_BYTES, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``read`` (SCHEMA) in fewer pieces.

        Small contiguous batches are joined into pieces of about ``room`` bytes. ``end`` is an end that this reader
        returned before: then the folder is not examined again, neither for data nor for gaps.
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
            part_rows = batch.slice(begin - base, limit - begin)
            rows = rows if rows is None else rows - len(part_rows)
            offset = begin + len(part_rows)
            yield part_rows

    def read_back(self, before: int) -> Iterator[StoredBatch]:
        """Yield the batches of ``read`` below ``before``, the newest first."""
        stop = min(before, self.end)
        while (number := bisect_right(self._firsts, stop - 1) - 1) >= 0:
            first = self._firsts[number]
            for view, batch, begin, limit in reversed(list(self._pieces(first, stop))):
                yield cut_batch(view.stored(batch), begin, limit)
            stop = first

    def whole_batches(self, offset: int = 0) -> Iterator[StoredBatch]:
        """Yield whole batches, not loaded, that have a row at ``offset`` or later outside the gaps."""
        last_base = -1
        for view, number, _, _ in self._pieces(offset, self.end):
            stored = view.stored(number)
            if stored.base > last_base:
                last_base = stored.base
                yield stored

    def rows_by_origin(self, offset: int, end: int) -> dict[tuple[str, int], int]:
        """Return the number of rows of [offset, end) by source and bucket, from the index alone; gaps are left out.

        A source that the index does not name is ``unknown``. Raises CorruptBatch if a whole segment is missing.
        """
        rows: dict[tuple[str, int], int] = {}
        for view, number, begin, limit in self._pieces(offset, min(end, self.end)):
            record = view.records[number]
            key = (record["source"].decode(errors="replace") or "unknown", int(record["bucket"]))
            rows[key] = rows.get(key, 0) + limit - begin
        return rows

    def backlog(self, offset: int) -> tuple[int, int, int]:
        """Return the entries from ``offset`` on, their stored bytes, and the first timestamp.

        The timestamp is in microseconds, 0 if there is no entry.
        """
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
        """Return the timestamp of an existing row. The index holds it for the first and last row of a batch."""
        view, number, _, _ = next(self._pieces(offset, offset + 1))
        record = view.records[number]
        if record["base"] == offset:
            return int(record["first"])
        if record["base"] + record["rows"] == offset + 1:
            return int(record["last"])
        return next(self.read(offset, max_rows=1)).first

    def at_timestamp(self, micros: int) -> int:
        """Return the first offset whose timestamp is ``micros`` or later; ``end`` if there is none yet."""
        self._refresh()
        for number in range(self._segment_at_timestamp(micros), len(self._firsts)):
            view = self._view(number)
            batch = int(np.searchsorted(view.records["last"], micros))
            if batch < len(view.records):
                return self._row_at_timestamp(view, batch, micros)
        return self._end()

    def _segment_at_timestamp(self, micros: int) -> int:
        """Return the first segment whose last timestamp is ``micros`` or later, or an empty segment before it."""
        # Invariant: timestamps never decrease within a topic, so a binary search is valid.
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
        """Yield segment, batch number and the part [begin, end) of the batch, for all rows of [offset, stop)."""
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
        """Return the segment that holds ``offset``; None if files changed and the caller must retry."""
        for _ in range(MAX_LISTINGS):
            number = bisect_right(self._firsts, offset) - 1
            try:
                if number >= 0 and (view := self._view(number)).end > offset >= view.first:
                    return view
            except FileNotFoundError:
                # Order: retention stores the gap before it removes the files, so the refreshed gaps cover the offset.
                self._listed_mtime_ns = 0
                self._refresh()
                if not any(gaps.uncovered(self._gaps, offset, offset + 1)):
                    return None
                continue
            break
        following = self._firsts[number + 1] if number + 1 < len(self._firsts) else stop
        raise CorruptBatch(offset, min(following, stop))


def row_times(directory: Path, offsets: Sequence[int]) -> list[int | None]:
    """Return the times (microseconds) of rows of a topic, which are read in this order.

    A missing row has the time of a later one, or None if no row is readable. Invariant: nothing stays open between
    calls, so a log that replaced another one at its path is read as the new one.
    """
    try:
        # Fast path: a twentieth of the time of a reader, which maps the data and computes the checksum of a batch.
        firsts = segment_files.first_offsets(os.listdir(directory))
        times = [_indexed_time(directory, firsts, offset) for offset in offsets]
    except OSError:
        times = [None]
    # Order: all rows again, because the log may have been replaced since the first was read.
    return [first_time(directory, offset) for offset in offsets] if None in times else times


def first_time(directory: Path, offset: int) -> int | None:
    """Return the time of the first row from ``offset`` on; None if no row is readable."""
    try:
        return next((stored.first for stored in TopicReader(directory).read(offset, max_rows=1)), None)
    except (LogError, OSError):
        return None


def _indexed_time(directory: Path, firsts: Sequence[int], offset: int) -> int | None:
    """Return the time that the index has for the first and the last row of a batch; None for another row, or damage."""
    number = bisect_right(firsts, offset) - 1
    if number < 0:
        return None
    files = SegmentFiles(directory, firsts[number])
    descriptor = os.open(files.index, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if index.form(os.pread(descriptor, index.HEADER_SIZE, 0), files.fingerprint) is None:
            return None
        record = index.find_record(descriptor, offset)
    finally:
        os.close(descriptor)
    # Of damaged batches, which have no source, the time is a guess.
    if record is None or not any(record.source):
        return None
    return {record.base: record.first, record.base + record.rows - 1: record.last}.get(offset)
