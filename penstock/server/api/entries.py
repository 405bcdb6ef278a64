"""Entries: append, get, search and follow, for every protocol. Batches in, batches out, typed errors.

Reads run on their own threads, so that a slow disk stops neither appends nor other readers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from penstock.counts import BucketClock
from penstock.files.change_log import ChangeLog
from penstock.handover.disk_id import OwnDisk, hop_of
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
from penstock.slogd.errors import ApiError, BadRequest, Stopping, Unavailable

READ_THREADS = 8
INLINE_SIZE = 16 << 10
"""Fast path: requests up to this many bytes are parsed on the event loop, which is faster than a hand-off."""
PROGRESS_INTERVAL_S = 1.0
"""Interval at which a filtered stream without matches reports the offset it has reached."""

# Clients show the text of an error that is UNAVAILABLE only if it begins with "The server".
_NO_DISK_ID = (
    "The server could not read or write relays/disk.json in its data directory when it started, so it cannot know "
    "whether relays form a circle; relayed entries wait until that file can be written and it is restarted"
)
_SAME_DISK_ID = (
    "or, if one of the two machines was made from an image or a copy of the other, both have the same id: remove "
    "relays/disk.json in the data directory of the copy and restart it"
)
T = TypeVar("T")
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Accepted:
    """Answer to an append: the offsets, and the durability: ``synced``, ``written`` or ``staged``.

    ``stored_now``: by this request, and not before under its producer's number.
    """

    offsets: range
    durability: str
    stored_now: bool = False


class EntriesApi:
    """Core shared by the servers of one daemon. Lives on one event loop; ``close`` ends its streams."""

    def __init__(
        self,
        log: Log,
        guard: TokenAuthenticator | None = None,
        post: Post | None = None,
        changes: ChangeLog | None = None,
        clock: BucketClock | None = None,
        disk: OwnDisk | None = None,
    ) -> None:
        """``disk`` has the id of the data directory, which recognises entries that were relayed from it; without one
        relayed entries are refused.
        """
        self.topics = PermittedTopics(log, clock)
        self.topics.on_deleted = self._wake_streams_of
        self.guard = guard or TokenAuthenticator()
        self.guard.on_change = self._wake_all
        self.manage = AdminApi(self.topics, post, changes)
        self.refused_batches: Counter[str] = Counter()
        """Batches of Kafka's producers that were refused, by the name of the error."""
        self.threads = ThreadPoolExecutor(READ_THREADS, "penstock-read")
        self.page_cache = PageCache(self.threads)
        self.pages = EncodedPages(self.topics, self.page_cache)
        self._arrivals: LoopFutures | None = None
        self._shared_pages, self._followed = SharedPages(), FollowedTopics()
        self._wakes: set[Wake] = set()
        self._closed, self._disk = False, disk

    @property
    def open_streams(self) -> int:
        """Return the number of open streams."""
        return len(self._wakes)

    async def parsed(self, parse: Callable[[], Append], size: int) -> Append:
        """Parse a request of ``size`` bytes, on a thread if it is larger than INLINE_SIZE."""
        return await self.run(parse) if size > INLINE_SIZE else parse()

    async def append(self, request: Append, source: str, caller: Principal = ANONYMOUS) -> Accepted:
        """Append and return the offsets once the entries are as durable as the topic requires; create a missing
        topic.

        Entries of a transaction have no offsets yet. ``source`` names the protocol in the balance: ``grpc`` or
        ``http``. Raises BadRequest, NotAllowed, Exhausted, OutOfOrder, NotFound, Aborted.
        """
        return await (await self.start(request, source, caller))

    async def start(self, request: Append, source: str, caller: Principal = ANONYMOUS) -> Awaitable[Accepted]:
        """Hand a request to the log; await the returned object for the answer. Later requests are stored behind it."""
        if self.at_once(request):
            started = self._begin(request, source, caller)
        else:
            started = await self.run(lambda: self._begin(request, source, caller))
        return _now(started) if isinstance(started, Accepted) else self._later(started, request.topic)

    def at_once(self, request: Append) -> bool:
        """Report whether the log accepts the request without waiting for the disk."""
        return not request.transaction_id and self.topics.is_open(request.topic)

    def _begin(self, request: Append, source: str, caller: Principal) -> Accepted | Future[Appended]:
        producer = _producer(request)
        if request.origin is not None:
            caller.check_relay()
            self._check_circle(request.origin.hops, request.topic)
        if request.transaction_id:
            if request.origin is not None:
                raise BadRequest("An append of a transaction has no origin")
            self.topics.stage(request.transaction_id, request.topic, request.body, source, caller, producer)
            return Accepted(range(0), "staged")
        topic = self.topics.writable(request.topic, caller)
        if not request.body.num_rows:
            if producer is not None and request.origin is not None:
                return topic.find_append(producer)
            return Accepted(range(0), "synced" if topic.settings.durability == "synced" else "written")
        return self.topics.append(topic, request.body, source, producer, request.origin)

    def _check_circle(self, hops: Sequence[str], topic: str) -> None:
        """Raise BadRequest if relayed entries were in the topic before: they would circulate without end.

        Raises Unavailable if that cannot be known.
        """
        if not hops:
            return
        if not (disk_id := self._disk.id if self._disk else ""):
            raise Unavailable(_NO_DISK_ID)
        if (own := hop_of(disk_id, topic)) not in hops:
            return
        others = len(hops) - 1 - hops.index(own)
        if not others:
            raise BadRequest(
                f"relay.to is the Penstock that relays, and topic {topic} would be copied into itself: "
                f"set relay.to to another one, or relay.to_topic to another topic; {_SAME_DISK_ID}"
            )
        raise BadRequest(
            f"The entries come from topic {topic} of this Penstock, through {others} other: the relays form a circle; "
            f"remove the topic from relay.topic on one of them, or set relay.to_topic; {_SAME_DISK_ID}"
        )

    def hand_over(
        self, request: Append, source: str, caller: Principal, on_outcome: Callable[[Accepted | ApiError], None]
    ) -> None:
        """Append from any thread; ``on_outcome`` runs on the committing thread and must not wait.

        Raises errors that occur before the log has the request. Waits for the disk unless the request is ``at_once``.
        """
        started = self._begin(request, source, caller)
        if isinstance(started, Accepted):
            on_outcome(started)
        else:
            started.add_done_callback(lambda future: on_outcome(_outcome(future, request.topic)))

    async def _later(self, appended: Future[Appended], topic: str) -> Accepted:
        # Created on first use, because it needs the running loop.
        self._arrivals = self._arrivals or LoopFutures(asyncio.get_running_loop())
        try:
            return _accepted(await self._arrivals.wait(appended))
        except LogError as error:
            raise api_error(error, topic) from error

    async def get(self, query: Query, render: Encode[T], caller: Principal = ANONYMOUS) -> T:
        """Return one encoded page: at once if it is cached, else read on a reader thread.

        Raises BadRequest, NotAllowed, NoSuchTopic, Damaged.
        """
        cached_page = self.pages.cached(query, render, caller)
        return cached_page if cached_page is not None else await self.run(lambda: self.pages.get(query, render, caller))

    async def search(self, search: Search, render: Callable[[SearchPage], T], caller: Principal = ANONYMOUS) -> T:
        """Return an encoded page of matching entries. Raises NotAllowed, NoSuchTopic, BadRequest, Damaged."""

        def read() -> T:
            topic = self.topics.readable(search.topic, caller)
            search.filter  # noqa: B018 - a bad one is refused, whatever the topic has
            with self.topics.reader(topic) as reader:
                return render(search_page(topic, reader, search))

        return await self.run(read)

    async def follow(self, query: Query, render: Encode[T], caller: Principal = ANONYMOUS) -> AsyncGenerator[T]:
        """Return pages from the requested start on, then of new entries, until the caller leaves or the server
        stops.

        The start is fixed when this returns: entries appended later are included, also when starting at the end. With
        a filter there are also pages without entries, which report progress. Raises as ``get``; the pages raise
        Damaged, Stopping, NoSuchTopic when the topic is deleted, Unauthenticated when the token is revoked, NotAllowed
        when the right is removed. The caller must close the pages.
        """

        def begin() -> tuple[Topic, TopicReader, int]:
            topic = self.topics.readable(query.topic, caller)
            query.filter  # noqa: B018 - a bad one is refused before anything is sent
            reader = topic.reader()
            return topic, reader, start_of(query, topic, reader)

        # On a thread: opening a topic and finding the start may wait for the disk.
        topic, reader, offset = await self.run(begin)
        return self._pages(topic, reader, offset, query, render, caller)

    async def _pages(
        self, topic: Topic, reader: TopicReader, offset: int, query: Query, render: Encode[T], caller: Principal
    ) -> AsyncGenerator[T]:
        def render_page(batches: list[pa.RecordBatch], following: int) -> T:
            return render(batches, following if query.filter_text else 0)

        def answered(page: Page) -> tuple[int, T | None]:
            return page.next, render_page(page.batches, page.next) if page.batches else None

        def from_files() -> tuple[int, T | None]:
            return answered(read_page(topic, reader, offset, query.page, DEFAULT_BUDGET, query))

        async def read() -> tuple[int, T | None]:
            batches = newest.following(offset) if not query.filter_text else []
            return answered(page_of(batches, offset, query)) if batches else await self.run(from_files)

        loop = asyncio.get_running_loop()
        reported_offset, next_report = offset, loop.time() + PROGRESS_INTERVAL_S
        with self._followed.follow(topic) as newest, self.waking([topic]) as wake:
            while not self._closed:
                # Order: cleared before reading, so that a batch stored from here on is either read or wakes the stream
                # again.
                wake.clear()
                _check_there(topic)
                self.topics.check_read(topic.name, self.guard.current(caller))
                previous_offset, answer = offset, None
                end = topic.writer.end
                if end is None or end > offset:
                    offset, answer = await self._page(topic, offset, query, render, read)
                has_progress = bool(query.filter_text) and reported_offset < offset
                if answer is None and offset == previous_offset:
                    await wake.wait_until(next_report if has_progress else math.inf)
                if answer is None and has_progress and loop.time() >= next_report:
                    answer = render_page([], offset)
                if answer is not None:
                    # Checked again: the right may have been removed while the page was read.
                    self.topics.check_read(topic.name, self.guard.current(caller))
                    yield answer
                    reported_offset, next_report = offset, loop.time() + PROGRESS_INTERVAL_S
            raise Stopping("The server is stopping")

    async def _page(
        self, topic: Topic, offset: int, query: Query, render: Encode[T], read: ReadStreamPage[T]
    ) -> tuple[int, T | None]:
        """Return the page of ``read``; unfiltered pages are shared with the other streams at the same offset."""
        if not query.filter_text and query.micros is None:
            return await self._shared_pages.page((topic, offset, query.page, render), read)
        return await read()

    @contextlib.contextmanager
    def waking(self, topics: Collection[Topic]) -> Iterator[Wake]:
        """Provide a Wake for stored batches or deletion of ``topics``, and for the end of the server."""
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
        """Report whether the streams have been ended."""
        return self._closed

    async def names(self, caller: Principal = ANONYMOUS) -> list[str]:
        """Return the sorted names of all readable topics except internal ones."""
        return await self.run(lambda: self.topics.names(caller))

    def _wake_streams_of(self, topic: str) -> None:
        """Wake the streams of a deleted topic. Thread-safe."""
        # Thread: copied, because the event loop adds and removes streams at the same time.
        for wake in list(self._wakes):
            if topic in wake.topics:
                wake.on_stored()

    def close(self) -> None:
        """End all streams; other requests continue. On the event loop; idempotent."""
        # Order: the flag first, so that each stream that wakes sees it.
        self._closed = True
        for wake in list(self._wakes):
            wake.set()

    def _wake_all(self) -> None:
        """Wake all streams to check their callers' rights. Thread-safe."""
        for wake in list(self._wakes):
            wake.on_stored()

    def release(self) -> None:
        """Stop the reader threads once no request is open."""
        # Not waited for: a thread may still read from a slow disk.
        self.threads.shutdown(wait=False)

    async def run(self, call: Callable[[], T]) -> T:
        """Run ``call``, which may wait for the disk, on a reader thread."""
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


def _accepted(appended: Appended) -> Accepted:
    offsets = range(appended.first, appended.first + appended.count)
    return Accepted(offsets, appended.durability, stored_now=bool(offsets) and not appended.is_repeated)


def _outcome(future: Future[Appended], topic: str) -> Accepted | ApiError:
    error = future.exception()
    if error is None:
        return _accepted(future.result())
    if isinstance(error, LogError):
        return api_error(error, topic)
    _LOGGER.error("an append failed", exc_info=error)
    return ApiError("Internal error")


async def _now(accepted: Accepted) -> Accepted:
    return accepted
