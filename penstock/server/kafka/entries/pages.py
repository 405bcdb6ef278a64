"""Pages of topics as record batches, read once for all consumers.

While a page is sent the next one is read ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.log import Gap, Topic, TopicReader
from penstock.records import concatenated
from penstock.server.api.entries import EntriesApi
from penstock.server.kafka.records import encode
from penstock.server.reading.entry_pages import read_page
from penstock.server.reading.query import Query

MAX_RECORDS = 1 << 20
"""Limit: records of one page, for tiny records, whose objects outweigh their bytes."""
MAX_READ_AHEAD_BYTES = 4 << 20
"""Limit: bytes of a page that is read before a client asks for it."""
_KIND = "kafka"


@dataclass(frozen=True, slots=True)
class Page:
    """Records of offsets up to ``next``, with the topic's ``start``, ``end`` and ``gaps`` when they were read."""

    records: memoryview
    next: int
    start: int
    end: int
    gaps: list[Gap] = field(repr=False)
    max_bytes: int
    """Size that was asked for; the page has about as many bytes."""

    @property
    def is_full(self) -> bool:
        """Whether more entries follow that did not fit."""
        return self.next < self.end

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return len(self.records)


TopicState = tuple[int, int, list[Gap]]
"""Start, end and gaps of a topic."""


def topic_state(topic: Topic, reader: TopicReader) -> TopicState:
    """Return the topic's current start, end and gaps."""
    # Order: gaps before the span, so that a page is never older than its gaps. The list is the writer's own, so that
    # later comparisons are usually of identical objects.
    gaps = topic.gaps()
    start, end, _ = reader.span()
    return start, end, gaps


class Pages:
    """Reads pages through the cache of read-ahead pages."""

    def __init__(self, api: EntriesApi) -> None:
        self._api = api

    def page(self, topic: Topic, reader: TopicReader, state: TopicState, offset: int, max_bytes: int) -> Page:
        """Return about ``max_bytes`` of records from ``offset`` on. Raises what ``read_page`` raises."""
        page: Page | None = self._api.page_cache.cached_or_loading((topic, offset, _KIND))
        if page is None or not _is_current(page, state[1], state[2], max_bytes):
            page = _read_page(topic, reader, state, offset, max_bytes)
        self._serve(topic, offset, page, max_bytes)
        return page

    def cached_page(self, topic: Topic, offset: int, max_bytes: int) -> tuple[Page, int] | None:
        """Return a full page from the cache and the topic's end; None if the disk must be read."""
        page: Page | None = self._api.page_cache.cached((topic, offset, _KIND))
        end = topic.writer.end
        if page is None or end is None or not page.is_full or not _is_current(page, end, topic.gaps(), max_bytes):
            return None
        self._serve(topic, offset, page, max_bytes)
        return page, end

    def _serve(self, topic: Topic, offset: int, page: Page, max_bytes: int) -> None:
        def read_next(offset: int) -> list[Page]:
            with self._api.topics.reader(topic) as reader:
                return [
                    _read_page(topic, reader, topic_state(topic, reader), offset, min(max_bytes, MAX_READ_AHEAD_BYTES))
                ]

        self._api.page_cache.serve((topic, offset, _KIND), page, read_next)


def _read_page(topic: Topic, reader: TopicReader, state: TopicState, offset: int, max_bytes: int) -> Page:
    start, end, gaps = state
    page = read_page(topic, reader, offset, MAX_RECORDS, max_bytes, Query(topic.name), end)
    if page.rows:
        return Page(encode.encode(concatenated(page.batches)), page.next, start, end, gaps, max_bytes)
    # No rows left up to the end: an empty batch moves the consumer past the gap.
    return Page(encode.empty(offset, max(page.next, end)), max(page.next, end), start, end, gaps, max_bytes)


def _is_current(page: Page, end: int, gaps: list[Gap], max_bytes: int) -> bool:
    """Whether the topic has not changed since the page was read, and a page read now would have about the same size."""
    # A page that is not full grows with the topic, so it is current only while the end is the same.
    is_unchanged = page.gaps == gaps and (page.is_full or page.end == end)
    return is_unchanged and min(max_bytes, MAX_READ_AHEAD_BYTES) // 2 <= page.max_bytes <= max_bytes
