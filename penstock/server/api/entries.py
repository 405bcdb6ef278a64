"""The core behind gRPC and HTTP: append, get, stream. Batches in, batches out, typed errors.

Reads run on threads of their own, so that a slow disk stops neither appends nor other readers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from penstock.log import Appended, Log, LogError, ProducerSequence, Topic, TopicReader
from penstock.server.api.administration import AdminApi, Post
from penstock.server.auth.permitted_topics import PermittedTopics, api_error
from penstock.server.auth.rights import ANONYMOUS, Principal, TokenAuthenticator
from penstock.server.event_loop import LoopFutures, Wake
from penstock.server.read_ahead.encoded_pages import Encode, EncodedPages
from penstock.server.read_ahead.page_cache import PageCache
from penstock.server.read_ahead.stream_pages import FollowedTopics, ReadStreamPage, SharedPages
from penstock.server.reading.entry_pages import DEFAULT_BUDGET, Page, page_of, read_page, start_of
from penstock.server.reading.query import Query
from penstock.server.reading.search import Search, SearchPage, search_page
from penstock.slogd.columns.decode import Append
from penstock.slogd.errors import ApiError, BadRequest, Stopping

READ_THREADS = 8
INLINE_SIZE = 16 << 10
"""Requests up to this size (bytes) are parsed on the event loop: faster than to hand them to a thread."""
TELL_EVERY = 1.0
"""Seconds after which a stream says how far it has read, where a filter leaves out all that came."""

T = TypeVar("T")
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to an append: the offsets, and what it promises: ``synced``, ``written`` or ``staged``."""

    offsets: range
    durability: str


