"""A few rows as a batch's message, put together from their bytes.

Arrow's calls cost more than a few rows' bytes do, and let go of the interpreter many times, which another thread takes
each time. The metadata of one schema has one shape, and its JSON document may stand at its end: so but for numbers it
is always the same. Layout: Arrow's Message.fbs, and "Encapsulated message format" of the columnar format.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

from crc32c import crc32c

from penstock.compact_json import compact_json
from penstock.log.store.batch_format import CRC_BLANK, CRC_KEY, PREFIX, Framed
from penstock.records import CONTINUATION, METADATA_KEY, Rows

FEW, MOST = 1024, 256 << 10
"""Up to so many rows, with so many bytes, it is quicker: 145 rows of 100 B take 32 us, as columns of Arrow 49."""
KEPT = 256
"""Columns without values that are kept."""
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
            return int(crc32c(_NONE, crc))
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

    @property
    def nodes(self) -> tuple[int, ...]:
        """Rows and missing values, of it and of those within it; between a map and its names and texts is the pair."""
        if not self.of:
            return self.rows, self.nulls
        names, texts = self.of
        return self.rows, self.nulls, names.rows, 0, *names.nodes, *texts.nodes

    @property
    def buffers(self) -> tuple[bytes, ...]:
        if not self.offsets:
            return b"", self.data
        if self.of:
            names, texts = self.of
            return self.bits, self.offsets, b"", *names.buffers, *texts.buffers
        return self.bits, self.offsets, self.data


@dataclass(slots=True)
class _Laid:
    """A column as it lies in a message's body: ``places`` are where its buffers begin in ``block``, and their sizes."""

    nodes: tuple[int, ...]
    places: tuple[int, ...]
    block: bytes


def _laid(column: _Column) -> _Laid:
    """Each buffer at a multiple of eight."""
    places: list[int] = []
    parts: list[bytes] = []
    at = 0
    for buffer in column.buffers:
        size = len(buffer)
        places += (at, size)
        if size:
            parts += (buffer, _PADDING[-size % 8])
            at += size + -size % 8
    return _Laid(column.nodes, tuple(places), b"".join(parts))


_NONE = b"no values"
_DIGITS = b"01" + bytes(254)
_PADDING = [bytes(count) for count in range(8)]


def checksum(rows: Rows) -> int:
    """The CRC32C of the rows: what ``producers.checksum`` says of them as a batch."""
    crc = 0
    for make, values in zip(_COLUMNS, zip(*rows, strict=True), strict=True):
        crc = int(crc32c(_NONE, crc)) if values.count(None) == len(values) else make(values).checksum(crc)
    return crc


def frame(rows: Rows, base: int, time: int, described: Mapping[str, Any]) -> Framed:
    """Rows with offsets from ``base`` and timestamps from ``time`` on as a message with its checksum."""
    count = len(rows)
    columns = map(_lay, _COLUMNS, zip(*rows, strict=True))
    nodes, places, body = _body([_numbers(base, count), _numbers(time, count), *columns])
    text = compact_json(described)
    end = bytes(8 - (_HEAD.size + len(text)) % 8)
    size = _HEAD.size - PREFIX + len(text) + len(end)
    message = (*_MESSAGE, len(body), *_BEHIND_LENGTH)
    batch = (*_BATCH, count, _TO_BUFFERS, _NODES, *nodes, _BUFFERS, *places)
    head = _HEAD.pack(CONTINUATION, size, *message, *batch, *_ENTRIES, *_NAMES, len(text)) + text + end
    crc = int(crc32c(body, crc32c(head)))
    head = head[:_CRC_AT] + b"%08x" % crc + head[_CRC_AT + len(CRC_BLANK) :]
    return Framed((head, body), len(head) + len(body), crc)


def _numbers(first: int, count: int) -> _Laid:
    size = 8 * count
    return _Laid((count, 0), (0, 0, 0, size), struct.pack(f"<{count}q", *range(first, first + count)))


def _values(values: Sequence[bytes | None]) -> _Column:
    nulls = values.count(None)
    given = [value or b"" for value in values] if nulls else values
    return _Column(len(values), nulls, _present(values, nulls), _offsets(map(len, given)), b"".join(given))  # type: ignore[arg-type]


def _texts(texts: Sequence[str | None]) -> _Column:
    return _values([None if text is None else text.encode() for text in texts])


def _maps(maps: Sequence[list[tuple[str, str]] | None]) -> _Column:
    nulls = maps.count(None)
    pairs = [pair for entries in maps if entries for pair in entries]
    of = _texts([name for name, _ in pairs]), _texts([text for _, text in pairs])
    offsets = _offsets(len(entries or ()) for entries in maps)
    return _Column(len(maps), nulls, _present(maps, nulls), offsets, b"", of)


def _present(values: Iterable[Any], nulls: int) -> bytes:
    return bytes([value is not None for value in values]) if nulls else b""


def _offsets(lengths: Iterable[int]) -> bytes:
    return array("i", accumulate(lengths, initial=0)).tobytes()


_Make = Callable[[Any], _Column]
_COLUMNS: tuple[_Make, ...] = (_values, _values, _texts, _maps)


def _lay(make: _Make, values: Sequence[Any]) -> _Laid:
    count = len(values)
    return _no_values(make, count) if values.count(None) == count else _laid(make(values))


@lru_cache(KEPT)
def _no_values(make: _Make, rows: int) -> _Laid:
    return _laid(make([None] * rows))


def _body(columns: Sequence[_Laid]) -> tuple[list[int], list[int], bytes]:
    """All nodes, where each buffer is and its length, and the columns one behind the other."""
    nodes: list[int] = []
    places: list[int] = []
    at = 0
    for column in columns:
        nodes += column.nodes
        places += column.places
        if at:
            places[-len(column.places) :: 2] = [begin + at for begin in column.places[::2]]
        at += len(column.block)
    return nodes, places, b"".join([column.block for column in columns])
