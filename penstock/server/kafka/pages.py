"""Pages of topics as record batches: read once for all consumers, the next one while the last is on its way."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.log import Gap, Topic, TopicReader
from penstock.records import concatenated
from penstock.server.entries_api import EntriesApi
from penstock.server.entry_pages import read_page
from penstock.server.kafka.records import encode
from penstock.server.read_query import Query

MOST_RECORDS = 1 << 20
AHEAD = 4 << 20
"""Bytes of a page that nobody asked for yet, at most."""
_KIND = "kafka"


@dataclass(frozen=True, slots=True)
class Page:
    """The records of offsets up to ``next``, which is below ``end`` where the page is full; ``gaps`` as they were."""

    records: memoryview
    next: int
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


Now = tuple[int, list[Gap]]
"""The end of a topic, and its gaps."""


class Pages:
    """Reads pages."""

    def __init__(self, api: EntriesApi) -> None:
        self._api = api

    def page(self, topic: Topic, reader: TopicReader, now: Now, offset: int, room: int) -> Page:
        """About ``room`` bytes from ``offset`` on, as ``reader`` sees it ``now``. Raises what ``read_page`` raises."""

        def read_behind(offset: int) -> list[Page]:
            with self._api.topics.reader(topic) as other:
                return [_read(topic, other, other.span()[1:], offset, min(room, AHEAD))]

        place = (topic, offset, _KIND)
        found: Page | None = self._api.pages.taken(place)
        if found is None or not _serves(found, now, room):
            found = _read(topic, reader, now, offset, room)
        self._api.pages.served(place, found, read_behind)
        return found


def _read(topic: Topic, reader: TopicReader, now: Now, offset: int, room: int) -> Page:
    end, gaps = now
    page = read_page(topic, reader, offset, MOST_RECORDS, room, Query(topic.name), end)
    if page.rows:
        return Page(encode.encode(concatenated(page.batches)), page.next, end, gaps, room)
    return Page(encode.empty(offset, max(page.next, end)), max(page.next, end), end, gaps, room)


def _serves(page: Page, now: Now, room: int) -> bool:
    """Whether nothing has changed since it was read, and it is about as large as one that is read now would be."""
    end, gaps = now
    still = page.gaps == gaps and (page.is_full or page.end == end)
    return still and min(room, AHEAD) // 2 <= page.room <= room
