"""Reading a topic page by page, for answers of bounded size. Blocking: runs on a reader thread."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.log import CorruptBatch, Gap, Topic, TopicReader
from penstock.server.entries import sizes
from penstock.server.errors import Damaged
from penstock.server.query import Query

DEFAULT_BUDGET = 4_000_000
"""Bytes of a page when the request names no number: a client with gRPC's default limit of 4 MiB can take it."""
LARGE_BUDGET = 48 << 20
"""Bytes of a page when it does: with room to spare below the largest message that we send."""
_ATTEMPTS = 4


@dataclass(slots=True)
class Page:
    """SCHEMA batches in order, and the offset at which the next page begins."""

    next: int
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def take(self, batch: pa.RecordBatch, limit: int, budget: int) -> bool:
        """Add as much of ``batch`` as fits, at least one row to an empty page. False when the page is full."""
        room = min(batch.num_rows, limit - self.rows)
        ends = np.cumsum(sizes(batch)[:room])
        fits = int(np.searchsorted(ends, budget - self.size, side="right"))
        fits = max(fits, 0 if self.rows else min(1, room))
        if fits:
            self.batches.append(batch.slice(0, fits))
            self.rows += fits
            self.size += int(ends[fits - 1])
            self.next = batch.column("offset")[fits - 1].as_py() + 1
        return fits == batch.num_rows and self.rows < limit


def read_page(topic: Topic, reader: TopicReader, offset: int, limit: int, budget: int) -> Page:
    """Up to ``limit`` entries and about ``budget`` bytes from ``offset`` on; gaps are passed over.

    A batch whose checksum does not hold is made a gap, and reading goes on behind it. Raises Damaged
    when that does not help.
    """
    page = Page(offset)
    for _ in range(_ATTEMPTS):
        try:
            return _fill(page, reader, limit, budget)
        except CorruptBatch as bad:
            if page.rows:
                return page
            topic.verify(bad.begin, bad.end)
    raise Damaged(f"Cannot read {topic.name} at offset {offset}")


def _fill(page: Page, reader: TopicReader, limit: int, budget: int) -> Page:
    for stored in reader.read(page.next, max_rows=limit, max_bytes=budget):
        if not page.take(stored.batch, limit, budget):
            break
    return page


def start_of(query: Query, reader: TopicReader) -> int:
    """The offset at which to begin."""
    if query.offset is not None:
        return max(query.offset, reader.start)
    if query.micros is not None:
        return reader.at_timestamp(query.micros)
    if query.latest:
        return max(reader.start, before(reader.end, query.max_messages, reader.gaps()))
    return reader.start


def before(end: int, count: int, gaps: Iterable[Gap]) -> int:
    """The offset with ``count`` entries between it and ``end``, those in gaps not counted; may be negative."""
    for gap in sorted(gaps, key=lambda gap: gap.begin, reverse=True):
        between = end - gap.end
        if count <= between:
            break
        count, end = count - between, gap.begin
    return end - count


def since(batches: list[pa.RecordBatch], micros: int) -> list[pa.RecordBatch]:
    """The rows with a timestamp at or after ``micros``; timestamps grow with the offset."""
    stamps = [batch.column("timestamp").cast(pa.int64()).to_numpy() for batch in batches]
    firsts = [int(np.searchsorted(column, micros)) for column in stamps]
    return [b.slice(first) for b, first in zip(batches, firsts, strict=True) if first < b.num_rows]
