"""The page cache stores served pages and reads the pages behind them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.log import Gap
from penstock.server.read_ahead import limits
from penstock.server.read_ahead.limits import (
    CACHE_BYTES,
    MAX_CACHED_PAGES,
    MAX_PAGE_BYTES,
    MAX_READS_AHEAD,
    MIN_PAGE_BYTES,
    PAGES_AHEAD,
)
from penstock.server.read_ahead.page_cache import PageCache

TOPIC: Any = object()


@dataclass
class TenRows:
    """A page of ten rows."""

    begin: int
    size: int = MIN_PAGE_BYTES
    is_full: bool = True
    gaps: list[Gap] = field(default_factory=list)

    @property
    def next(self) -> int:
        return self.begin + 10


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def key(offset: int, kind: str = "k") -> tuple[Any, int, str]:
    return TOPIC, offset, kind


def serve(pages: PageCache, begin: int, **page: Any) -> None:
    pages.serve(key(begin), TenRows(begin, **page), lambda offset: [TenRows(offset)])


def test_pages_behind_a_served_page_are_read_ahead(threads: ThreadPoolExecutor) -> None:
    pages = PageCache(threads)
    serve(pages, 0)
    for number in range(1, PAGES_AHEAD + 1):
        assert pages.cached_or_loading(key(10 * number)) == TenRows(10 * number)
    threads.shutdown()
    assert pages.cached(key(10)) == TenRows(10)
    assert pages.cached(key(10 * PAGES_AHEAD + 10)) is None


def test_pages_of_one_read_are_cached_under_their_own_offsets(threads: ThreadPoolExecutor) -> None:
    pages, read_offsets = PageCache(threads), list[int]()

    def four(offset: int) -> list[TenRows]:
        read_offsets.append(offset)
        return [TenRows(offset + 10 * number) for number in range(4)]

    pages.serve(key(0), TenRows(0), four)
    for offset in range(10, 50, 10):
        until = time.monotonic() + 20
        while pages.cached(key(offset)) is None and time.monotonic() < until:
            time.sleep(0.001)
        assert pages.cached(key(offset)) == TenRows(offset)
        pages.serve(key(offset), TenRows(offset), four)
    threads.shutdown()
    assert read_offsets == [10, 50]


def test_cache_distinguishes_kinds_of_pages(threads: ThreadPoolExecutor) -> None:
    pages = PageCache(threads)
    serve(pages, 0)
    assert pages.cached_or_loading(key(0, "other")) is None
    assert pages.cached_or_loading(key(0)) == TenRows(0)


@pytest.mark.parametrize("page", [{"is_full": False}, {"size": MIN_PAGE_BYTES - 1}, {"size": MAX_PAGE_BYTES + 1}])
def test_small_huge_and_incomplete_pages_are_not_cached(threads: ThreadPoolExecutor, page: dict[str, Any]) -> None:
    pages = PageCache(threads)
    serve(pages, 0, **page)
    threads.shutdown()
    assert (pages.cached(key(0)), pages.cached(key(10)), pages.size) == (None, None, 0)


def test_failed_read_ahead_leaves_no_page(threads: ThreadPoolExecutor) -> None:
    pages = PageCache(threads)

    def failing(offset: int) -> list[TenRows]:
        raise ValueError(offset)

    pages.serve(key(0), TenRows(0), failing)
    threads.shutdown()
    assert pages.cached(key(10)) is None
    assert pages.cached_or_loading(key(10)) is None


def test_request_does_not_wait_for_read_that_has_not_begun() -> None:
    with ThreadPoolExecutor(1) as threads:
        gate = threading.Event()
        threads.submit(gate.wait)
        pages = PageCache(threads)
        serve(pages, 0)
        assert pages.cached(key(10)) is None
        assert pages.cached_or_loading(key(10)) is None
        gate.set()


def test_cached_bytes_and_reads_ahead_are_bounded(threads: ThreadPoolExecutor) -> None:
    pages = PageCache(threads)
    for number in range(3 * MAX_CACHED_PAGES):
        serve(pages, 1000 * number)
        assert pages.size <= (MAX_CACHED_PAGES + MAX_READS_AHEAD) * MIN_PAGE_BYTES
    for number in range(5):
        serve(pages, 7 + 1000 * number, size=MAX_PAGE_BYTES)
        assert pages.size <= CACHE_BYTES


def test_cache_is_emptied_when_idle(threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IDLE_TIMEOUT_S", 0.01)

    async def run() -> int:
        pages = PageCache(threads)
        serve(pages, 0)
        assert pages.size
        clearing = asyncio.create_task(pages.clear_when_idle())
        until = asyncio.get_running_loop().time() + 20
        while pages.size and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.01)
        clearing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await clearing
        return pages.size

    assert asyncio.run(run()) == 0
