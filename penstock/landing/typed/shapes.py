"""Rows whose JSON texts have one shape: their fields are slices of the texts, and only the first text is parsed.

A shape is a text without its numbers, strings, ``true``, ``false`` and ``null``: keys, brackets and commas. Texts with
the same bytes around these values have the same fields at other offsets, which are found for whole columns.
Invariant: a slice is the text that DuckDB writes for the field. Rows whose texts DuckDB would write in another way have
no shape here: with backslashes, blanks between values, repeated keys, exponents, or many digits.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.config.syntax.json_path import Path
from penstock.landing.rows.data_text import inner_values, scan_value
from penstock.landing.rows.engine import Bytes, Mask, Places, as_mask, pc, rows_with, text_bytes
from penstock.landing.rows.strict_json import is_strict

MIN_ROWS = 16
"""Rows from which on a shape costs less than DuckDB's extraction."""
MAX_SHAPES = 8
"""Limit: shapes that are tried for the texts of a table."""
MIN_SHARE, MAX_MISSES = 8, 3
"""A shape that fewer than one of so many rows have is a miss. After so many misses the rows are left to DuckDB."""
_MAX_BYTES = 64 << 10
"""Limit: longer texts are left to DuckDB, so that the first one is parsed at little cost."""
_FRACTION = r"(?:\.(?:[0-9]{0,3}[1-9]|0))?"
_PLAIN_SCALAR = f"^(?:-?[1-9][0-9]{{0,9}}{_FRACTION}|0{_FRACTION}|true|false|null)$"
"""Values that DuckDB writes unchanged: numbers without exponent, zeros at the end, or more than 15 digits."""
_BLANKS = " \t\n\r"
_TOKENS = re.compile(rb'"[^"]*":?|[-0-9tfn][^,\]}]*')
"""Keys with their colon, strings, and other scalar values."""


class Edge(NamedTuple):
    """A position in texts of one shape: bytes behind the begin (0), a quote (1, 2, ...) or the end of the text."""

    anchor: int
    distance: int


