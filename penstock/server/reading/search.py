"""Search for entries of a topic by text or filter, page by page in either direction. Blocking: runs on a reader
thread.

A page is bounded in entries, bytes and time, so that a long search is many requests, each of which reports its
progress.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.log import StoredBatch, Topic, TopicReader
from penstock.log.read.filters import Filter, contains_text
from penstock.server.reading.entry_pages import DEFAULT_BUDGET, MAX_SCAN_S, fill_with_repair
from penstock.server.reading.query import LAST_OFFSET, parse_filter
from penstock.slogd.columns.entries import sizes
from penstock.slogd.errors import BadRequest
from penstock.slogd.json.values import parse_time

DEFAULT_ENTRIES, MAX_ENTRIES = 50, 1000
"""Limit: entries of a page."""
MAX_TEXT_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class Search:
    """Selection of entries of a topic: with ``text`` in payload or annotations, and matching ``filter_text``.

    Direction: the newest below ``before``, or the oldest from ``offset`` or ``micros`` (since the epoch) on; by
    default the newest.
    """

    topic: str
    text: str = ""
    filter_text: str = ""
    before: int | None = None
    offset: int | None = None
    micros: int | None = None
    limit: int = DEFAULT_ENTRIES

    @classmethod
    def from_parameters(cls, topic: str, query: Mapping[str, str]) -> Search:
        """Read the parameters of a request. Raises BadRequest."""
        if sum(name in query for name in ("before", "offset", "timestamp")) > 1:
            raise BadRequest("one of before, offset and timestamp")
        if len(query.get("text", "")) > MAX_TEXT_CHARACTERS:
            raise BadRequest(f"text has at most {MAX_TEXT_CHARACTERS:,} characters")
        return cls(
            topic,
            query.get("text", ""),
            query.get("filter", "").strip(),
            _number(query, "before", LAST_OFFSET),
            _number(query, "offset", LAST_OFFSET),
            _micros(query["timestamp"]) if "timestamp" in query else None,
            min(_number(query, "max_messages", 2**31 - 1) or DEFAULT_ENTRIES, MAX_ENTRIES),
        )

    @property
    def is_backward(self) -> bool:
        """Report whether the newest entries come first."""
        return self.offset is None and self.micros is None

    @property
    def filter(self) -> Filter | None:
        """Return the compiled filter, see ``Query.filter``. Raises BadRequest."""
        return parse_filter(self.filter_text)

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the matching rows of a SCHEMA batch."""
        filter = self.filter
        rows = batch if filter is None else filter.apply(batch)
        return rows.filter(contains_text(rows, self.text)) if self.text else rows


@dataclass(slots=True)
class SearchPage:
    """A page of matching entries (SCHEMA batches, in order) among the searched offsets [begin, end).

    ``start`` and ``stop``: the offsets that the topic has.
    """

    begin: int
    end: int
    start: int
    stop: int
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def add_rows(self, stored: StoredBatch, search: Search) -> bool:
        """Add matching rows of the next batch as far as they fit, at least one; return False if the page is full."""
        rows = search.select(stored.batch)
        fits = self._fitting(rows, search)
        selected = rows.slice(rows.num_rows - fits) if search.is_backward else rows.slice(0, fits)
        self.batches.insert(0 if search.is_backward else len(self.batches), selected)
        self.rows += fits
        is_complete = fits == rows.num_rows
        if search.is_backward:
            self.begin = stored.base if is_complete else selected["offset"][0].as_py() if fits else self.begin
        else:
            self.end = stored.end if is_complete else selected["offset"][fits - 1].as_py() + 1 if fits else self.end
        return is_complete and self.rows < search.limit

    def _fitting(self, rows: pa.RecordBatch, search: Search) -> int:
        """Return how many rows of the batch's near end fit, and add their size."""
        if not rows.num_rows:
            return 0
        row_sizes = sizes(rows)[::-1] if search.is_backward else sizes(rows)
        ends = np.cumsum(row_sizes[: search.limit - self.rows])
        count = int(np.searchsorted(ends, DEFAULT_BUDGET - self.size, side="right"))
        # At least one row, else a row larger than a page would never be returned.
        count = max(count, 0 if self.rows else 1)
        self.size += int(ends[count - 1]) if count else 0
        return count

    def document(self, logs: dict[str, Any]) -> dict[str, Any]:
        """Return the page as JSON; ``logs`` are its entries."""
        return {**logs, **{name: str(getattr(self, name)) for name in ("begin", "end", "start", "stop")}}


def search_page(topic: Topic, reader: TopicReader, search: Search) -> SearchPage:
    """Return a page of matching entries. Raises Damaged, and NoSuchTopic if the topic was deleted."""
    page = _empty_page(reader, search)
    deadline = time.monotonic() + MAX_SCAN_S
    fill_with_repair(
        topic,
        page,
        lambda: _scan(reader, search, page, deadline),
        lambda: page.begin if search.is_backward else page.end,
    )
    return page


def _scan(reader: TopicReader, search: Search, page: SearchPage, deadline: float) -> None:
    for stored in _read_batches(reader, search, page):
        # Limit: a page that takes too long ends here; begin and end report what was searched.
        if not page.add_rows(stored, search) or time.monotonic() > deadline:
            return
    _extend_to_end(page, search)


def _empty_page(reader: TopicReader, search: Search) -> SearchPage:
    start, stop = reader.start, reader.end
    offset = stop if search.before is None else min(search.before, stop)
    if search.micros is not None:
        offset = reader.at_timestamp(search.micros)
    elif search.offset is not None:
        offset = min(search.offset, stop)
    offset = max(offset, start)
    return SearchPage(offset, offset, start, stop)


def _read_batches(reader: TopicReader, search: Search, page: SearchPage) -> Iterator[StoredBatch]:
    return reader.read_back(page.begin) if search.is_backward else reader.read(page.end, end=page.stop)


def _extend_to_end(page: SearchPage, search: Search) -> None:
    """Mark everything as searched, including gaps at the end."""
    if search.is_backward:
        page.begin = min(page.begin, page.start)
    else:
        page.end = max(page.end, page.stop)


def _number(query: Mapping[str, str], name: str, largest: int) -> Any:
    if name not in query:
        return None
    text = query[name]
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(largest)) and int(text) <= largest):
        raise BadRequest(f"{name} is a whole number from 0 to {largest}")
    return int(text)


def _micros(text: str) -> int:
    try:
        stamp = parse_time(text)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    # Rounded up, so that no entry before the timestamp is returned.
    return int(stamp.seconds) * 1_000_000 - (-stamp.nanos // 1000)
