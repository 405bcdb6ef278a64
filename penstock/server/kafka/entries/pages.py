"""Pages of topics as record batches: read once for all consumers, the next one while the last is on its way."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.log import Gap, Topic, TopicReader
from penstock.records import concatenated
from penstock.server.api.entries import EntriesApi
from penstock.server.kafka.records import encode
from penstock.server.reading.entry_pages import read_page
from penstock.server.reading.query import Query

MOST_RECORDS = 1 << 20
AHEAD = 4 << 20
"""Bytes of a page that nobody asked for yet, at most."""
_KIND = "kafka"


@dataclass(frozen=True, slots=True)
class Page:
    """The records of offsets up to ``next``, which is below ``end`` where the page is full; ``start``, ``end`` and
    ``gaps`` of the topic as they were.
    """

    records: memoryview
    next: int
    start: int
    end: int
    gaps: list[Gap] = field(repr=False)
    room: int
    """Bytes that it was to have, about."""

    @property
    def is_full(self) -> bool:
        """Whether what follows has no place in it."""
        return self.next < self.end

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.records)


Now = tuple[int, int, list[Gap]]
"""The start and the end of a topic, and its gaps."""


def seen(topic: Topic, reader: TopicReader) -> Now:
    """What there is. The gaps are the writer's: to compare those takes no time, as they are the same objects; and they
    are taken first, so that a page is never of a time before them.
    """
    gaps = topic.gaps()
    start, end, _ = reader.span()
    return start, end, gaps


class Pages:
    """Reads pages."""

    def __init__(self, api: EntriesApi) -> None:
        self._api = api

    def page(self, topic: Topic, reader: TopicReader, now: Now, offset: int, room: int) -> Page:
        """About ``room`` bytes from ``offset`` on, as it was ``seen``. Raises what ``read_page`` raises."""
        found: Page | None = self._api.page_cache.cached_or_loading((topic, offset, _KIND))
        if found is None or not _serves(found, now[1], now[2], room):
            found = _read(topic, reader, now, offset, room)
        self._served(topic, offset, found, room)
        return found

    def ready(self, topic: Topic, offset: int, room: int) -> tuple[Page, int] | None:
        """A full page that was read ahead, and the end of the topic; None where the disk must be asked."""
        found: Page | None = self._api.page_cache.cached((topic, offset, _KIND))
        end = topic.writer.end
        if found is None or end is None or not found.is_full or not _serves(found, end, topic.gaps(), room):
            return None
        self._served(topic, offset, found, room)
        return found, end

    def _served(self, topic: Topic, offset: int, page: Page, room: int) -> None:
        def read_behind(offset: int) -> list[Page]:
            with self._api.topics.reader(topic) as other:
                return [_read(topic, other, seen(topic, other), offset, min(room, AHEAD))]

        self._api.page_cache.serve((topic, offset, _KIND), page, read_behind)


def _read(topic: Topic, reader: TopicReader, now: Now, offset: int, room: int) -> Page:
    start, end, gaps = now
    page = read_page(topic, reader, offset, MOST_RECORDS, room, Query(topic.name), end)
    if page.rows:
        return Page(encode.encode(concatenated(page.batches)), page.next, start, end, gaps, room)
    return Page(encode.empty(offset, max(page.next, end)), max(page.next, end), start, end, gaps, room)


def _serves(page: Page, end: int, gaps: list[Gap], room: int) -> bool:
    """Whether nothing has changed since it was read, and it is about as large as one that is read now would be."""
    still = page.gaps == gaps and (page.is_full or page.end == end)
    return still and min(room, AHEAD) // 2 <= page.room <= room
