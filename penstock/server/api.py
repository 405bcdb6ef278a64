"""The core behind gRPC and HTTP: append, get, stream, list. Batches in, batches out, typed errors.

Reads run on threads of their own, so that a slow disk stops neither appends nor other readers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

from penstock.counts import BucketClock, Counts, Name, Origin
from penstock.log import (
    InvalidTopicName,
    Log,
    LogClosed,
    LogError,
    LogFull,
    MessageTooLarge,
    Stored,
    TooManyTopics,
    Topic,
    TopicReader,
    UnknownTopic,
)
from penstock.server.errors import ApiError, BadRequest, Exhausted, NoSuchTopic, NotAllowed, Stopping
from penstock.server.pages import DEFAULT_BUDGET, LARGE_BUDGET, Page, read_page, since, start_of
from penstock.server.query import Query

_NAME = re.compile(r"[a-z0-9_\-.]+")
_BAD_NAME = r"Topic must conform to pattern [a-z0-9_\-.]+"
READ_THREADS = 8
INLINE_SIZE = 16 << 10
"""Requests up to this size (bytes) are parsed on the event loop: faster than to hand them to a thread."""

T = TypeVar("T")
Render = Callable[[list[pa.RecordBatch]], T]


class Api:
    """What the servers of one daemon share. Lives on one event loop; ``close`` ends its streams."""

    def __init__(self, log: Log, *, clock: BucketClock | None = None) -> None:
        self._log = log
        self._clock = clock or BucketClock()
        self._threads = ThreadPoolExecutor(READ_THREADS, "penstock-read")
        self._topics: dict[str, Topic] = {}
        self._wakes: set[_Wake] = set()
        self._closed = False

    @property
    def open_streams(self) -> int:
        """How many streams are being served."""
        return len(self._wakes)

    async def append(self, name: str, parse: Callable[[], pa.RecordBatch], size: int, source: str) -> range:
        """The offsets of the rows that ``parse`` gives (schema BODY), once they are synced; creates the topic.

        ``parse`` runs on a reader thread where the request has more than a few KiB (``size``, bytes). ``source``
        names the door in the balance: ``grpc`` or ``http``. Raises BadRequest, NotAllowed, Exhausted.
        """
        bucket, now = self._clock.stamp()
        body = await self._run(parse) if size > INLINE_SIZE else parse()
        topic = await self._writable(name)
        if not body.num_rows:
            return range(0)
        origin = Origin(source, bucket, now, now, counts=Counts({Name.ACCEPTED: body.num_rows}))
        try:
            # Shielded: a caller who leaves must not cancel what the log has already taken.
            appended = await asyncio.shield(asyncio.wrap_future(topic.append(body, origin)))
        except LogError as error:
            raise _answer(error) from error
        return range(appended.first, appended.first + appended.count)

    async def get(self, query: Query, render: Render[T]) -> T:
        """One page of SCHEMA batches as ``render`` makes it, on a reader thread.

        Raises BadRequest, NoSuchTopic, Damaged.
        """
        topic = await self._readable(query.topic)
        return await self._run(lambda: render(_get(topic, query)))

    async def follow(self, query: Query, render: Render[T]) -> AsyncGenerator[T]:
        """Pages from the start asked for, then what is appended, until the caller leaves or the server stops.

        Where to start is settled when this returns: what is appended from then on is seen, also from the end on.
        Raises as ``get``; the pages raise Damaged and Stopping. Close them.
        """
        topic = await self._readable(query.topic)
        reader = await self._run(topic.reader)
        offset = await self._run(lambda: start_of(query, reader))
        return self._pages(topic, reader, offset, query, render)

    async def _pages(
        self, topic: Topic, reader: TopicReader, offset: int, query: Query, render: Render[T]
    ) -> AsyncGenerator[T]:
        wake = _Wake(asyncio.get_running_loop())
        self._wakes.add(wake)
        topic.subscribe(wake.on_stored)
        try:
            while not self._closed:
                # Cleared before reading: what is stored from here on is either read or wakes us again.
                wake.clear()
                page = await self._run(functools.partial(read_page, topic, reader, offset, query.page, DEFAULT_BUDGET))
                offset = page.next
                if batches := _wanted(page, query):
                    yield await self._run(functools.partial(render, batches))
                elif not page.rows:
                    await wake.wait()
            raise Stopping("The server is stopping")
        finally:
            topic.unsubscribe(wake.on_stored)
            self._wakes.discard(wake)

    async def topics(self) -> list[str]:
        """The names of all topics but internal ones, sorted."""
        return await self._run(self._log.names)

    def close(self) -> None:
        """End all streams; other requests go on. On the event loop; idempotent."""
        self._closed = True
        for wake in list(self._wakes):
            wake.set()

    def release(self) -> None:
        """Let the reader threads go, once no request is left."""
        self._threads.shutdown(wait=False)

    async def _writable(self, name: str) -> Topic:
        _check_name(name)
        if name.startswith("_"):
            raise NotAllowed(f"Topic is internal: {name}")
        return await self._topic(name, create=True)

    async def _readable(self, name: str) -> Topic:
        _check_name(name)
        return await self._topic(name, internal=True)

    async def _topic(self, name: str, *, create: bool = False, internal: bool = False) -> Topic:
        """The topic; opened on a reader thread the first time, as that may mean to create or recover it."""
        topic = self._topics.get(name)
        if topic is None:
            try:
                topic = await self._run(lambda: self._log.topic(name, create=create, internal=internal))
            except UnknownTopic:
                raise NoSuchTopic(f"Topic does not exist: {name}") from None
            except LogError as error:
                raise _answer(error) from error
            self._topics[name] = topic
        return topic

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise BadRequest(_BAD_NAME)


def _answer(error: LogError) -> ApiError:
    """The answer to a request on which the log raised ``error``."""
    if isinstance(error, InvalidTopicName):
        return BadRequest(_BAD_NAME)
    return _ANSWERS.get(type(error), ApiError)(str(error))


_ANSWERS: dict[type[LogError], type[ApiError]] = {
    MessageTooLarge: BadRequest,
    LogFull: Exhausted,
    TooManyTopics: Exhausted,
    LogClosed: Stopping,
}


def _get(topic: Topic, query: Query) -> list[pa.RecordBatch]:
    if query.latest and not query.max_messages:
        return []
    reader = topic.reader()
    budget = LARGE_BUDGET if query.max_messages else DEFAULT_BUDGET
    return read_page(topic, reader, start_of(query, reader), query.page, budget).batches


def _wanted(page: Page, query: Query) -> list[pa.RecordBatch]:
    # A start in the future is passed over until it comes.
    return since(page.batches, query.micros) if query.micros is not None else page.batches


class _Wake:
    """Wakes a stream from the log's threads; one call to the loop however many batches are stored meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()
        self.clear, self.wait, self.set = self._event.clear, self._event.wait, self._event.set

    def on_stored(self, _: Stored) -> None:
        """Called by the log after each synced commit; never blocks."""
        if not self._event.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._event.set)
