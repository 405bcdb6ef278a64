"""The fields of whole batches of flat JSON objects as annotations: places found by numpy, no message parsed by itself.

Keys and values are found by the quotes around them, and by the braces, colons and commas outside of quotes.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import annotation_maps, from_numpy, values_of
from penstock.wire.datagrams import Ints
from penstock.wire.sender_text import QUESTION
from penstock.wire.syslog.octets import Bools, Octets

LEFT_OUT = ("version", "short_message", "full_message")
"""Fields that are no annotations: what a message is, and its text, which is in the payload."""
MOST_FIELDS = 64
"""Fields of a message that become annotations; the others are in the payload."""
_QUOTE, _BACKSLASH, _COLON, _COMMA, _OPEN, _CLOSE = b'"\\:,{}'
_STEP = np.zeros(256, np.int8)
_STEP[list(b"{[")], _STEP[list(b"}]")] = 1, -1
_STRUCTURAL = _STEP != 0
_STRUCTURAL[list(b":,")] = True
_BLANKS = " \t\n\r"


class _Marks:
    """Quotes that begin or end a string, and the structure outside of strings, of the JSON texts in ``octets``."""

    def __init__(self, octets: Octets) -> None:
        self.octets = octets
        self.quotes = _unescaped(octets, np.flatnonzero(octets.data == _QUOTE))
        first_quotes = np.searchsorted(self.quotes, octets.starts)
        self.is_even = (np.searchsorted(self.quotes, octets.stops) - first_quotes) % 2 == 0
        at = np.flatnonzero(_STRUCTURAL[octets.data])
        of = _message_of(octets, at)
        outside = (np.searchsorted(self.quotes, at) - first_quotes[of]) % 2 == 0
        self.at, self.of = at[outside], of[outside]
        self.first = np.searchsorted(self.at, octets.starts)
        self.last = np.searchsorted(self.at, octets.stops)
        total = np.concatenate([[0], np.cumsum(_STEP[octets.data[self.at]], dtype=np.int64)])
        self.depth = total[1:] - total[self.first][self.of]
        self.kind = octets.data[self.at]

    def is_object(self) -> Bools:
        """Which messages are an object, as far as their structure tells: only what is wrong inside may be left."""
        filled = self.last > self.first
        first, last = np.minimum(self.first, len(self.at) - 1), self.last - 1
        found: Bools = filled & self.is_even
        if not len(self.at):
            return found
        found &= (self.kind[first] == _OPEN) & (self.kind[last] == _CLOSE) & (self.depth[last] == 0)
        ends = self.depth <= 0
        before = np.concatenate([[0], np.cumsum(ends)])
        found &= before[self.last] - before[self.first] == 1
        return found


def fields_of(messages: pa.Array[Any]) -> pa.MapArray[Any, Any]:
    """The fields of ``messages`` (type binary) by their keys, values as texts; none of what is no object.

    Left out are LEFT_OUT, fields that are null, and those beyond MOST_FIELDS.
    """
    octets = Octets(messages)
    marks = _Marks(octets)
    colons, ends, previous = _pairs(marks)
    of, quote = marks.of[colons], np.searchsorted(marks.quotes, marks.at[colons])
    quotes = np.concatenate([marks.quotes, np.full(2, len(octets.data))])
    good = (quote > 1) & (quotes[quote - 2] > previous)
    good &= np.arange(len(of)) - np.searchsorted(of, of) < MOST_FIELDS
    colons, ends, of, quote = colons[good], ends[good], of[good], quote[good]
    begin, end = marks.at[colons] + 1, marks.at[ends]
    is_text = (quotes[quote] < end) & (ends == colons + 1)
    begin, end = np.where(is_text, quotes[quote] + 1, begin), np.where(is_text, quotes[quote + 1], end)
    keys = _texts(octets, quotes[quote - 2] + 1, quotes[quote - 1], np.ones(len(of), np.bool_))
    values = _texts(octets, begin, np.maximum(end, begin), is_text)
    kept = ~_says(keys, LEFT_OUT) & (is_text | ~_says(values, ("null",)))
    counts = np.bincount(of[kept], minlength=len(octets))
    mask = from_numpy(kept)
    return annotation_maps(np.concatenate([[0], np.cumsum(counts)]), keys.filter(mask), values.filter(mask))


def _pairs(marks: _Marks) -> tuple[Ints, Ints, Ints]:
    """Of each field of an object: the mark of its colon, the mark behind its value, and the place before its key."""
    is_field = marks.is_object()[marks.of]
    ends = np.flatnonzero(is_field & (((marks.kind == _COMMA) & (marks.depth == 1)) | (marks.depth == 0)))
    colons = np.flatnonzero(is_field & (marks.kind == _COLON) & (marks.depth == 1))
    if not len(colons):
        return colons, colons, colons
    which = np.searchsorted(ends, colons)
    before = ends[which - 1]
    inside = (which > 0) & (marks.of[before] == marks.of[colons])
    previous = np.where(inside, marks.at[before], marks.octets.starts[marks.of[colons]])
    single = np.diff(which, prepend=-1) > 0  # of two colons without a comma between them the second means nothing
    return colons[single], ends[which[single]], previous[single]


def _unescaped(octets: Octets, quotes: Ints) -> Ints:
    """Those of ``quotes`` that no backslash takes the meaning from."""
    after = (quotes > 0) & (octets.data[quotes - 1] == _BACKSLASH)
    if not after.any():
        return quotes
    backslashes = np.flatnonzero(octets.data == _BACKSLASH)
    begins = np.diff(backslashes, prepend=-2) > 1
    begin = np.maximum.accumulate(np.where(begins, backslashes, 0))
    behind = quotes[after]
    run = begin[np.searchsorted(backslashes, behind) - 1]
    run = np.maximum(run, octets.starts[_message_of(octets, behind)])
    after[after] = (behind - run) % 2 == 1
    kept: Ints = quotes[~after]
    return kept


def _message_of(octets: Octets, at: Ints) -> Ints:
    found: Ints = np.searchsorted(octets.starts, at, side="right") - 1
    return found


def _texts(octets: Octets, begin: Ints, end: Ints, is_text: Bools) -> pa.Array[Any]:
    """What stands there, as strings: of texts what is meant, of other values what is written."""
    found = _strings(octets.texts(begin, end))
    bare = pc.utf8_trim(found, _BLANKS)
    escaped = pc.and_(pc.match_substring(found, "\\"), from_numpy(is_text))
    texts: pa.Array[Any] = pc.if_else(from_numpy(is_text), found, bare)
    if not pc.any(escaped).as_py():
        return texts
    meant = pa.array([_meant(text) for text in values_of(found.filter(escaped))], pa.string())
    changed: pa.Array[Any] = pc.replace_with_mask(texts, escaped, meant)
    return changed


def _meant(text: str) -> str:
    """What a JSON text with escapes means; itself where that is nothing."""
    try:
        meant: str = json.loads(f'"{text}"', strict=False)
    except ValueError:
        return text
    return meant.encode("utf-8", "replace").decode()


def _strings(column: pa.Array[Any]) -> pa.Array[Any]:
    """A binary column as strings that take no more bytes."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", QUESTION) for value in values_of(column)], pa.string())


def _says(texts: pa.Array[Any], any_of: tuple[str, ...]) -> Bools:
    found: Bools = pc.is_in(texts, pa.array(any_of)).to_numpy(zero_copy_only=False)
    return found
