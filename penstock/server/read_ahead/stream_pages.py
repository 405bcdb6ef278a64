"""Pages of streams that follow the end of a topic: read once for all streams at an offset, or taken from memory.

Both caches live on one event loop and hold nothing of topics that no stream follows, apart from a few recent pages.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from penstock.log import StoredBatch, Topic
from penstock.server.read_ahead.limits import (
    MAX_NEWEST_BATCH_BYTES,
    MAX_NEWEST_BATCHES,
    MAX_STREAM_PAGE_BYTES,
    MAX_STREAM_PAGES,
)

T = TypeVar("T")
StreamPage = tuple[int, T | None]
"""The offset at which the next page begins, and the encoded page; None if there are no new entries."""
ReadStreamPage = Callable[[], Awaitable[StreamPage[T]]]
StreamKey = tuple[Topic, int, int, Hashable]
"""Topic, offset, maximum entries of a page, and its encoding."""


class SharedPages:
    """Pages that several streams at the same offset share. Lives on one event loop."""

    def __init__(self) -> None:
        self._pages: OrderedDict[StreamKey, asyncio.Future[StreamPage[Any]]] = OrderedDict()

    async def page(self, key: StreamKey, read: ReadStreamPage[T]) -> StreamPage[T]:
        """Return the page that ``read`` returns now or returned a moment ago, which may lack the newest entries.

        Raises what ``read`` raises.
        """
        pending = self._pages.get(key)
        if pending is not None:
            # Shielded: a stream that ends must not cancel the read for the others.
            shared: StreamPage[T] = await asyncio.shield(pending)
            if shared[1] is not None:
                return shared
            # An empty page was read before the batch that has woken this stream was stored: read again.
        reading = self._pages[key] = asyncio.ensure_future(read())
        reading.add_done_callback(lambda finished: self._settle(key, finished))
        return await asyncio.shield(reading)

    def _settle(self, key: StreamKey, finished: asyncio.Future[StreamPage[Any]]) -> None:
        """Keep a page with entries for other streams, within the limits."""
        answer = None if finished.cancelled() or finished.exception() else finished.result()[1]
        is_shareable = answer is not None and len(answer) <= MAX_STREAM_PAGE_BYTES
        if not is_shareable and self._pages.get(key) is finished:
            del self._pages[key]
        while len(self._pages) > MAX_STREAM_PAGES:
            self._pages.popitem(last=False)


class NewestBatches:
    """The newest small batches of one topic. ``add`` is called on the committing threads, one at a time."""

    def __init__(self) -> None:
        self._batches: deque[StoredBatch] = deque(maxlen=MAX_NEWEST_BATCHES)

    def add(self, stored: StoredBatch) -> None:
        """Keep a batch that was just stored, unless it is large."""
        if stored.size <= MAX_NEWEST_BATCH_BYTES:
            self._batches.append(stored)

    def following(self, offset: int) -> list[pa.RecordBatch]:
        """Return batches that continue at ``offset`` without a break; none if the first of them is not kept."""
        batches = []
        # `list` copies in one step; iterating would fail when a committer adds a batch.
        for stored in list(self._batches):
            if stored.base == offset:
                batches.append(stored.batch)
                offset = stored.end
        return batches


class FollowedTopics:
    """Newest batches of each topic that at least one stream follows. Lives on one event loop."""

    def __init__(self) -> None:
        self._newest: dict[Topic, NewestBatches] = {}
        self._followers: Counter[Topic] = Counter()

    @contextlib.contextmanager
    def follow(self, topic: Topic) -> Iterator[NewestBatches]:
        """Collect the topic's newest batches from now on, as long as a stream follows it."""
        if topic not in self._newest:
            self._newest[topic] = NewestBatches()
            topic.subscribe(self._newest[topic].add)
        self._followers[topic] += 1
        try:
            yield self._newest[topic]
        finally:
            self._followers[topic] -= 1
            if not self._followers[topic]:
                del self._followers[topic]
                topic.unsubscribe(self._newest.pop(topic).add)
