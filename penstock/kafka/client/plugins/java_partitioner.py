"""Choose partitions as Kafka's Java clients do.

The partition of a key is its murmur2 hash, made positive, modulo the number of partitions (Utils.murmur2 and
BuiltInPartitioner of Kafka). Unkeyed messages stick to one partition until a batch's worth of bytes went there
(KIP-794, clients from 3.3 on), or rotate (before 2.4). librdkafka's default hashes keys differently, and its Python
client has no partitioner callback, so partitions are computed here when needed.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from penstock.kafka.client.plugins.loading import CannotLoad, load

Words = npt.NDArray[np.uint32]

PARTITIONERS = "penstock.kafka.partitioners"
MURMUR2_SEED = 0x9747B28C
MURMUR2_MULTIPLIER = 0x5BD1E995
DEFAULT_BATCH_BYTES = 16_384
LONG_KEY_BYTES = 256
"""Limit: longer keys are hashed one by one, so that one long key does not widen the table of all keys."""
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


@runtime_checkable
class Partitioner(Protocol):
    """A user's partitioner (``partitioner.class``), called once per message; all its chunks go to that partition."""

    def partition(self, topic: str, key: bytes | None, value: Any, partitions: int) -> int:
        """Return a partition from 0 to ``partitions`` - 1."""
        ...


def murmur2(key: bytes) -> int:
    """Return the hash of Kafka's Java clients, an unsigned 32-bit number."""
    size = len(key)
    word_bytes = size & ~3
    mixed = (MURMUR2_SEED ^ size) & _MASK
    for word in struct.unpack_from(f"<{word_bytes // 4}I", key):
        word = word * MURMUR2_MULTIPLIER & _MASK
        word = (word ^ word >> 24) * MURMUR2_MULTIPLIER & _MASK
        mixed = mixed * MURMUR2_MULTIPLIER & _MASK ^ word
    if size > word_bytes:
        mixed = (mixed ^ int.from_bytes(key[word_bytes:], "little")) * MURMUR2_MULTIPLIER & _MASK
    mixed = (mixed ^ mixed >> 13) * MURMUR2_MULTIPLIER & _MASK
    return mixed ^ mixed >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of one key."""
    return (murmur2(key) & _POSITIVE) % partitions


def partitions_of(keys: Sequence[bytes], partitions: int) -> npt.NDArray[np.int64]:
    """Return the partition of each key: int64, shape (n,)."""
    return (murmur2_all(keys) & np.uint32(_POSITIVE)).astype(np.int64) % partitions


def murmur2_all(keys: Sequence[bytes]) -> Words:
    """Return ``murmur2`` of each key: uint32, shape (n,)."""
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    hashes = np.zeros(len(keys), np.uint32)
    short = np.flatnonzero(lengths <= LONG_KEY_BYTES)
    hashes[short] = _table_hashes([keys[row] for row in short.tolist()], lengths[short])
    for row in np.flatnonzero(lengths > LONG_KEY_BYTES).tolist():
        hashes[row] = murmur2(keys[row])
    return hashes


def _table_hashes(keys: Sequence[bytes], lengths: npt.NDArray[np.int64]) -> Words:
    # Fast path: one numpy step per word position, for all keys at once; the tail of each key comes last.
    width = -(-int(lengths.max(initial=0)) // 4)
    table = np.zeros((len(keys), 4 * width), np.uint8)
    table[np.arange(4 * width) < lengths[:, None]] = np.frombuffer(b"".join(keys), np.uint8)
    words = table.view("<u4").astype(np.uint32)
    mixed = np.uint32(MURMUR2_SEED) ^ lengths.astype(np.uint32)
    multiplier, whole_words = np.uint32(MURMUR2_MULTIPLIER), lengths // 4
    for column in range(width):
        word = words[:, column] * multiplier
        word = (word ^ word >> np.uint32(24)) * multiplier
        mixed = np.where(column < whole_words, mixed * multiplier ^ word, mixed)
        has_tail = (column == whole_words) & (lengths % 4 > 0)
        mixed = np.where(has_tail, (mixed ^ words[:, column]) * multiplier, mixed)
    mixed = (mixed ^ mixed >> np.uint32(13)) * multiplier
    return mixed ^ mixed >> np.uint32(15)


class StickyChooser:
    """Chooser of partitions for unkeyed messages as in Java clients from 3.3 on.

    The partition of a topic stays the same until ``batch_bytes`` bytes went there.
    """

    def __init__(self, batch_bytes: int = DEFAULT_BATCH_BYTES, generator: random.Random | None = None) -> None:
        self._batch_bytes, self._generator = batch_bytes, generator or random.Random()
        self._current: dict[str, tuple[int, int]] = {}

    def next(self, topic: str, size: int, partitions: int) -> int:
        """Return the partition for a message of ``size`` bytes."""
        partition, sent_bytes = self._current.get(topic, (partitions, 0))
        if partition >= partitions or sent_bytes >= self._batch_bytes:
            partition, sent_bytes = self._generator.randrange(partitions), 0
        self._current[topic] = (partition, sent_bytes + size)
        return partition


class RoundRobinChooser:
    """Chooser of partitions for unkeyed messages as in Java clients before 2.4: one after the other, per topic."""

    def __init__(self, generator: random.Random | None = None) -> None:
        self._generator = generator or random.Random()
        self._counts: dict[str, int] = {}

    def next(self, topic: str, size: int, partitions: int) -> int:
        """Return the partition for a message."""
        count = self._counts.get(topic)
        count = self._generator.getrandbits(31) if count is None else count
        self._counts[topic] = count + 1
        return (count & _POSITIVE) % partitions


class DefaultPartitioner:
    """Partitions by key; unkeyed messages stick, or rotate with ``round_robin``."""

    def __init__(self, *, round_robin: bool = False, batch_bytes: int = DEFAULT_BATCH_BYTES) -> None:
        self._unkeyed: StickyChooser | RoundRobinChooser = (
            RoundRobinChooser() if round_robin else StickyChooser(batch_bytes)
        )

    def partition(self, topic: str, key: bytes | None, value: Any, partitions: int) -> int:
        """Return a partition from 0 to ``partitions`` - 1."""
        if key is not None:
            return partition_of(key, partitions)
        return self._unkeyed.next(topic, 0 if value is None else len(value), partitions)


class RoundRobinPartitioner(DefaultPartitioner):
    """Partitions by key; unkeyed messages rotate."""

    def __init__(self) -> None:
        super().__init__(round_robin=True)


def load_partitioner(setting: Any, config: Mapping[str, Any]) -> Partitioner:
    """Create the partitioner of ``partitioner.class``. Raises CannotLoad."""
    builtin = {"default": DefaultPartitioner, "round_robin": RoundRobinPartitioner}
    partitioner = load("partitioner.class", setting, PARTITIONERS, builtin, config)
    if not isinstance(partitioner, Partitioner):
        raise CannotLoad(f"partitioner.class: {partitioner!r} has no partition()")
    return partitioner


def choose_partition(partitioner: Partitioner, topic: str, key: bytes | None, value: Any, partitions: int) -> int:
    """Return the choice of a partitioner. Raises ValueError for a partition that does not exist."""
    partition = partitioner.partition(topic, key, value, partitions)
    if not isinstance(partition, int) or not 0 <= partition < partitions:
        raise ValueError(f"the partitioner chose {partition!r}, but {topic!r} has {partitions} partitions")
    return partition
