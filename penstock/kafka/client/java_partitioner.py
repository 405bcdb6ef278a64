"""Which partition a message goes to, as Kafka's Java clients compute it.

A key's partition is its murmur2 hash, made positive, modulo the number of partitions. Messages without a key stick to
one partition until a batch's worth of bytes went there (clients from 3.3 on), or go round (before 2.4). librdkafka's
own default hashes keys otherwise, and knows no partitioners in Python; so what needs one is computed here.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from penstock.kafka.client.plugins import CannotLoad, load

Words = npt.NDArray[np.uint32]

PARTITIONERS = "penstock.kafka.partitioners"
SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
DEFAULT_BATCH_BYTES = 16_384
LONG_KEY = 256
"""Bytes from which on a key is hashed by itself, so that one long key does not widen the table of all."""
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


@runtime_checkable
class Partitioner(Protocol):
    """A user's own (``partitioner.class``): asked once for each message, and all its segments go there."""

    def partition(self, topic: str, key: bytes | None, value: Any, partitions: int) -> int:
        """The partition, from 0 to ``partitions`` - 1."""
        ...


def murmur2(data: bytes) -> int:
    """The hash of Kafka's Java clients, unsigned 32 bits."""
    size = len(data)
    whole = size & ~3
    mixed = (SEED ^ size) & _MASK
    for word in struct.unpack_from(f"<{whole // 4}I", data):
        word = word * MULTIPLIER & _MASK
        word = (word ^ word >> 24) * MULTIPLIER & _MASK
        mixed = mixed * MULTIPLIER & _MASK ^ word
    if size > whole:
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & _MASK
    mixed = (mixed ^ mixed >> 13) * MULTIPLIER & _MASK
    return mixed ^ mixed >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of one key."""
    return (murmur2(key) & _POSITIVE) % partitions


def partitions_of(keys: Sequence[bytes], partitions: int) -> npt.NDArray[np.int64]:
    """The partition of each key: int64, shape (n,)."""
    return (murmur2_all(keys) & np.uint32(_POSITIVE)).astype(np.int64) % partitions


def murmur2_all(keys: Sequence[bytes]) -> Words:
    """``murmur2`` of each key: uint32, shape (n,)."""
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    hashes = np.zeros(len(keys), np.uint32)
    short = np.flatnonzero(lengths <= LONG_KEY)
    hashes[short] = _table_hashes([keys[row] for row in short.tolist()], lengths[short])
    for row in np.flatnonzero(lengths > LONG_KEY).tolist():
        hashes[row] = murmur2(keys[row])
    return hashes


def _table_hashes(keys: Sequence[bytes], lengths: npt.NDArray[np.int64]) -> Words:
    """One step for all keys at their first word, then their second, and so on; what is left of each comes last."""
    width = -(-int(lengths.max(initial=0)) // 4)
    table = np.zeros((len(keys), 4 * width), np.uint8)
    table[np.arange(4 * width) < lengths[:, None]] = np.frombuffer(b"".join(keys), np.uint8)
    words = table.view("<u4").astype(np.uint32)
    mixed = np.uint32(SEED) ^ lengths.astype(np.uint32)
    m, whole = np.uint32(MULTIPLIER), lengths // 4
    for column in range(width):
        word = words[:, column] * m
        word = (word ^ word >> np.uint32(24)) * m
        mixed = np.where(column < whole, mixed * m ^ word, mixed)
        left = (column == whole) & (lengths % 4 > 0)
        mixed = np.where(left, (mixed ^ words[:, column]) * m, mixed)
    mixed = (mixed ^ mixed >> np.uint32(13)) * m
    return mixed ^ mixed >> np.uint32(15)


class Sticky:
    """Messages without a key, as Java's clients from 3.3 on: one partition until ``batch_bytes`` bytes went there."""

    def __init__(self, batch_bytes: int = DEFAULT_BATCH_BYTES, choose: random.Random | None = None) -> None:
        self._batch, self._choose = batch_bytes, choose or random.Random()
        self._current: dict[str, tuple[int, int]] = {}

    def next(self, topic: str, size: int, partitions: int) -> int:
        """The partition for a message of ``size`` bytes."""
        partition, taken = self._current.get(topic, (partitions, 0))
        if partition >= partitions or taken >= self._batch:
            partition, taken = self._choose.randrange(partitions), 0
        self._current[topic] = (partition, taken + size)
        return partition


class RoundRobin:
    """Messages without a key, as Java's clients before 2.4: one partition after the other, by topic."""

    def __init__(self, choose: random.Random | None = None) -> None:
        self._choose = choose or random.Random()
        self._counts: dict[str, int] = {}

    def next(self, topic: str, size: int, partitions: int) -> int:
        """The partition for a message."""
        count = self._counts.get(topic)
        count = self._choose.getrandbits(31) if count is None else count
        self._counts[topic] = count + 1
        return (count & _POSITIVE) % partitions


class DefaultPartitioner:
    """By the key; without one sticky, or (``round_robin``) going round."""

    def __init__(self, *, round_robin: bool = False, batch_bytes: int = DEFAULT_BATCH_BYTES) -> None:
        self._unkeyed: Sticky | RoundRobin = RoundRobin() if round_robin else Sticky(batch_bytes)

    def partition(self, topic: str, key: bytes | None, value: Any, partitions: int) -> int:
        """The partition, from 0 to ``partitions`` - 1."""
        if key is not None:
            return partition_of(key, partitions)
        return self._unkeyed.next(topic, 0 if value is None else len(value), partitions)


class RoundRobinPartitioner(DefaultPartitioner):
    """By the key; without one going round."""

    def __init__(self) -> None:
        super().__init__(round_robin=True)


def load_partitioner(given: Any, config: Mapping[str, Any]) -> Partitioner:
    """What ``partitioner.class`` names. Raises CannotLoad."""
    own = {"default": DefaultPartitioner, "round_robin": RoundRobinPartitioner}
    made = load("partitioner.class", given, PARTITIONERS, own, config)
    if not isinstance(made, Partitioner):
        raise CannotLoad(f"partitioner.class: {made!r} has no partition()")
    return made


def chosen(partitioner: Partitioner, topic: str, key: bytes | None, value: Any, partitions: int) -> int:
    """What a partitioner answers. Raises ValueError where there is no such partition."""
    partition = partitioner.partition(topic, key, value, partitions)
    if not isinstance(partition, int) or not 0 <= partition < partitions:
        raise ValueError(f"the partitioner chose {partition!r}, but {topic!r} has {partitions} partitions")
    return partition
