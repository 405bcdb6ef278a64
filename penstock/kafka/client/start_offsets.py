"""Choose where a consumer reads: at requested offsets, at the commit, or by ``auto.offset.reset``."""

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
    """Brings a plain consumer, and the state of its messages, to offsets. Owned by one consumer.

    ``reset`` is none, earliest, latest or liclosest (LiOffsetResetStrategy of li-apache-kafka-clients). With
    ``raises`` a reset also raises InvalidOffset once; with ``none`` it is raised until the partition is sought or
    assigned again.
    """

    def __init__(self, plain: PlainConsumer, state: ConsumerState, reset: str, raises: bool) -> None:
        self._plain, self._state, self._reset, self._raises = plain, state, reset, raises
        self._without_offset: dict[TopicAndPartition, InvalidOffset] = {}
        self._to_raise: dict[TopicAndPartition, InvalidOffset] = {}
        self._to_settle: dict[TopicAndPartition, InvalidOffset] = {}

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read exactly these partitions. Raises KafkaException."""
        self._without_offset.clear()
        self._plain.assign(self._start_offsets(partitions))

    def add(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions too. Raises KafkaException."""
        self._plain.add(self._start_offsets(partitions))

    def drop(self, keys: Iterable[TopicAndPartition]) -> None:
        """Stop reading these partitions and forget them."""
        keys = list(keys)
        self._plain.drop(keys)
        for key in keys:
            self._state.clear(key)
            self._without_offset.pop(key, None)

    def _start_offsets(self, partitions: list[TopicPartition]) -> dict[TopicAndPartition, int]:
        requested = {(partition.topic, partition.partition): partition.offset for partition in partitions}
        starts = {key: offset for key, offset in requested.items() if offset >= 0}
        for key, offset in starts.items():
            self._state.clear(key)
            starts[key] = self._seek_target(key, offset)
        for logical_offset in (OFFSET_BEGINNING, OFFSET_END):
            starts |= self._end_offsets(
                [key for key, offset in requested.items() if offset == logical_offset], logical_offset
            )
        return starts | self._committed_offsets([key for key in requested if key not in starts])

    def _committed_offsets(self, keys: list[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """Return committed offsets, else the offsets of the reset."""
        stored = self._plain.committed(keys)
        self._plain.remember_committed(stored)
        missing = [key for key, commit in stored.items() if commit is None]
        starts = {key: commit.offset for key, commit in stored.items() if commit is not None}
        invalid = {key: InvalidOffset(key, None) for key in missing}
        if self._reset == "none":
            self._without_offset |= invalid
            return starts | dict.fromkeys(missing, OFFSET_INVALID)
        if self._raises:
            self._to_raise |= invalid
        logical_offset = OFFSET_END if self._reset == "latest" else OFFSET_BEGINNING
        return starts | self._end_offsets(missing, logical_offset, forget=False)

    def _end_offsets(
        self, keys: list[TopicAndPartition], logical_offset: int, forget: bool = True
    ) -> dict[TopicAndPartition, int]:
        offsets = self._plain.ends(keys, beginning=logical_offset == OFFSET_BEGINNING)
        for key in keys if forget else ():
            self._state.reset(key)
        return offsets

    def seek(self, key: TopicAndPartition, offset: int) -> None:
        """Deliver messages from ``offset`` on next. Raises OffsetNotTracked, KafkaException."""
        self._plain.position(key)  # Order: raises for an unassigned partition before its state is dropped.
        self._without_offset.pop(key, None)
        target = self._state.seek(key, offset)
        if target is not None:
            self._plain.seek(key, target)

    def _seek_target(self, key: TopicAndPartition, offset: int) -> int:
        target = self._state.seek(key, offset)
        return offset if target is None else target

    def seek_to_end(self, keys: Iterable[TopicAndPartition], *, beginning: bool) -> None:
        """Seek to the first record of partitions, or behind their last."""
        logical_offset = OFFSET_BEGINNING if beginning else OFFSET_END
        for key, offset in self._end_offsets(list(keys), logical_offset).items():
            self._without_offset.pop(key, None)
            self._plain.seek(key, offset)

    def handles(self, event: Message) -> bool:
        """Report whether an event is about a missing offset, and note it for ``apply_resets``."""
        error, topic, partition = event.error(), event.topic(), event.partition()
        if error is None or error.code() != KafkaError._AUTO_OFFSET_RESET or topic is None or partition is None:
            return False
        key = (topic, partition)
        offset = event.offset()
        requested = None if offset is None or offset < 0 else offset
        current = self._plain.position(key) if key in self._plain.assigned else None
        if current == (OFFSET_INVALID if requested is None else requested):  # otherwise a seek came first
            self._to_settle[key] = InvalidOffset(key, requested)
        return True

    def apply_resets(self) -> bool:
        """Seek as the reset says; report whether any offset was missing. Call it once all records are processed."""
        pending, self._to_settle = self._to_settle, {}
        for key, invalid in pending.items():
            if self._reset == "none" or invalid.offset is None:
                self._without_offset[key] = invalid
                continue
            self._go_to_reset(key, invalid.offset)
            if self._raises:
                self._to_raise[key] = invalid
        return bool(pending)

    def _go_to_reset(self, key: TopicAndPartition, missing: int) -> None:
        low, high = (self._plain.ends([key], beginning=beginning)[key] for beginning in (True, False))
        if self._reset == "liclosest":
            target = self._state.out_of_range(key, missing, low, high)
        else:
            target = high if self._reset == "latest" else low
            self._state.reset(key)
        _LOGGER.warning("consumer: %s has no offset %d, continuing at %d", Partition(*key), missing, target)
        self._plain.seek(key, target)

    def raise_failure(self) -> None:
        """Raise a pending InvalidOffset."""
        if self._to_raise:
            _, invalid = self._to_raise.popitem()
            raise invalid
        for key, invalid in self._without_offset.items():
            if key in self._plain.assigned:
                raise invalid
