"""Pages that were read for one and serve others, and those that follow, read while the last one is on its way.

What is kept is what may be asked for next, and what was asked for last: of all doors together.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future
from typing import Any, Protocol, TypeVar

from penstock.log import Gap, Topic

KEPT, MOST_KEPT = 32 << 20, 64
"""Bytes of pages that are kept, of all topics together, and how many."""
MOST_AHEAD = 4
"""How many are read at once that nobody asked for yet."""
PAGES_AHEAD = 2
"""How many are read behind the one that was asked for: while a client takes one in, the one after it is made."""
LEAST = 64 << 10
"""Bytes of a page from which on it is worth while to keep it, and to read the next one ahead."""
IDLE = 5.0
"""Seconds in which nobody asks for a page after which none are kept."""


class KeptPage(Protocol):
    """The rows of offsets up to ``next``, as they were with these ``gaps``; ``size`` is in bytes."""

    @property
    def next(self) -> int: ...

    @property
    def is_full(self) -> bool:
        """Whether what follows has no place in it, so that it stays as it is."""
        ...

    @property
    def gaps(self) -> list[Gap]: ...

    @property
    def size(self) -> int: ...


P = TypeVar("P", bound=KeptPage)
Place = tuple[Topic, int, Hashable]
"""Topic, offset, and what kind of page it is: how it is made, and of what rows."""


class PagesAhead:
    """Any thread may call it; ``threads`` read what nobody asked for yet."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._kept: dict[Place, Future[Any]] = {}
        self._used = False

    @property
    def size(self) -> int:
        """Bytes of what is kept."""
        with self._lock:
            return self._size()

    def _size(self) -> int:
        return sum(page.size for page in map(_page_of, self._kept.values()) if page)

    def ready(self, place: Place) -> Any | None:
        """The page of ``place`` that is kept; None for what is not there yet."""
        with self._lock:
            future = self._kept.get(place)
        return _page_of(future) if future is not None else None

    def taken(self, place: Place) -> Any | None:
        """As ``ready``, but waits for what is just being read."""
        with self._lock:
            future = self._kept.get(place)
        if future is None or future.cancel() or future.exception() is not None:
            return None
        return future.result()

    def served(self, place: Place, page: P, read: Callable[[int], P]) -> None:
        """The page of ``place`` goes to one who asked. What follows it is ``read``, by its offset, on other threads."""
        self._used = True
        if page.is_full and page.size >= LEAST:
            self._keep(place, page)
            self._begin((place[0], page.next, place[2]), read, PAGES_AHEAD)

    def _keep(self, place: Place, page: P) -> None:
        future: Future[P] = Future()
        future.set_result(page)
        with self._lock:
            self._kept.pop(place, None)
            self._kept[place] = future
            while len(self._kept) > MOST_KEPT or self._size() > KEPT:
                del self._kept[next(iter(self._kept))]

    def _begin(self, place: Place, read: Callable[[int], P], pages: int) -> None:
        """Read the page of ``place`` and those behind it, unless that is done, or there is enough."""

        def read_one() -> P:
            found = read(place[1])
            self._begin_behind(place, found, read, pages)
            return found

        with self._lock:
            known = self._kept.get(place)
            under_way = sum(not future.done() for future in self._kept.values())
            if known is None and under_way < MOST_AHEAD:
                with contextlib.suppress(RuntimeError):  # the server stops
                    self._kept[place] = self._threads.submit(read_one)
        if known is not None and (page := _page_of(known)) is not None:
            self._begin_behind(place, page, read, pages)

    def _begin_behind(self, place: Place, page: P, read: Callable[[int], P], pages: int) -> None:
        if page.is_full and pages > 1:
            self._begin((place[0], page.next, place[2]), read, pages - 1)

    def forget(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._kept.clear()

    async def forget_when_idle(self) -> None:
        """Keep nothing whenever nobody asks for a while; until cancelled."""
        while True:
            await asyncio.sleep(IDLE)
            if not self._used:
                self.forget()
            self._used = False


def _page_of(future: Future[Any]) -> Any | None:
    return future.result() if future.done() and not future.cancelled() and not future.exception() else None
