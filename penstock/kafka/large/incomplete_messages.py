"""The bounded buffer of incomplete messages; each message that leaves it incomplete is counted with a reason.

Limit: ``capacity`` bounds the bytes of buffered chunks, ``expiration_gap`` the offsets after which an incomplete
message counts as abandoned by its producer. No number in a header allocates memory: only received payloads are stored.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import NamedTuple
from uuid import UUID

from penstock.kafka.errors import InvalidChunk, MessageDropped, Partition
from penstock.kafka.large.chunks import Bytes, Chunk
from penstock.kafka.large.safe_offsets import TopicAndPartition

NOTHING_PENDING = (1 << 63) - 1
"""Safe offset of a partition without incomplete messages: larger than any offset."""
MAX_COMPLETED_IDS = 10_000
"""Limit: ids of completed messages remembered per partition, also with a large expiration gap."""


class AddedChunk(NamedTuple):
    """The outcome of adding one chunk; ``message`` is set if the chunk was the last missing one."""

    message: bytes | None
    bytes_added: int
    starting_offset: int


class BufferPool:
    """Incomplete messages of all partitions, ordered by the arrival of their first chunks.

    Behaves as MessageAssemblerImpl's buffer pool in li-apache-kafka-clients, with three differences: a refused chunk
    leaves no entry; a chunk repeated after its message was completed starts no new message while its id is remembered
    (within the expiration gap); and the same id in two partitions means two messages. Not thread-safe.
    """

    def __init__(self, capacity: int, expiration_gap: int, exception_on_dropped: bool = False) -> None:
        self._capacity, self._gap, self._raises = capacity, expiration_gap, exception_on_dropped
        self._messages: OrderedDict[tuple[TopicAndPartition, UUID], _IncompleteMessage] = OrderedDict()
        self._pending: dict[TopicAndPartition, OrderedDict[UUID, int]] = {}
        self._completed: dict[TopicAndPartition, OrderedDict[UUID, tuple[int, int, int]]] = {}
        self.used = 0
        """Bytes of buffered chunks."""
        self.counts: Counter[str] = Counter()
        """``assembled``, ``evicted`` and ``expired`` messages, ``duplicate`` chunks, ``refused.REASON`` chunks."""
        self._lost: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def chunks(self) -> int:
        """Number of buffered chunks."""
        return sum(len(message.parts) for message in self._messages.values())

    def add(self, partition: TopicAndPartition, offset: int, chunk: Chunk) -> AddedChunk:
        """Add a chunk. Raises InvalidChunk, and MessageDropped if configured (the chunk itself is then buffered).

        Each call that raises MessageDropped drops one message, so the buffer may stay over its capacity for a while; a
        message completed by that call is dropped too and counted as evicted.
        """
        try:
            # Order: buffer first, then evict. The chunk itself may complete a message and so free its memory.
            added = self._buffer(partition, offset, chunk)
        except InvalidChunk as error:
            self.count_lost(partition, f"refused.{error.reason}")
            raise
        try:
            self._evict()
        except MessageDropped:
            if added.message is not None:
                self.count_lost(partition, "evicted")
            raise
        if added.message is not None:
            self._remember(partition, offset, chunk)
        self.expire(partition, offset)
        return added

    def count_lost(self, partition: TopicAndPartition, reason: str) -> None:
        """Count a message or chunk that no reader will get."""
        self.counts[reason] += 1
        self._lost[partition[0], reason] += 1

    def take_lost(self) -> Counter[tuple[str, str]]:
        """Return the losses since the last call, by topic and reason."""
        lost, self._lost = self._lost, Counter()
        return lost

    def _buffer(self, partition: TopicAndPartition, offset: int, chunk: Chunk) -> AddedChunk:
        chunk.check()
        key = (partition, chunk.message_id)
        message = self._messages.get(key)
        if message is None and self._is_repeated(partition, offset, chunk):
            self.counts["duplicate"] += 1
            return AddedChunk(None, 0, offset)
        self._admit(message, offset, chunk)
        message = message or _IncompleteMessage(offset, chunk.count, chunk.message_size)
        if chunk.sequence in message.parts:
            self.counts["duplicate"] += 1
            return AddedChunk(None, 0, message.start)
        size = message.add(chunk)
        self.used += size
        if len(message.parts) < message.count:
            self._messages[key] = message
            self._pending.setdefault(partition, OrderedDict()).setdefault(chunk.message_id, offset)
            return AddedChunk(None, size, message.start)
        complete = message.join_parts()
        self._messages[key] = message
        self._remove(key)
        return AddedChunk(complete, size, message.start)

    def _admit(self, message: _IncompleteMessage | None, offset: int, chunk: Chunk) -> None:
        size = len(chunk.payload)
        # A consumer that sought back reads the first chunks again. Only then can offsets go backwards.
        if message is not None and offset < message.start:
            raise InvalidChunk("order", "Out of order segment offsets detected.")
        if size >= self._capacity:
            raise InvalidChunk("capacity", f"chunk of {size} bytes does not fit the buffer of {self._capacity} bytes")
        if not size:
            raise InvalidChunk("empty", "a chunk of a message with several chunks has no bytes")
        if message is not None:
            message.check(chunk)

    def _is_repeated(self, partition: TopicAndPartition, offset: int, chunk: Chunk) -> bool:
        completed = self._completed.get(partition)
        previous = completed.get(chunk.message_id) if completed else None
        if previous is None or previous[2] < offset - self._gap:
            return False
        return previous[:2] == (chunk.count, chunk.message_size)

    def _remember(self, partition: TopicAndPartition, offset: int, chunk: Chunk) -> None:
        self.counts["assembled"] += 1
        completed = self._completed.setdefault(partition, OrderedDict())
        completed[chunk.message_id] = (chunk.count, chunk.message_size, offset)
        # Two messages may have the same id one after the other: the later one is the one that is repeated.
        completed.move_to_end(chunk.message_id)
        # Limit: the oldest id goes first; a repeat of it would start a message that then expires.
        if len(completed) > MAX_COMPLETED_IDS:
            completed.popitem(last=False)

    def _remove(self, key: tuple[TopicAndPartition, UUID]) -> _IncompleteMessage:
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
            self.count_lost(key[0], "evicted")
            # One message per exception, as in the Java library: the caller sees each message that is dropped.
            if self._raises:
                raise MessageDropped(
                    f"the buffer is full: message {key[1]} of {Partition(*key[0])} is dropped with "
                    f"{message.buffered} of {message.size} bytes received"
                )

    def expire(self, partition: TopicAndPartition, offset: int) -> None:
        """Drop messages of a partition that begin more than the expiration gap before ``offset``."""
        oldest = offset - self._gap
        pending = self._pending.get(partition)
        while pending:
            message_id, start = next(iter(pending.items()))
            if start >= oldest:
                break
            self._remove((partition, message_id))
            self.count_lost(partition, "expired")
        completed = self._completed.get(partition)
        while completed and next(iter(completed.values()))[2] < oldest:
            completed.popitem(last=False)

    def safe_offset(self, partition: TopicAndPartition, current: int) -> int:
        """Return the start of the oldest incomplete message once reading reached ``current``, else NOTHING_PENDING."""
        self.expire(partition, current)
        pending = self._pending.get(partition)
        return next(iter(pending.values())) if pending else NOTHING_PENDING

    def safe_offsets(self) -> dict[TopicAndPartition, int]:
        """Return the start of the oldest incomplete message of each partition that has one."""
        return {partition: next(iter(starts.values())) for partition, starts in self._pending.items() if starts}

    def clear(self, partition: TopicAndPartition | None = None) -> None:
        """Forget one partition, or all. Its messages are not counted as lost: the caller reads them again."""
        for cleared in [partition] if partition is not None else list(self._pending):
            for message_id in list(self._pending.get(cleared, ())):
                self._remove((cleared, message_id))
            self._pending.pop(cleared, None)
            self._completed.pop(cleared, None)
        if partition is None:
            self._completed.clear()


class _IncompleteMessage:
    """An incomplete message; ``buffered`` is the number of its bytes that count in the pool."""

    __slots__ = ("buffered", "count", "parts", "size", "start")

    def __init__(self, start: int, count: int, size: int) -> None:
        self.start, self.count, self.size = start, count, size
        self.parts: dict[int, Bytes] = {}
        self.buffered = 0

    def check(self, chunk: Chunk) -> None:
        """Raise InvalidChunk if the chunk cannot belong to this message."""
        if (chunk.count, chunk.message_size) != (self.count, self.size):
            raise InvalidChunk(
                "conflict",
                f"Detected UUID conflict: {chunk.message_id} has {self.count} segments of {self.size} bytes in all, "
                f"not {chunk.count} of {chunk.message_size}",
            )
        total = self.buffered + len(chunk.payload)
        if chunk.sequence not in self.parts and total > self.size:
            raise InvalidChunk("excess", f"chunks of {total} bytes exceed their message of {self.size} bytes")

    def add(self, chunk: Chunk) -> int:
        """Store a chunk and return its size. Raises InvalidChunk if it is the last one and bytes are missing."""
        size = len(chunk.payload)
        if len(self.parts) + 1 == self.count and self.buffered + size != self.size:
            # This message can never be completed. Its other chunks stay until it expires or is evicted, so that it is
            # counted as lost once, by its reason; the empty part keeps later repeats of this chunk out.
            self.parts[chunk.sequence] = b""
            raise InvalidChunk(
                "short",
                "Buffered bytes in the message should equal to message size: "
                f"its chunks have {self.buffered + size} bytes, not {self.size}",
            )
        self.parts[chunk.sequence] = chunk.payload
        self.buffered += size
        return size

    def join_parts(self) -> bytes:
        return b"".join([self.parts[sequence] for sequence in range(self.count)])
