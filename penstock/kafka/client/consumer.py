"""A consumer of messages of any size, with the interface of ``confluent_kafka.Consumer``.

Chunks are assembled in a bounded buffer; the offset of a large message is that of its last chunk. Invariant: the
committed offset is the safe offset, from which no incomplete message is lost; the user's own offset is kept in the
metadata. Properties: ``penstock.kafka.client.config``; behaviour: the README of li-apache-kafka-clients
("LiKafkaConsumer").
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, Message, TopicPartition

from penstock.kafka.client.broker_answers import ANSWER_TIMEOUT_S
from penstock.kafka.client.config import ConsumerConfig, consumer_config
from penstock.kafka.client.plugins.instances import create_consumer_state, declared_properties
from penstock.kafka.client.plugins.loading import load_auditor
from penstock.kafka.client.properties import split_names
from penstock.kafka.client.seekable_consumer import PlainConsumer, has_events, readable_metadata, with_metadata
from penstock.kafka.client.start_offsets import OffsetResetter
from penstock.kafka.errors import OffsetNotTracked
from penstock.kafka.large.assembler import AssemblerSnapshot
from penstock.kafka.large.record_processor import Committed
from penstock.kafka.large.safe_offsets import TopicAndPartition, metadata_in, offset_in

Listener = Callable[["Consumer", list[TopicPartition]], None]
PASSED_ON = split_names(
    "list_topics memberid consumer_group_metadata cluster_id get_watermark_offsets offsets_for_times "
    "set_sasl_credentials"
)
POLL_SLICE_S = 0.5
"""Limit of one blocking call of librdkafka, so that Python can handle signals."""
_LOGGER = logging.getLogger(__name__)


class Consumer:
    """A consumer with the methods and arguments of ``confluent_kafka.Consumer``, each for whole messages.

    Limit: memory holds the buffer (``message.assembler.buffer.capacity``), a second copy of the assembled message, and
    librdkafka's queue (``queued.max.messages.kbytes``). Not thread-safe. Raises BadProperty and CannotLoad.
    """

    def __init__(self, config: Mapping[str, Any], **client_arguments: Any) -> None:
        self._config: ConsumerConfig = consumer_config(config, declared_properties(config))
        librdkafka_config = {**self._config.raw}
        if self._config.on_commit is not None:
            librdkafka_config["on_commit"] = self._on_commit
        self._plain = PlainConsumer(librdkafka_config, self._config.cooperative, **client_arguments)
        self._auditor = load_auditor(self._config.auditor, config)
        self._state = create_consumer_state(self._config, config, self._auditor, self._plain.committed_once)
        self._resetter = OffsetResetter(self._plain, self._state, self._config.reset, self._config.exception_on_reset)
        self._listeners: dict[str, Listener | None] = {}
        self._stored: dict[TopicAndPartition, Committed] = {}
        self._collected: list[Message] = []
        """Messages that are read and not returned yet, so no commit may pass them. An exception leaves them to the next
        call.
        """
        self._next_commit = time.monotonic() + self._config.auto_commit_seconds
        self._counts: Counter[str] = Counter()
        self._closed = False
        # Order: last, so that an error of the configuration leaves no thread behind.
        self._auditor.start()

    def __getattr__(self, name: str) -> Any:
        if name in PASSED_ON:
            return getattr(self._plain.client, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next message or event; None after ``timeout`` seconds (None or < 0: wait forever).

        Raises RecordsFailed and InvalidOffset; the next call continues after the failure.
        """
        messages = self.consume(1, -1 if timeout is None else timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to ``num_messages`` messages and events that arrive within ``timeout`` seconds (< 0: forever).

        Raises as ``poll``, once all messages before the failure were returned.
        """
        self._run_due_work()
        deadline = None if timeout < 0 else time.monotonic() + timeout
        # A timeout of 0 is allowed: only queued records are taken.
        wait = POLL_SLICE_S if deadline is None else min(timeout, POLL_SLICE_S)
        while len(self._collected) < num_messages:
            batch = self._plain.poll_batch(num_messages - len(self._collected), wait)
            if batch:
                # Threads: librdkafka runs the listeners of a rebalance within `poll_batch`, in this thread.
                self._collected += self._process_batch(batch)
                if self._apply_rewinds():
                    break
            if deadline is not None:
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    break
                wait = min(remaining_s, POLL_SLICE_S)
            self._commit_if_due()
        if not self._collected:
            self._raise_failure()
        messages = self._collected[:num_messages]
        del self._collected[:num_messages]
        return messages

    def _run_due_work(self) -> None:
        """Raise the failure of the previous poll, and commit if due."""
        if not self._collected:
            self._raise_failure()
        self._commit_if_due()

    def _process_batch(self, batch: list[Message]) -> list[Message]:
        reported: list[Message] = []
        # Fast path: a batch of records only is not copied.
        if has_events(batch):
            reported = [record for record in batch if record.error() and not self._resetter.handles(record)]
            batch = [record for record in batch if not record.error()]
        messages: list[Message] = self._state.process(batch) if batch else []
        return messages + reported

    def _apply_rewinds(self) -> bool:
        """Seek back to failed records; report whether the poll must end."""
        rewinds = self._state.rewinds()
        for partition, offset in rewinds.items():
            self._plain.seek(partition, offset)
        return self._resetter.apply_resets() or bool(rewinds)

    def _raise_failure(self) -> None:
        self._resetter.raise_failure()
        active = self._plain.active
        # A failure of a paused partition waits: it is raised once the partition is resumed.
        if not self._state.rewinds() or not active:
            return
        failure = self._state.take_failure(active)
        if failure is not None:
            self._counts["failed"] += len(failure.failures)
            for partition, offset in failure.resume.items():
                self._plain.seek(partition, offset)
            raise failure

    def subscribe(
        self,
        topics: list[str],
        on_assign: Listener | None = None,
        on_revoke: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Join the group. Listeners receive this consumer; ``on_assign`` runs once partitions are assigned."""
        self._listeners = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost}
        self._plain.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def unsubscribe(self) -> None:
        """Leave the group, after an automatic commit."""
        self._commit_automatically()
        self._plain.unsubscribe()
        self._collected.clear()
        self._state.clear()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read exactly these partitions: from their offsets, else the commit, else by ``auto.offset.reset``."""
        self._commit_automatically()
        self._collected.clear()
        self._state.clear()
        self._resetter.assign(partitions)

    def unassign(self) -> None:
        """Stop reading all partitions."""
        self.assign([])

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions too; ones already read continue, or seek to their offset if set."""
        already_assigned = [partition for partition in partitions if _key(partition) in self._plain.assigned]
        self._resetter.add([partition for partition in partitions if partition not in already_assigned])
        for partition in already_assigned:
            if partition.offset >= 0:
                self.seek(partition)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Stop reading these partitions."""
        self._resetter.drop(self._drop_collected(map(_key, partitions)))

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return [TopicPartition(*key) for key in self._plain.assigned]

    def seek(self, partition: TopicPartition) -> None:
        """Deliver messages from ``partition.offset`` on next, or again; also OFFSET_BEGINNING and OFFSET_END.

        Raises OffsetNotTracked for an offset before all tracked ones, KafkaException for an unassigned partition.
        """
        if partition.offset in (OFFSET_BEGINNING, OFFSET_END):
            self._seek_to_end([_key(partition)], beginning=partition.offset == OFFSET_BEGINNING)
        else:
            self._resetter.seek(_key(partition), partition.offset)
            self._drop_collected([_key(partition)])

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Seek to the first record of partitions; of all assigned ones by default."""
        self._seek_to_end(self._keys_or_all(partitions), beginning=True)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Seek behind the last record of partitions; of all assigned ones by default."""
        self._seek_to_end(self._keys_or_all(partitions), beginning=False)

    def _seek_to_end(self, keys: list[TopicAndPartition], *, beginning: bool) -> None:
        self._resetter.seek_to_end(keys, beginning=beginning)
        self._drop_collected(keys)

    def seek_to_committed(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue after the last commit; all assigned partitions by default. Raises NoCommittedOffset."""
        for key in self._keys_or_all(partitions):
            self._plain.seek(key, self._state.seek_to_committed(key))
            self._drop_collected([key])

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset of the next record of each partition, message or chunk."""
        return [TopicPartition(*_key(partition), self._plain.position(_key(partition))) for partition in partitions]

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Deliver nothing from these partitions until ``resume``."""
        self._plain.pause(map(_key, partitions))

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Deliver from paused partitions again."""
        self._plain.resume(map(_key, partitions))

    def _keys_or_all(self, partitions: Iterable[TopicPartition]) -> list[TopicAndPartition]:
        return [_key(partition) for partition in partitions] or list(self._plain.assigned)

    def _drop_collected(self, keys: Iterable[TopicAndPartition]) -> list[TopicAndPartition]:
        """Forget messages of partitions that are read from elsewhere now, or by another consumer; return ``keys``."""
        keys = list(keys)
        self._collected[:] = [message for message in self._collected if _key_of(message) not in keys]
        return keys

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
        *,
        timeout: float | None = None,
    ) -> list[TopicPartition] | None:
        """Commit all delivered (or stored) messages, those up to ``message``, or ``offsets`` (last delivered + 1).

        The broker receives the safe offset, so that no incomplete message is lost. Synchronous commits return the
        user's offsets, within ``timeout`` seconds if set. Raises KafkaException, OffsetNotTracked.
        """
        if message is not None and offsets is not None:
            raise ValueError("message and offsets exclude each other")
        if message is not None:
            offsets = [_position_after(message)]
        with self._plain.with_timeout(timeout):
            safe_commits = self.offsets_to_commit(offsets)
            # As confluent_kafka: a synchronous commit of nothing is an error, an asynchronous one is not.
            if not safe_commits and not asynchronous:
                raise KafkaException(KafkaError(KafkaError._NO_OFFSET))
            committed = self._plain.commit(safe_commits, asynchronous=asynchronous) if safe_commits else []
        return None if asynchronous else [_user_commit(position) for position in committed]

    def offsets_to_commit(self, offsets: list[TopicPartition] | None = None) -> dict[TopicAndPartition, Committed]:
        """Return offsets and metadata that ``commit`` stores. Raises OffsetNotTracked."""
        if offsets is not None:
            explicit = {
                _key(position): Committed(self._explicit_offset(position), position.metadata) for position in offsets
            }
            return self._state.commit_offsets(explicit)
        if self._config.stores_offsets:
            return self._state.commit_offsets(self._stored)
        first_collected = self._first_collected()
        returned = [partition for partition in self._plain.assigned if partition not in first_collected]
        return self._state.commit(returned, self._plain.position) | self._state.commit_before(first_collected)

    def _first_collected(self) -> dict[TopicAndPartition, int]:
        """Return the offset of the first message of each partition that is not returned yet."""
        # Crash: were they committed now, nobody would receive them after the end of this process.
        return {
            _key_of(message): message.offset()  # type: ignore[misc]  # a record has an offset
            for message in reversed(self._collected)
            if message.error() is None
        }

    def positions_for_transaction(self) -> list[TopicPartition]:
        """Return the argument of ``Producer.send_offsets_to_transaction`` for all delivered messages."""
        commits = self.offsets_to_commit()
        return [with_metadata(key, commit.offset, commit.metadata) for key, commit in commits.items()]

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Store offsets for ``commit`` without arguments; needs ``enable.auto.offset.store=false``."""
        if message is not None:
            offsets = [_position_after(message)]
        self._stored.update(
            {_key(position): Committed(position.offset, position.metadata) for position in offsets or ()}
        )

    def committed(self, partitions: list[TopicPartition], timeout: float = ANSWER_TIMEOUT_S) -> list[TopicPartition]:
        """Return the user's offsets and metadata of the last commit; OFFSET_INVALID without one."""
        stored = self._plain.committed(map(_key, partitions), timeout)
        return [_user_position(key, commit) if commit else TopicPartition(*key) for key, commit in stored.items()]

    def committed_safe_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset stored at the broker; None without a commit, or if another client committed."""
        return self._state.committed_safe_offset(_key(partition))

    def safe_offset(self, partition: TopicPartition, message_offset: int | None = None) -> int | None:
        """Return the safe offset, now or right after that message; None if nothing was read.

        Raises OffsetNotTracked.
        """
        return self._state.safe_offset(_key(partition), message_offset)

    def safe_offsets(self) -> dict[TopicAndPartition, int]:
        """Return the safe offsets of all partitions that were read."""
        return self._state.safe_offsets()

    def _explicit_offset(self, position: TopicPartition) -> int:
        return position.offset if position.offset >= 0 else self._plain.position(_key(position))

    def _commit_if_due(self) -> None:
        if self._config.auto_commit and time.monotonic() >= self._next_commit:
            self._next_commit = time.monotonic() + self._config.auto_commit_seconds
            self._commit_automatically(asynchronous=True)

    def _commit_automatically(self, *, asynchronous: bool = False) -> None:
        if not self._config.auto_commit:
            return
        try:
            if commits := self.offsets_to_commit():
                self._plain.commit(commits, asynchronous=asynchronous)
        except (KafkaException, OffsetNotTracked) as error:
            # As Java's client: reading continues, and a later consumer receives the uncommitted messages again.
            _LOGGER.warning("consumer: automatic commit failed, these messages may be delivered again: %s", error)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        assert self._config.on_commit
        self._config.on_commit(error, [_user_commit(position) for position in partitions])

    def _on_assign(self, _: Any, partitions: list[TopicPartition]) -> None:
        self._state.assigned([_key(partition) for partition in partitions])
        if self._plain.incremental:
            self._resetter.add(partitions)
        else:
            self._resetter.assign(partitions)
        self._call_listener("assign", partitions)

    def _on_revoke(self, _: Any, partitions: list[TopicPartition]) -> None:
        try:
            # Order: the user's listener first, so that offsets it stores are in the commit; then the commit, while we
            # still own the partitions.
            self._call_listener("revoke", partitions)
            self._commit_automatically()
        finally:
            self._forget_partitions(partitions)

    def _on_lost(self, _: Any, partitions: list[TopicPartition]) -> None:
        try:
            self._call_listener("lost" if self._listeners.get("lost") else "revoke", partitions)
        finally:
            self._forget_partitions(partitions)

    def _forget_partitions(self, partitions: list[TopicPartition]) -> None:
        keys = list(map(_key, partitions))
        # Order: partitions whose messages are dropped are read again from their commits, also if they return at once.
        for key in {_key_of(message) for message in self._collected}.intersection(keys):
            self._state.clear(key)
        self._drop_collected(keys)
        self._state.revoked(keys)
        self._plain.drop(keys)
        for key in keys:
            self._stored.pop(key, None)

    def _call_listener(self, name: str, partitions: list[TopicPartition]) -> None:
        listener = self._listeners.get(name)
        if listener is not None:
            listener(self, partitions)

    def snapshot(self) -> AssemblerSnapshot:
        """Return the amounts that are buffered, and counts of dropped messages by reason."""
        return self._state.snapshot()

    def counts(self) -> dict[str, int]:
        """Return counts of records without a message, by reason: evicted, expired, refused.X, duplicate, ..."""
        snapshot = self._state.snapshot()
        refused = {f"refused.{reason}": count for reason, count in snapshot.refused.items()}
        totals = {"assembled": snapshot.assembled, "duplicate": snapshot.duplicates, "skipped": self._state.skipped}
        return {**totals, **snapshot.dropped, **refused, "failed": self._counts["failed"]}

    def close(self) -> None:
        """Commit automatically, leave the group and close the auditor. A second call does nothing."""
        if self._closed:
            return
        # Order: commit, leave, then the auditor; each step runs even if the previous one fails.
        self._closed = True
        try:
            self._commit_automatically()
        finally:
            try:
                self._plain.client.close()
            finally:
                self._auditor.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _position_after(message: Message) -> TopicPartition:
    """Return the position after a message. Raises KafkaException for an event, which has no offset."""
    topic, partition, offset, error = message.topic(), message.partition(), message.offset(), message.error()
    if topic is None or partition is None or offset is None or error is not None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, f"no offset to commit: {error or 'not a record'}"))
    return TopicPartition(topic, partition, offset + 1)


def _key(partition: TopicPartition) -> TopicAndPartition:
    return partition.topic, partition.partition


def _key_of(message: Message) -> TopicAndPartition:
    return message.topic(), message.partition()  # type: ignore[return-value]  # an event of no partition matches none


def _user_commit(position: TopicPartition) -> TopicPartition:
    """Return a commit reported by librdkafka in the user's terms."""
    stored = Committed(position.offset, readable_metadata(position))
    return position if offset_in(stored.metadata) is None else _user_position(_key(position), stored)


def _user_position(key: TopicAndPartition, stored: Committed) -> TopicPartition:
    """Return a committed offset in the user's terms; another client's unchanged."""
    offset = offset_in(stored.metadata)
    if offset is None:
        return with_metadata(key, stored.offset, stored.metadata)
    return with_metadata(key, offset, metadata_in(stored.metadata))
