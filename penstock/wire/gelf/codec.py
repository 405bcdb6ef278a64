"""The codec ``gelf``: datagrams or lines to messages, decompressed and reassembled.

Fast path: datagrams that are neither compressed nor chunks are handled as columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts, Name
from penstock.records import body, values_of
from penstock.wire.datagrams import Datagrams, Ints
from penstock.wire.decoded import Decoded, Piece, join
from penstock.wire.gelf.chunks import Chunk, are_chunks, chunks_of, well_formed
from penstock.wire.gelf.fields import fields_of
from penstock.wire.gelf.unpacking import Refusal, is_compressed, unpack
from penstock.wire.plog.reassembly import Reassembly
from penstock.wire.plog.statistics import Statistics
from penstock.wire.syslog.octets import raw_bytes

_COMPRESSED = np.array([[is_compressed(bytes((first, second))) for second in range(256)] for first in range(256)])


class GelfDecoder:
    """Decoder of one listener's rounds or lines; ``statistics`` has plog's keys.

    ``max_size``: bytes of the largest compressed or chunked message, and of all unfinished messages together.
    ``expire_time``: seconds after which an unfinished message is given up.
    """

    def __init__(self, max_size: int = 1 << 20, expire_time: float = 10.0) -> None:
        self.statistics = Statistics()
        self._max_size = max_size
        self._reassembly = Reassembly(max_size, expire_time, self.statistics)

    @property
    def open_messages(self) -> int:
        """Number of messages that wait for chunks."""
        return self._reassembly.open_messages

    @property
    def open_fragments(self) -> int:
        """Number of chunks that wait for the rest of their message."""
        return self._reassembly.open_fragments

    @property
    def held_bytes(self) -> int:
        """Bytes of the waiting chunks."""
        return self._reassembly.held_bytes

    def decode(self, datagrams: Datagrams, now: float) -> Decoded:
        """Decode the first datagrams of a round, or all. No input raises."""
        # Order: old messages are given up first, so that their room is free for this round.
        counts, size, consumed = self.expire(now), 0, len(datagrams)
        first, second = datagrams.matrix[: len(datagrams), :2].T
        chunks = are_chunks(datagrams)
        needs_work = chunks | ((datagrams.lengths > 1) & _COMPRESSED[first, second])
        unpacked_messages: list[tuple[int, bytes]] = []
        refused_rows: list[int] = []
        for row, message in self._reassemble(datagrams, np.flatnonzero(needs_work), chunks, now, counts):
            if isinstance(message, Refusal):
                refused_rows.append(row)
            if isinstance(message, bytes):
                unpacked_messages.append((row, message))
                size += len(message)
            elif message is Refusal.OVERSIZE:
                size += self._max_size  # the bytes that were decompressed before the refusal
            # Limit: the round ends when such messages reach max_size bytes, so they have less than twice as many. The
            # caller passes the rest again.
            if size >= self._max_size:
                consumed = row + 1
                break
        filled = datagrams.lengths[:consumed] > 0
        plain = np.flatnonzero(filled & ~needs_work[:consumed])
        self._count_unboxed(counts, len(plain))
        counts.absorb({Name.TAKEN: consumed, Name.EMPTY: consumed - int(filled.sum())})
        pieces = [Piece(plain, datagrams.payloads(None if len(plain) == len(datagrams) else plain))]
        pieces.append(
            Piece(
                np.array([row for row, _ in unpacked_messages], np.int64),
                pa.array([m for _, m in unpacked_messages], pa.binary()),
            )
        )
        joined, rows = join(pieces)
        messages = _without_nul(joined["payload"])
        refused = np.array(refused_rows, np.int64)
        annotations = fields_of(messages)
        return Decoded(body(messages, annotations=annotations), counts, rows=rows, consumed=consumed, refused=refused)

    def decode_lines(self, lines: pa.Array[Any]) -> Decoded:
        """Return one message per line."""
        self.statistics.udp_simple_messages += len(lines)
        return Decoded(body(lines, annotations=fields_of(lines)), Counts(), rows=np.arange(len(lines)))

    def expire(self, now: float) -> Counts:
        """Give up messages that have waited too long."""
        counts = Counts()
        self._reassembly.expire(now, counts)
        return counts

    def _reassemble(
        self, datagrams: Datagrams, rows: Ints, chunks: np.ndarray, now: float, counts: Counts
    ) -> Iterator[tuple[int, bytes | Refusal | None]]:
        """Yield each of ``rows``, which are compressed or chunks, with the message that it is or completes."""
        complete = rows[~chunks[rows]]
        compressed_payloads = iter(values_of(datagrams.payloads(complete)))
        is_well_formed = np.zeros(len(datagrams), np.bool_)
        is_well_formed[rows] = well_formed(datagrams, rows)
        parts = chunks_of(datagrams, rows[chunks[rows] & is_well_formed[rows]])
        for row in rows.tolist():
            message: bytes | None = None
            if not chunks[row]:
                self._count_unboxed(counts, 1)
                message = next(compressed_payloads)
            elif is_well_formed[row]:
                message = self._add_chunk(next(parts), now, counts)
            else:
                counts[f"{Name.INVALID}header"] += 1
                self.statistics.losses.add(Name.INVALID, int(datagrams.addresses[row]))
            yield row, None if message is None else self._unpack(message, counts)

    def _add_chunk(self, chunk: Chunk, now: float, counts: Counts) -> bytes | None:
        """Return the message that a chunk completes."""
        _, assembled = self._reassembly.add(chunk.key, chunk.header, chunk.number, chunk.part, b"", now, counts)
        return None if assembled is None else assembled.payload

    def _unpack(self, message: bytes, counts: Counts) -> bytes | Refusal:
        """Decompress an accepted message; return the reason if it is refused after all."""
        unpacked_message = unpack(message, self._max_size) if is_compressed(message[:2]) else message
        if isinstance(unpacked_message, Refusal):
            counts.absorb({f"{Name.REFUSED}{unpacked_message}": 1, Name.ACCEPTED: -1})
        return unpacked_message

    def _count_unboxed(self, counts: Counts, number: int) -> None:
        counts.absorb(dict.fromkeys((Name.UNBOXED, Name.SEEN, Name.ACCEPTED), number))
        self.statistics.udp_simple_messages += number


def _without_nul(messages: pa.Array[Any]) -> pa.Array[Any]:
    """Return ``messages`` (type binary) without a NUL at their end: it ends messages over TCP and is not JSON.

    Workaround: tracing-gelf 0.9 writes it into datagrams too.
    """
    content, starts, ends = raw_bytes(messages)
    if not len(content):
        return messages
    has_nul = (ends - starts > 1) & (content[ends - 1] == 0)
    # Fast path: other senders write none, and their messages are not copied.
    return pc.if_else(pa.array(has_nul), pc.binary_slice(messages, 0, -1), messages) if has_nul.any() else messages
