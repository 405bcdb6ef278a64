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
from penstock.log.commit.batching import Appended, PreparedBatch, QueuedAppend, resolve
from penstock.log.commit.writer import Writer
from penstock.log.errors import LOG_PART, ForeignTransaction, LogFull, TransactionTimedOut, UnknownTransaction
from penstock.log.resources import PRODUCER_MEMORY_S
from penstock.log.settings import TopicSettings
from penstock.log.store.producers import ProducerSequence
from penstock.log.store.visibility import CommitBarrier
from penstock.log.topic import Topic, size_error
from penstock.log.transactions import atomic_commit, staging
from penstock.log.transactions.atomic_commit import AtomicCommit
from penstock.log.transactions.staging import Staged

PREFIX = "TRANSACTION-"
"""Prefix of the files of transactions; no topic can have such a name."""
MAX_REMEMBERED = 1000
"""Limit for the ended transactions whose outcome is remembered, so that callers can retry a lost response."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of transactions and producers: times in seconds, sizes in bytes."""

    timeout: float = 60.0
    max_size: int = 64 << 20
    max_open: int = 1000
    max_open_per_owner: int = 100
    producer_memory: float = PRODUCER_MEMORY_S


class Topics(Protocol):
    """The part of a log that transactions need."""

    directory: Path

    def topic(self, name: str, *, create: bool = False) -> Topic: ...

    def settings(self, name: str) -> TopicSettings: ...

    def check_writable(self, name: str) -> None:
        """Raise InvalidTopicName for an invalid name.

        Raise TooManyTopics if the topic does not exist and cannot be created.
        """


def new_id() -> str:
    """Return a new id of a transaction."""
    return uuid.uuid4().hex