class Span(NamedTuple):
    """A part of texts of one shape."""

    begin: Edge
    end: Edge


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a text: spans of its values by path, keys of its objects, and what lies between scalar values.

    ``plain``: scalar values that are not strings. ``members``: spans of key and value of each member of ``data``, in
    their order.
    """

    values: dict[Path, Span]
    keys: dict[Path, list[str]]
    members: dict[str, Span]
    literals: list[tuple[Span, str]]
    scalars: list[Span]
    plain: list[Span]


class _NoShape(ValueError):
    """A text that has no shape here."""


def shape_of(octets: bytes) -> Shape | None:
    """Return the shape of a JSON text without backslashes; None if DuckDB has to extract its fields."""
    return _shape_of_skeleton(_TOKENS.sub(_without_value, octets)) if len(octets) <= _MAX_BYTES else None


def _without_value(token: re.Match[bytes]) -> bytes:
    text = token[0]
    return text if text.endswith(b":") else b'""' if text.startswith(b'"') else b"0"


# Fast path: batches follow each other with the same shapes. A shape takes as long as the fields of some hundred texts.
@lru_cache(1024)
def _shape_of_skeleton(skeleton: bytes) -> Shape | None:
    try:
        return _Parser(skeleton).shape() if is_strict(skeleton.decode()) else None
    except _NoShape:
        return None


class _Parser:
    """The parser of one text. Positions count bytes: the text is read as Latin-1."""

    def __init__(self, octets: bytes) -> None:
        self._text = octets.decode("latin-1")
        self._quotes = [position for position, octet in enumerate(self._text) if octet == '"']
        self._values: dict[Path, tuple[int, int]] = {}
        self._keys: dict[Path, list[str]] = {}
        self._key_begins: dict[str, int] = {}
        self._scalars: list[tuple[int, int]] = []
        self._plain_by_gap: dict[int, tuple[int, int]] = {}

    def shape(self) -> Shape:
        text = self._text
        if any(blank in gap for gap in text.split('"')[::2] for blank in _BLANKS):
            raise _NoShape
        self._walk(0, ())
        cuts = [0, *(position for span in self._scalars for position in span), len(text)]
        between = [pair for pair in zip(cuts[::2], cuts[1::2], strict=True) if pair[0] < pair[1]]
        members = {key: self._span(begin, self._values[(key,)][1]) for key, begin in self._key_begins.items()}
        return Shape(
            {path: self._span(*span) for path, span in self._values.items()},
            self._keys,
            members,
            [(self._span(*span), text[slice(*span)].encode("latin-1").decode()) for span in between],
            [self._span(*span) for span in self._scalars],
            [self._span(*span) for span in self._plain_by_gap.values()],
        )

    def _walk(self, begin: int, path: Path | None) -> int:
        """Note the values from a position on; ``path`` None below a list. Return the end of the value."""
        text = self._text
        end = int(scan_value(text, begin)[1])
        if path:
            self._values[path] = (begin, end)
        if text[begin] == '"':
            self._scalars.append((begin, end))
        elif text[begin] in "{[":
            self._walk_members(begin, path)
        else:
            gap = bisect_right(self._quotes, begin)
            if gap in self._plain_by_gap:
                raise _NoShape
            self._plain_by_gap[gap] = (begin, end)
            self._scalars.append((begin, end))
        return end

    def _walk_members(self, begin: int, path: Path | None) -> None:
        keys: list[str] = []
        for latin_key, start in inner_values(self._text, begin):
            inner: Path | None = None
            if latin_key is not None:
                key = latin_key.encode("latin-1").decode()
                if key in keys or not key:
                    raise _NoShape
                keys.append(key)
                if path is not None:
                    inner = (*path, key)
                if path == ():
                    # Without blanks, the key is in front of the colon.
                    self._key_begins[key] = start - len(latin_key) - 3
            self._walk(start, inner)
        if path is not None and self._text[begin] == "{":
            self._keys[path] = keys

    def _span(self, begin: int, end: int) -> Span:
        return Span(self._edge(begin), self._edge(end))

    def _edge(self, position: int) -> Edge:
        if position == len(self._text):
            # Invariant: literals and values of a matching row cover it from begin to end, so no slice is outside.
            return Edge(len(self._quotes) + 1, 0)
        gap = bisect_right(self._quotes, position)
        plain = self._plain_by_gap.get(gap)
        # What follows a value of any length is found from the next quote, or the end.
        if plain is not None and position >= plain[1]:
            following = self._quotes[gap] if gap < len(self._quotes) else len(self._text)
            return Edge(gap + 1, position - following)
        return Edge(gap, position - (self._quotes[gap - 1] if gap else 0))


class _Texts:
    """JSON texts with the positions of their quotes."""

    def __init__(self, texts: pa.Array[Any]) -> None:
        offsets, content = text_bytes(texts)
        self.content: Any = texts.buffers()[2]
        self.begins, self.ends = offsets[:-1], offsets[1:]
        self.quotes = (np.flatnonzero(content == ord('"')) + offsets[0]).astype(np.int32)
        firsts = np.searchsorted(self.quotes, offsets)
        self.first_quotes, self.quote_counts = firsts[:-1], np.diff(firsts)

    def octets(self, row: int) -> bytes:
        """Return the text of a row."""
        return bytes(memoryview(self.content)[int(self.begins[row]) : int(self.ends[row])])


class ShapedRows:
    """Rows of texts that have one shape, ascending; before ``matching``, rows with as many quotes."""

    def __init__(self, shape: Shape, rows: Places, texts: _Texts) -> None:
        self._shape, self.rows, self._texts = shape, rows, texts
        self._anchors: dict[int, Any] = {}
        self._texts_of_values: dict[Span, pa.Array[Any]] = {}

    def matching(self) -> ShapedRows:
        """Return the rows that have the shape."""
        literals, plain = self._shape.literals, self._shape.plain
        is_sized = [self._size(span) == len(literal.encode()) for span, literal in literals]
        sized = self.select(np.logical_and.reduce([*is_sized, *(self._size(span) > 0 for span in plain)]))
        # Fast path: one call for all slices. For a thousand rows, calls cost more than what they do.
        spans = [*(span for span, _ in literals), *plain, *(v for v in self._shape.scalars if v not in plain)]
        slices = dict(zip(spans, sized._slices(spans), strict=True))
        same = [as_mask(pc.equal(slices[span], literal)) for span, literal in literals]
        is_plain = [as_mask(pc.match_substring_regex(slices[span], _PLAIN_SCALAR)) for span in plain]
        matching = sized.select(np.logical_and.reduce([*same, *is_plain]))
        if matching is sized:
            matching._texts_of_values = slices
        return matching

    def _size(self, span: Span) -> Any:
        return self._positions(span.end) - self._positions(span.begin)

    def select(self, mask: Mask) -> ShapedRows:
        """Return some of the rows."""
        return self if mask.all() else ShapedRows(self._shape, self.rows[mask], self._texts)

    def text(self, path: Path) -> pa.Array[Any]:
        """Return the JSON texts at a path; null if the shape has none."""
        span = self._shape.values.get(path)
        nulls: pa.Array[Any] = pa.nulls(len(self.rows), pa.string())
        if span is None:
            return nulls
        return self._texts_of_values[span] if span in self._texts_of_values else self._slices([span])[0]

    def key_count(self, path: Path) -> pa.Array[Any]:
        """Return the numbers of keys of the objects at a path; 0 for other values, null without a value."""
        keys = self._shape.keys.get(path, [])
        count = len(keys) if not path or path in self._shape.values else None
        counts: pa.Array[Any] = pa.repeat(pa.scalar(count, pa.int64()), len(self.rows))
        return counts

    def without(self, keys: Sequence[str]) -> pa.Array[Any]:
        """Return the texts without members of ``data``; at least one member remains."""
        pieces: list[Span] = []
        # Members that follow each other are one piece.
        for is_removed, run in groupby(self._shape.members.items(), key=lambda member: member[0] in keys):
            spans = [span for _, span in run]
            pieces += [] if is_removed else [Span(spans[0].begin, spans[-1].end)]
        members = pc.binary_join_element_wise(*self._slices(pieces), ",")
        remaining: pa.Array[Any] = pc.binary_join_element_wise("{", members, "}", "")
        return remaining

    def _positions(self, edge: Edge) -> Any:
        """Return the positions of an edge."""
        if edge.anchor not in self._anchors:
            self._anchors[edge.anchor] = self._anchor(edge.anchor)
        return self._anchors[edge.anchor] + np.int32(edge.distance) if edge.distance else self._anchors[edge.anchor]

    def _anchor(self, number: int) -> Any:
        texts, rows = self._texts, self.rows
        if not number:
            return texts.begins[rows]
        # All rows have the same number of quotes.
        is_end = not len(rows) or number > texts.quote_counts[rows[0]]
        return texts.ends[rows] if is_end else texts.quotes[texts.first_quotes[rows] + (number - 1)]

    def _slices(self, spans: Sequence[Span]) -> list[pa.Array[Any]]:
        """Return parts of the texts. The first one begins in front of all others."""
        size = len(self.rows)
        if not size:
            return [pa.array([], pa.string())] * len(spans)
        bounds = np.empty((len(spans), size, 2), np.int32)
        for n, span in enumerate(spans):
            bounds[n, :, 0], bounds[n, :, 1] = self._positions(span.begin), self._positions(span.end)
        # Nothing is copied yet: a text for each slice, and one for each gap between slices, which is not read.
        buffers: Any = [None, pa.py_buffer(bounds.data), self._texts.content]
        parts: Any = pa.Array.from_buffers(pa.string(), bounds.size - 1, buffers)
        slices: pa.Array[Any] = parts.take(pa.array(np.arange(0, bounds.size, 2)))
        return [slices.slice(n * size, size) for n in range(len(spans))]


def shaped_rows(data: pa.Array[Any]) -> list[ShapedRows]:
    """Return the rows of JSON texts that have a shape that many of them have."""
    if len(data) < MIN_ROWS:
        return []
    is_plain = as_mask(pc.starts_with(data, "{")) & ~rows_with(data, _find_escapes)
    remaining = np.flatnonzero(is_plain)
    texts = _Texts(data)
    groups: list[ShapedRows] = []
    misses = 0
    while len(remaining) >= MIN_ROWS and len(groups) < MAX_SHAPES and misses < MAX_MISSES:
        shape = shape_of(texts.octets(int(remaining[0])))
        similar = remaining[texts.quote_counts[remaining] == texts.quote_counts[remaining[0]]]
        group = None if shape is None else ShapedRows(shape, similar, texts).matching()
        rows = similar[:0] if group is None else group.rows
        if group is not None and MIN_SHARE * len(rows) >= len(remaining):
            groups.append(group)
        else:
            misses += 1
        remaining = np.setdiff1d(remaining, rows if len(rows) else similar[:1], assume_unique=True)
    return groups


def _find_escapes(text: Bytes) -> Places:
    """Find backslashes, and control characters, which are not valid in JSON."""
    return np.flatnonzero((text == ord("\\")) | (text < ord(" ")))
