"""Pages of entries in order of offset, of bounded size. Blocking: runs on a reader thread.

Invariant: a page ends where reading was interrupted, and ``next`` says where to continue, so no entry is skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.log import CorruptBatch, Gap, Topic, TopicReader
from penstock.server.reading.query import Query
from penstock.slogd.columns.entries import sizes
from penstock.slogd.errors import Damaged, NoSuchTopic

DEFAULT_BUDGET = 4_000_000
"""Limit: of a page if the request names no number of entries: gRPC clients accept 4 MiB by default."""
LARGE_BUDGET = 48 << 20
"""Limit: of a page if it names one, well below the largest gRPC message that the daemon sends."""
MAX_JOINED_BYTES = 4 << 20
"""Limit: of small batches that are joined at once."""
NEARLY_FULL = 7 / 8
"""Share of a page's bytes from which on it counts as full: filling the rest costs more than the next page."""
MAX_SCAN_S = 1.0
"""Limit: of the time for one page if a filter rejects most entries."""
_ATTEMPTS = 4
"""Limit: reads of one page, each of which may turn one damaged batch into a gap."""


class Growing(Protocol):
    """A page with the number of its rows so far."""

    @property
    def rows(self) -> int: ...


@dataclass(slots=True)
class Page:
    """SCHEMA batches in order, and the offset at which the next page begins."""

    next: int
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def add_rows(self, batch: pa.RecordBatch, limit: int, budget: int) -> bool:
        """Add as many rows of ``batch`` as fit, at least one to an empty page; return False if the page is full."""
        if not batch.num_rows:
            return True
        room = min(batch.num_rows, limit - self.rows)
        ends = np.cumsum(sizes(batch)[:room])
        fits = int(np.searchsorted(ends, budget - self.size, side="right"))
        # At least one row, else a row larger than the budget would never be sent.
        fits = max(fits, 0 if self.rows else min(1, room))
        if fits:
            self.batches.append(batch.slice(0, fits))
            self.rows += fits
            self.size += int(ends[fits - 1])
            self.next = batch.column("offset")[fits - 1].as_py() + 1
        return fits == batch.num_rows and self.rows < limit


def read_page(
    topic: Topic, reader: TopicReader, offset: int, limit: int, budget: int, query: Query, end: int | None = None
) -> Page:
    """Read up to ``limit`` entries and about ``budget`` bytes that match ``query``, from ``offset`` on, across
    gaps.

    With a selective filter the page ends after MAX_SCAN_S, perhaps empty; ``next`` says where to continue. A batch
    with a bad checksum becomes a gap, and reading continues behind it. Raises Damaged if that does not help,
    NoSuchTopic if the topic was deleted. ``end``: the end that ``reader`` reported last; without a filter it is not
    looked up again.
    """
    page, ends = Page(offset), iter([end])
    deadline = time.monotonic() + MAX_SCAN_S
    fill_with_repair(
        topic, page, lambda: _fill(page, reader, limit, budget, query, deadline, next(ends, None)), lambda: page.next
    )
    return page


def fill_with_repair(topic: Topic, page: Growing, fill: Callable[[], None], current_offset: Callable[[], int]) -> None:
    """Call ``fill``. Damage at the start of the page is made a gap, later damage ends the page.

    ``current_offset`` returns the offset reached. Raises Damaged if a repair does not help, NoSuchTopic if the topic
    was deleted.
    """
    for _ in range(_ATTEMPTS):
        try:
            return fill()
        except CorruptBatch as damage:
            # Rows before the damage are sent; the next page starts at the damage and repairs it.
            if page.rows:
                return None
            topic.verify(damage.begin, damage.end)
        except FileNotFoundError:
            raise NoSuchTopic(f"Topic does not exist: {topic.name}") from None
    raise Damaged(f"Cannot read {topic.name} at offset {current_offset()}")


def page_of(batches: Iterable[pa.RecordBatch], offset: int, query: Query) -> Page:
    """Return a page of batches that continue at ``offset``, without a filter."""
    page = Page(offset)
    _add_batches(page, batches, query.page, DEFAULT_BUDGET, query)
    return page


def _fill(
    page: Page, reader: TopicReader, limit: int, budget: int, query: Query, deadline: float, end: int | None
) -> None:
    if query.filter_text:
        return _fill_filtered(page, reader, limit, budget, query, deadline)
    return _add_batches(page, _read_pieces(page, reader, limit, budget, end), limit, budget, query)


def _add_batches(page: Page, batches: Iterable[pa.RecordBatch], limit: int, budget: int, query: Query) -> None:
    for batch in batches:
        if not page.add_rows(_since_start(batch, query), limit, budget):
            break
        page.next = _end_offset(batch)


def _read_pieces(page: Page, reader: TopicReader, limit: int, budget: int, end: int | None) -> Iterator[pa.RecordBatch]:
    """Yield pieces of about the size that still fits."""
    while page.rows < limit and page.size < budget * NEARLY_FULL:
        room = min(MAX_JOINED_BYTES, budget - page.size)
        piece = next(reader.read_joined(page.next, max_rows=limit - page.rows, room=room, end=end), None)
        if piece is None:
            return
        yield piece


def _fill_filtered(page: Page, reader: TopicReader, limit: int, budget: int, query: Query, deadline: float) -> None:
    chosen = query.filter
    assert chosen is not None
    for batch in reader.read_joined(page.next):
        if not page.add_rows(chosen.apply(_since_start(batch, query)), limit, budget):
            break
        page.next = _end_offset(batch)
        # Limit: ``next`` is past the batches without a match, so the next page does not scan them again.
        if time.monotonic() > deadline:
            break


def _end_offset(batch: pa.RecordBatch) -> int:
    """Return the offset behind the last row."""
    return int(batch.column("offset")[-1].as_py()) + 1


def _since_start(batch: pa.RecordBatch, query: Query) -> pa.RecordBatch:
    # A start in the future: entries before it are skipped until it is reached.
    return rows_since(batch, query.micros) if query.micros is not None else batch


def start_of(query: Query, topic: Topic, reader: TopicReader) -> int:
    """Return the offset at which to begin."""
    if query.cursor is not None:
        return max(topic.cursors.offsets().get(query.cursor, 0), reader.start)
    if query.offset is not None:
        return max(query.offset, reader.start)
    if query.micros is not None:
        return reader.at_timestamp(query.micros)
    if query.latest:
        return max(reader.start, offset_before(reader.end, query.max_messages, reader.gaps()))
    return reader.start


def offset_before(end: int, count: int, gaps: Iterable[Gap]) -> int:
    """Return the offset ``count`` entries before ``end``, not counting entries in gaps; may be negative."""
    for gap in sorted(gaps, key=lambda gap: gap.begin, reverse=True):
        between = end - gap.end
        if count <= between:
            break
        count, end = count - between, gap.begin
    return end - count


def rows_since(batch: pa.RecordBatch, micros: int) -> pa.RecordBatch:
    """Return the rows with a timestamp at or after ``micros``; timestamps grow with the offset."""
    timestamps = batch.column("timestamp").view(pa.int64()).to_numpy()
    return batch.slice(int(np.searchsorted(timestamps, micros)))
