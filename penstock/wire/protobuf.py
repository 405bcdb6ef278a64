"""Protobuf's wire format read for many messages at once: where their fields are, as columns.

Nothing is copied and no object is made for a message. What cannot be read raises Malformed, whatever it is; groups,
which nobody writes any more, are among that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.records import from_numpy
from penstock.wire.datagrams import Ints, spans

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MOST_FIELDS = 1 << 20
"""Fields of one kind of message in one request: each takes some bytes here."""
FEW = 24
"""Messages up to which a loop over their fields is as fast as columns."""
_FIXED = {FIXED64: 8, FIXED32: 4}
_LONGEST = 10
"""Bytes of a varint."""
_FAR = np.uint64(1 << 40)
_OTHER = -1
"""The tag under which fields with numbers from 16 on are kept: nobody asks for them here."""
_NONE: Ints = np.zeros(0, np.int64)


class Malformed(PenstockError, ValueError):
    """The bytes are no protobuf messages, or there are too many fields in them."""


class Values(NamedTuple):
    """Fields of one number and wire type in several messages; those of one message in their order.

    ``owner`` is the number of the message. A value's bytes are [begin, end); ``value`` is that of a varint, else 0.
    """

    owner: Ints
    begin: Ints
    end: Ints
    value: np.ndarray

    def at(self, which: np.ndarray) -> Values:
        """Some of them: a mask, or indices."""
        return Values(*(column[which] for column in self))

    def in_order(self) -> Values:
        """As they lie in the request."""
        return self if (self.begin[1:] > self.begin[:-1]).all() else self.at(np.argsort(self.begin, kind="stable"))

    def latest(self, count: int) -> Values:
        """Of each of ``count`` messages the last one of these alone."""
        if (self.owner[1:] > self.owner[:-1]).all():
            return self
        last = self.last(count)
        return self.at(last[last >= 0])

    def last(self, count: int) -> Ints:
        """For each of ``count`` messages the index of its last field among these, or -1."""
        found = np.full(count, -1, np.int64)
        found[self.owner] = np.arange(len(self.owner))
        return found


_EMPTY = Values(_NONE, _NONE, _NONE, np.zeros(0, np.uint64))


@dataclass(slots=True)
class Fields:
    """The fields of several messages, by tag."""

    parts: dict[int, list[Values]]
    count: int = 0

    def of(self, number: int, kind: int) -> Values:
        """Those of one number (below 16) and wire type."""
        parts = self.parts.get(number << 3 | kind, [_EMPTY])
        return parts[0] if len(parts) == 1 else Values(*map(np.concatenate, zip(*parts, strict=True)))

    def add(self, tag: int, values: Values) -> None:
        """More of them. Raises Malformed."""
        self.parts.setdefault(tag, []).append(values)
        self.count += len(values.owner)
        if self.count > MOST_FIELDS:
            raise Malformed(f"more than {MOST_FIELDS} fields of one kind of message")


class Message:
    """The bytes of a request."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._octets = np.frombuffer(data + bytes(2 * _LONGEST), np.uint8)

    def __len__(self) -> int:
        return len(self.data)

    def whole(self) -> Fields:
        """The fields of all of it as one message."""
        return self.fields(np.zeros(1, np.int64), np.array([len(self.data)], np.int64))

    def fields(self, begins: Ints, ends: Ints) -> Fields:
        """The fields of the messages that lie at [begins, ends). Raises Malformed."""
        found = Fields({})
        owner = np.flatnonzero(begins < ends)
        at, end = begins[owner], ends[owner]
        while len(at) > FEW:
            behind = np.empty(len(at), np.int64)
            for tag, rows, values, after in self._next(owner, at, end):
                found.add(tag, values)
                behind[rows] = after
            more = behind < end
            owner, at, end = (owner, behind, end) if more.all() else (owner[more], behind[more], end[more])
        for one in zip(owner.tolist(), at.tolist(), end.tolist(), strict=True):
            self._of_one(found, *one)
        return found

    def texts(self, begins: Ints, ends: Ints) -> pa.Array[Any]:
        """The bytes at [begins, ends) as an array."""
        return spans(self._octets, begins, ends)

    def numbers(self, begins: Ints, kind: str) -> np.ndarray:
        """Fixed values that begin there; ``kind`` is numpy's name of the type."""
        octets = self._octets[begins[:, None] + np.arange(np.dtype(kind).itemsize)]
        found: np.ndarray = octets.view(kind).reshape(-1)
        return found

    def octets(self, begins: Ints, size: int) -> np.ndarray:
        """``size`` bytes from each of ``begins`` on, a row each; these lie within the request."""
        found: np.ndarray = self._octets[begins[:, None] + np.arange(size)]
        return found

    def _next(self, owner: Ints, at: Ints, end: Ints) -> Iterator[tuple[int, Any, Values, Ints]]:
        """One field of each message: mostly they are alike, as the same program wrote them."""
        tags = self._octets[at]
        if (tags == tags[0]).all():
            yield self._alike(int(tags[0]), slice(None), owner, at, end)
            return
        for tag in np.unique(tags).tolist():
            rows = np.flatnonzero(tags == tag)
            yield self._alike(tag, rows, owner[rows], at[rows], end[rows])

    def _alike(self, tag: int, rows: Any, owner: Ints, at: Ints, end: Ints) -> tuple[int, Any, Values, Ints]:
        """Fields that begin with the same byte."""
        kind, at = tag & 7, at + 1
        if tag >= 0x80:  # its number is 16 or more
            tag, (_, width) = _OTHER, self._varints(at)
            at = np.minimum(at + width, end)
        elif tag < 8:
            raise Malformed("a field has no number")
        value, begin = np.zeros(len(at), np.uint64), at
        if kind in _FIXED:
            behind = at + _FIXED[kind]
        elif kind in (VARINT, BYTES):
            value, width = self._varints(np.minimum(at, end))
            behind = at + width
            if kind == BYTES:
                begin = behind
                behind = begin + np.minimum(value, _FAR).astype(np.int64)
        else:
            raise Malformed("a field is of no known kind")
        if (behind > end).any():
            raise Malformed("a field does not end")
        return tag, rows, Values(owner, begin, behind, value), behind

    def _varints(self, at: Ints) -> tuple[np.ndarray, Ints]:
        """The varints that begin there, and their widths. Raises Malformed."""
        first = self._octets[at]
        value, width = (first & 0x7F).astype(np.uint64), np.ones(len(at), np.int64)
        rest = np.flatnonzero(first >= 0x80)
        for place in range(1, _LONGEST):
            if not len(rest):
                return value, width
            octet = self._octets[at[rest] + place]
            value[rest] |= (octet & 0x7F).astype(np.uint64) << np.uint64(7 * place)
            width[rest] += 1
            rest = rest[octet >= 0x80]
        if len(rest):
            raise Malformed("a number does not end")
        return value, width

    def _of_one(self, fields: Fields, owner: int, at: int, end: int) -> None:
        """All fields of one message from ``at`` on."""
        data, found, count = self.data, dict[int, tuple[list[int], list[int], list[int]]](), 0
        while at < end:
            tag, at = (data[at], at + 1) if data[at] < 0x80 else _varint(data, at, end)
            kind, begin, value = tag & 7, at, 0
            begins, ends, values = found.setdefault(tag if tag < 0x80 else _OTHER, ([], [], []))
            if kind == BYTES:
                at = _run(data, at, end, tag, begins, ends) if tag < 0x80 else sum(_varint(data, at, end))
            elif kind == VARINT:
                value, at = _varint(data, at, end)
            elif kind in _FIXED:
                at += _FIXED[kind]
            else:
                raise Malformed("a field is of no known kind")
            count += 1
            if at > end or tag < 8 or max(count, len(begins)) > MOST_FIELDS:
                raise Malformed("a field does not end, or there are too many")
            if kind != BYTES or tag >= 0x80:
                begins.append(begin)
                ends.append(at)
                values.append(value)
        for tag, (begins, ends, values) in found.items():
            owners = np.full(len(begins), owner, np.int64)
            numbers = np.array(values, np.uint64) if values else np.zeros(len(begins), np.uint64)
            fields.add(tag, Values(owners, np.array(begins, np.int64), np.array(ends, np.int64), numbers))


def _run(data: bytes, at: int, end: int, tag: int, begins: list[int], ends: list[int]) -> int:
    """Fields of bytes of one tag that stand one behind the other, the first one's length at ``at``; where they end."""
    while at < end:
        size, begin = data[at], at + 1
        if size >= 0x80:
            size, begin = _varint(data, at, end)
        at = begin + size
        begins.append(begin)
        ends.append(at)
        if at >= end or data[at] != tag or len(begins) > MOST_FIELDS:
            return at
        at += 1
    raise Malformed("a field has no length")


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at + 1 < end and data[at] >= 0x80 > data[at + 1]:  # most lengths are such
        return data[at] & 0x7F | data[at + 1] << 7, at + 2
    value = 0
    for place in range(_LONGEST):
        if at + place >= end:
            break
        octet = data[at + place]
        value |= (octet & 0x7F) << 7 * place
        if octet < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + place + 1
    raise Malformed("a number does not end")


def chosen(values: pa.Array[Any], which: Ints) -> pa.Array[Any]:
    """``values[which]``, null where that is -1."""
    if len(values) == len(which) and (which == np.arange(len(which))).all():
        return values
    absent = which < 0
    return values.take(from_numpy(which, absent if absent.any() else None))
