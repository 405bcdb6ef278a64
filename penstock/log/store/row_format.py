"""A batch of few rows, encoded directly as bytes without Arrow.

Fast path: Arrow's calls cost more than the bytes of a few rows, and release the interpreter lock many times, each time
to another thread. The metadata of one schema has a fixed layout, so only its numbers are filled in, and the JSON
document is placed at the end. Layout: Arrow's Message.fbs, and "Encapsulated message format" of the columnar format.

Invariant: a reader cannot tell these messages from Arrow's, and ``checksum`` equals ``producers.checksum``.
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

MAX_ROWS, MAX_ROW_BYTES = 1024, 256 << 10
"""Limits below which this is faster than Arrow: 145 rows of 100 B take 32 us, as Arrow columns 49 us."""
MAX_CACHED_COLUMNS = 256
"""Cached columns without values: most appends leave key and annotations empty."""
_V5, _RECORD_BATCH = 4, 3
_NODES, _BUFFERS = 9, 22
_HEAD = struct.Struct(
    "<Ii"  # continuation mark, length of what follows up to the body
    "I4x 7H2x i I q I hBx"  # where Message is; its vtable; Message: header, bodyLength, custom_metadata, version, type
    f"5H6x i I q I I{2 * _NODES}q 4xI{2 * _BUFFERS}q"  # RecordBatch, its length, its nodes, its buffers
    "I2I 4H iII iII"  # two KeyValue
    "I8s4x I6s2x I8s4x I"  # penstock, crc32c and its value, the length of the document behind all this
)
_CRC_POSITION = _HEAD.size - 16
# Constants in the order of _HEAD: table sizes, and flatbuffer offsets between its tables.
_MESSAGE = (24, 14, 24, 20, 22, 4, 8, 16, 16, 36)
_BEHIND_LENGTH = (552, _V5, _RECORD_BATCH)
_BATCH = (10, 20, 8, 4, 16, 16, 16)
_TO_BUFFERS = 156
_ENTRIES = (2, 16, 24, 8, 12, 4, 8, 8, 20, 60, 20, 24, 32)
_NAMES = (len(METADATA_KEY), METADATA_KEY, len(CRC_KEY), CRC_KEY, len(CRC_BLANK), CRC_BLANK)


@dataclass(slots=True)  # not frozen: construction of frozen ones takes three times as long
class _Column:
    """Buffers of a column; ``children`` are the names and texts of a column of maps."""

    rows: int
    nulls: int
    present: bytes
    """Validity as a byte per row, 0 for null; empty if no row is null."""
    offsets: bytes
    """Start of each value in ``data`` or ``children``, and the end of the last one (int32); empty for fixed sizes."""
    data: bytes = b""
    children: tuple[_Column, ...] = ()

    def checksum(self, crc: int) -> int:
        """Return the same checksum as ``producers.checksum`` of an Arrow array."""
        if self.nulls == self.rows:
            return int(crc32c(_NONE, crc))
        for part in (self.offsets, self.present, self.data):
            crc = int(crc32c(part, crc))
        for column in self.children:
            crc = column.checksum(crc)
        return crc

    @property
    def bits(self) -> bytes:
        """Return one bit per row, the first one lowest; empty if no row is null."""
        if not self.nulls:
            return b""
        if self.nulls == self.rows:
            return bytes(-(-self.rows // 8))
        number = int(self.present.translate(_BIT_DIGITS)[::-1], 2)
        return number.to_bytes(-(-self.rows // 8), "little")

    @property
    def nodes(self) -> tuple[int, ...]:
        """Return rows and nulls of the column and its children; a map has a struct between itself and its children."""
        if not self.children:
            return self.rows, self.nulls
        names, texts = self.children
        return self.rows, self.nulls, names.rows, 0, *names.nodes, *texts.nodes

    @property
    def buffers(self) -> tuple[bytes, ...]:
        if not self.offsets:
            return b"", self.data
        if self.children:
            names, texts = self.children
            return self.bits, self.offsets, b"", *names.buffers, *texts.buffers
        return self.bits, self.offsets, self.data


@dataclass(slots=True)
class _ColumnLayout:
    """The layout of a column in a message's body: ``spans`` are start and size of each buffer in ``block``."""

    nodes: tuple[int, ...]
    spans: tuple[int, ...]
    block: bytes


