"""Entries of a topic that have a text in them or match a filter, page by page in either direction.

Blocking: runs on a reader thread. A page is bounded in entries, bytes and time, so that a long search is many requests,
each of which says how far it came.
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
from penstock.server.reading.entry_pages import DEFAULT_BUDGET, SCAN_SECONDS, mending
from penstock.server.reading.query import LAST_OFFSET, parse_filter
from penstock.slogd.columns.entries import sizes
from penstock.slogd.errors import BadRequest
from penstock.slogd.json.values import parse_time

USUAL, MOST = 50, 1000
"""Entries of a page."""
LONGEST_TEXT = 1000
"""Characters."""


@dataclass(frozen=True, slots=True)
class Search:
    """Which entries of a topic are wanted: with ``text`` in their payload or annotations, and matching ``filter_text``.

    Where: the newest below ``before``, or the oldest from ``offset`` or ``micros`` (since the epoch) on; without any,
    the newest.
    """

    topic: str
    text: str = ""
    filter_text: str = ""
    before: int | None = None
    offset: int | None = None
    micros: int | None = None
    most: int = USUAL

    @classmethod
    def of(cls, topic: str, query: Mapping[str, str]) -> Search:
        """From a request's query. Raises BadRequest."""
        if sum(name in query for name in ("before", "offset", "timestamp")) > 1:
            raise BadRequest("one of before, offset and timestamp")
        if len(query.get("text", "")) > LONGEST_TEXT:
            raise BadRequest(f"text has at most {LONGEST_TEXT:,} characters")
        return cls(
            topic,
            query.get("text", ""),
            query.get("filter", "").strip(),
            _number(query, "before", LAST_OFFSET),
            _number(query, "offset", LAST_OFFSET),
            _micros(query["timestamp"]) if "timestamp" in query else None,
            min(_number(query, "max_messages", 2**31 - 1) or USUAL, MOST),
        )

    @property
    def back(self) -> bool:
        """Whether the newest come first."""
        return self.offset is None and self.micros is None

    @property
    def filter(self) -> Filter | None:
        """See ``Query.filter``. Raises BadRequest."""
        return parse_filter(self.filter_text)

    def wanted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a SCHEMA batch that are wanted."""
        chosen = self.filter
        found = batch if chosen is None else chosen.apply(batch)
        return found.filter(contains_text(found, self.text)) if self.text else found


@dataclass(slots=True)
class Found:
    """Entries (SCHEMA batches, in order) among the offsets [begin, end), all of which were looked at.

    ``start`` and ``stop``: the offsets that the topic has.
    """

    begin: int
    end: int
    start: int
    stop: int
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def take(self, stored: StoredBatch, search: Search) -> bool:
        """Take what is wanted of the next batch, as much as fits, at least one entry. False when the page is full."""
        rows = search.wanted(stored.batch)
        fits = self._fitting(rows, search)
        taken = rows.slice(rows.num_rows - fits) if search.back else rows.slice(0, fits)
        self.batches.insert(0 if search.back else len(self.batches), taken)
        self.rows += fits
        whole = fits == rows.num_rows
        if search.back:
            self.begin = stored.base if whole else taken["offset"][0].as_py() if fits else self.begin
        else:
            self.end = stored.end if whole else taken["offset"][fits - 1].as_py() + 1 if fits else self.end
        return whole and self.rows < search.most

    def _fitting(self, rows: pa.RecordBatch, search: Search) -> int:
        """How many rows of the batch's near end fit."""
        if not rows.num_rows:
            return 0
        each = sizes(rows)[::-1] if search.back else sizes(rows)
        ends = np.cumsum(each[: search.most - self.rows])
        fits = int(np.searchsorted(ends, DEFAULT_BUDGET - self.size, side="right"))
        fits = max(fits, 0 if self.rows else 1)
        self.size += int(ends[fits - 1]) if fits else 0
        return fits

    def document(self, logs: dict[str, Any]) -> dict[str, Any]:
        """JSON-ready, with the entries as ``logs_document`` has them."""
        return {**logs, **{name: str(getattr(self, name)) for name in ("begin", "end", "start", "stop")}}


def find(topic: Topic, reader: TopicReader, search: Search) -> Found:
    """A page of what is wanted. Raises Damaged, and NoSuchTopic when the topic was deleted."""
    found = _nothing_yet(reader, search)
    until = time.monotonic() + SCAN_SECONDS
    mending(
        topic, found, lambda: _look(reader, search, found, until), lambda: found.begin if search.back else found.end
    )
    return found


def _look(reader: TopicReader, search: Search, found: Found, until: float) -> None:
    for stored in _ahead(reader, search, found):
        if not found.take(stored, search) or time.monotonic() > until:
            return
    _to_the_end(found, search)


def _nothing_yet(reader: TopicReader, search: Search) -> Found:
    start, stop = reader.start, reader.end
    at = stop if search.before is None else min(search.before, stop)
    if search.micros is not None:
        at = reader.at_timestamp(search.micros)
    elif search.offset is not None:
        at = min(search.offset, stop)
    at = max(at, start)
    return Found(at, at, start, stop)


def _ahead(reader: TopicReader, search: Search, found: Found) -> Iterator[StoredBatch]:
    return reader.read_back(found.begin) if search.back else reader.read(found.end, end=found.stop)


def _to_the_end(found: Found, search: Search) -> None:
    """All was looked at, gaps at the end too."""
    if search.back:
        found.begin = min(found.begin, found.start)
    else:
        found.end = max(found.end, found.stop)


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
    return int(stamp.seconds) * 1_000_000 - (-stamp.nanos // 1000)
