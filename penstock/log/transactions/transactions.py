"""Transactions over one or several topics: begun, filled, then committed as a whole or not at all."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from penstock import records
from penstock.counts import Origin
from penstock.files.file_system import Clock, FileSystem
from penstock.log.commit.batching import Appended, Prepared, QueuedAppend, resolve
from penstock.log.commit.writer import Writer
from penstock.log.errors import ForeignTransaction, LogFull, TransactionTimedOut, UnknownTransaction
from penstock.log.resources import PRODUCER_MEMORY
from penstock.log.settings import TopicSettings
from penstock.log.store.producers import ProducerSequence
from penstock.log.store.visibility import CommitBarrier
from penstock.log.topic import Topic, exceeded
from penstock.log.transactions import atomic_commit, staging
from penstock.log.transactions.atomic_commit import AtomicCommit
from penstock.log.transactions.staging import Staged

PREFIX = "TRANSACTION-"
"""Of files beside the topics; no topic can have such a name."""
REMEMBERED = 1000
"""Transactions whose end is remembered, for callers that did not hear of it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of transactions and producers: times in seconds, sizes in bytes."""

    timeout: float = 60.0
    max_size: int = 64 << 20
    max_open: int = 1000
    max_open_per_owner: int = 100
    producer_memory: float = PRODUCER_MEMORY


class Topics(Protocol):
    """What transactions need of a log."""

    directory: Path

    def topic(self, name: str, *, create: bool = False) -> Topic: ...

    def settings(self, name: str) -> TopicSettings: ...

    def check_writable(self, name: str) -> None:
        """Raises InvalidTopicName, and TooManyTopics where it does not exist and cannot be made."""


class Transactions:
    """The transactions of a log. All methods may be called from any thread."""

    def __init__(
        self,
        topics: Topics,
        fs: FileSystem,
        clock: Clock,
        barrier: CommitBarrier,
        limits: Limits,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._topics = topics
        self._fs = fs
        self._clock = clock
        self._barrier = barrier
        self.limits = limits
        self._new_id = new_id
        self._folder = topics.directory
        self._lock = threading.Lock()
        self._committing = threading.Lock()
        self._open: dict[str, Staged] = {}
        self._timed_out: OrderedDict[str, None] = OrderedDict()
        self._committed: OrderedDict[str, tuple[str, dict[str, list[Appended]]]] = OrderedDict()

    def recover(self) -> None:
        """Drop what was not committed when the writer died. Before any topic is opened. Raises OSError."""
        for name in sorted(self._fs.names(self._folder)):
            path = self._folder / name
            if name.startswith(PREFIX) and name.endswith(atomic_commit.SUFFIX):
                atomic_commit.undo(self._fs, path, self._topics.directory)
            elif name.startswith(PREFIX) and name.endswith((staging.SUFFIX, ".tmp")):
                self._fs.remove(path)

    def begin(self, timeout: float | None = None, owner: str = "") -> str:
        """A new transaction; aborted by itself after ``timeout`` seconds. Raises LogFull where too many are open.

        It can be filled, committed and aborted by its ``owner`` alone, who may have ``max_open_per_owner``; "" is
        bounded by ``max_open`` alone.
        """
        self.expire()
        seconds = self.limits.timeout if timeout is None else min(timeout, self.limits.timeout)
        with self._lock:
            self._check_room(owner)
            name = self._new_id()
            deadline = self._passed() + round(seconds * 1e6)
            path = self._folder / (PREFIX + name + staging.SUFFIX)
            self._open[name] = Staged(name, path, deadline, self.limits.max_size, owner)
            return name

    def _check_room(self, owner: str) -> None:
        if len(self._open) >= self.limits.max_open:
            raise LogFull(f"transactions.max_open: {len(self._open)} transactions are open already")
        own = sum(staged.owner == owner for staged in self._open.values()) if owner else 0
        if own >= self.limits.max_open_per_owner:
            raise LogFull(f"transactions.max_open_per_token: {own} transactions of {owner} are open already")

    def append(
        self,
        transaction: str,
        topic: str,
        body: pa.RecordBatch,
        origin: Origin,
        producer: ProducerSequence | None = None,
        owner: str = "",
    ) -> None:
        """Put rows (schema BODY) aside for a topic; their offsets are given by ``commit``.

        Raises UnknownTransaction, ForeignTransaction, TransactionTimedOut, InvalidTopicName, TooManyTopics,
        MessageTooLarge, LogFull, WriteFailed, and ValueError for a body of another schema.
        """
        if not body.schema.equals(records.BODY):
            raise ValueError(f"a body has the columns of records.BODY, not {body.schema}")
        self._topics.check_writable(topic)
        if (limit := exceeded(topic, self._topics.settings(topic), body, body.nbytes)) is not None:
            raise limit
        with self._of(transaction, owner) as staged:
            staged.add(self._fs, topic, body, origin, producer)

    def commit(self, transaction: str, owner: str = "") -> dict[str, list[Appended]]:
        """Store everything, in all topics at once: by topic, what became of each append, in their order.

        Committed again, it answers the same. Raises UnknownTransaction, ForeignTransaction, TransactionTimedOut,
        OutOfSequence, LogFull, WriteFailed, TooManyTopics; the transaction then stays open, and nothing is stored.
        """
        with self._lock:
            done = self._committed.get(transaction)
        if done is not None:
            _check_owner(done[0], owner)
            return done[1]
        with self._of(transaction, owner) as staged:
            items = staged.read(self._fs)
            with self._committing:
                self._store(transaction, items)
            answer = {topic: [item.future.result() for item in many] for topic, many in items.items()}
            self._end(staged)
        with self._lock:
            self._committed[transaction] = owner, answer
            if len(self._committed) > REMEMBERED:
                self._committed.popitem(last=False)
        return answer

    def _store(self, transaction: str, items: dict[str, list[QueuedAppend]]) -> None:
        with contextlib.ExitStack() as stack:
            topics = [self._topics.topic(name, create=True) for name in sorted(items)]
            for topic in topics:
                stack.enter_context(topic.writer.lock)
                topic.check_open()
            fresh = {topic.writer: topic.writer.admit(items[topic.name]) for topic in topics}
            intent = self._folder / (PREFIX + transaction + atomic_commit.SUFFIX)
            made = AtomicCommit(self._fs, intent, {w: admitted for w, admitted in fresh.items() if admitted})
            try:
                _answer(made.make(self._barrier))
            finally:
                for topic in topics:
                    topic.announce()

    def _passed(self) -> int:
        """Microseconds by the monotonic clock: time-outs do not go by one that may jump."""
        return round(self._clock.monotonic() * 1e6)

    def abort(self, transaction: str, owner: str = "") -> None:
        """Forget a transaction. Raises UnknownTransaction, ForeignTransaction, TransactionTimedOut."""
        with self._of(transaction, owner) as staged:
            self._end(staged)

    def expire(self) -> None:
        """Abort what is open for too long."""
        now = self._passed()
        with self._lock:
            late = [staged for staged in self._open.values() if staged.deadline < now]
        for staged in late:
            with staged.lock:
                if staged.open:
                    self._time_out(staged)

    def _time_out(self, staged: Staged) -> None:
        self._end(staged)
        with self._lock:
            self._timed_out[staged.id] = None
            if len(self._timed_out) > REMEMBERED:
                self._timed_out.popitem(last=False)

    def _end(self, staged: Staged) -> None:
        with contextlib.suppress(OSError):  # a file that stays is removed at the next start
            staged.drop(self._fs)
        with self._lock:
            self._open.pop(staged.id, None)

    @contextlib.contextmanager
    def _of(self, transaction: str, owner: str) -> Iterator[Staged]:
        """An open transaction, for one caller at a time.

        Raises UnknownTransaction, ForeignTransaction, TransactionTimedOut.
        """
        staged = self._open.get(transaction)
        if staged is None:
            raise self._not_open(transaction)
        _check_owner(staged.owner, owner)
        with staged.lock:
            if not staged.open:
                raise self._not_open(transaction)
            if staged.deadline < self._passed():
                self._time_out(staged)
                raise self._not_open(transaction)
            yield staged

    def _not_open(self, transaction: str) -> UnknownTransaction | TransactionTimedOut:
        if transaction in self._timed_out:
            return TransactionTimedOut(f"transaction {transaction} was open for too long and is aborted")
        return UnknownTransaction(f"there is no open transaction {transaction!r}")

    def close(self) -> None:
        """Abort all that are open."""
        for staged in list(self._open.values()):
            with staged.lock:
                self._end(staged)


def _check_owner(owner: str, asking: str) -> None:
    if owner != asking:
        raise ForeignTransaction("The transaction was begun by somebody else")


def _answer(stored: dict[Writer, list[Prepared]]) -> None:
    for many in stored.values():
        for one in many:
            resolve(one, "synced")
