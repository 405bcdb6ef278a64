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

    def page(self, topic: Topic, reader: TopicReader, offset: int, room: int) -> Page:
        """About ``room`` bytes from ``offset`` on. Raises what ``read_page`` raises."""
        found = self._taken((topic, offset))
        if found is None or not _serves(found, reader, room):
            found = self._read(topic, reader, offset, room)
        if found.is_full and room >= LEAST:
            self._keep((topic, offset), found)
            self._begin((topic, found.next), room)
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

    def _read(self, topic: Topic, reader: TopicReader, offset: int, room: int) -> Page:
        end, gaps = reader.end, reader.gaps()
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

    def _begin(self, place: _Place, room: int) -> None:
        """Read the page of ``place`` on another thread, unless that is done, or there is enough to do."""
        topic, offset = place

        def read() -> Page:
            with self._api.topics.reader(topic) as reader:
                return self._read(topic, reader, offset, min(room, AHEAD))

        with self._lock:
            under_way = sum(not future.done() for future in self._kept.values())
            if place not in self._kept and under_way < MOST_AHEAD:
                with contextlib.suppress(RuntimeError):  # the server stops
                    self._kept[place] = self._api.threads.submit(read)


def _serves(page: Page, reader: TopicReader, room: int) -> bool:
    """Whether nothing has changed since it was read, and it is about as large as one that is read now would be."""
    still = page.gaps == reader.gaps() and (page.is_full or page.end == reader.end)
    return still and min(room, AHEAD) // 2 <= page.room <= room


def _size(future: Future[Page]) -> int:
    return len(future.result().records) if future.done() and not future.cancelled() and not future.exception() else 0