def _lay_out(column: _Column) -> _ColumnLayout:
    """Place the buffers at multiples of eight, as Arrow requires."""
    spans: list[int] = []
    parts: list[bytes] = []
    position = 0
    for buffer in column.buffers:
        size = len(buffer)
        spans += (position, size)
        if size:
            parts += (buffer, _PADDING[-size % 8])
            position += size + -size % 8
    return _ColumnLayout(column.nodes, tuple(spans), b"".join(parts))


_NONE = b"no values"
_BIT_DIGITS = b"01" + bytes(254)
_PADDING = [bytes(count) for count in range(8)]


def checksum(rows: Rows) -> int:
    """Return the CRC32C of the rows, equal to ``producers.checksum`` of the same rows as a batch."""
    crc = 0
    for make, values in zip(_COLUMNS, zip(*rows, strict=True), strict=True):
        crc = int(crc32c(_NONE, crc)) if values.count(None) == len(values) else make(values).checksum(crc)
    return crc


def frame(rows: Rows, base: int, time: int, described: Mapping[str, Any]) -> Framed:
    """Return rows with offsets from ``base`` and timestamps from ``time`` on as a message with its checksum."""
    count = len(rows)
    columns = map(_lay_out_values, _COLUMNS, zip(*rows, strict=True))
    nodes, spans, body = _body([_numbers(base, count), _numbers(time, count), *columns])
    text = compact_json(described)
    end = bytes(8 - (_HEAD.size + len(text)) % 8)
    size = _HEAD.size - PREFIX + len(text) + len(end)
    message = (*_MESSAGE, len(body), *_BEHIND_LENGTH)
    batch = (*_BATCH, count, _TO_BUFFERS, _NODES, *nodes, _BUFFERS, *spans)
    head = _HEAD.pack(CONTINUATION, size, *message, *batch, *_ENTRIES, *_NAMES, len(text)) + text + end
    crc = int(crc32c(body, crc32c(head)))
    head = head[:_CRC_POSITION] + b"%08x" % crc + head[_CRC_POSITION + len(CRC_BLANK) :]
    return Framed((head, body), len(head) + len(body), crc)


def _numbers(first: int, count: int) -> _ColumnLayout:
    size = 8 * count
    return _ColumnLayout((count, 0), (0, 0, 0, size), struct.pack(f"<{count}q", *range(first, first + count)))


def _values(values: Sequence[bytes | None]) -> _Column:
    nulls = values.count(None)
    filled = [value or b"" for value in values] if nulls else values
    return _Column(len(values), nulls, _present(values, nulls), _offsets(map(len, filled)), b"".join(filled))  # type: ignore[arg-type]


def _texts(texts: Sequence[str | None]) -> _Column:
    return _values([None if text is None else text.encode() for text in texts])


def _maps(maps: Sequence[list[tuple[str, str]] | None]) -> _Column:
    nulls = maps.count(None)
    pairs = [pair for entries in maps if entries for pair in entries]
    children = _texts([name for name, _ in pairs]), _texts([text for _, text in pairs])
    offsets = _offsets(len(entries or ()) for entries in maps)
    return _Column(len(maps), nulls, _present(maps, nulls), offsets, b"", children)


def _present(values: Iterable[Any], nulls: int) -> bytes:
    return bytes([value is not None for value in values]) if nulls else b""


def _offsets(lengths: Iterable[int]) -> bytes:
    return array("i", accumulate(lengths, initial=0)).tobytes()


_ColumnBuilder = Callable[[Any], _Column]
_COLUMNS: tuple[_ColumnBuilder, ...] = (_values, _values, _texts, _maps)


def _lay_out_values(make: _ColumnBuilder, values: Sequence[Any]) -> _ColumnLayout:
    count = len(values)
    return _no_values(make, count) if values.count(None) == count else _lay_out(make(values))


@lru_cache(MAX_CACHED_COLUMNS)
def _no_values(make: _ColumnBuilder, rows: int) -> _ColumnLayout:
    return _lay_out(make([None] * rows))


def _body(columns: Sequence[_ColumnLayout]) -> tuple[list[int], list[int], bytes]:
    """Return all nodes, start and size of each buffer, and the columns in sequence."""
    nodes: list[int] = []
    spans: list[int] = []
    position = 0
    for column in columns:
        nodes += column.nodes
        spans += column.spans
        if position:
            spans[-len(column.spans) :: 2] = [begin + position for begin in column.spans[::2]]
        position += len(column.block)
    return nodes, spans, b"".join([column.block for column in columns])
