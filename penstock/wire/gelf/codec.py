"""The codec ``gelf``: datagrams, or what NULs end, to messages as they were before they were compressed and cut.

What is neither compressed nor a chunk is handled by columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.counts import Counts, Name
from penstock.records import body, values_of
from penstock.wire.datagrams import Datagrams, Ints
from penstock.wire.decoded import Decoded, Piece, join
from penstock.wire.gelf.chunks import Chunk, are_chunks, chunks_of, well_formed
from penstock.wire.gelf.fields import fields_of
from penstock.wire.gelf.unpacking import Refusal, is_compressed, unpacked
from penstock.wire.plog.reassembly import Reassembly
from penstock.wire.plog.statistics import Statistics

_COMPRESSED = np.array([[is_compressed(bytes((first, second))) for second in range(256)] for first in range(256)])


class GelfDecoder:
    """Decodes the rounds, or lines, of one listener; ``statistics`` has plog's keys.

    ``max_size``: bytes of the largest message that is compressed or in chunks, and of all unfinished ones;
    ``expire_time``: seconds after which an unfinished one is given up. A round gives at most that many bytes of these
    messages (``Decoded.consumed``), so that what is small on the wire does not grow beyond bounds here.
    """

    def __init__(self, max_size: int = 1 << 20, expire_time: float = 10.0) -> None:
        self.statistics = Statistics()
        self._max_size = max_size
        self._table = Reassembly(max_size, expire_time, self.statistics)

    @property
    def open_messages(self) -> int:
        """Messages that wait for chunks."""
        return self._table.open_messages

    @property
    def open_fragments(self) -> int:
        """Chunks that wait for the rest of their message."""
        return self._table.open_fragments

    @property
    def held_bytes(self) -> int:
        """Bytes of those chunks."""
        return self._table.held_bytes

    def decode(self, datagrams: Datagrams, now: float) -> Decoded:
        """The first datagrams of a round, or all. Nothing that a sender can send raises."""
        counts, size, taken = self.expire(now), 0, len(datagrams)
        first, second = datagrams.matrix[: len(datagrams), :2].T
        chunks = are_chunks(datagrams)
        others = chunks | ((datagrams.lengths > 1) & _COMPRESSED[first, second])
        found: list[tuple[int, bytes]] = []
        for row, message in self._made_whole(datagrams, np.flatnonzero(others), chunks, now, counts):
            if isinstance(message, bytes):
                found.append((row, message))
                size += len(message)
            elif message is Refusal.OVERSIZE:  # max_size bytes of it were unpacked, and took as long
                size += self._max_size
            if size >= self._max_size:
                taken = row + 1
                break
        filled = datagrams.lengths[:taken] > 0
        plain = np.flatnonzero(filled & ~others[:taken])
        self._count_unboxed(counts, len(plain))
        counts.absorb({Name.TAKEN: taken, Name.EMPTY: taken - int(filled.sum())})
        pieces = [Piece(plain, datagrams.payloads(None if len(plain) == len(datagrams) else plain))]
        pieces.append(
            Piece(np.array([row for row, _ in found], np.int64), pa.array([m for _, m in found], pa.binary()))
        )
        joined, rows = join(pieces)
        messages = joined["payload"]
        return Decoded(body(messages, annotations=fields_of(messages)), counts, rows=rows, consumed=taken)

    def decode_lines(self, lines: pa.Array[Any]) -> Decoded:
        """One message per line."""
        self.statistics.udp_simple_messages += len(lines)
        return Decoded(body(lines, annotations=fields_of(lines)), Counts(), rows=np.arange(len(lines)))

    def expire(self, now: float) -> Counts:
        """Give up what has waited for too long."""
        counts = Counts()
        self._table.expire(now, counts)
        return counts

    def _made_whole(
        self, datagrams: Datagrams, rows: Ints, chunks: np.ndarray, now: float, counts: Counts
    ) -> Iterator[tuple[int, bytes | Refusal | None]]:
        """Each of ``rows``, which are compressed or chunks, with the message that it is, or completes."""
        whole = rows[~chunks[rows]]
        packed = iter(values_of(datagrams.payloads(whole)))
        right = np.zeros(len(datagrams), np.bool_)
        right[rows] = well_formed(datagrams, rows)
        parts = chunks_of(datagrams, rows[chunks[rows] & right[rows]])
        for row in rows.tolist():
            message: bytes | None = None
            if not chunks[row]:
                self._count_unboxed(counts, 1)
                message = next(packed)
            elif right[row]:
                message = self._completed(next(parts), now, counts)
            else:
                counts[f"{Name.INVALID}header"] += 1
            yield row, None if message is None else self._unpacked(message, counts)

    def _completed(self, chunk: Chunk, now: float, counts: Counts) -> bytes | None:
        """The message that a chunk completes."""
        _, assembled = self._table.add(chunk.key, chunk.header, chunk.number, chunk.part, b"", now, counts)
        return None if assembled is None else assembled.payload

    def _unpacked(self, message: bytes, counts: Counts) -> bytes | Refusal:
        """Return an accepted message as it was before it was compressed, or why it is refused after all."""
        found = unpacked(message, self._max_size) if is_compressed(message[:2]) else message
        if isinstance(found, Refusal):
            counts.absorb({f"{Name.REFUSED}{found}": 1, Name.ACCEPTED: -1})
        return found

    def _count_unboxed(self, counts: Counts, number: int) -> None:
        counts.absorb(dict.fromkeys((Name.UNBOXED, Name.SEEN, Name.ACCEPTED), number))
        self.statistics.udp_simple_messages += number
