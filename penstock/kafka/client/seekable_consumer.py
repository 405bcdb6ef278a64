"""A plain consumer that can be put at any offset of its partitions: what large messages need of librdkafka.

Offsets here are those of records, segments included. librdkafka neither commits nor resets by itself here.
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

from penstock.kafka.client.broker_answers import ANSWER_SECONDS, patiently
from penstock.kafka.client.config import checked, consumer_names
from penstock.kafka.errors import Partition
from penstock.kafka.large.record_processor import Committed
from penstock.kafka.large.safe_offsets import TopicAndPartition

BATCH_BYTES = 8 << 20
"""About so many bytes of records are taken at a time: the queue before them is bounded, a batch by its number alone."""
FIRST_BATCH = 16
SAMPLE = 16
"""So many records of a batch tell the size of the next."""
_error = Message.error


def stored_metadata(told: TopicPartition) -> str | None:
    """The metadata of a commit as librdkafka tells of it.

    Where another client committed it (Java's), librdkafka's text has no end: bytes of memory follow. What precedes the
    first that is no text is taken; so text may follow that nobody committed.
    """
    try:
        return told.metadata
    except UnicodeDecodeError as error:
        return bytes(error.object[: error.start]).decode()


def with_metadata(key: TopicAndPartition, offset: int, metadata: str | None) -> TopicPartition:
    """A place with the metadata of its commit, where it has any."""
    return TopicPartition(*key, offset) if metadata is None else TopicPartition(*key, offset, metadata)


class PlainConsumer:
    """``confluent_kafka.Consumer`` with positions of its own and batches of a bounded size."""

    def __init__(self, config: Mapping[str, Any], cooperative: bool, **more: Any) -> None:
        self.client = checked(lambda: confluent_kafka.Consumer(dict(config), **more), consumer_names())
        self._cooperative = cooperative
        self._subscribed = False
        self._starts: dict[TopicAndPartition, int] = {}
        self._paused: set[TopicAndPartition] = set()
        self._batch = FIRST_BATCH
        self._changes = 0
        self._committed: dict[TopicAndPartition, Committed | None] = {}
        self._seconds: float | None = None

    @contextmanager
    def within(self, seconds: float | None) -> Iterator[None]:
        """What is asked of the broker meanwhile is to be answered in so many seconds each (None: ANSWER_SECONDS)."""
        self._seconds = seconds
        try:
            yield
        finally:
            self._seconds = None

    @property
    def assigned(self) -> Collection[TopicAndPartition]:
        """The partitions that are read."""
        return self._starts.keys()

    @property
    def active(self) -> set[TopicAndPartition]:
        """The partitions that are read and not paused."""
        return self._starts.keys() - self._paused

    @property
    def incremental(self) -> bool:
        """Whether assignments come and go one by one."""
        return self._cooperative and self._subscribed

    def subscribe(self, topics: list[str], **listeners: Callable[..., None]) -> None:
        """Join the group for these topics."""
        self._subscribed = True
        self.client.subscribe(topics, **listeners)

    def unsubscribe(self) -> None:
        """Leave all partitions."""
        self._subscribed = False
        self.client.unsubscribe()
        self._forget(list(self._starts))

    def assign(self, starts: Mapping[TopicAndPartition, int]) -> None:
        """Read exactly these partitions, from these offsets on."""
        self.client.assign([_placed(key, offset) for key, offset in starts.items()])
        self._forget([key for key in self._starts if key not in starts])
        self._starts = dict(starts)
        self._paused.clear()
        self._changes += 1

    def add(self, starts: Mapping[TopicAndPartition, int]) -> None:
        """Read these partitions too."""
        self.client.incremental_assign([_placed(key, offset) for key, offset in starts.items()])
        self._starts.update(starts)

    def drop(self, keys: Iterable[TopicAndPartition]) -> None:
        """Read these partitions no longer."""
        keys = [key for key in keys if key in self._starts]
        if len(keys) == len(self._starts) and not self.incremental:
            self.client.unassign()
        else:
            self.client.incremental_unassign([TopicPartition(*key) for key in keys])
        self._forget(keys)

    def _forget(self, keys: Iterable[TopicAndPartition]) -> None:
        self._changes += 1
        for key in keys:
            self._starts.pop(key, None)
            self._paused.discard(key)
            self._committed.pop(key, None)

    def take(self, most: int, timeout: float) -> list[Message]:
        """Up to ``most`` records or events: what there is, else the first that comes within ``timeout`` seconds.

        What was fetched of partitions that went away meanwhile is left out.
        """
        before = self._changes
        client, size = self.client, min(most, self._batch)
        batch: list[Message] = client.consume(size, 0)
        if not batch and timeout:
            batch = client.consume(1, timeout)
        if not batch:
            return batch
        some = batch[:: len(batch) // SAMPLE + 1]
        self._batch = max(1, BATCH_BYTES * len(some) // max(1, sum(map(len, some))))
        return batch if before == self._changes else [one for one in batch if one.error() or _key(one) in self._starts]

    def seek(self, key: TopicAndPartition, offset: int) -> None:
        """Go on from ``offset``. Raises KafkaException for a partition that is not assigned."""
        if key not in self._starts:
            raise KafkaException(KafkaError(KafkaError._STATE, f"{Partition(*key)} is not assigned"))
        try:
            self.client.seek(_placed(key, offset))
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            self._place_anew(key, offset)  # librdkafka stops for good at an offset that is not there
        self._starts[key] = offset

    def _place_anew(self, key: TopicAndPartition, offset: int) -> None:
        if self.incremental or not self._subscribed:
            self.client.incremental_unassign([TopicPartition(*key)])
            self.client.incremental_assign([_placed(key, offset)])
        else:
            places = {one: self.position(one) for one in self._starts} | {key: offset}
            self.client.assign([_placed(one, place) for one, place in places.items()])
            self._starts.update(places)
        if self._paused:
            self.client.pause([TopicPartition(*one) for one in self._paused])

    def position(self, key: TopicAndPartition) -> int:
        """The offset of the next record. Raises KafkaException for a partition that is not assigned."""
        if key not in self._starts:
            raise KafkaException(KafkaError(KafkaError._STATE, f"{Partition(*key)} is not assigned"))
        (place,) = self.client.position([TopicPartition(*key)])
        return place.offset if place.offset >= 0 else self._starts[key]

    def pause(self, keys: Iterable[TopicAndPartition]) -> None:
        """Take nothing of these partitions until they are resumed."""
        keys = list(keys)
        self.client.pause([TopicPartition(*key) for key in keys])
        self._paused.update(keys)

    def resume(self, keys: Iterable[TopicAndPartition]) -> None:
        """The reverse of ``pause``."""
        keys = list(keys)
        self.client.resume([TopicPartition(*key) for key in keys])
        self._paused.difference_update(keys)

    def committed(
        self, keys: Iterable[TopicAndPartition], timeout: float | None = None
    ) -> dict[TopicAndPartition, Committed | None]:
        """What the broker holds for partitions, as it is stored. Raises KafkaException."""
        timeout = timeout or self._seconds or ANSWER_SECONDS
        asked = [TopicPartition(*key) for key in keys]
        told = _ask(lambda left: self.client.committed(asked, timeout=left), timeout) if asked else []
        return {_at(one): Committed(one.offset, stored_metadata(one)) if one.offset >= 0 else None for one in told}

    def remember_committed(self, stored: Mapping[TopicAndPartition, Committed | None]) -> None:
        """What ``committed_once`` answers without asking, until something is committed."""
        self._committed.update(stored)

    def committed_once(self, key: TopicAndPartition) -> Committed | None:
        """What is committed of a partition: as remembered, else asked for."""
        if key in self._committed:
            return self._committed.pop(key)
        return self.committed([key])[key]

    def commit(self, offsets: Mapping[TopicAndPartition, Committed], *, asynchronous: bool) -> list[TopicPartition]:
        """Store offsets; what the broker answers, nothing where it is not waited for. Raises KafkaException."""
        for key in offsets:
            self._committed.pop(key, None)
        given = [with_metadata(key, one.offset, one.metadata) for key, one in offsets.items()]
        if asynchronous:
            self.client.commit(offsets=given, asynchronous=True)
            return []
        return self._commit_and_wait(given)

    def _commit_and_wait(self, given: list[TopicPartition]) -> list[TopicPartition]:
        """librdkafka itself waits as long as it likes; so where there is a limit it waits beside."""
        commit = partial(self.client.commit, offsets=given, asynchronous=False)
        if self._seconds is None:
            return _ask(lambda _: commit(), ANSWER_SECONDS)
        answer: Queue[Any] = Queue()
        Thread(target=_put_answer, args=(answer, commit), daemon=True).start()
        try:
            told = answer.get(timeout=self._seconds)
        except Empty:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the commit was not answered in time")) from None
        if isinstance(told, Exception):
            raise told
        result: list[TopicPartition] = told
        return result

    def ends(self, keys: Iterable[TopicAndPartition], *, beginning: bool) -> dict[TopicAndPartition, int]:
        """The first offset of each partition, or the one behind its last. Raises KafkaException."""
        which = OFFSET_BEGINNING if beginning else OFFSET_END
        asked = [_placed(key, which) for key in keys]
        ask = self.client.offsets_for_times
        told = _ask(lambda left: ask(asked, timeout=left), self._seconds or ANSWER_SECONDS) if asked else []
        return {_at(one): one.offset for one in told}


def _ask(ask: Callable[[float], list[TopicPartition]], seconds: float) -> list[TopicPartition]:
    """What the broker answers within so many seconds, an error of one place among them. Raises KafkaException."""

    def answered(left: float) -> list[TopicPartition]:
        told = ask(left)
        for one in told:
            if one.error:
                raise KafkaException(one.error)
        return told

    return patiently(answered, seconds)


def _put_answer(answer: Queue[Any], ask: Callable[[], Any]) -> None:
    try:
        answer.put(ask())
    except Exception as error:  # noqa: BLE001 - raised by the thread that waits for the answer
        answer.put(error)


def events(batch: list[Message]) -> bool:
    """Whether there is anything but records."""
    return any(map(_error, batch))


def _key(message: Message) -> TopicAndPartition:
    return message.topic(), message.partition()  # type: ignore[return-value]  # a record has both


def _at(place: TopicPartition) -> TopicAndPartition:
    return place.topic, place.partition


def _placed(key: TopicAndPartition, offset: int) -> TopicPartition:
    return TopicPartition(*key, offset)
