"""The topics of the daemon as callers may see them: names checked, rights checked, errors as the API answers them."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

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
    OutOfSequence,
    ProducerSequence,
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
    NoSuchTopic,
    NotAllowed,
    NotFound,
    OutOfOrder,
    Stopping,
)

_NAME = re.compile(r"[a-z0-9_\-.]+")
KEPT_READERS, KEPT_OF_A_TOPIC = 16, 3
_BAD_NAME = r"Topic must conform to pattern [a-z0-9_\-.]+"


class PermittedTopics:
    """What gRPC, HTTP and Flight share. All methods may be called from any thread."""

    def __init__(self, log: Log, clock: BucketClock | None = None) -> None:
        self.log = log
        self._clock = clock or BucketClock()
        self._lock = threading.Lock()
        self._open: dict[str, Topic] = {}
        self._readers: list[tuple[Topic, TopicReader]] = []
        self.gone: Callable[[str], None] = lambda _: None
        """Told of each topic that was deleted, on any thread."""

    def known(self, name: str) -> bool:
        """Whether the topic is open, so that to look it up takes no time."""
        return name in self._open

    def readable(self, name: str, caller: Principal) -> Topic:
        """The topic, to read. Raises BadRequest, NotAllowed, NoSuchTopic."""
        check_name(name)
        self.check_read(name, caller)
        return self._topic(name, internal=True)

    def check_read(self, name: str, caller: Principal) -> None:
        """Raises NotAllowed."""
        caller.check_read(name, self.log.settings(name))

    def writable(self, name: str, caller: Principal) -> Topic:
        """The topic, to append to; created when there is none. Raises BadRequest, NotAllowed, Exhausted."""
        self.check_write(name, caller)
        return self._topic(name, create=True)

    def check_write(self, name: str, caller: Principal) -> None:
        """Raises BadRequest, NotAllowed."""
        if name not in self._open:
            check_name(name)
        if name[:1] == "_":
            raise NotAllowed(f"Topic is internal: {name}")
        caller.check_write(name, self.log.settings(name))

    def _topic(self, name: str, *, create: bool = False, internal: bool = False) -> Topic:
        topic = self._open.get(name)
        if topic is None:
            try:
                topic = self._open[name] = self.log.topic(name, create=create, internal=internal)
            except LogError as error:
                raise answer(error, name) from error
            if topic.closed:  # deleted just now: the next one who asks gets the new one
                self._open.pop(name, None)
        return topic

    def forget(self, name: str) -> None:
        """The topic was deleted."""
        self._open.pop(name, None)
        with self._lock:
            self._readers = [kept for kept in self._readers if kept[0].name != name]
        self.gone(name)

    @contextlib.contextmanager
    def reader(self, topic: Topic) -> Iterator[TopicReader]:
        """A reader of the topic, for one thread; a few are kept, as to open one costs as much as to read a page."""
        reader = self._kept_reader(topic) or topic.reader()
        yield reader
        if not topic.closed:
            self._keep(topic, reader)

    def _keep(self, topic: Topic, reader: TopicReader) -> None:
        """Few of a topic, used in turn: a reader that nobody uses keeps mapped what is deleted meanwhile."""
        with self._lock:
            self._readers.append((topic, reader))
            same = [kept for kept in self._readers if kept[0] is topic]
            if len(same) > KEPT_OF_A_TOPIC:
                self._readers.remove(same[0])
            del self._readers[:-KEPT_READERS]

    def _kept_reader(self, topic: Topic) -> TopicReader | None:
        with self._lock:
            for number, (of, _) in enumerate(self._readers):
                if of is topic:
                    return self._readers.pop(number)[1]
        return None

    def names(self, caller: Principal) -> list[str]:
        """The names of all topics that the caller may read but internal ones, sorted."""
        return [name for name in self.log.names() if caller.reads(name, self.log.settings(name))]

    def all(self, caller: Principal) -> list[Topic]:
        """All topics that the caller may read but internal ones; those that cannot be opened are left out."""
        found = []
        for name in self.names(caller):
            with contextlib.suppress(Damaged, NoSuchTopic):
                found.append(self.readable(name, caller))
        return found

    def append(
        self, topic: Topic, body: Body, source: str, producer: ProducerSequence | None = None
    ) -> Future[Appended]:
        """Append rows. ``source`` names the door in the balance: ``grpc``, ``http`` or ``flight``."""
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
        """Keep rows aside for a transaction; its topic is created by the commit, when there is none.

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
            raise answer(error, name) from error

    def _origin(self, body: Body, source: str) -> Origin:
        with self._lock:
            bucket, now = self._clock.stamp()
        return Origin(source, bucket, now, now, counts={Name.ACCEPTED: body.num_rows})


def check_name(name: str) -> None:
    """Raises BadRequest for what cannot be a topic's name."""
    if not _NAME.fullmatch(name):
        raise BadRequest(_BAD_NAME)


def answer(error: LogError, topic: str = "") -> ApiError:
    """The answer to a request on which the log raised ``error``."""
    if isinstance(error, UnknownTopic):
        return NoSuchTopic(f"Topic does not exist: {topic}")
    if isinstance(error, InvalidTopicName):
        return BadRequest(_BAD_NAME)
    return _ANSWERS.get(type(error), ApiError)(str(error))


_ANSWERS: dict[type[LogError], type[ApiError]] = {
    InvalidSetting: BadRequest,
    MessageTooLarge: BadRequest,
    OutOfSequence: OutOfOrder,
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
