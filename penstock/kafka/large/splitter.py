"""From messages to records: a message that is too large becomes segments, any other stays as it is.

Rules of the Java library (specification B1, splitter and producer), except that the user's headers are never lost,
also with values that are None or empty, and that an id which is made here is the same everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from penstock.kafka.errors import InvalidChunk
from penstock.kafka.large.chunks import LARGEST, Bytes, Chunk, ChunkSerializer, serialize_chunk
from penstock.kafka.large.headers import (
    LARGE_MESSAGE,
    LEGACY_V2,
    TIMESTAMP,
    V3,
    Header,
    LargeMessageHeader,
    encode_large_message_header,
    encode_long,
    message_key,
    without,
)

DEFAULT_CHUNK_BYTES = 800_000
DEFAULT_REQUEST_BYTES = 1_048_576
RecordKey = str | bytes | None
IdFactory = Callable[[str, Any, Any], UUID]
"""Topic, key and value -> the id of a large message."""


class OutgoingRecord(NamedTuple):
    """A record to send. ``segments`` is how many its message has."""

    key: RecordKey
    value: Bytes | None
    headers: list[Header] | None
    chunks: int = 1


def random_id(topic: str, key: Any, value: Any) -> UUID:
    """The default of ids: random ones."""
    return uuid4()


class MessageSplitter:
    """Cuts messages into segments of ``segment_bytes`` at most.

    ``in_header``: the record's header alone says which segment it is (``li.record.header.enable``); else it stands
    before the payload as ``serializer`` writes it, and in the header besides.
    """

    def __init__(
        self, chunk_bytes: int, *, in_header: bool = False, serializer: ChunkSerializer = serialize_chunk
    ) -> None:
        if chunk_bytes <= 0:
            raise ValueError("a segment has at least one byte")
        self.chunk_bytes = chunk_bytes
        self._in_header, self._serialize = in_header, serializer

    def split(
        self,
        topic: str,
        value: Bytes | None,
        key: RecordKey = None,
        headers: Iterable[Header] | None = None,
        message_id: UUID | None = None,
    ) -> Iterator[OutgoingRecord]:
        """The records of a message, one at a time: only one segment is in memory beside the message.

        A value that is None or empty is one plain record. Without a key the segments of a message in several get its
        id, so that they share a partition. Raises ValueError for no topic, InvalidChunk for more than 2 GiB.
        """
        if not topic:
            raise ValueError("Topic cannot be empty.")
        kept = without(headers, LARGE_MESSAGE)
        if value is None or not len(value):
            return iter((OutgoingRecord(key, value, kept),))
        if len(value) > LARGEST:
            raise InvalidChunk("size", f"a message of {len(value)} bytes is more than {LARGEST}")
        return self._chunks(topic, value, key, kept, message_id or uuid4())

    def _chunks(
        self, topic: str, value: Bytes, key: RecordKey, kept: list[Header], message_id: UUID
    ) -> Iterator[OutgoingRecord]:
        size, step = len(value), self.chunk_bytes
        count = -(-size // step)
        key = message_key(message_id) if key is None and count > 1 else key
        view = memoryview(value)
        for sequence in range(count):
            chunk = Chunk(message_id, sequence, count, size, view[sequence * step : (sequence + 1) * step])
            yield OutgoingRecord(key, self._value(topic, chunk), [*kept, self._header(chunk)], count)

    def _value(self, topic: str, chunk: Chunk) -> Bytes:
        return chunk.payload if self._in_header else self._serialize(topic, chunk)

    def _header(self, chunk: Chunk) -> Header:
        kind = V3 if self._in_header else LEGACY_V2
        header = LargeMessageHeader(kind, chunk.message_id, chunk.sequence, chunk.count, chunk.message_size)
        return LARGE_MESSAGE, encode_large_message_header(header)


class Packer:
    """Decides for each message whether it is split, and stamps it with its time.

    ``enabled``: ``large.message.enabled``; ``wrap_small``: also small messages become segments, of which each is the
    only one (``li.large.message.segment.wrapping.required``); ``stamped``: ``header.timestamp.enabled``.
    """

    def __init__(
        self,
        splitter: MessageSplitter,
        *,
        enabled: bool = False,
        wrap_small: bool = False,
        stamped: bool = True,
        request_bytes: int = DEFAULT_REQUEST_BYTES,
        new_id: IdFactory = random_id,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._splitter, self._stamped, self._new_id, self._now = splitter, stamped, new_id, now
        threshold = min(splitter.chunk_bytes, request_bytes)
        self.threshold = (-1 if wrap_small else threshold) if enabled else LARGEST
        """Values of more bytes are split (or wrapped)."""

    def pack(
        self,
        topic: str,
        value: Bytes | None,
        key: RecordKey = None,
        headers: list[Header] | None = None,
        timestamp: int | None = None,
    ) -> Iterable[OutgoingRecord]:
        """The records of a message made at ``timestamp`` (milliseconds; None: now).

        ``headers`` itself gets ``_t`` where it has none. Raises as ``MessageSplitter.split``.
        """
        if self._stamped:
            headers = self.stamp(headers, timestamp)
        if value is None or len(value) <= self.threshold:
            return (OutgoingRecord(key, value, headers),)
        return self._splitter.split(topic, value, key, headers, self._new_id(topic, key, value))

    def stamp(self, headers: list[Header] | None, timestamp: int | None) -> list[Header]:
        """The headers with ``_t``, in place."""
        headers = [] if headers is None else headers
        if not any(name == TIMESTAMP for name, _ in headers):
            stamp = int(self._now() * 1000) if timestamp is None else timestamp
            headers.append((TIMESTAMP, encode_long(stamp)))
        return headers