class EntriesApi:
    """What the servers of one daemon share. Lives on one event loop; ``close`` ends its streams."""

    def __init__(self, log: Log, guard: TokenAuthenticator | None = None, post: Post | None = None) -> None:
        self.topics = PermittedTopics(log)
        self.topics.gone = self._gone
        self.guard = guard or TokenAuthenticator()
        self.guard.on_change = self._wake_all
        self.manage = AdminApi(self.topics, post)
        self.threads = ThreadPoolExecutor(READ_THREADS, "penstock-read")
        self.page_cache = PageCache(self.threads)
        self.pages = EncodedPages(self.topics, self.page_cache)
        self._arrivals: LoopFutures | None = None
        self._shared_pages, self._followed = SharedPages(), FollowedTopics()
        self._wakes: set[Wake] = set()
        self._closed = False

    @property
    def open_streams(self) -> int:
        """How many streams are being served."""
        return len(self._wakes)

    async def parsed(self, parse: Callable[[], Append], size: int) -> Append:
        """The request that ``parse`` gives, on a thread where it has more than a few KiB (``size``, bytes)."""
        return await self.run(parse) if size > INLINE_SIZE else parse()

    async def append(self, request: Append, source: str, caller: Principal = ANONYMOUS) -> Accepted:
        """The offsets of the request's entries, once they are as durable as the topic says; creates the topic.

        Those of a transaction have none yet. ``source`` names the door in the balance: ``grpc`` or ``http``.
        Raises BadRequest, NotAllowed, Exhausted, OutOfOrder, NotFound, Aborted.
        """
        return await (await self.start(request, source, caller))

    async def start(self, request: Append, source: str, caller: Principal = ANONYMOUS) -> Awaitable[Accepted]:
        """As ``append``, but already when the log has the request: one that is started later comes behind it."""
        if self.at_once(request):
            begun = self._begin(request, source, caller)
        else:
            begun = await self.run(lambda: self._begin(request, source, caller))
        return _now(begun) if isinstance(begun, Accepted) else self._later(begun, request.topic)

    def at_once(self, request: Append) -> bool:
        """Whether the log takes the request without waiting for the disk."""
        return not request.transaction_id and self.topics.known(request.topic)

    def _begin(self, request: Append, source: str, caller: Principal) -> Accepted | Future[Appended]:
        producer = _producer(request)
        if request.transaction_id:
            self.topics.stage(request.transaction_id, request.topic, request.body, source, caller, producer)
            return Accepted(range(0), "staged")
        topic = self.topics.writable(request.topic, caller)
        if not request.body.num_rows:
            return Accepted(range(0), "synced" if topic.settings.durability == "synced" else "written")
        return self.topics.append(topic, request.body, source, producer)

    def hand_over(
        self, request: Append, source: str, caller: Principal, told: Callable[[Accepted | ApiError], None]
    ) -> None:
        """As ``append``, on any thread; ``told`` is called on the thread that commits, and must not wait.

        Raises what ``told`` is not told. It waits for the disk unless the request is ``at_once``.
        """
        begun = self._begin(request, source, caller)
        if isinstance(begun, Accepted):
            told(begun)
        else:
            begun.add_done_callback(lambda done: told(_outcome(done, request.topic)))

    async def _later(self, appended: Future[Appended], topic: str) -> Accepted:
        self._arrivals = self._arrivals or LoopFutures(asyncio.get_running_loop())
        try:
            return _accepted(await self._arrivals.wait(appended))
        except LogError as error:
            raise api_error(error, topic) from error

    async def get(self, query: Query, render: Encode[T], caller: Principal = ANONYMOUS) -> T:
        """One page of SCHEMA batches as ``render`` makes it: at once where it is there, else on a reader thread.

        Raises BadRequest, NotAllowed, NoSuchTopic, Damaged.
        """
        ready = self.pages.cached(query, render, caller)
        return ready if ready is not None else await self.run(lambda: self.pages.get(query, render, caller))

    async def search(self, search: Search, render: Callable[[SearchPage], T], caller: Principal = ANONYMOUS) -> T:
        """A page of what is looked for, as ``render`` makes it. Raises NotAllowed, NoSuchTopic, BadRequest, Damaged."""

        def found() -> T:
            topic = self.topics.readable(search.topic, caller)
            search.filter  # noqa: B018 - a bad one is refused, whatever the topic has
            with self.topics.reader(topic) as reader:
                return render(search_page(topic, reader, search))

        return await self.run(found)

    async def follow(self, query: Query, render: Encode[T], caller: Principal = ANONYMOUS) -> AsyncGenerator[T]:
        """Pages from the start asked for, then what is appended, until the caller leaves or the server stops.

        Where to start is settled when this returns: what is appended from then on is seen, also from the end on.
        With a filter there are also pages without entries, which say how far was read. Raises as ``get``; the pages
        raise Damaged, Stopping, NoSuchTopic when the topic is deleted, Unauthenticated when the caller's token is
        revoked, and NotAllowed when it loses the right. Close them.
        """

        def begin() -> tuple[Topic, TopicReader, int]:
            topic = self.topics.readable(query.topic, caller)
            query.filter  # noqa: B018 - a bad one is refused before anything is sent
            reader = topic.reader()
            return topic, reader, start_of(query, topic, reader)

        topic, reader, offset = await self.run(begin)
        return self._pages(topic, reader, offset, query, render, caller)

    async def _pages(
        self, topic: Topic, reader: TopicReader, offset: int, query: Query, render: Encode[T], caller: Principal
    ) -> AsyncGenerator[T]:
        def shown(batches: list[pa.RecordBatch], following: int) -> T:
            return render(batches, following if query.filter_text else 0)

        def answered(page: Page) -> tuple[int, T | None]:
            return page.next, shown(page.batches, page.next) if page.batches else None

        def from_files() -> tuple[int, T | None]:
            return answered(read_page(topic, reader, offset, query.page, DEFAULT_BUDGET, query))

        async def read() -> tuple[int, T | None]:
            batches = newest.following(offset) if not query.filter_text else []
            return answered(page_of(batches, offset, query)) if batches else await self.run(from_files)

        loop = asyncio.get_running_loop()
        told, due = offset, loop.time() + TELL_EVERY
        with self._followed.follow(topic) as newest, self.waking([topic]) as wake:
            while not self._closed:
                # Cleared before reading: what is stored from here on is either read or wakes us again.
                wake.clear()
                _check_there(topic)
                self.topics.check_read(topic.name, self.guard.current(caller))
                before, rendered = offset, None
                end = topic.writer.end
                if end is None or end > offset:
                    offset, rendered = await self._page(topic, offset, query, render, read)
                untold = bool(query.filter_text) and told < offset
                if rendered is None and offset == before:
                    await wake.wait_until(due if untold else math.inf)
                if rendered is None and untold and loop.time() >= due:
                    rendered = shown([], offset)
                if rendered is not None:
                    # Once more, as the page may have taken a while to make.
                    self.topics.check_read(topic.name, self.guard.current(caller))
                    yield rendered
                    told, due = offset, loop.time() + TELL_EVERY
            raise Stopping("The server is stopping")

    async def _page(
        self, topic: Topic, offset: int, query: Query, render: Encode[T], read: ReadStreamPage[T]
    ) -> tuple[int, T | None]:
        """What ``read`` gives; of all that is stored it is shared with the other streams that stand there."""
        if not query.filter_text and query.micros is None:
            return await self._shared_pages.page((topic, offset, query.page, render), read)
        return await read()

    @contextlib.contextmanager
    def waking(self, topics: Collection[Topic]) -> Iterator[Wake]:
        """What wakes when something is stored in one of ``topics``, one of them is deleted, or the server stops."""
        wake = Wake(asyncio.get_running_loop(), {topic.name for topic in topics})
        self._wakes.add(wake)
        for topic in topics:
            topic.subscribe(wake.on_stored)
        try:
            yield wake
        finally:
            for topic in topics:
                topic.unsubscribe(wake.on_stored)
            self._wakes.discard(wake)

    @property
    def closed(self) -> bool:
        """Whether streams have ended."""
        return self._closed

    async def names(self, caller: Principal = ANONYMOUS) -> list[str]:
        """The names of all topics but internal ones, sorted."""
        return await self.run(lambda: self.topics.names(caller))

    def _gone(self, topic: str) -> None:
        """Wake the streams of a topic that was deleted. On any thread."""
        for wake in list(self._wakes):
            if topic in wake.topics:
                wake.on_stored()

    def close(self) -> None:
        """End all streams; other requests go on. On the event loop; idempotent."""
        self._closed = True
        for wake in list(self._wakes):
            wake.set()

    def _wake_all(self) -> None:
        """Have all streams ask whether their callers may still read. On any thread."""
        for wake in list(self._wakes):
            wake.on_stored()

    def release(self) -> None:
        """Let the reader threads go, once no request is left."""
        self.threads.shutdown(wait=False)

    async def run(self, call: Callable[[], T]) -> T:
        """``call``, which may wait for the disk, on a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, call)


def _check_there(topic: Topic) -> None:
    try:
        topic.check_open()
    except LogError as error:
        raise api_error(error, topic.name) from error


def _producer(request: Append) -> ProducerSequence | None:
    try:
        return ProducerSequence(request.producer_id, request.sequence) if request.producer_id else None
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _accepted(done: Appended) -> Accepted:
    return Accepted(range(done.first, done.first + done.count), done.durability)


def _outcome(done: Future[Appended], topic: str) -> Accepted | ApiError:
    error = done.exception()
    if error is None:
        return _accepted(done.result())
    if isinstance(error, LogError):
        return api_error(error, topic)
    _LOGGER.error("an append failed", exc_info=error)
    return ApiError("Internal error")


async def _now(accepted: Accepted) -> Accepted:
    return accepted
