"""Split messages into records: a message over the limit becomes chunks, any other stays one record.

The rules follow LiKafkaProducerImpl and MessageSplitterImpl of li-apache-kafka-clients, with two differences:
the user's headers are kept also if the value is None or empty, and one generated id serves for key, header and
payload.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from penstock.kafka.errors import InvalidChunk
from penstock.kafka.large.chunks import MAX_MESSAGE_BYTES, Bytes, Chunk, ChunkSerializer, serialize_chunk
from penstock.kafka.large.headers import (
    LARGE_MESSAGE,
    LEGACY_V2,
    TIMESTAMP,
    V3,
    Header,
    LargeMessageHeader,
    drop_header,
    encode_large_message_header,
    encode_long,
    message_key,
)

DEFAULT_CHUNK_BYTES = 800_000
"""Default of ``max.message.segment.bytes``: leaves room for headers below a broker's limit of 1 MB."""
DEFAULT_REQUEST_BYTES = 1_048_576
"""Default of ``max.request.size`` in Kafka's producer."""
RecordKey = str | bytes | None
IdFactory = Callable[[str, Any, Any], UUID]
"""Maps topic, key and value to the id of a large message."""


class OutgoingRecord(NamedTuple):
    """A record to send; ``chunks`` is the number of records of its message."""

    key: RecordKey
    value: Bytes | None
    headers: list[Header] | None
    chunks: int = 1


def random_id(topic: str, key: Any, value: Any) -> UUID:
    """Return a random id, the default for large messages."""
    return uuid4()


class MessageSplitter:
    """Splits messages into chunks of at most ``chunk_bytes``.

    With ``in_header`` only the record header describes the chunk (``li.record.header.enable``); otherwise
    ``serializer`` writes the description before the payload, in addition to the header.
    """

    def __init__(
        self, chunk_bytes: int, *, in_header: bool = False, serializer: ChunkSerializer = serialize_chunk
    ) -> None:
        if chunk_bytes <= 0:
            raise ValueError(f"the size of a chunk is {chunk_bytes} bytes, must be at least 1")
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
        """Yield the records of a message one at a time, so that only one chunk is in memory besides the message.

        A value that is None or empty is one plain record. The chunks of an unkeyed message get its id as their key, so
        that they share a partition. Raises ValueError for an empty topic, InvalidChunk for more than 2 GiB.
        """
        if not topic:
            raise ValueError("Topic cannot be empty.")
        user_headers = drop_header(headers, LARGE_MESSAGE)
        if value is None or not len(value):
            return iter((OutgoingRecord(key, value, user_headers),))
        if len(value) > MAX_MESSAGE_BYTES:
            raise InvalidChunk("size", f"message of {len(value)} bytes is larger than {MAX_MESSAGE_BYTES} bytes")
        return self._split_into_chunks(topic, value, key, user_headers, message_id or uuid4())

    def _split_into_chunks(
        self, topic: str, value: Bytes, key: RecordKey, user_headers: list[Header], message_id: UUID
    ) -> Iterator[OutgoingRecord]:
        size, chunk_bytes = len(value), self.chunk_bytes
        count = -(-size // chunk_bytes)
        key = message_key(message_id) if key is None and count > 1 else key
        # Slices of a view copy nothing until the serializer or librdkafka does.
        view = memoryview(value)
        for sequence in range(count):
            chunk = Chunk(
                message_id, sequence, count, size, view[sequence * chunk_bytes : (sequence + 1) * chunk_bytes]
            )
            yield OutgoingRecord(key, self._value(topic, chunk), [*user_headers, self._header(chunk)], count)

    def _value(self, topic: str, chunk: Chunk) -> Bytes:
        return chunk.payload if self._in_header else self._serialize(topic, chunk)

    def _header(self, chunk: Chunk) -> Header:
        kind = V3 if self._in_header else LEGACY_V2
        header = LargeMessageHeader(kind, chunk.message_id, chunk.sequence, chunk.count, chunk.message_size)
        return LARGE_MESSAGE, encode_large_message_header(header)


class Packer:
    """Decides for each message whether it is split, and stamps it with its creation time.

    ``enabled`` is ``large.message.enabled``; ``wrap_small`` makes small messages single chunks
    (``li.large.message.segment.wrapping.required``); ``stamped`` is ``header.timestamp.enabled``.
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
        self.threshold = (-1 if wrap_small else threshold) if enabled else MAX_MESSAGE_BYTES
        """Values with more bytes are split, or wrapped as a single chunk."""

    def pack(
        self,
        topic: str,
        value: Bytes | None,
        key: RecordKey = None,
        headers: list[Header] | None = None,
        timestamp: int | None = None,
    ) -> Iterable[OutgoingRecord]:
        """Return the records of a message created at ``timestamp`` (milliseconds; None: now).

        A missing ``_t`` is appended to ``headers`` itself. Raises as ``MessageSplitter.split``.
        """
        if self._stamped:
            headers = self.stamp(headers, timestamp)
        if value is None or len(value) <= self.threshold:
            return (OutgoingRecord(key, value, headers),)
        return self._splitter.split(topic, value, key, headers, self._new_id(topic, key, value))

    def stamp(self, headers: list[Header] | None, timestamp: int | None) -> list[Header]:
        """Append ``_t`` to the headers in place if it is missing."""
        headers = [] if headers is None else headers
        if not any(name == TIMESTAMP for name, _ in headers):
            created_ms = int(self._now() * 1000) if timestamp is None else timestamp
            headers.append((TIMESTAMP, encode_long(created_ms)))
        return headers
