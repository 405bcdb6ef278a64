"""Pages that are kept, and those that are read before anybody asks."""

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
from penstock.server import pages_ahead
from penstock.server.pages_ahead import LARGEST, LEAST, MOST_AHEAD, MOST_KEPT, PAGES_AHEAD, PagesAhead

TOPIC: Any = object()


@dataclass
class Ten:
    """Ten rows."""

    begin: int
    size: int = LEAST
    is_full: bool = True
    gaps: list[Gap] = field(default_factory=list)

    @property
    def next(self) -> int:
        return self.begin + 10


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def place(offset: int, kind: str = "k") -> tuple[Any, int, str]:
    return TOPIC, offset, kind


def served(pages: PagesAhead, begin: int, **page: Any) -> None:
    pages.served(place(begin), Ten(begin, **page), lambda offset: [Ten(offset)])


def test_pages_behind_the_one_that_was_asked_for_are_there_when_they_are_asked_for(threads: ThreadPoolExecutor) -> None:
    pages = PagesAhead(threads)
    served(pages, 0)
    for number in range(1, PAGES_AHEAD + 1):
        assert pages.taken(place(10 * number)) == Ten(10 * number)
    threads.shutdown()
    assert pages.ready(place(10)) == Ten(10)
    assert pages.ready(place(10 * PAGES_AHEAD + 10)) is None


def test_pages_that_are_read_at_once_are_each_kept_at_their_own_place(threads: ThreadPoolExecutor) -> None:
    pages, read = PagesAhead(threads), list[int]()

    def four(offset: int) -> list[Ten]:
        read.append(offset)
        return [Ten(offset + 10 * number) for number in range(4)]

    pages.served(place(0), Ten(0), four)
    for offset in range(10, 50, 10):
        until = time.monotonic() + 20
        while pages.ready(place(offset)) is None and time.monotonic() < until:
            time.sleep(0.001)
        assert pages.ready(place(offset)) == Ten(offset)
        pages.served(place(offset), Ten(offset), four)
    threads.shutdown()
    assert read == [10, 50]


def test_a_page_of_another_kind_is_another_page(threads: ThreadPoolExecutor) -> None:
    pages = PagesAhead(threads)
    served(pages, 0)
    assert pages.taken(place(0, "other")) is None
    assert pages.taken(place(0)) == Ten(0)


@pytest.mark.parametrize("page", [{"is_full": False}, {"size": LEAST - 1}, {"size": LARGEST + 1}])
def test_neither_a_topics_end_nor_a_page_that_is_small_or_huge_is_kept_or_read_ahead_of(
    threads: ThreadPoolExecutor, page: dict[str, Any]
) -> None:
    pages = PagesAhead(threads)
    served(pages, 0, **page)
    threads.shutdown()
    assert (pages.ready(place(0)), pages.ready(place(10)), pages.size) == (None, None, 0)


def test_a_page_that_fails_is_read_by_the_one_who_asks_for_it(threads: ThreadPoolExecutor) -> None:
    pages = PagesAhead(threads)

    def failing(offset: int) -> list[Ten]:
        raise ValueError(offset)

    pages.served(place(0), Ten(0), failing)
    threads.shutdown()
    assert pages.ready(place(10)) is None
    assert pages.taken(place(10)) is None


def test_what_is_not_begun_yet_is_not_waited_for() -> None:
    with ThreadPoolExecutor(1) as threads:
        gate = threading.Event()
        threads.submit(gate.wait)
        pages = PagesAhead(threads)
        served(pages, 0)
        assert pages.ready(place(10)) is None
        assert pages.taken(place(10)) is None
        gate.set()


def test_what_is_kept_and_what_is_read_at_once_is_bounded(threads: ThreadPoolExecutor) -> None:
    pages = PagesAhead(threads)
    for number in range(3 * MOST_KEPT):
        served(pages, 1000 * number)
        assert pages.size <= (MOST_KEPT + MOST_AHEAD) * LEAST
    for number in range(5):
        served(pages, 7 + 1000 * number, size=pages_ahead.LARGEST)
        assert pages.size <= pages_ahead.KEPT


def test_when_nobody_asks_for_a_while_nothing_is_kept(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_ahead, "IDLE", 0.01)

    async def run() -> int:
        pages = PagesAhead(threads)
        served(pages, 0)
        assert pages.size
        forgetting = asyncio.create_task(pages.forget_when_idle())
        until = asyncio.get_running_loop().time() + 20
        while pages.size and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.01)
        forgetting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await forgetting
        return pages.size

    assert asyncio.run(run()) == 0
