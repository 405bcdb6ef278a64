"""A plain consumer that can seek to any offset: the use of librdkafka by large messages.

Offsets here count records, chunks included. librdkafka neither commits nor resets offsets itself here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from queue import Empty, Queue
from threading import Thread
from typing import Any

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from penstock.kafka.client.broker_answers import ANSWER_TIMEOUT_S, repair_headers, retry_transient
from penstock.kafka.client.config import consumer_names, create_client
from penstock.kafka.errors import Partition
from penstock.kafka.large.record_processor import Committed
from penstock.kafka.large.safe_offsets import TopicAndPartition

BATCH_BYTES = 8 << 20
"""Limit: target size of one batch. librdkafka bounds its queue in bytes, but a batch only by its number of records."""
FIRST_BATCH_RECORDS = 16
SAMPLE_RECORDS = 16
"""Records of a batch that are measured to choose the number of the next."""
_error = Message.error


def readable_metadata(position: TopicPartition) -> str | None:
    """Return the metadata of a commit up to its first undecodable byte."""
    try:
        # Workaround: librdkafka's text has no terminator if Java's client committed it, so bytes of memory follow. The
        # text is cut at the first byte that is not UTF-8; characters that nobody committed may precede it.
        return position.metadata
    except UnicodeDecodeError as error:
        return bytes(error.object[: error.start]).decode()


def with_metadata(key: TopicAndPartition, offset: int, metadata: str | None) -> TopicPartition:
    """Return a position with the metadata of its commit, if any."""
    return TopicPartition(*key, offset) if metadata is None else TopicPartition(*key, offset, metadata)


class PlainConsumer:
    """``confluent_kafka.Consumer`` with its own record of positions, and batches of bounded size; not thread-safe."""

    def __init__(self, config: Mapping[str, Any], cooperative: bool, **client_arguments: Any) -> None:
        self.client = create_client(
            lambda: confluent_kafka.Consumer(dict(config), **client_arguments), consumer_names()
        )
        self._cooperative = cooperative
        self._subscribed = False
        self._starts: dict[TopicAndPartition, int] = {}
        self._paused: set[TopicAndPartition] = set()
        self._batch_records = FIRST_BATCH_RECORDS
        self._assignment_version = 0
        self._committed: dict[TopicAndPartition, Committed | None] = {}
        self._timeout_s: float | None = None

    @contextmanager
    def with_timeout(self, timeout_s: float | None) -> Iterator[None]:
        """Limit broker requests within the block to this many seconds each (None: ANSWER_TIMEOUT_S)."""
        self._timeout_s = timeout_s
        try:
            yield
        finally:
            self._timeout_s = None

    @property
    def assigned(self) -> Collection[TopicAndPartition]:
        """Assigned partitions."""
        return self._starts.keys()

    @property
    def active(self) -> set[TopicAndPartition]:
        """Assigned partitions that are not paused."""
        return self._starts.keys() - self._paused

    @property
    def incremental(self) -> bool:
        """Whether partitions are assigned incrementally (cooperative rebalancing, KIP-429)."""
        return self._cooperative and self._subscribed

    def subscribe(self, topics: list[str], **listeners: Callable[..., None]) -> None:
        """Join the group for these topics."""
        self._subscribed = True
        self.client.subscribe(topics, **listeners)

    def unsubscribe(self) -> None:
        """Leave the group and all partitions."""
        self._subscribed = False
        self.client.unsubscribe()
        self._forget(list(self._starts))

    def assign(self, starts: Mapping[TopicAndPartition, int]) -> None:
        """Read exactly these partitions, from these offsets on."""
        self.client.assign([_position_of(key, offset) for key, offset in starts.items()])
        self._forget([key for key in self._starts if key not in starts])
        self._starts = dict(starts)
        self._paused.clear()
        self._assignment_version += 1

    def add(self, starts: Mapping[TopicAndPartition, int]) -> None:
        """Read these partitions too."""
        self.client.incremental_assign([_position_of(key, offset) for key, offset in starts.items()])
        self._starts.update(starts)

    def drop(self, keys: Iterable[TopicAndPartition]) -> None:
        """Stop reading these partitions."""
        keys = [key for key in keys if key in self._starts]
        # librdkafka allows incremental calls on a plain assignment only until the next rebalance, and `unassign` ends
        # it.
        if len(keys) == len(self._starts) and not self.incremental:
            self.client.unassign()
        else:
            self.client.incremental_unassign([TopicPartition(*key) for key in keys])
        self._forget(keys)

    def _forget(self, keys: Iterable[TopicAndPartition]) -> None:
        self._assignment_version += 1
        for key in keys:
            self._starts.pop(key, None)
            self._paused.discard(key)
            self._committed.pop(key, None)

    def poll_batch(self, max_records: int, timeout: float) -> list[Message]:
        """Return up to ``max_records`` queued records or events, else the first within ``timeout`` seconds.

        Records of partitions that were revoked during the call are left out.
        """
        assignment_version = self._assignment_version
        client, size = self.client, min(max_records, self._batch_records)
        # Fast path: queued records are taken at once. Only an empty queue is waited for, and then for one record.
        batch: list[Message] = client.consume(size, 0)
        if not batch and timeout:
            batch = client.consume(1, timeout)
        if not batch:
            return batch
        # Order: first, as the headers of such a record raise SystemError once, and then end the process.
        repair_headers(batch)
        # Limit: the bytes of a batch follow from the size of the last one, so the batch after a jump in size may be
        # larger.
        sample = batch[:: len(batch) // SAMPLE_RECORDS + 1]
        self._batch_records = max(1, BATCH_BYTES * len(sample) // max(1, sum(map(len, sample))))
        # A rebalance during the call may have revoked partitions whose records are already in the batch.
        return (
            batch
            if assignment_version == self._assignment_version
            else [record for record in batch if record.error() or _key(record) in self._starts]
        )

    def seek(self, key: TopicAndPartition, offset: int) -> None:
        """Continue from ``offset``. Raises KafkaException for an unassigned partition."""
        if key not in self._starts:
            raise KafkaException(KafkaError(KafkaError._STATE, f"{Partition(*key)} is not assigned"))
        try:
            self.client.seek(_position_of(key, offset))
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            # Workaround: librdkafka stops a partition permanently at an offset that does not exist.
            self._reassign(key, offset)
        # Order: after the call that may raise, so that `position` stays true.
        self._starts[key] = offset

    def _reassign(self, key: TopicAndPartition, offset: int) -> None:
        if self.incremental or not self._subscribed:
            self.client.incremental_unassign([TopicPartition(*key)])
            self.client.incremental_assign([_position_of(key, offset)])
        else:
            positions = {partition: self.position(partition) for partition in self._starts} | {key: offset}
            self.client.assign([_position_of(partition, position) for partition, position in positions.items()])
            self._starts.update(positions)
        if self._paused:
            self.client.pause([TopicPartition(*partition) for partition in self._paused])

    def position(self, key: TopicAndPartition) -> int:
        """Return the offset of the next record. Raises KafkaException for an unassigned partition."""
        if key not in self._starts:
            raise KafkaException(KafkaError(KafkaError._STATE, f"{Partition(*key)} is not assigned"))
        (position,) = self.client.position([TopicPartition(*key)])
        # librdkafka has no position before the first record: it is where reading was started.
        return position.offset if position.offset >= 0 else self._starts[key]

    def pause(self, keys: Iterable[TopicAndPartition]) -> None:
        """Deliver nothing from these partitions until ``resume``."""
        keys = list(keys)
        self.client.pause([TopicPartition(*key) for key in keys])
        self._paused.update(keys)

    def resume(self, keys: Iterable[TopicAndPartition]) -> None:
        """Deliver from paused partitions again."""
        keys = list(keys)
        self.client.resume([TopicPartition(*key) for key in keys])
        self._paused.difference_update(keys)

    def committed(
        self, keys: Iterable[TopicAndPartition], timeout: float | None = None
    ) -> dict[TopicAndPartition, Committed | None]:
        """Return the commits stored at the broker. Raises KafkaException."""
        timeout = timeout or self._timeout_s or ANSWER_TIMEOUT_S
        requested = [TopicPartition(*key) for key in keys]
        answer = (
            _request_positions(lambda remaining_s: self.client.committed(requested, timeout=remaining_s), timeout)
            if requested
            else []
        )
        return {
            _partition_key(position): Committed(position.offset, readable_metadata(position))
            if position.offset >= 0
            else None
            for position in answer
        }

    def remember_committed(self, stored: Mapping[TopicAndPartition, Committed | None]) -> None:
        """Cache commits for ``committed_once``, until a commit replaces them."""
        self._committed.update(stored)

    def committed_once(self, key: TopicAndPartition) -> Committed | None:
        """Return the commit of a partition: the cached one, once, else from the broker."""
        if key in self._committed:
            return self._committed.pop(key)
        return self.committed([key])[key]

    def commit(self, offsets: Mapping[TopicAndPartition, Committed], *, asynchronous: bool) -> list[TopicPartition]:
        """Store offsets; return the broker's answer, empty if asynchronous. Raises KafkaException."""
        for key in offsets:
            self._committed.pop(key, None)
        positions = [with_metadata(key, commit.offset, commit.metadata) for key, commit in offsets.items()]
        if asynchronous:
            self.client.commit(offsets=positions, asynchronous=True)
            return []
        return self._commit_and_wait(positions)

    def _commit_and_wait(self, positions: list[TopicPartition]) -> list[TopicPartition]:
        commit = partial(self.client.commit, offsets=positions, asynchronous=False)
        if self._timeout_s is None:
            return _request_positions(lambda _: commit(), ANSWER_TIMEOUT_S)
        # Workaround: librdkafka's synchronous commit has no timeout, so a thread waits for it.
        answer: Queue[Any] = Queue()
        Thread(target=_put_answer, args=(answer, commit), daemon=True).start()
        try:
            outcome = answer.get(timeout=self._timeout_s)
        except Empty:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the commit was not answered in time")) from None
        if isinstance(outcome, Exception):
            raise outcome
        committed: list[TopicPartition] = outcome
        return committed

    def ends(self, keys: Iterable[TopicAndPartition], *, beginning: bool) -> dict[TopicAndPartition, int]:
        """Return the first offset of each partition, or the one behind its last. Raises KafkaException."""
        logical_offset = OFFSET_BEGINNING if beginning else OFFSET_END
        requested = [_position_of(key, logical_offset) for key in keys]
        request = self.client.offsets_for_times
        answer = (
            _request_positions(
                lambda remaining_s: request(requested, timeout=remaining_s), self._timeout_s or ANSWER_TIMEOUT_S
            )
            if requested
            else []
        )
        return {_partition_key(position): position.offset for position in answer}


def _request_positions(request: Callable[[float], list[TopicPartition]], timeout_s: float) -> list[TopicPartition]:
    """Return the broker's answer; an error of one partition counts as an error. Raises KafkaException."""

    def request_checked(remaining_s: float) -> list[TopicPartition]:
        positions = request(remaining_s)
        for position in positions:
            if position.error:
                raise KafkaException(position.error)
        return positions

    return retry_transient(request_checked, timeout_s)


def _put_answer(answer: Queue[Any], request: Callable[[], Any]) -> None:
    try:
        answer.put(request())
    except Exception as error:  # noqa: BLE001 - raised in the thread that waits for the answer
        answer.put(error)


def has_events(batch: list[Message]) -> bool:
    """Report whether a batch has anything but records."""
    return any(map(_error, batch))


def _key(message: Message) -> TopicAndPartition:
    return message.topic(), message.partition()  # type: ignore[return-value]  # a record has both


def _partition_key(position: TopicPartition) -> TopicAndPartition:
    return position.topic, position.partition


def _position_of(key: TopicAndPartition, offset: int) -> TopicPartition:
    return TopicPartition(*key, offset)
