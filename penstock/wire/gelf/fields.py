"""Fields of batches of flat JSON objects as annotations.

Fast path: numpy locates keys and values by quotes, and by braces, colons and commas outside of quotes; no message is
parsed by itself.
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
"""Fields without annotation: the version, and the text, which is in the payload."""
MAX_FIELDS = 64
"""Limit: fields of a message that become annotations; the others are only in the payload."""
_QUOTE, _BACKSLASH, _COLON, _COMMA, _OPEN, _CLOSE = b'"\\:,{}'
_STEP = np.zeros(256, np.int8)
_STEP[list(b"{[")], _STEP[list(b"}]")] = 1, -1
_STRUCTURAL = _STEP != 0
_STRUCTURAL[list(b":,")] = True
_BLANKS = " \t\n\r"


class _Marks:
    """Positions of the quotes, and of the structural characters outside of strings, of the JSON texts in ``octets``."""

    def __init__(self, octets: Octets) -> None:
        self.octets = octets
        self.quotes = _unescaped(octets, np.flatnonzero(octets.data == _QUOTE))
        first_quotes = np.searchsorted(self.quotes, octets.starts)
        self.is_even = (np.searchsorted(self.quotes, octets.stops) - first_quotes) % 2 == 0
        positions = np.flatnonzero(_STRUCTURAL[octets.data])
        messages = _message_of(octets, positions)
        outside = (np.searchsorted(self.quotes, positions) - first_quotes[messages]) % 2 == 0
        self.position, self.message = positions[outside], messages[outside]
        self.first = np.searchsorted(self.position, octets.starts)
        self.last = np.searchsorted(self.position, octets.stops)
        # Invariant: depth is counted per message, so brackets of a malformed message do not shift its neighbours.
        total = np.concatenate([[0], np.cumsum(_STEP[octets.data[self.position]], dtype=np.int64)])
        self.depth = total[1:] - total[self.first][self.message]
        self.kind = octets.data[self.position]

    def is_object(self) -> Bools:
        """Return which messages are an object as far as their structure shows; only errors inside values may remain."""
        filled = self.last > self.first
        first, last = np.minimum(self.first, len(self.position) - 1), self.last - 1
        is_object: Bools = filled & self.is_even
        if not len(self.position):
            return is_object
        is_object &= (self.kind[first] == _OPEN) & (self.kind[last] == _CLOSE) & (self.depth[last] == 0)
        ends = self.depth <= 0
        # Exactly one position of depth 0 or less: two objects, or a text after the object, are not an object.
        ends_before = np.concatenate([[0], np.cumsum(ends)])
        is_object &= ends_before[self.last] - ends_before[self.first] == 1
        return is_object


def fields_of(messages: pa.Array[Any]) -> pa.MapArray[Any, Any]:
    """Return the fields of ``messages`` (type binary) by key, values as texts; none of a message that is not an object.

    LEFT_OUT, fields that are null, and those beyond MAX_FIELDS are left out.
    """
    octets = Octets(messages)
    marks = _Marks(octets)
    colons, ends, previous = _pairs(marks)
    message, quote = marks.message[colons], np.searchsorted(marks.quotes, marks.position[colons])
    quotes = np.concatenate([marks.quotes, np.full(2, len(octets.data))])
    is_valid = (quote > 1) & (quotes[quote - 2] > previous)
    is_valid &= np.arange(len(message)) - np.searchsorted(message, message) < MAX_FIELDS
    colons, ends, message, quote = colons[is_valid], ends[is_valid], message[is_valid], quote[is_valid]
    begin, end = marks.position[colons] + 1, marks.position[ends]
    is_text = (quotes[quote] < end) & (ends == colons + 1)
    begin, end = np.where(is_text, quotes[quote] + 1, begin), np.where(is_text, quotes[quote + 1], end)
    keys = _texts(octets, quotes[quote - 2] + 1, quotes[quote - 1], np.ones(len(message), np.bool_))
    values = _texts(octets, begin, np.maximum(end, begin), is_text)
    has_annotation = ~_is_any_of(keys, LEFT_OUT) & (is_text | ~_is_any_of(values, ("null",)))
    counts = np.bincount(message[has_annotation], minlength=len(octets))
    mask = from_numpy(has_annotation)
    return annotation_maps(np.concatenate([[0], np.cumsum(counts)]), keys.filter(mask), values.filter(mask))


def _pairs(marks: _Marks) -> tuple[Ints, Ints, Ints]:
    """Return for each field of an object the mark of its colon, the mark after its value, and the position before
    its key.
    """
    is_field = marks.is_object()[marks.message]
    ends = np.flatnonzero(is_field & (((marks.kind == _COMMA) & (marks.depth == 1)) | (marks.depth == 0)))
    colons = np.flatnonzero(is_field & (marks.kind == _COLON) & (marks.depth == 1))
    if not len(colons):
        return colons, colons, colons
    end_indices = np.searchsorted(ends, colons)
    previous_ends = ends[end_indices - 1]
    has_previous = (end_indices > 0) & (marks.message[previous_ends] == marks.message[colons])
    previous = np.where(has_previous, marks.position[previous_ends], marks.octets.starts[marks.message[colons]])
    is_first = np.diff(end_indices, prepend=-1) > 0  # a second colon without a comma is not a field
    return colons[is_first], ends[end_indices[is_first]], previous[is_first]


def _unescaped(octets: Octets, quotes: Ints) -> Ints:
    """Return the quotes that no backslash escapes."""
    is_escaped = (quotes > 0) & (octets.data[quotes - 1] == _BACKSLASH)
    if not is_escaped.any():
        return quotes
    backslashes = np.flatnonzero(octets.data == _BACKSLASH)
    # An odd number of backslashes before a quote escapes it; an even number escapes only themselves.
    begins = np.diff(backslashes, prepend=-2) > 1
    begin = np.maximum.accumulate(np.where(begins, backslashes, 0))
    candidates = quotes[is_escaped]
    run = begin[np.searchsorted(backslashes, candidates) - 1]
    run = np.maximum(run, octets.starts[_message_of(octets, candidates)])
    is_escaped[is_escaped] = (candidates - run) % 2 == 1
    retained: Ints = quotes[~is_escaped]
    return retained


def _message_of(octets: Octets, positions: Ints) -> Ints:
    messages: Ints = np.searchsorted(octets.starts, positions, side="right") - 1
    return messages


def _texts(octets: Octets, begin: Ints, end: Ints, is_text: Bools) -> pa.Array[Any]:
    """Return the spans [begin, end) as texts: the content of strings, other values as JSON."""
    strings = _strings(octets.texts(begin, end))
    trimmed = pc.utf8_trim(strings, _BLANKS)
    escaped = pc.and_(pc.match_substring(strings, "\\"), from_numpy(is_text))
    texts: pa.Array[Any] = pc.if_else(from_numpy(is_text), strings, trimmed)
    if not pc.any(escaped).as_py():
        return texts
    unescaped = pa.array([_unescape(text) for text in values_of(strings.filter(escaped))], pa.string())
    with_unescaped: pa.Array[Any] = pc.replace_with_mask(texts, escaped, unescaped)
    return with_unescaped


def _unescape(text: str) -> str:
    """Return the content of a JSON string with escapes; the text itself if it is invalid."""
    try:
        content: str = json.loads(f'"{text}"', strict=False)
    except ValueError:
        return text
    return content.encode("utf-8", "replace").decode()


def _strings(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return a binary column as strings of the same number of bytes at most."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([octets.decode("utf-8", QUESTION) for octets in values_of(column)], pa.string())


def _is_any_of(texts: pa.Array[Any], any_of: tuple[str, ...]) -> Bools:
    is_any: Bools = pc.is_in(texts, pa.array(any_of)).to_numpy(zero_copy_only=False)
    return is_any
