"""A consumer of messages of any size, with the interface of ``confluent_kafka.Consumer``.

Segments are put together, in a bounded buffer; the offset of a large message is that of its last segment. What is
committed is the safe offset, from which nothing incomplete is lost, with the user's own beside it. Properties:
``penstock.kafka.client.config``. Seed: "Configurations for LiKafkaConsumerImpl", "Consume large messages", "About
seek()".
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, Message, TopicPartition

from penstock.kafka.client.broker_answers import ANSWER_SECONDS
from penstock.kafka.client.config import ConsumerConfig, consumer_config
from penstock.kafka.client.plugin_instances import consumer_state, declared_properties
from penstock.kafka.client.plugins import load_auditor
from penstock.kafka.client.properties import names
from penstock.kafka.client.seekable_consumer import PlainConsumer, events, stored_metadata, with_metadata
from penstock.kafka.client.start_offsets import OffsetResetter
from penstock.kafka.errors import OffsetNotTracked
from penstock.kafka.large.assembler import AssemblerSnapshot
from penstock.kafka.large.record_processor import Committed
from penstock.kafka.large.safe_offsets import TopicAndPartition, metadata_in, offset_in

Listener = Callable[["Consumer", list[TopicPartition]], None]
PASSED_ON = names(
    "list_topics memberid consumer_group_metadata cluster_id get_watermark_offsets offsets_for_times "
    "set_sasl_credentials"
)
WAIT_SECONDS = 0.5
"""How long librdkafka is waited for at a time: signals are served between."""
_LOGGER = logging.getLogger(__name__)


class Consumer:
    """See ``confluent_kafka.Consumer``; the same methods with the same arguments, each for whole messages.

    Memory holds the buffer (``message.assembler.buffer.capacity``), once more the message that is put together, and
    librdkafka's queue (``queued.max.messages.kbytes``). Raises BadProperty and CannotLoad.
    """

    def __init__(self, config: Mapping[str, Any], **more: Any) -> None:
        self._config: ConsumerConfig = consumer_config(config, declared_properties(config))
        raw = {**self._config.raw}
        if self._config.on_commit is not None:
            raw["on_commit"] = self._committed_by_broker
        self._plain = PlainConsumer(raw, self._config.cooperative, **more)
        self._auditor = load_auditor(self._config.auditor, config)
        self._state = consumer_state(self._config, config, self._auditor, self._plain.committed_once)
        self._placing = OffsetResetter(self._plain, self._state, self._config.reset, self._config.exception_on_reset)
        self._listeners: dict[str, Listener | None] = {}
        self._stored: dict[TopicAndPartition, Committed] = {}
        self._commit_at = time.monotonic() + self._config.auto_commit_seconds
        self._counts: Counter[str] = Counter()
        self._closed = False
        self._auditor.start()

    def __getattr__(self, name: str) -> Any:
        if name in PASSED_ON:
            return getattr(self._plain.client, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # Reading

    def poll(self, timeout: float | None = None) -> Message | None:
        """The next message or event; None when there is none within ``timeout`` seconds (None, < 0: ever).

        Raises RecordsFailed and InvalidOffset; reading goes on behind what failed.
        """
        found = self.consume(1, -1 if timeout is None else timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Up to ``num_messages`` messages and events that come within ``timeout`` seconds (< 0: ever).

        Raises as ``poll``, once everything before what failed was given.
        """
        self._begin()
        until = None if timeout < 0 else time.monotonic() + timeout
        found: list[Message] = []
        wait = WAIT_SECONDS if until is None else min(timeout, WAIT_SECONDS)  # at first also 0
        while len(found) < num_messages:
            batch = self._plain.take(num_messages - len(found), wait)
            if batch:
                found += self._delivered(batch)
                if self._settle():
                    break
            if until is not None:
                left = until - time.monotonic()
                if left <= 0:
                    break
                wait = min(left, WAIT_SECONDS)
            self._commit_in_time()
        if not found:
            self._raise_failure()
        return found

    def _begin(self) -> None:
        """What was left of the poll before, and what is due."""
        self._raise_failure()
        self._commit_in_time()

    def _delivered(self, batch: list[Message]) -> list[Message]:
        told: list[Message] = []
        if events(batch):
            told = [one for one in batch if one.error() and not self._placing.handles(one)]
            batch = [one for one in batch if not one.error()]
        messages: list[Message] = self._state.process(batch) if batch else []
        return messages + told

    def _settle(self) -> bool:
        """Go back to what failed; whether the poll is to end."""
        rewinds = self._state.rewinds()
        for partition, offset in rewinds.items():
            self._plain.seek(partition, offset)
        return self._placing.settle() or bool(rewinds)

    def _raise_failure(self) -> None:
        self._placing.raise_failure()
        active = self._plain.active
        if not self._state.rewinds() or not active:
            return
        failure = self._state.take_failure(active)
        if failure is not None:
            self._counts["failed"] += len(failure.failures)
            for partition, offset in failure.resume.items():
                self._plain.seek(partition, offset)
            raise failure

    # Where to read

    def subscribe(
        self,
        topics: list[str],
        on_assign: Listener | None = None,
        on_revoke: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Join the group. Listeners are called with this consumer, ``on_assign`` once partitions are assigned."""
        self._listeners = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost}
        self._plain.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def unsubscribe(self) -> None:
        """Leave the group, after a commit where offsets are committed automatically."""
        self._commit_automatically()
        self._plain.unsubscribe()
        self._state.clear()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions: from their offsets, else from what is committed, else by ``auto.offset.reset``."""
        self._commit_automatically()
        self._state.clear()
        self._placing.assign(partitions)

    def unassign(self) -> None:
        """Read nothing."""
        self.assign([])

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions too; ones that are read already go on at their offset, if they have one."""
        known = [one for one in partitions if _key(one) in self._plain.assigned]
        self._placing.add([one for one in partitions if one not in known])
        for one in known:
            if one.offset >= 0:
                self.seek(one)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions no longer."""
        self._placing.drop([_key(one) for one in partitions])

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return [TopicPartition(*key) for key in self._plain.assigned]

    def seek(self, partition: TopicPartition) -> None:
        """Messages from ``partition.offset`` on are delivered next, or again; also OFFSET_BEGINNING and OFFSET_END.

        Raises OffsetNotTracked for an offset before all those remembered, KafkaException where it is not assigned.
        """
        if partition.offset in (OFFSET_BEGINNING, OFFSET_END):
            self._placing.to_end([_key(partition)], beginning=partition.offset == OFFSET_BEGINNING)
        else:
            self._placing.seek(_key(partition), partition.offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """To the first record of partitions; of all that are read where none is named."""
        self._placing.to_end(self._named(partitions), beginning=True)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Behind the last record of partitions; of all that are read where none is named."""
        self._placing.to_end(self._named(partitions), beginning=False)

    def seek_to_committed(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on behind the last commit; all partitions that are read where none is named. Raises NoCommittedOffset."""
        for key in self._named(partitions):
            self._plain.seek(key, self._state.seek_to_committed(key))

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The offset of the next record of each partition, be it a message or a segment."""
        return [TopicPartition(*_key(one), self._plain.position(_key(one))) for one in partitions]

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Take nothing of these partitions until they are resumed."""
        self._plain.pause(map(_key, partitions))

    def resume(self, partitions: list[TopicPartition]) -> None:
        """The reverse of ``pause``."""
        self._plain.resume(map(_key, partitions))

    def _named(self, partitions: Iterable[TopicPartition]) -> list[TopicAndPartition]:
        return [_key(one) for one in partitions] or list(self._plain.assigned)

    # Offsets

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
        *,
        timeout: float | None = None,
    ) -> list[TopicPartition] | None:
        """Commit everything delivered (or stored), what is up to ``message``, or ``offsets`` of messages, each + 1.

        The broker gets the safe offset, so that nothing incomplete is lost. Synchronous commits give the user's offsets
        back, within ``timeout`` seconds where given. Raises KafkaException, OffsetNotTracked.
        """
        if message is not None and offsets is not None:
            raise ValueError("message and offsets exclude each other")
        if message is not None:
            offsets = [_behind(message)]
        with self._plain.within(timeout):
            chosen = self.offsets_to_commit(offsets)
            if not chosen and not asynchronous:
                raise KafkaException(KafkaError(KafkaError._NO_OFFSET))
            answered = self._plain.commit(chosen, asynchronous=asynchronous) if chosen else []
        return None if asynchronous else [_users(one) for one in answered]

    def offsets_to_commit(self, offsets: list[TopicPartition] | None = None) -> dict[TopicAndPartition, Committed]:
        """What ``commit`` stores. Raises OffsetNotTracked."""
        if offsets is not None:
            given = {_key(one): Committed(self._offset(one), one.metadata) for one in offsets}
            return self._state.commit_offsets(given)
        if self._config.stores_offsets:
            return self._state.commit_offsets(self._stored)
        return self._state.commit(list(self._plain.assigned), self._plain.position)

    def positions_for_transaction(self) -> list[TopicPartition]:
        """What ``Producer.send_offsets_to_transaction`` takes for everything delivered."""
        chosen = self.offsets_to_commit()
        return [with_metadata(key, one.offset, one.metadata) for key, one in chosen.items()]

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """What ``commit`` without arguments commits where ``enable.auto.offset.store`` is false."""
        if message is not None:
            offsets = [_behind(message)]
        self._stored.update({_key(one): Committed(one.offset, one.metadata) for one in offsets or ()})

    def committed(self, partitions: list[TopicPartition], timeout: float = ANSWER_SECONDS) -> list[TopicPartition]:
        """The user's offsets and metadata of the last commit; OFFSET_INVALID where there is none."""
        stored = self._plain.committed(map(_key, partitions), timeout)
        return [_users_at(key, one) if one else TopicPartition(*key) for key, one in stored.items()]

    def committed_safe_offset(self, partition: TopicPartition) -> int | None:
        """The offset that the broker holds; None where nothing is committed, or by another client."""
        return self._state.committed_safe_offset(_key(partition))

    def safe_offset(self, partition: TopicPartition, message_offset: int | None = None) -> int | None:
        """From where on nothing is lost, now or right after that message; None where nothing was read.

        Raises OffsetNotTracked.
        """
        return self._state.safe_offset(_key(partition), message_offset)

    def safe_offsets(self) -> dict[TopicAndPartition, int]:
        """The safe offsets of all partitions that were read."""
        return self._state.safe_offsets()

    def _offset(self, given: TopicPartition) -> int:
        return given.offset if given.offset >= 0 else self._plain.position(_key(given))

    def _commit_in_time(self) -> None:
        if self._config.auto_commit and time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + self._config.auto_commit_seconds
            self._commit_automatically(asynchronous=True)

    def _commit_automatically(self, *, asynchronous: bool = False) -> None:
        """As Java's client: where it fails the log says so, and who reads on gets what was not committed again."""
        if not self._config.auto_commit:
            return
        try:
            if chosen := self.offsets_to_commit():
                self._plain.commit(chosen, asynchronous=asynchronous)
        except (KafkaException, OffsetNotTracked) as error:
            _LOGGER.warning("what was read last is not committed: %s", error)

    def _committed_by_broker(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        assert self._config.on_commit
        self._config.on_commit(error, [_users(one) for one in partitions])

    # Rebalances

    def _assigned(self, _: Any, partitions: list[TopicPartition]) -> None:
        self._state.assigned([_key(one) for one in partitions])
        if self._plain.incremental:
            self._placing.add(partitions)
        else:
            self._placing.assign(partitions)
        self._call("assign", partitions)

    def _revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        try:
            self._call("revoke", partitions)
            self._commit_automatically()
        finally:
            self._leave(partitions)

    def _lost(self, _: Any, partitions: list[TopicPartition]) -> None:
        try:
            self._call("lost" if self._listeners.get("lost") else "revoke", partitions)
        finally:
            self._leave(partitions)

    def _leave(self, partitions: list[TopicPartition]) -> None:
        keys = [_key(one) for one in partitions]
        self._state.revoked(keys)
        self._plain.drop(keys)
        for key in keys:
            self._stored.pop(key, None)

    def _call(self, name: str, partitions: list[TopicPartition]) -> None:
        listener = self._listeners.get(name)
        if listener is not None:
            listener(self, partitions)

    # The whole

    def snapshot(self) -> AssemblerSnapshot:
        """What is in progress, and what was dropped, by reason."""
        return self._state.snapshot()

    def counts(self) -> dict[str, int]:
        """What became of records that gave no message, by reason: evicted, expired, refused.X, duplicate, ..."""
        told = self._state.snapshot()
        refused = {f"refused.{reason}": count for reason, count in told.refused.items()}
        own = {"assembled": told.assembled, "duplicate": told.duplicates, "skipped": self._state.skipped}
        return {**own, **told.dropped, **refused, "failed": self._counts["failed"]}

    def close(self) -> None:
        """Commit where offsets are committed automatically, leave the group, close the auditor. May be called twice."""
        if self._closed:
            return
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _behind(message: Message) -> TopicPartition:
    """The place after a message. Raises KafkaException for an event: nothing lies at its offset."""
    topic, partition, offset, error = message.topic(), message.partition(), message.offset(), message.error()
    if topic is None or partition is None or offset is None or error is not None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, f"no offset to commit: {error or 'not a record'}"))
    return TopicPartition(topic, partition, offset + 1)


def _key(given: TopicPartition) -> TopicAndPartition:
    return given.topic, given.partition


def _users(told: TopicPartition) -> TopicPartition:
    """A commit that librdkafka tells of, as the user knows it."""
    stored = Committed(told.offset, stored_metadata(told))
    return told if offset_in(stored.metadata) is None else _users_at(_key(told), stored)


def _users_at(key: TopicAndPartition, stored: Committed) -> TopicPartition:
    """A committed offset as the user knows it; that of another client as it is."""
    offset = offset_in(stored.metadata)
    if offset is None:
        return with_metadata(key, stored.offset, stored.metadata)
    return with_metadata(key, offset, metadata_in(stored.metadata))
