"""The buffer of incomplete messages: bounded, and every message that leaves it unfinished has a reason.

What is held is bounded twice: by ``capacity`` in bytes of segments, and by ``expiration_gap`` in offsets, beyond which
an incomplete message is taken for one that its producer never finished. Nothing is allocated by what a header says.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import NamedTuple
from uuid import UUID

from penstock.kafka.errors import InvalidChunk, MessageDropped, Partition
from penstock.kafka.large.chunks import Bytes, Chunk
from penstock.kafka.large.safe_offsets import TopicAndPartition

NOTHING_PENDING = (1 << 63) - 1
"""The safe offset of a partition without incomplete messages: larger than any offset."""
MOST_COMPLETED = 10_000
"""Ids of completed messages that a partition remembers at most, whatever its expiration gap."""


class Added(NamedTuple):
    """What a segment did: the whole ``message`` where it was the last one missing."""

    message: bytes | None
    bytes_added: int
    starting_offset: int


class BufferPool:
    """Incomplete messages of all partitions, in the order in which their first segments came.

    As the Java library's, except that a refused segment leaves no entry behind, that a segment which comes again after
    its message was completed starts no new one (as long as its id is remembered: within the expiration gap), and that
    one id in two partitions means two messages.
    """

    def __init__(self, capacity: int, expiration_gap: int, exception_on_dropped: bool = False) -> None:
        self._capacity, self._gap, self._raises = capacity, expiration_gap, exception_on_dropped
        self._messages: OrderedDict[tuple[TopicAndPartition, UUID], _Message] = OrderedDict()
        self._pending: dict[TopicAndPartition, OrderedDict[UUID, int]] = {}
        self._completed: dict[TopicAndPartition, OrderedDict[UUID, tuple[int, int, int]]] = {}
        self.used = 0
        """Bytes of buffered segments."""
        self.counts: Counter[str] = Counter()
        """``assembled``, ``evicted`` and ``expired`` messages, ``duplicate`` segments, ``refused.REASON`` segments."""
        self._lost: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def chunks(self) -> int:
        """Segments held."""
        return sum(len(message.parts) for message in self._messages.values())

    def add(self, partition: TopicAndPartition, offset: int, chunk: Chunk) -> Added:
        """Take a segment. Raises InvalidChunk, and MessageDropped where told so (the segment itself was taken).

        Each call that raises MessageDropped drops one message, so that the buffer may be too full for a while; then
        also a message that is just complete is dropped, and counted as evicted.
        """
        try:
            added = self._add(partition, offset, chunk)
        except InvalidChunk as error:
            self.lose(partition, f"refused.{error.reason}")
            raise
        try:
            self._evict()
        except MessageDropped:
            if added.message is not None:
                self.lose(partition, "evicted")
            raise
        if added.message is not None:
            self._remember(partition, offset, chunk)
        self.expire(partition, offset)
        return added

    def lose(self, partition: TopicAndPartition, reason: str) -> None:
        """Count what nobody will get."""
        self.counts[reason] += 1
        self._lost[partition[0], reason] += 1

    def take_lost(self) -> Counter[tuple[str, str]]:
        """What was lost since the last call, by topic and reason."""
        lost, self._lost = self._lost, Counter()
        return lost

    def _add(self, partition: TopicAndPartition, offset: int, chunk: Chunk) -> Added:
        chunk.check()
        key = (partition, chunk.message_id)
        message = self._messages.get(key)
        if message is None and self._is_repeated(partition, offset, chunk):
            self.counts["duplicate"] += 1
            return Added(None, 0, offset)
        self._admit(message, offset, chunk)
        message = message or _Message(offset, chunk.count, chunk.message_size)
        if chunk.sequence in message.parts:
            self.counts["duplicate"] += 1
            return Added(None, 0, message.start)
        size = message.add(chunk)
        self.used += size
        if len(message.parts) < message.count:
            self._messages[key] = message
            self._pending.setdefault(partition, OrderedDict()).setdefault(chunk.message_id, offset)
            return Added(None, size, message.start)
        whole = message.whole()
        self._messages[key] = message
        self._remove(key)
        return Added(whole, size, message.start)

    def _admit(self, message: _Message | None, offset: int, chunk: Chunk) -> None:
        size = len(chunk.payload)
        if message is not None and offset < message.start:
            raise InvalidChunk("order", "Out of order segment offsets detected.")
        if size >= self._capacity:
            raise InvalidChunk(
                "capacity", f"a segment of {size} bytes is not smaller than the buffer of {self._capacity} bytes"
            )
        if not size:
            raise InvalidChunk("empty", "a segment of a message in several has no bytes")
        if message is not None:
            message.check(chunk)

    def _is_repeated(self, partition: TopicAndPartition, offset: int, chunk: Chunk) -> bool:
        completed = self._completed.get(partition)
        known = completed.get(chunk.message_id) if completed else None
        if known is None or known[2] < offset - self._gap:
            return False
        return known[:2] == (chunk.count, chunk.message_size)

    def _remember(self, partition: TopicAndPartition, offset: int, chunk: Chunk) -> None:
        self.counts["assembled"] += 1
        completed = self._completed.setdefault(partition, OrderedDict())
        completed[chunk.message_id] = (chunk.count, chunk.message_size, offset)
        completed.move_to_end(chunk.message_id)
        if len(completed) > MOST_COMPLETED:
            completed.popitem(last=False)

    def _remove(self, key: tuple[TopicAndPartition, UUID]) -> _Message:
        message = self._messages.pop(key)
        self.used -= message.buffered
        partition, message_id = key
        pending = self._pending.get(partition)
        if pending:
            pending.pop(message_id, None)
        return message

    def _evict(self) -> None:
        while self.used > self._capacity:
            key = next(iter(self._messages))
            message = self._remove(key)
            self.lose(key[0], "evicted")
            if self._raises:
                raise MessageDropped(
                    f"the buffer is full: message {key[1]} of {Partition(*key[0])} is dropped, of which "
                    f"{message.buffered} of {message.size} bytes were there"
                )

    def expire(self, partition: TopicAndPartition, offset: int) -> None:
        """Drop the messages of a partition that begin more than the expiration gap before ``offset``."""
        oldest = offset - self._gap
        pending = self._pending.get(partition)
        while pending:
            message_id, start = next(iter(pending.items()))
            if start >= oldest:
                break
            self._remove((partition, message_id))
            self.lose(partition, "expired")
        completed = self._completed.get(partition)
        while completed and next(iter(completed.values()))[2] < oldest:
            completed.popitem(last=False)

    def safe_offset(self, partition: TopicAndPartition, current: int) -> int:
        """Where the oldest incomplete message begins once reading has come to ``current``; else NOTHING_PENDING."""
        self.expire(partition, current)
        pending = self._pending.get(partition)
        return next(iter(pending.values())) if pending else NOTHING_PENDING

    def safe_offsets(self) -> dict[TopicAndPartition, int]:
        """Where the oldest incomplete message of each partition begins that has one."""
        return {partition: next(iter(begun.values())) for partition, begun in self._pending.items() if begun}

    def clear(self, partition: TopicAndPartition | None = None) -> None:
        """Forget a partition, or all: it is read again from elsewhere, so that its messages are not lost."""
        for one in [partition] if partition is not None else list(self._pending):
            for message_id in list(self._pending.get(one, ())):
                self._remove((one, message_id))
            self._pending.pop(one, None)
            self._completed.pop(one, None)
        if partition is None:
            self._completed.clear()


class _Message:
    """An incomplete message; ``buffered`` are its bytes as they count in the pool."""

    __slots__ = ("buffered", "count", "parts", "size", "start")

    def __init__(self, start: int, count: int, size: int) -> None:
        self.start, self.count, self.size = start, count, size
        self.parts: dict[int, Bytes] = {}
        self.buffered = 0

    def check(self, chunk: Chunk) -> None:
        """Raises InvalidChunk for one that cannot be of this message."""
        if (chunk.count, chunk.message_size) != (self.count, self.size):
            raise InvalidChunk(
                "conflict",
                f"Detected UUID conflict: {chunk.message_id} has {self.count} segments of {self.size} bytes in all, "
                f"not {chunk.count} of {chunk.message_size}",
            )
        total = self.buffered + len(chunk.payload)
        if chunk.sequence not in self.parts and total > self.size:
            raise InvalidChunk("excess", f"segments of {total} bytes are more than their message of {self.size}")

    def add(self, chunk: Chunk) -> int:
        """Keep a segment; its size. Raises InvalidChunk where it is the last one and the whole is too short.

        Such a message can never be completed. It stays until it expires, or is evicted, but without this last part.
        """
        size = len(chunk.payload)
        if len(self.parts) + 1 == self.count and self.buffered + size != self.size:
            self.parts[chunk.sequence] = b""
            raise InvalidChunk(
                "short",
                "Buffered bytes in the message should equal to message size: "
                f"its segments have {self.buffered + size} bytes, not {self.size}",
            )
        self.parts[chunk.sequence] = chunk.payload
        self.buffered += size
        return size

    def whole(self) -> bytes:
        """The message, once all parts are there."""
        return b"".join([self.parts[sequence] for sequence in range(self.count)])
