"""Where a consumer reads: at the offsets asked for, at what is committed, or where ``auto.offset.reset`` says."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaError, Message, TopicPartition

from penstock.kafka.client.consumer_state import ConsumerState
from penstock.kafka.client.seekable_consumer import PlainConsumer
from penstock.kafka.errors import InvalidOffset, Partition
from penstock.kafka.large.safe_offsets import TopicAndPartition

_LOGGER = logging.getLogger(__name__)


class OffsetResetter:
    """Brings a plain consumer, and what is known of its messages, to offsets.

    ``reset``: none, earliest, latest or liclosest (specification B3); with ``raises`` a reset is told besides, once, as
    InvalidOffset. With ``none`` it is raised until the partition is sought or assigned anew.
    """

    def __init__(self, plain: PlainConsumer, state: ConsumerState, reset: str, raises: bool) -> None:
        self._plain, self._state, self._reset, self._raises = plain, state, reset, raises
        self._unplaced: dict[TopicAndPartition, InvalidOffset] = {}
        self._to_tell: dict[TopicAndPartition, InvalidOffset] = {}
        self._to_settle: dict[TopicAndPartition, InvalidOffset] = {}

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read exactly these. Raises KafkaException."""
        self._unplaced.clear()
        self._plain.assign(self._starts(partitions))

    def add(self, partitions: list[TopicPartition]) -> None:
        """Read these too. Raises KafkaException."""
        self._plain.add(self._starts(partitions))

    def drop(self, keys: Iterable[TopicAndPartition]) -> None:
        """Read these no longer, and forget them."""
        keys = list(keys)
        self._plain.drop(keys)
        for key in keys:
            self._state.clear(key)
            self._unplaced.pop(key, None)

    def _starts(self, partitions: list[TopicPartition]) -> dict[TopicAndPartition, int]:
        wanted = {(one.topic, one.partition): one.offset for one in partitions}
        starts = {key: offset for key, offset in wanted.items() if offset >= 0}
        for key, offset in starts.items():
            self._state.clear(key)
            starts[key] = self._target(key, offset)
        for which in (OFFSET_BEGINNING, OFFSET_END):
            starts |= self._ends([key for key, offset in wanted.items() if offset == which], which)
        return starts | self._stored([key for key in wanted if key not in starts])

    def _stored(self, keys: list[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """What is committed, else the reset."""
        stored = self._plain.committed(keys)
        self._plain.remember_committed(stored)
        missing = [key for key, one in stored.items() if one is None]
        starts = {key: one.offset for key, one in stored.items() if one is not None}
        invalid = {key: InvalidOffset(key, None) for key in missing}
        if self._reset == "none":
            self._unplaced |= invalid
            return starts | dict.fromkeys(missing, OFFSET_INVALID)
        if self._raises:
            self._to_tell |= invalid
        which = OFFSET_END if self._reset == "latest" else OFFSET_BEGINNING
        return starts | self._ends(missing, which, forget=False)

    def _ends(self, keys: list[TopicAndPartition], which: int, forget: bool = True) -> dict[TopicAndPartition, int]:
        places = self._plain.ends(keys, beginning=which == OFFSET_BEGINNING)
        for key in keys if forget else ():
            self._state.reset(key)
        return places

    def seek(self, key: TopicAndPartition, offset: int) -> None:
        """Messages from ``offset`` on are next. Raises OffsetNotTracked, KafkaException."""
        self._plain.position(key)  # refuses what is not assigned before anything is forgotten
        self._unplaced.pop(key, None)
        target = self._state.seek(key, offset)
        if target is not None:
            self._plain.seek(key, target)

    def _target(self, key: TopicAndPartition, offset: int) -> int:
        target = self._state.seek(key, offset)
        return offset if target is None else target

    def to_end(self, keys: Iterable[TopicAndPartition], *, beginning: bool) -> None:
        """To the first record of partitions, or behind their last."""
        which = OFFSET_BEGINNING if beginning else OFFSET_END
        for key, offset in self._ends(list(keys), which).items():
            self._unplaced.pop(key, None)
            self._plain.seek(key, offset)

    # What librdkafka says about offsets

    def handles(self, event: Message) -> bool:
        """Whether an event says that an offset is not there: ``settle`` sees to it once all records are processed."""
        error, topic, partition = event.error(), event.topic(), event.partition()
        if error is None or error.code() != KafkaError._AUTO_OFFSET_RESET or topic is None or partition is None:
            return False
        key = (topic, partition)
        offset = event.offset()
        asked = None if offset is None or offset < 0 else offset
        current = self._plain.position(key) if key in self._plain.assigned else None
        if current == (OFFSET_INVALID if asked is None else asked):  # else it was sought meanwhile
            self._to_settle[key] = InvalidOffset(key, asked)
        return True

    def settle(self) -> bool:
        """Go where the reset says; whether there was anything to do."""
        todo, self._to_settle = self._to_settle, {}
        for key, invalid in todo.items():
            if self._reset == "none" or invalid.offset is None:
                self._unplaced[key] = invalid
                continue
            self._go(key, invalid.offset)
            if self._raises:
                self._to_tell[key] = invalid
        return bool(todo)

    def _go(self, key: TopicAndPartition, asked: int) -> None:
        low, high = (self._plain.ends([key], beginning=beginning)[key] for beginning in (True, False))
        if self._reset == "liclosest":
            target = self._state.out_of_range(key, asked, low, high)
        else:
            target = high if self._reset == "latest" else low
            self._state.reset(key)
        _LOGGER.warning("%s: there is no offset %d; reading goes on at %d", Partition(*key), asked, target)
        self._plain.seek(key, target)

    def raise_failure(self) -> None:
        """Raise InvalidOffset where one is to be told."""
        if self._to_tell:
            _, invalid = self._to_tell.popitem()
            raise invalid
        for key, invalid in self._unplaced.items():
            if key in self._plain.assigned:
                raise invalid
