"""Assemble messages from records: a record is a whole message, or one chunk of a large message."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.kafka.errors import InvalidChunk, Partition
from penstock.kafka.large.chunks import Bytes, Chunk, ChunkDeserializer, deserialize_chunk
from penstock.kafka.large.headers import Header, decode_large_message_header
from penstock.kafka.large.incomplete_messages import BufferPool
from penstock.kafka.large.safe_offsets import TopicAndPartition

DEFAULT_CAPACITY_BYTES = 32_000_000
"""Default of ``message.assembler.buffer.capacity``, as in the Java library."""
DEFAULT_EXPIRATION_GAP = 1_000
"""Default of ``message.assembler.expiration.offset.gap`` in offsets, as in the Java library."""


class Assembled(NamedTuple):
    """The outcome of one record: a message (``value`` may be None or empty), unless ``incomplete``."""

    value: Bytes | None
    starting_offset: int
    incomplete: bool = False


@dataclass(frozen=True, slots=True)
class AssemblerSnapshot:
    """Counts of an assembler at one moment.

    ``messages``, ``chunks`` and ``bytes`` are buffered now. ``assembled`` messages were completed from chunks,
    ``dropped`` counts incomplete messages by reason (evicted, expired), ``refused`` chunks by reason, ``duplicates``
    repeated chunks. ``safe_offsets`` lists partitions (``topic-0``) with incomplete messages. A message that was
    dropped counts again if later chunks of it arrive and expire.
    """

    messages: int = 0
    chunks: int = 0
    bytes: int = 0
    assembled: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    safe_offsets: dict[str, int] = field(default_factory=dict)


class Assembler:
    """Assembles messages for all partitions of one consumer; not thread-safe.

    ``deserializer`` recognises chunks when the record header does not. With ``bad_chunks_as_payload`` a contradictory
    chunk is delivered as a message of its own.
    """

    def __init__(
        self,
        capacity: int = DEFAULT_CAPACITY_BYTES,
        expiration_gap: int = DEFAULT_EXPIRATION_GAP,
        *,
        exception_on_dropped: bool = False,
        deserializer: ChunkDeserializer = deserialize_chunk,
        bad_chunks_as_payload: bool = False,
    ) -> None:
        self.pool = BufferPool(capacity, expiration_gap, exception_on_dropped)
        self._deserialize = deserializer
        self._lenient = bad_chunks_as_payload

    @property
    def is_default(self) -> bool:
        """Whether only the default format marks a chunk."""
        return self._deserialize is deserialize_chunk

    def assemble(
        self, partition: TopicAndPartition, offset: int, value: Bytes | None, header: Header | None = None
    ) -> Assembled:
        """Return the outcome of a record; ``header`` is its last ``_lm``. Raises InvalidChunk and MessageDropped."""
        if value is None:
            return Assembled(None, offset)
        try:
            chunk = self._parse_chunk(partition[0], value, header)
            if chunk is not None:
                chunk.check()
        except InvalidChunk as error:
            self.pool.count_lost(partition, f"refused.{error.reason}")
            if not self._lenient:
                raise
            return Assembled(value, offset)
        if chunk is None:
            return Assembled(value, offset)
        # Fast path: a message in a single chunk never enters the buffer.
        if chunk.count == 1:
            return Assembled(bytes(chunk.payload), offset)
        added = self.pool.add(partition, offset, chunk)
        return Assembled(added.message, added.starting_offset, added.message is None)

    def _parse_chunk(self, topic: str, value: Bytes, header: Header | None) -> Chunk | None:
        if header is not None:
            description = decode_large_message_header(header[1])
            if description.is_in_header():
                return description.to_chunk(value)
        return self._deserialize(topic, value)

    def safe_offset(self, partition: TopicAndPartition, current: int) -> int:
        """Return the start of the oldest incomplete message once reading reached ``current``, else NOTHING_PENDING."""
        return self.pool.safe_offset(partition, current)

    def clear(self, partition: TopicAndPartition | None = None) -> None:
        """Forget one partition, or all."""
        self.pool.clear(partition)

    def snapshot(self) -> AssemblerSnapshot:
        """Return the current counts."""
        counts = dict(self.pool.counts)
        refused = {name.removeprefix("refused."): n for name, n in counts.items() if name.startswith("refused.")}
        return AssemblerSnapshot(
            len(self.pool),
            self.pool.chunks,
            self.pool.used,
            counts.get("assembled", 0),
            {name: counts.get(name, 0) for name in ("evicted", "expired")},
            refused,
            counts.get("duplicate", 0),
            {str(Partition(*partition)): offset for partition, offset in self.pool.safe_offsets().items()},
        )
