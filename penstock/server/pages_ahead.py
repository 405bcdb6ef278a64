"""Pages that were read for one and serve others, and those that follow, read while the last one is on its way.

What is kept is what may be asked for next, and what was asked for last: of all doors together.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Protocol, TypeVar

from penstock.log import Topic

KEPT, MOST_KEPT = 32 << 20, 64
"""Bytes of pages that are kept, of all topics together, and how many."""
MOST_AHEAD = 4
"""How many are read at once that nobody asked for yet."""
PAGES_AHEAD = 2
"""How many are read behind the one that was asked for: while a client takes one in, the one after it is made."""
LEAST, LARGEST = 64 << 10, KEPT // 2
"""Bytes of a page from which on it is worth while to keep it, and to read the next one ahead; and with which it is not
any more.
"""
IDLE = 5.0
"""Seconds in which nobody asks for a page after which none are kept."""


class KeptPage(Protocol):
    """The rows of offsets up to ``next``; ``size`` is in bytes. Whether it still holds is for who asks to say."""

    @property
    def next(self) -> int: ...

    @property
    def is_full(self) -> bool:
        """Whether what follows has no place in it, so that it stays as it is."""
        ...

    @property
    def size(self) -> int: ...


P = TypeVar("P", bound=KeptPage)
Read = Callable[[int], Sequence[P]]
"""Gives the page that begins at an offset, and maybe some of those behind it: to read them at once takes less."""
Place = tuple[Topic, int, Hashable]
"""Topic, offset, and what kind of page it is: how it is made, and of what rows."""


class PagesAhead:
    """Any thread may call it; ``threads`` read what nobody asked for yet."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._kept: OrderedDict[Place, Any] = OrderedDict()
        self._coming: dict[Place, Future[Any]] = {}
        self._size = 0
        self._used = False

    @property
    def size(self) -> int:
        """Bytes of what is kept."""
        return self._size

    def ready(self, place: Place) -> Any | None:
        """The page of ``place`` that is kept; None for what is not there yet."""
        return self._kept.get(place)

    def taken(self, place: Place) -> Any | None:
        """As ``ready``, but waits for what is just being read."""
        with self._lock:
            found, coming = self._kept.get(place), self._coming.get(place)
        if coming is None or coming.cancel() or coming.exception() is not None:
            return found
        return coming.result()

    def served(self, place: Place, page: P, read: Read[P], ahead: int = PAGES_AHEAD) -> None:
        """The page of ``place`` goes to one who asked; ``ahead`` that follow are ``read`` on other threads."""
        self._used = True
        if page.is_full and LEAST <= page.size <= LARGEST:
            with self._lock:
                self._keep(place, page)
                self._begin((place[0], page.next, place[2]), read, ahead)

    def _keep(self, place: Place, page: KeptPage) -> None:
        if (before := self._kept.pop(place, None)) is not None:
            self._size -= before.size
        self._kept[place] = page
        self._size += page.size
        while len(self._kept) > MOST_KEPT or self._size > KEPT:
            self._size -= self._kept.popitem(last=False)[1].size

    def _begin(self, place: Place, read: Read[P], ahead: int) -> None:
        """Have the page of ``place`` and those behind it read, unless they are there, or enough is being read."""
        topic, _, kind = place
        while (known := self._kept.get(place)) is not None and known.is_full and ahead > 1:
            place, ahead = (topic, known.next, kind), ahead - 1
        if known is None and place not in self._coming and len(self._coming) < MOST_AHEAD:
            with contextlib.suppress(RuntimeError):  # the server stops
                coming = self._coming[place] = self._threads.submit(self._read, place, read, ahead)
                coming.add_done_callback(lambda _: self._coming.pop(place, None))

    def _read(self, place: Place, read: Read[P], ahead: int) -> P:
        pages = read(place[1])
        offset = place[1]
        with self._lock:
            for page in pages:
                if page.size <= LARGEST:
                    self._keep((place[0], offset, place[2]), page)
                offset = page.next
            self._begin(place, read, ahead)
        return pages[0]

    def forget(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._kept.clear()
            self._size = 0

    async def forget_when_idle(self) -> None:
        """Keep nothing whenever nobody asks for a while; until cancelled."""
        while True:
            await asyncio.sleep(IDLE)
            if not self._used:
                self.forget()
            self._used = False
