"""Pages of topics as record batches: read once for all consumers, the next one while the last is on its way."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

from penstock.log import Gap, Topic, TopicReader
from penstock.records import concatenated
from penstock.server.entries_api import EntriesApi
from penstock.server.entry_pages import read_page
from penstock.server.kafka.records import encode
from penstock.server.read_query import Query

MOST_RECORDS = 1 << 20
KEPT, MOST_KEPT = 32 << 20, 64
"""Bytes of pages that are kept, of all topics together, and how many."""
AHEAD, MOST_AHEAD = 4 << 20, 4
"""Bytes of a page that nobody asked for yet, and how many of them are read at once."""
PAGES_AHEAD = 2
"""How many are read behind the one that was asked for: while a client takes one in, the one after it is made."""
LEAST = 64 << 10
"""Bytes of a page from which on it is worth while to keep it, and to read the next one ahead."""


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


_Place = tuple[Topic, int]
Now = tuple[int, list[Gap]]
"""The end of a topic, and its gaps."""


class Pages:
    """Reads pages. What is kept is what may be asked for next, and what was asked for last."""

    def __init__(self, api: EntriesApi) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._kept: dict[_Place, Future[Page]] = {}

    @property
    def size(self) -> int:
        """Bytes of what is kept."""
        with self._lock:
            return sum(map(_size, self._kept.values()))

    def page(self, topic: Topic, reader: TopicReader, now: Now, offset: int, room: int) -> Page:
        """About ``room`` bytes from ``offset`` on, as ``reader`` sees it ``now``. Raises what ``read_page`` raises."""
        found = self._taken((topic, offset))
        if found is None or not _serves(found, now, room):
            found = self._read(topic, reader, now, offset, room)
        if found.is_full and room >= LEAST:
            self._keep((topic, offset), found)
            self._begin((topic, found.next), room, PAGES_AHEAD)
        return found

    def forget(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._kept.clear()

    def _taken(self, place: _Place) -> Page | None:
        """What is kept or just being read; None for what nobody has begun to read."""
        with self._lock:
            future = self._kept.get(place)
        if future is None or future.cancel() or future.exception() is not None:
            return None
        return future.result()

    def _read(self, topic: Topic, reader: TopicReader, now: Now, offset: int, room: int) -> Page:
        end, gaps = now
        page = read_page(topic, reader, offset, MOST_RECORDS, room, Query(topic.name))
        if page.rows:
            return Page(encode.encode(concatenated(page.batches)), page.next, end, gaps, room)
        return Page(encode.empty(offset, max(page.next, end)), max(page.next, end), end, gaps, room)

    def _keep(self, place: _Place, page: Page) -> None:
        future: Future[Page] = Future()
        future.set_result(page)
        with self._lock:
            self._kept.pop(place, None)
            self._kept[place] = future
            while len(self._kept) > MOST_KEPT or sum(map(_size, self._kept.values())) > KEPT:
                del self._kept[next(iter(self._kept))]

    def _begin(self, place: _Place, room: int, pages: int) -> None:
        """Read the page of ``place`` and those behind it on other threads, unless that is done, or there is enough."""
        topic, offset = place

        def read() -> Page:
            with self._api.topics.reader(topic) as reader:
                found = self._read(topic, reader, reader.span()[1:], offset, min(room, AHEAD))
            self._begin_behind(place, found, room, pages)
            return found

        with self._lock:
            known = self._kept.get(place)
            under_way = sum(not future.done() for future in self._kept.values())
            if known is None and under_way < MOST_AHEAD:
                with contextlib.suppress(RuntimeError):  # the server stops
                    self._kept[place] = self._api.threads.submit(read)
        if known is not None and (page := _read_already(known)) is not None:
            self._begin_behind(place, page, room, pages)

    def _begin_behind(self, place: _Place, page: Page, room: int, pages: int) -> None:
        if page.is_full and pages > 1:
            self._begin((place[0], page.next), room, pages - 1)


def _serves(page: Page, now: Now, room: int) -> bool:
    """Whether nothing has changed since it was read, and it is about as large as one that is read now would be."""
    end, gaps = now
    still = page.gaps == gaps and (page.is_full or page.end == end)
    return still and min(room, AHEAD) // 2 <= page.room <= room


def _read_already(future: Future[Page]) -> Page | None:
    return future.result() if future.done() and not future.cancelled() and not future.exception() else None


def _size(future: Future[Page]) -> int:
    page = _read_already(future)
    return len(page.records) if page else 0
