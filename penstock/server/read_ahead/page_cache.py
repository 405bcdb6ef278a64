"""Cache of encoded pages of all topics and protocols, with read-ahead.

A client that reads a topic from one end to the other asks for page after page. When a page is served, the pages behind
it are read and encoded on other threads, so that the next request is answered without waiting for the disk.
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
from penstock.server.read_ahead import limits


class CachedPage(Protocol):
    """A page with the rows of offsets up to ``next``. The caller decides whether it is still valid."""

    @property
    def next(self) -> int: ...

    @property
    def is_full(self) -> bool:
        """Whether no later row can join the page, so that it never changes."""
        ...

    @property
    def size(self) -> int:
        """Size in bytes."""
        ...


P = TypeVar("P", bound=CachedPage)
ReadPages = Callable[[int], Sequence[P]]
"""Reads the page at an offset, and optionally pages behind it if one read of them all is cheaper."""
PageKey = tuple[Topic, int, Hashable]
"""Topic, offset, and the kind of page: its encoding and its number of rows."""


class PageCache:
    """Least recently served pages are evicted first. Thread-safe; reads ahead run on ``threads``."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        # The lock guards `_pages`, `_size` and additions to `_loading`; `cached` reads without it. A read that ends
        # leaves `_loading` without it, because the callback may run on a thread that holds the lock.
        self._lock = threading.Lock()
        self._pages: OrderedDict[PageKey, Any] = OrderedDict()
        self._loading: dict[PageKey, Future[Any]] = {}
        self._size = 0
        self._used = False

    @property
    def size(self) -> int:
        """Bytes of all cached pages."""
        return self._size

    def cached(self, key: PageKey) -> Any | None:
        """Return the cached page, or None. Never waits."""
        return self._pages.get(key)

    def cached_or_loading(self, key: PageKey) -> Any | None:
        """Return the cached page, or wait for the page if a thread is reading it; else return None."""
        with self._lock:
            page, loading = self._pages.get(key), self._loading.get(key)
        # A read that has not begun is cancelled: the caller is on a thread already and reads the page itself.
        if loading is None or loading.cancel() or loading.exception() is not None:
            return page
        return loading.result()

    def serve(self, key: PageKey, page: P, read: ReadPages[P], pages_ahead: int = limits.PAGES_AHEAD) -> None:
        """Cache a page that goes to a client, and ``read`` the ``pages_ahead`` pages behind it on other threads."""
        self._used = True
        if page.is_full and limits.MIN_PAGE_BYTES <= page.size <= limits.MAX_PAGE_BYTES:
            with self._lock:
                self._insert(key, page)
                self._start_reading((key[0], page.next, key[2]), read, pages_ahead)

    def _insert(self, key: PageKey, page: CachedPage) -> None:
        if (replaced := self._pages.pop(key, None)) is not None:
            self._size -= replaced.size
        self._pages[key] = page
        self._size += page.size
        # Limit: by number and by bytes, whichever is reached first.
        while len(self._pages) > limits.MAX_CACHED_PAGES or self._size > limits.CACHE_BYTES:
            self._size -= self._pages.popitem(last=False)[1].size

    def _start_reading(self, key: PageKey, read: ReadPages[P], pages_ahead: int) -> None:
        """Read the first page from ``key`` on that is neither cached nor being read, within ``pages_ahead`` pages."""
        topic, _, kind = key
        while (page := self._pages.get(key)) is not None and page.is_full and pages_ahead > 1:
            key, pages_ahead = (topic, page.next, kind), pages_ahead - 1
        if page is None and key not in self._loading and len(self._loading) < limits.MAX_READS_AHEAD:
            # The executor is shut down while the server stops.
            with contextlib.suppress(RuntimeError):
                loading = self._loading[key] = self._threads.submit(self._read, key, read, pages_ahead)
                loading.add_done_callback(lambda _: self._loading.pop(key, None))

    def _read(self, key: PageKey, read: ReadPages[P], pages_ahead: int) -> P:
        pages = read(key[1])
        offset = key[1]
        with self._lock:
            for page in pages:
                if page.size <= limits.MAX_PAGE_BYTES:
                    self._insert((key[0], offset, key[2]), page)
                offset = page.next
            self._start_reading(key, read, pages_ahead)
        return pages[0]

    def clear(self) -> None:
        """Drop all cached pages."""
        with self._lock:
            self._pages.clear()
            self._size = 0

    async def clear_when_idle(self) -> None:
        """Drop all cached pages whenever no page was served for ``IDLE_TIMEOUT_S``; runs until cancelled."""
        while True:
            await asyncio.sleep(limits.IDLE_TIMEOUT_S)
            if not self._used:
                self.clear()
            self._used = False
