"""From records to messages: which record is a whole message, which a segment, and which segment the last one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.kafka.errors import InvalidChunk, Partition
from penstock.kafka.large.chunks import Bytes, Chunk, ChunkDeserializer, deserialize_chunk
from penstock.kafka.large.headers import Header, decode_large_message_header
from penstock.kafka.large.incomplete_messages import BufferPool
from penstock.kafka.large.safe_offsets import TopicAndPartition

DEFAULT_CAPACITY = 32_000_000
DEFAULT_EXPIRATION_GAP = 1_000


class Assembled(NamedTuple):
    """What a record gave: a message (``value`` may be None, and empty), unless ``incomplete``."""

    value: Bytes | None
    starting_offset: int
    incomplete: bool = False


@dataclass(frozen=True, slots=True)
class AssemblerSnapshot:
    """An assembler as of one moment: what is in progress, and what became of all the rest.

    ``messages``, ``segments`` and ``bytes`` are in the buffer now; ``assembled`` messages were completed of segments;
    ``dropped`` are incomplete messages by reason (evicted, expired), ``refused`` segments by reason, ``duplicates``
    segments that came again. ``safe_offsets`` are those of partitions (``topic-0``) with incomplete messages. A message
    that was dropped and whose further segments come later counts once more when those expire.
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
    """Puts messages together again. ``deserializer`` says what is a segment where the record's header does not.

    With ``bad_segments_as_payload`` a segment that contradicts itself is taken for a message of its own.
    """

    def __init__(
        self,
        capacity: int = DEFAULT_CAPACITY,
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
        """Whether segments are told by the default format, and by nothing else."""
        return self._deserialize is deserialize_chunk

    def assemble(
        self, partition: TopicAndPartition, offset: int, value: Bytes | None, header: Header | None = None
    ) -> Assembled:
        """Take a record; ``header`` is its last ``_lm``. Raises InvalidChunk and MessageDropped."""
        if value is None:
            return Assembled(None, offset)
        try:
            chunk = self._chunk(partition[0], value, header)
            if chunk is not None:
                chunk.check()
        except InvalidChunk as error:
            self.pool.lose(partition, f"refused.{error.reason}")
            if not self._lenient:
                raise
            return Assembled(value, offset)
        if chunk is None:
            return Assembled(value, offset)
        if chunk.count == 1:
            return Assembled(bytes(chunk.payload), offset)
        added = self.pool.add(partition, offset, chunk)
        return Assembled(added.message, added.starting_offset, added.message is None)

    def _chunk(self, topic: str, value: Bytes, header: Header | None) -> Chunk | None:
        if header is not None:
            told = decode_large_message_header(header[1])
            if told.is_in_header():
                return told.chunk_of(value)
        return self._deserialize(topic, value)

    def safe_offset(self, partition: TopicAndPartition, current: int) -> int:
        """Where the oldest incomplete message begins once reading has come to ``current``; else NOTHING_PENDING."""
        return self.pool.safe_offset(partition, current)

    def clear(self, partition: TopicAndPartition | None = None) -> None:
        """Forget a partition, or all."""
        self.pool.clear(partition)

    def snapshot(self) -> AssemblerSnapshot:
        """For the balance and the console."""
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
