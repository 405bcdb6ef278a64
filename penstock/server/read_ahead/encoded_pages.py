"""Encoded pages of GetLogs: from the page cache if the page is unchanged, else read from the topic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from penstock.log import Gap, Topic, TopicReader
from penstock.records import concatenated
from penstock.server.auth.permitted_topics import PermittedTopics
from penstock.server.auth.rights import Principal
from penstock.server.read_ahead.limits import PAGES_PER_READ
from penstock.server.read_ahead.page_cache import PageCache, PageKey
from penstock.server.reading.entry_pages import DEFAULT_BUDGET, LARGE_BUDGET, NEARLY_FULL, Page, read_page, start_of
from penstock.server.reading.query import Query

T = TypeVar("T")
Encode = Callable[[list[pa.RecordBatch], int], T]
"""Encodes batches as one answer; the number is the offset at which to continue if a filter is set, else 0."""
EncodePages = Callable[[list[pa.RecordBatch], int], list[T]]
"""Encodes batches as several answers of the given number of rows each."""


@dataclass(frozen=True, slots=True)
class EncodedPage:
    """An answer with the rows up to ``next``, and the topic's ``gaps`` before it was read.

    ``is_full``: it has as many rows or bytes as a page may have, so that no later row can join it.
    """

    answer: Any
    next: int
    is_full: bool
    gaps: list[Gap] = field(repr=False)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.answer)


class EncodedPages:
    """Answers of GetLogs. Thread-safe."""

    def __init__(self, topics: PermittedTopics, cache: PageCache) -> None:
        self._topics, self._cache = topics, cache

    def cached(
        self, query: Query, encode: Encode[T], caller: Principal, encode_pages: EncodePages[T] | None = None
    ) -> T | None:
        """Return the cached answer; None if the topic must be read. Never waits for the disk.

        Raises BadRequest, NotAllowed.
        """
        if query.offset is None or query.filter_text or not self._topics.is_open(query.topic):
            return None
        topic = self._topics.readable(query.topic, caller)
        page: EncodedPage | None = self._cache.cached(_key(topic, query.offset, query, encode))
        if page is None or not _is_valid(page, topic):
            return None
        self._serve(topic, query.offset, query, encode, encode_pages, page)
        answer: T = page.answer
        return answer

    def get(self, query: Query, encode: Encode[T], caller: Principal, encode_pages: EncodePages[T] | None = None) -> T:
        """Return the answer; may wait for the disk. Raises BadRequest, NotAllowed, NoSuchTopic, Damaged."""
        topic = self._topics.readable(query.topic, caller)
        query.filter  # noqa: B018 - raises for an invalid filter, even if the topic is empty
        # From the end there is nothing to read, so no reader is opened.
        if query.latest and not query.max_messages:
            return encode([], 0)
        with self._topics.reader(topic) as reader:
            start = start_of(query, topic, reader)
            # The key of a cached page has neither filter nor time, so these pages are read each time.
            if query.filter_text or query.micros is not None:
                return _encode(_read(topic, reader, start, query), query, encode)
            page: EncodedPage | None = self._cache.cached_or_loading(_key(topic, start, query, encode))
            if page is None or not _is_valid(page, topic):
                page = _read_encoded(topic, reader, start, query, encode)
        self._serve(topic, start, query, encode, encode_pages, page)
        answer: T = page.answer
        return answer

    def _serve(
        self,
        topic: Topic,
        start: int,
        query: Query,
        encode: Encode[Any],
        encode_pages: EncodePages[Any] | None,
        page: EncodedPage,
    ) -> None:
        def read(offset: int) -> list[EncodedPage]:
            with self._topics.reader(topic) as reader:
                pages = _read_full_pages(topic, reader, offset, query, encode_pages) if encode_pages else []
                return pages or [_read_encoded(topic, reader, offset, query, encode)]

        self._cache.serve(_key(topic, start, query, encode), page, read, PAGES_PER_READ)


def _key(topic: Topic, offset: int, query: Query, encode: Encode[T]) -> PageKey:
    return topic, offset, (encode, query.max_messages)


def _is_valid(page: EncodedPage, topic: Topic) -> bool:
    """Report whether a fresh read would return the same rows."""
    # The writer's list of gaps is the same object until it changes, so the comparison is cheap.
    return page.is_full and not topic.closed and page.gaps == topic.gaps()


def _read_encoded(topic: Topic, reader: TopicReader, offset: int, query: Query, encode: Encode[Any]) -> EncodedPage:
    # Order: gaps first. A gap that appears during the read makes the page differ from the topic, so it is invalid.
    gaps = topic.gaps()
    page = _read(topic, reader, offset, query)
    is_full = page.rows == query.page or page.size >= _budget(query) * NEARLY_FULL
    return EncodedPage(_encode(page, query, encode), page.next, is_full, gaps)


def _read_full_pages(
    topic: Topic, reader: TopicReader, offset: int, query: Query, encode_pages: EncodePages[Any]
) -> list[EncodedPage]:
    """Read up to PAGES_PER_READ full pages at once; none if entries are large or fewer than two pages remain."""
    gaps, page_rows = topic.gaps(), query.page
    page = read_page(topic, reader, offset, PAGES_PER_READ * page_rows, DEFAULT_BUDGET, query)
    full_pages = page.rows // page_rows
    if full_pages < 2:
        return []
    rows = concatenated(page.batches).slice(0, full_pages * page_rows)
    last_offsets = rows.column("offset").to_numpy()[page_rows - 1 :: page_rows].tolist()
    answers = zip(encode_pages([rows], page_rows), last_offsets, strict=True)
    return [EncodedPage(answer, last_offset + 1, True, gaps) for answer, last_offset in answers]


def _read(topic: Topic, reader: TopicReader, offset: int, query: Query) -> Page:
    return read_page(topic, reader, offset, query.page, _budget(query), query)


def _budget(query: Query) -> int:
    """Return the maximum bytes of a page."""
    return LARGE_BUDGET if query.max_messages else DEFAULT_BUDGET


def _encode(page: Page, query: Query, encode: Encode[T]) -> T:
    return encode(page.batches, page.next if query.filter_text else 0)
