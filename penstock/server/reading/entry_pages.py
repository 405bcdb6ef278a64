"""Reading a topic page by page, for answers of bounded size. Blocking: runs on a reader thread."""

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
"""Bytes of a page when the request names no number: a client with gRPC's default limit of 4 MiB can take it."""
LARGE_BUDGET = 48 << 20
"""Bytes of a page when it does: with room to spare below the largest message that we send."""
MOST_COPIED = 4 << 20
"""Bytes of small batches that are put together at once."""
ALMOST = 7 / 8
"""Of a page's bytes: where it has so many, looking for more costs more than the next page."""
SCAN_SECONDS = 1.0
"""How long a page is looked for where a filter leaves out most of what is read."""
_ATTEMPTS = 4


class Growing(Protocol):
    """A page, with how many rows it has so far."""

    @property
    def rows(self) -> int: ...


@dataclass(slots=True)
class Page:
    """SCHEMA batches in order, and the offset at which the next page begins."""

    next: int
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def take(self, batch: pa.RecordBatch, limit: int, budget: int) -> bool:
        """Add as much of ``batch`` as fits, at least one row to an empty page. False when the page is full."""
        if not batch.num_rows:
            return True
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


def read_page(
    topic: Topic, reader: TopicReader, offset: int, limit: int, budget: int, query: Query, end: int | None = None
) -> Page:
    """Up to ``limit`` entries and about ``budget`` bytes that ``query`` wants from ``offset`` on; gaps are passed over.

    Where a filter leaves much out, the page ends after SCAN_SECONDS, perhaps empty: ``next`` says where to go on.
    A batch whose checksum does not hold is made a gap, and reading goes on behind it. Raises Damaged when that
    does not help, and NoSuchTopic when the topic was deleted. ``end`` is what ``reader`` said last, where without a
    filter it need not look again, until something is mended.
    """
    page, ends = Page(offset), iter([end])
    until = time.monotonic() + SCAN_SECONDS
    mending(topic, page, lambda: _fill(page, reader, limit, budget, query, until, next(ends, None)), lambda: page.next)
    return page


def mending(topic: Topic, page: Growing, fill: Callable[[], None], reached: Callable[[], int]) -> None:
    """``fill`` a page. What cannot be read is made a gap first, where nothing is on the page yet; else it ends there.

    ``reached``: the offset that it has come to. Raises Damaged when that does not help, and NoSuchTopic when the topic
    was deleted.
    """
    for _ in range(_ATTEMPTS):
        try:
            return fill()
        except CorruptBatch as bad:
            if page.rows:
                return None
            topic.verify(bad.begin, bad.end)
        except FileNotFoundError:
            raise NoSuchTopic(f"Topic does not exist: {topic.name}") from None
    raise Damaged(f"Cannot read {topic.name} at offset {reached()}")


def page_of(batches: Iterable[pa.RecordBatch], offset: int, query: Query) -> Page:
    """As ``read_page``, of batches that go on at ``offset``; without a filter."""
    page = Page(offset)
    _take_all(page, batches, query.page, DEFAULT_BUDGET, query)
    return page


def _fill(
    page: Page, reader: TopicReader, limit: int, budget: int, query: Query, until: float, end: int | None
) -> None:
    if query.filter_text:
        return _fill_filtered(page, reader, limit, budget, query, until)
    return _take_all(page, _pieces(page, reader, limit, budget, end), limit, budget, query)


def _take_all(page: Page, batches: Iterable[pa.RecordBatch], limit: int, budget: int, query: Query) -> None:
    for batch in batches:
        if not page.take(_wanted(batch, query), limit, budget):
            break
        page.next = _end(batch)


def _pieces(page: Page, reader: TopicReader, limit: int, budget: int, end: int | None) -> Iterator[pa.RecordBatch]:
    """Pieces of about what there is still room for."""
    while page.rows < limit and page.size < budget * ALMOST:
        room = min(MOST_COPIED, budget - page.size)
        piece = next(reader.read_joined(page.next, max_rows=limit - page.rows, room=room, end=end), None)
        if piece is None:
            return
        yield piece


def _fill_filtered(page: Page, reader: TopicReader, limit: int, budget: int, query: Query, until: float) -> None:
    chosen = query.filter
    assert chosen is not None
    for batch in reader.read_joined(page.next):
        if not page.take(chosen.apply(_wanted(batch, query)), limit, budget):
            break
        page.next = _end(batch)
        if time.monotonic() > until:
            break


def _end(batch: pa.RecordBatch) -> int:
    """The offset behind the last row."""
    return int(batch.column("offset")[-1].as_py()) + 1


def _wanted(batch: pa.RecordBatch, query: Query) -> pa.RecordBatch:
    # A start in the future is passed over until it comes.
    return since(batch, query.micros) if query.micros is not None else batch


def start_of(query: Query, topic: Topic, reader: TopicReader) -> int:
    """The offset at which to begin."""
    if query.cursor is not None:
        return max(topic.cursors.all().get(query.cursor, 0), reader.start)
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


def since(batch: pa.RecordBatch, micros: int) -> pa.RecordBatch:
    """The rows with a timestamp at or after ``micros``; timestamps grow with the offset."""
    stamps = batch.column("timestamp").view(pa.int64()).to_numpy()
    return batch.slice(int(np.searchsorted(stamps, micros)))
