"""Topics as callers may use them: checks names and rights, and raises errors that the API can answer.

Invariant: every protocol gets its topics here, so that no request reaches a topic without a check of rights.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace

from penstock.counts import BucketClock, Name, Origin
from penstock.log import (
    Appended,
    CorruptBatch,
    ForeignTransaction,
    InvalidSetting,
    InvalidTopicName,
    Log,
    LogClosed,
    LogError,
    LogFull,
    MessageTooLarge,
    OutcomeInDoubt,
    OutOfSequence,
    ProducerSequence,
    StoredAlready,
    TooManyTopics,
    Topic,
    TopicExists,
    TopicReader,
    TransactionTimedOut,
    UnknownFormat,
    UnknownTopic,
    UnknownTransaction,
)
from penstock.records import Body, as_batch
from penstock.server.auth.rights import Principal
from penstock.slogd.errors import (
    Aborted,
    AlreadyExists,
    ApiError,
    BadRequest,
    Damaged,
    Exhausted,
    InDoubt,
    NoSuchTopic,
    NotAllowed,
    NotFound,
    OutOfOrder,
    Stopping,
)

_NAME = re.compile(r"[a-z0-9_\-.]+")
MAX_IDLE_READERS, MAX_IDLE_READERS_PER_TOPIC = 16, 3
"""Limit: open readers kept for later requests. Each keeps a segment mapped, also one that retention has deleted."""
_BAD_NAME = r"Topic must conform to pattern [a-z0-9_\-.]+"


class PermittedTopics:
    """Topics of the daemon, shared by all protocols. Thread-safe."""

    def __init__(self, log: Log, clock: BucketClock | None = None) -> None:
        self.log = log
        self._clock = clock or BucketClock()
        self._lock = threading.Lock()
        self._open: dict[str, Topic] = {}
        self._idle_readers: list[tuple[Topic, TopicReader]] = []
        self.on_deleted: Callable[[str], None] = lambda _: None
        """Called with the name of each deleted topic, on any thread."""

    def is_open(self, name: str) -> bool:
        """Report whether the topic is open, so that looking it up does not wait for the disk."""
        return name in self._open

    def readable(self, name: str, caller: Principal) -> Topic:
        """Return a topic to read. Raises BadRequest, NotAllowed, NoSuchTopic."""
        check_name(name)
        self.check_read(name, caller)
        return self._topic(name, internal=True)

    def check_read(self, name: str, caller: Principal) -> None:
        """Raise NotAllowed unless the caller may read the topic."""
        caller.check_read(name, self.log.settings(name))

    def writable(self, name: str, caller: Principal) -> Topic:
        """Return a topic to append to; create it if missing. Raises BadRequest, NotAllowed, Exhausted."""
        self.check_write(name, caller)
        return self._topic(name, create=True)

    def check_write(self, name: str, caller: Principal) -> None:
        """Raise BadRequest for a bad name, NotAllowed unless the caller may write the topic."""
        if name not in self._open:
            check_name(name)
        # Internal topics are written only by the daemon itself; a forged entry would change the balance.
        if name[:1] == "_":
            raise NotAllowed(f"Topic is internal: {name}")
        caller.check_write(name, self.log.settings(name))

    def _topic(self, name: str, *, create: bool = False, internal: bool = False) -> Topic:
        topic = self._open.get(name)
        if topic is None:
            try:
                topic = self._open[name] = self.log.topic(name, create=create, internal=internal)
            except LogError as error:
                raise api_error(error, name) from error
            # Deleted since it was opened: the next request opens the new topic of that name.
            if topic.closed:
                self._open.pop(name, None)
        return topic

    def forget(self, name: str) -> None:
        """Drop everything that is cached of a deleted topic."""
        self._open.pop(name, None)
        with self._lock:
            self._idle_readers = [entry for entry in self._idle_readers if entry[0].name != name]
        self.on_deleted(name)

    @contextlib.contextmanager
    def reader(self, topic: Topic) -> Iterator[TopicReader]:
        """Lend a reader of the topic to one thread."""
        # Fast path: an idle reader is reused, because opening one costs as much as reading a page.
        reader = self._take_idle_reader(topic) or topic.reader()
        # Not in a ``finally``: a reader that failed is not reused.
        yield reader
        if not topic.closed:
            self._return_reader(topic, reader)

    def _return_reader(self, topic: Topic, reader: TopicReader) -> None:
        with self._lock:
            # Limit: the least recently used reader is evicted. An unused one would keep deleted segments mapped.
            self._idle_readers.append((topic, reader))
            idle = [entry for entry in self._idle_readers if entry[0] is topic]
            if len(idle) > MAX_IDLE_READERS_PER_TOPIC:
                self._idle_readers.remove(idle[0])
            del self._idle_readers[:-MAX_IDLE_READERS]

    def _take_idle_reader(self, topic: Topic) -> TopicReader | None:
        with self._lock:
            for index, (owner, _) in enumerate(self._idle_readers):
                if owner is topic:
                    return self._idle_readers.pop(index)[1]
        return None

    def names(self, caller: Principal) -> list[str]:
        """Return the sorted names of all topics that the caller may read, except internal ones."""
        return [name for name in self.log.names() if caller.reads(name, self.log.settings(name))]

    def all_readable(self, caller: Principal) -> list[Topic]:
        """Return all topics that the caller may read, except internal ones and topics that cannot be opened."""
        topics = []
        for name in self.names(caller):
            with contextlib.suppress(Damaged, NoSuchTopic):
                topics.append(self.readable(name, caller))
        return topics

    def append(
        self,
        topic: Topic,
        body: Body,
        source: str,
        producer: ProducerSequence | None = None,
        origin: Origin | None = None,
    ) -> Future[Appended]:
        """Append rows. ``source`` names the protocol in the balance: ``grpc``, ``http`` or ``flight``.

        Relayed rows have the ``origin`` that their host gave them instead.
        """
        if origin is not None:
            # Seen, too: the book of a source that is not an API (seen = accepted + lost) closes on this side.
            counts: dict[str, int] = {Name.SEEN: body.num_rows, Name.ACCEPTED: body.num_rows}
            return topic.append(body, replace(origin, counts=counts), producer=producer)
        return topic.append(body, self._origin(body, source), producer=producer)

    def stage(
        self,
        transaction: str,
        name: str,
        body: Body,
        source: str,
        caller: Principal,
        producer: ProducerSequence | None = None,
    ) -> None:
        """Stage rows of a transaction; its commit creates a missing topic.

        Raises NotFound, Aborted, Exhausted, BadRequest, NotAllowed, OutOfOrder.
        """
        self.check_write(name, caller)
        if not body.num_rows:
            return
        try:
            origin = self._origin(body, source)
            self.log.transactions.append(
                transaction, name, as_batch(body), origin, producer=producer, owner=caller.name
            )
        except LogError as error:
            raise api_error(error, name) from error

    def _origin(self, body: Body, source: str) -> Origin:
        with self._lock:
            bucket, now = self._clock.stamp()
        return Origin(source, bucket, now, now, counts={Name.ACCEPTED: body.num_rows})


def check_name(name: str) -> None:
    """Raise BadRequest for an invalid name of a topic."""
    if not _NAME.fullmatch(name):
        raise BadRequest(_BAD_NAME)


def api_error(error: LogError, topic: str = "") -> ApiError:
    """Return the API's error for an error of the log."""
    if isinstance(error, UnknownTopic):
        return NoSuchTopic(f"Topic does not exist: {topic}")
    if isinstance(error, InvalidTopicName):
        return BadRequest(_BAD_NAME)
    if isinstance(error, OutcomeInDoubt):
        # Clients show the text of an error that is UNAVAILABLE only if it begins with "The server".
        return InDoubt(f"The server {error}")
    return _ANSWERS.get(type(error), ApiError)(str(error))


_ANSWERS: dict[type[LogError], type[ApiError]] = {
    InvalidSetting: BadRequest,
    MessageTooLarge: BadRequest,
    OutOfSequence: OutOfOrder,
    StoredAlready: AlreadyExists,
    TopicExists: AlreadyExists,
    ForeignTransaction: NotAllowed,
    TransactionTimedOut: Aborted,
    UnknownTransaction: NotFound,
    LogFull: Exhausted,
    UnknownFormat: Damaged,
    CorruptBatch: Damaged,
    TooManyTopics: Exhausted,
    LogClosed: Stopping,
}
