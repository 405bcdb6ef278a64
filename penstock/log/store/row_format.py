"""A few rows as a batch's message, put together from their bytes.

Arrow's calls cost more than a few rows' bytes do, and let go of the interpreter many times, which another thread takes
each time. The metadata of one schema has one shape, and its JSON document may stand at its end: so but for numbers it
is always the same. Layout: Arrow's Message.fbs, and "Encapsulated message format" of the columnar format.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any

from crc32c import crc32c

from penstock.log.store.batch_format import CRC_BLANK, CRC_KEY, PREFIX, Framed
from penstock.records import CONTINUATION, METADATA_KEY, Rows, document_text

FEW = 32
"""Up to so many rows it is quicker."""
_V5, _RECORD_BATCH = 4, 3
_NODES, _BUFFERS = 9, 22
_HEAD = struct.Struct(
    "<Ii"  # continuation mark, length of what follows up to the body
    "I4x 7H2x i I q I hBx"  # where Message is; its vtable; Message: header, bodyLength, custom_metadata, version, type
    f"5H6x i I q I I{2 * _NODES}q 4xI{2 * _BUFFERS}q"  # RecordBatch, its length, its nodes, its buffers
    "I2I 4H iII iII"  # two KeyValue
    "I8s4x I6s2x I8s4x I"  # penstock, crc32c and its value, the length of the document behind all this
)
_CRC_AT = _HEAD.size - 16
# What never changes, by its order in _HEAD: sizes, and distances from one thing to another.
_MESSAGE = (24, 14, 24, 20, 22, 4, 8, 16, 16, 36)
_BEHIND_LENGTH = (552, _V5, _RECORD_BATCH)
_BATCH = (10, 20, 8, 4, 16, 16, 16)
_TO_BUFFERS = 156
_ENTRIES = (2, 16, 24, 8, 12, 4, 8, 8, 20, 60, 20, 24, 32)
_NAMES = (len(METADATA_KEY), METADATA_KEY, len(CRC_KEY), CRC_KEY, len(CRC_BLANK), CRC_BLANK)


@dataclass(slots=True)  # not frozen: those take three times as long to make
class _Column:
    """Values one after the other; ``of`` are those within them, for a column of maps."""

    rows: int
    nulls: int
    present: bytes
    """A byte for each row, where some have no value."""
    offsets: bytes
    """Where each value begins in ``data`` or ``of``, and the last one ends (int32); none for values of one size."""
    data: bytes = b""
    of: tuple[_Column, ...] = ()

    def checksum(self, crc: int) -> int:
        """As ``producers.checksum`` has it of an Arrow array."""
        if self.nulls == self.rows:
            return int(crc32c(b"no values", crc))
        for part in (self.offsets, self.present, self.data):
            crc = int(crc32c(part, crc))
        for column in self.of:
            crc = column.checksum(crc)
        return crc

    @property
    def bits(self) -> bytes:
        """A bit for each row, the first one lowest; none where all have values."""
        if not self.nulls:
            return b""
        if self.nulls == self.rows:
            return bytes(-(-self.rows // 8))
        number = int(self.present.translate(_DIGITS)[::-1], 2)
        return number.to_bytes(-(-self.rows // 8), "little")


_DIGITS = b"01" + bytes(254)


def checksum(rows: Rows) -> int:
    """The CRC32C of the rows: what ``producers.checksum`` says of them as a batch."""
    crc = 0
    for column in _columns(rows):
        crc = column.checksum(crc)
    return crc


def frame(rows: Rows, base: int, time: int, described: Mapping[str, Any]) -> Framed:
    """Rows with offsets from ``base`` and timestamps from ``time`` on as a message with its checksum."""
    columns = (_numbers(base, len(rows)), _numbers(time, len(rows)), *_columns(rows))
    places, body = _body(chain.from_iterable(map(_buffers, columns)))
    text = document_text(described)
    end = bytes(8 - (_HEAD.size + len(text)) % 8)
    nodes = [number for column in chain.from_iterable(map(_all, columns)) for number in (column.rows, column.nulls)]
    size = _HEAD.size - PREFIX + len(text) + len(end)
    message = (*_MESSAGE, len(body), *_BEHIND_LENGTH)
    batch = (*_BATCH, len(rows), _TO_BUFFERS, _NODES, *nodes, _BUFFERS, *places)
    head = _HEAD.pack(CONTINUATION, size, *message, *batch, *_ENTRIES, *_NAMES, len(text)) + text + end
    crc = int(crc32c(body, crc32c(head)))
    head = head[:_CRC_AT] + b"%08x" % crc + head[_CRC_AT + len(CRC_BLANK) :]
    return Framed((head, body), len(head) + len(body), crc)


def _columns(rows: Rows) -> tuple[_Column, ...]:
    keys, payloads, types, annotations = zip(*rows, strict=True)
    return _values(keys), _values(payloads), _texts(types), _maps(annotations)


def _numbers(first: int, count: int) -> _Column:
    return _Column(count, 0, b"", b"", struct.pack(f"<{count}q", *range(first, first + count)))


def _values(values: Sequence[bytes | None]) -> _Column:
    nulls = values.count(None)
    if nulls == len(values):
        return _no_values(nulls)
    given = [value or b"" for value in values]
    return _Column(len(values), nulls, _present(values, nulls), _offsets(map(len, given)), b"".join(given))


def _texts(texts: Sequence[str | None]) -> _Column:
    if texts.count(None) == len(texts):
        return _no_values(len(texts))
    return _values([None if text is None else text.encode() for text in texts])


def _maps(maps: Sequence[list[tuple[str, str]] | None]) -> _Column:
    nulls = maps.count(None)
    if nulls == len(maps):
        return _no_maps(nulls)
    pairs = [pair for entries in maps if entries for pair in entries]
    of = _texts([name for name, _ in pairs]), _texts([text for _, text in pairs])
    offsets = _offsets(len(entries or ()) for entries in maps)
    return _Column(len(maps), nulls, _present(maps, nulls), offsets, b"", of)


@lru_cache(2 * FEW)
def _no_values(rows: int) -> _Column:
    return _Column(rows, rows, b"", bytes(4 * rows + 4))


@lru_cache(2 * FEW)
def _no_maps(rows: int) -> _Column:
    return _Column(rows, rows, b"", bytes(4 * rows + 4), b"", (_no_values(0), _no_values(0)))


def _present(values: Iterable[Any], nulls: int) -> bytes:
    return bytes([value is not None for value in values]) if nulls else b""


def _offsets(lengths: Iterable[int]) -> bytes:
    return array("i", accumulate(lengths, initial=0)).tobytes()


def _all(column: _Column) -> Iterator[_Column]:
    """A column and those within it; between a map and its names and texts there is the pair."""
    yield column
    if column.of:
        yield _Column(column.of[0].rows, 0, b"", b"")
        yield from column.of


def _buffers(column: _Column) -> tuple[bytes, ...]:
    if not column.offsets:
        return b"", column.data
    if column.of:
        return column.bits, column.offsets, b"", *chain.from_iterable(map(_buffers, column.of))
    return column.bits, column.offsets, column.data


def _body(buffers: Iterable[bytes]) -> tuple[list[int], bytes]:
    """Where each buffer is, and its length; and all of them, each at a multiple of eight."""
    places: list[int] = []
    parts: list[bytes] = []
    at = 0
    for buffer in buffers:
        size = len(buffer)
        places += (at, size)
        if size:
            parts += (buffer, _PADDING[-size % 8])
            at += size + -size % 8
    return places, b"".join(parts)


_PADDING = [bytes(count) for count in range(8)]