class Transactions:
    """The transactions of a log. Threads: any thread may call all methods; ``_committing`` serializes commits."""

    def __init__(
        self,
        topics: Topics,
        fs: FileSystem,
        clock: Clock,
        barrier: CommitBarrier,
        limits: Limits,
        new_id: Callable[[], str],
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
        """Drop transactions that were not committed when the writer died. Raises OSError.

        Order: before any topic is opened.
        """
        for name in sorted(self._fs.names(self._folder)):
            path = self._folder / name
            if name.startswith(PREFIX) and name.endswith(atomic_commit.SUFFIX):
                atomic_commit.undo_undecided(self._fs, path, self._topics.directory)
            elif name.startswith(PREFIX) and name.endswith((staging.SUFFIX, ".tmp")):
                self._fs.remove(path)

    def begin(self, timeout: float | None = None, owner: str = "") -> str:
        """Begin a transaction, which is aborted after ``timeout`` seconds. Raises LogFull if too many are open.

        Only its ``owner`` can fill, commit and abort it. An owner may have ``max_open_per_owner`` open transactions;
        "" is limited by ``max_open`` alone.
        """
        self.expire()
        seconds = self.limits.timeout if timeout is None else min(timeout, self.limits.timeout)
        with self._lock:
            self._check_room(owner)
            name = self._new_id()
            deadline = self._monotonic_us() + round(seconds * 1e6)
            path = self._folder / (PREFIX + name + staging.SUFFIX)
            self._open[name] = Staged(name, path, deadline, self.limits.max_size, owner)
            return name

    def _check_room(self, owner: str) -> None:
        if len(self._open) >= self.limits.max_open:
            raise LogFull(
                f"transactions.max_open: {len(self._open)} transactions are open; retry when some have ended", LOG_PART
            )
        open_of_owner = sum(staged.owner == owner for staged in self._open.values()) if owner else 0
        if open_of_owner >= self.limits.max_open_per_owner:
            raise LogFull(
                f"transactions.max_open_per_token: {open_of_owner} transactions of {owner} are open; end some first",
                LOG_PART,
            )

    def append(
        self,
        transaction: str,
        topic: str,
        body: pa.RecordBatch,
        origin: Origin,
        producer: ProducerSequence | None = None,
        owner: str = "",
    ) -> None:
        """Stage rows (schema BODY) for a topic; ``commit`` assigns their offsets.

        Raises UnknownTransaction, ForeignTransaction, TransactionTimedOut, InvalidTopicName, TooManyTopics,
        MessageTooLarge, LogFull, WriteFailed, and ValueError for a body of another schema.
        """
        if not body.schema.equals(records.BODY):
            raise ValueError(f"a body has the columns of records.BODY, not {body.schema}")
        self._topics.check_writable(topic)
        if (limit := size_error(topic, self._topics.settings(topic), body, body.nbytes)) is not None:
            raise limit
        with self._exclusive(transaction, owner) as staged:
            staged.add(self._fs, topic, body, origin, producer)

    def commit(self, transaction: str, owner: str = "") -> dict[str, list[Appended]]:
        """Store everything, in all topics at once; return the outcome of each append, by topic and in order.

        A repeated commit returns the same answer. Raises UnknownTransaction, ForeignTransaction, TransactionTimedOut,
        OutOfSequence, LogFull, WriteFailed, TooManyTopics; the transaction then stays open, and nothing is stored.
        """
        try:
            if (committed := self._committed_answer(transaction, owner)) is None:
                committed = self._commit_open(transaction, owner)
        except UnknownTransaction:
            # An earlier call, whose caller did not wait for the disk, may have committed it in the meantime.
            if (committed := self._committed_answer(transaction, owner)) is None:
                raise
        return committed

    def _committed_answer(self, transaction: str, owner: str) -> dict[str, list[Appended]] | None:
        """Return the answer of a committed transaction that is remembered. Raises ForeignTransaction."""
        with self._lock:
            committed = self._committed.get(transaction)
        if committed is None:
            return None
        _check_owner(committed[0], owner)
        return committed[1]

    def _commit_open(self, transaction: str, owner: str) -> dict[str, list[Appended]]:
        with self._exclusive(transaction, owner) as staged:
            appends = staged.read(self._fs)
            with self._committing:
                self._store(transaction, appends)
            answer = {
                topic: [append.future.result() for append in appends_of_topic]
                for topic, appends_of_topic in appends.items()
            }
            # Order: remember the answer before the transaction ends, so that a repeated commit finds one of them.
            with self._lock:
                self._committed[transaction] = owner, answer
                if len(self._committed) > MAX_REMEMBERED:
                    self._committed.popitem(last=False)
            self._end(staged)
        return answer

    def _store(self, transaction: str, appends: dict[str, list[QueuedAppend]]) -> None:
        with contextlib.ExitStack() as stack:
            # Lock order: topics by name. Commits are serialized, but a commit must not deadlock with other holders of
            # two topics.
            topics = [self._topics.topic(name, create=True) for name in sorted(appends)]
            for topic in topics:
                stack.enter_context(topic.writer.lock)
                topic.check_open()
            fresh = {topic.writer: topic.writer.admit(appends[topic.name]) for topic in topics}
            intent = self._folder / (PREFIX + transaction + atomic_commit.SUFFIX)
            commit = AtomicCommit(self._fs, intent, {w: admitted for w, admitted in fresh.items() if admitted})
            try:
                _resolve_appends(commit.make(self._barrier))
            finally:
                for topic in topics:
                    topic.announce()

    def _monotonic_us(self) -> int:
        """Return the monotonic time in microseconds. Timeouts do not use the wall clock, which may jump."""
        return round(self._clock.monotonic() * 1e6)

    def abort(self, transaction: str, owner: str = "") -> None:
        """Abort a transaction. Raises UnknownTransaction, ForeignTransaction, TransactionTimedOut."""
        with self._exclusive(transaction, owner) as staged:
            self._end(staged)

    def expire(self) -> None:
        """Abort transactions whose deadline has passed."""
        now = self._monotonic_us()
        with self._lock:
            overdue = [staged for staged in self._open.values() if staged.deadline < now]
        for staged in overdue:
            with staged.lock:
                if staged.open:
                    self._time_out(staged)

    def _time_out(self, staged: Staged) -> None:
        self._end(staged)
        with self._lock:
            self._timed_out[staged.id] = None
            if len(self._timed_out) > MAX_REMEMBERED:
                self._timed_out.popitem(last=False)

    def _end(self, staged: Staged) -> None:
        with contextlib.suppress(OSError):  # a remaining file is removed at the next start
            staged.drop(self._fs)
        with self._lock:
            self._open.pop(staged.id, None)

    @contextlib.contextmanager
    def _exclusive(self, transaction: str, owner: str) -> Iterator[Staged]:
        """Hold an open transaction for the caller alone.

        Raises UnknownTransaction, ForeignTransaction, TransactionTimedOut.
        """
        staged = self._open.get(transaction)
        if staged is None:
            raise self._not_open_error(transaction)
        _check_owner(staged.owner, owner)
        with staged.lock:
            if not staged.open:
                raise self._not_open_error(transaction)
            if staged.deadline < self._monotonic_us():
                self._time_out(staged)
                raise self._not_open_error(transaction)
            yield staged

    def _not_open_error(self, transaction: str) -> UnknownTransaction | TransactionTimedOut:
        if transaction in self._timed_out:
            return TransactionTimedOut(f"transaction {transaction} was open for too long and is aborted")
        return UnknownTransaction(f"there is no open transaction {transaction!r}")

    def close(self) -> None:
        """Abort all open transactions."""
        for staged in list(self._open.values()):
            with staged.lock:
                self._end(staged)


def _check_owner(owner: str, caller: str) -> None:
    if owner != caller:
        raise ForeignTransaction("The transaction was begun by another owner")


def _resolve_appends(stored: dict[Writer, list[PreparedBatch]]) -> None:
    for batches in stored.values():
        for batch in batches:
            resolve(batch, "synced")
