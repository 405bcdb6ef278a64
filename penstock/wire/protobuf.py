"""Decoder of protobuf's wire format for many messages at once: the positions of their fields, as columns.

Fast path: bytes are not copied, and no Python object is made per message. Unreadable bytes raise Malformed.
Groups, which protobuf has deprecated, are skipped.
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
_GROUP, _GROUP_END = 3, 4
MAX_FIELDS = 1 << 20
"""Limit: fields of one kind of message in one request; a field of two bytes takes 32 bytes here."""
MAX_LOOPED_MESSAGES = 24
"""Fast path: for at most this many messages a loop over their fields is as fast as numpy."""
MAX_GROUP_FIELDS = 1 << 16
"""Limit: fields in groups of a request, which Python skips one by one; senders of OTLP and Loki have none."""
_MAX_GROUP_DEPTH = 100
"""Limit: protobuf's own."""
_FIXED = {FIXED64: 8, FIXED32: 4}
_MAX_VARINT_BYTES = 10
_MAX_LENGTH = np.uint64(1 << 40)
"""Limit: lengths are cut here, so that adding one to a position cannot overflow."""
_HIGH_TAG = -1
"""Tag of all fields with numbers from 16 on, which OTLP and Loki do not use; their value is the number."""
_NO_INTS: Ints = np.zeros(0, np.int64)


class Malformed(PenstockError, ValueError):
    """Bytes that are not protobuf messages."""


class TooManyFields(Malformed):
    """A request with more than MAX_FIELDS fields of one kind of message, or MAX_GROUP_FIELDS fields in groups."""


class Values(NamedTuple):
    """Fields of one number and wire type in several messages, in order within each message.

    ``owner`` is the index of the message. A value's bytes are [begin, end); ``value`` is that of a varint, else 0.
    """

    owner: Ints
    begin: Ints
    end: Ints
    value: np.ndarray

    def select(self, selection: np.ndarray) -> Values:
        """Return the fields at a mask or at indices."""
        return Values(*(column[selection] for column in self))

    def in_order(self) -> Values:
        """Return the fields in the order of the request."""
        return self if (self.begin[1:] > self.begin[:-1]).all() else self.select(np.argsort(self.begin, kind="stable"))

    def latest(self, count: int) -> Values:
        """Return only the last of these fields of each of ``count`` messages."""
        if (self.owner[1:] > self.owner[:-1]).all():
            return self
        last = self.last(count)
        return self.select(last[last >= 0])

    def last(self, count: int) -> Ints:
        """Return for each of ``count`` messages the index of its last field, or -1."""
        indices = np.full(count, -1, np.int64)
        indices[self.owner] = np.arange(len(self.owner))
        return indices


_EMPTY = Values(_NO_INTS, _NO_INTS, _NO_INTS, np.zeros(0, np.uint64))


@dataclass(slots=True)
class Fields:
    """Fields of several messages, by tag."""

    parts: dict[int, list[Values]]
    count: int = 0

    def with_tag(self, number: int, wire_type: int) -> Values:
        """Return the fields with a number (below 16) and a wire type."""
        parts = self.parts.get(number << 3 | wire_type, [_EMPTY])
        return parts[0] if len(parts) == 1 else Values(*map(np.concatenate, zip(*parts, strict=True)))

    def has_high(self, number: int) -> bool:
        """Return whether a message has a field of a number from 16 on."""
        return any((values.value == number).any() for values in self.parts.get(_HIGH_TAG, ()))

    def add(self, tag: int, values: Values) -> None:
        """Add fields of one tag. Raises TooManyFields."""
        self.parts.setdefault(tag, []).append(values)
        self.count += len(values.owner)
        check_field_count(self.count)


def check_field_count(count: int) -> None:
    """Raise TooManyFields if a request has more than MAX_FIELDS fields of one kind of message."""
    if count > MAX_FIELDS:
        raise TooManyFields(f"more than {MAX_FIELDS} fields of one kind of message")


class Message:
    """The bytes of a request, decoded on demand."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._group_fields = 0
        # Padding: a varint at the end is read beyond it, and judged afterwards.
        self._octets = np.frombuffer(data + bytes(2 * _MAX_VARINT_BYTES), np.uint8)

    def __len__(self) -> int:
        return len(self.data)

    def top_level(self) -> Fields:
        """Return the fields of all bytes as one message."""
        return self.fields(np.zeros(1, np.int64), np.array([len(self.data)], np.int64))

    def fields(self, begins: Ints, ends: Ints) -> Fields:
        """Return the fields of the messages at [begins, ends). Raises Malformed."""
        fields = Fields({})
        owner = np.flatnonzero(begins < ends)
        position, end = begins[owner], ends[owner]
        while len(position) > MAX_LOOPED_MESSAGES:
            next_position = np.empty(len(position), np.int64)
            for tag, rows, values, after in self._next_fields(owner, position, end):
                fields.add(tag, values)
                next_position[rows] = after
            is_unfinished = next_position < end
            owner, position, end = (
                (owner, next_position, end)
                if is_unfinished.all()
                else (owner[is_unfinished], next_position[is_unfinished], end[is_unfinished])
            )
        for message in zip(owner.tolist(), position.tolist(), end.tolist(), strict=True):
            self._loop_over_fields(fields, *message)
        return fields

    def texts(self, begins: Ints, ends: Ints) -> pa.Array[Any]:
        """Return the bytes at [begins, ends) as an array."""
        return spans(self._octets, begins, ends)

    def numbers(self, begins: Ints, dtype: str) -> np.ndarray:
        """Return the fixed-size numbers at ``begins``; ``dtype`` is numpy's name of their type."""
        octets = self._octets[begins[:, None] + np.arange(np.dtype(dtype).itemsize)]
        numbers: np.ndarray = octets.view(dtype).reshape(-1)
        return numbers

    def octets(self, begins: Ints, size: int) -> np.ndarray:
        """Return ``size`` bytes at each of ``begins`` as rows; they lie within the request."""
        rows: np.ndarray = self._octets[begins[:, None] + np.arange(size)]
        return rows

    def _next_fields(self, owner: Ints, position: Ints, end: Ints) -> Iterator[tuple[int, Any, Values, Ints]]:
        """Yield one field of each message. Messages of one program mostly have the same fields in the same order."""
        # Fast path: one tag for all messages is the normal case, and needs no selection of rows.
        tags = self._octets[position]
        if (tags == tags[0]).all():
            yield self._same_tag_fields(int(tags[0]), slice(None), owner, position, end)
            return
        for tag in np.unique(tags).tolist():
            rows = np.flatnonzero(tags == tag)
            yield self._same_tag_fields(tag, rows, owner[rows], position[rows], end[rows])

    def _same_tag_fields(
        self, tag: int, rows: Any, owner: Ints, position: Ints, end: Ints
    ) -> tuple[int, Any, Values, Ints]:
        """Decode fields that begin with the same byte."""
        wire_type, position, numbers = tag & 7, position + 1, None
        if tag >= 0x80:  # a field number of 16 or more
            rest, width = self._varints(position)
            numbers, tag = rest << np.uint64(4) | np.uint64((tag & 0x7F) >> 3), _HIGH_TAG
            position = np.minimum(position + width, end)
        elif tag < 8:
            raise Malformed("a field has no number")
        value, begin = np.zeros(len(position), np.uint64), position
        if wire_type in _FIXED:
            next_position = position + _FIXED[wire_type]
        elif wire_type in (VARINT, BYTES):
            value, width = self._varints(np.minimum(position, end))
            next_position = position + width
            if wire_type == BYTES:
                begin = next_position
                next_position = begin + np.minimum(value, _MAX_LENGTH).astype(np.int64)
        elif wire_type == _GROUP:
            of_group = np.full(len(position), tag >> 3) if numbers is None else numbers
            rows_of_group = zip(position.tolist(), end.tolist(), of_group.tolist(), strict=True)
            next_position = np.array([self._group_end(*row) for row in rows_of_group], np.int64)
        else:
            raise Malformed("a field is of no known kind")
        if (next_position > end).any():
            raise Malformed("a field does not end")
        return tag, rows, Values(owner, begin, next_position, value if numbers is None else numbers), next_position

    def _varints(self, position: Ints) -> tuple[np.ndarray, Ints]:
        """Return the varints at ``position`` and their widths. Raises Malformed."""
        first = self._octets[position]
        value, width = (first & 0x7F).astype(np.uint64), np.ones(len(position), np.int64)
        unfinished = np.flatnonzero(first >= 0x80)
        for index in range(1, _MAX_VARINT_BYTES):
            if not len(unfinished):
                return value, width
            octet = self._octets[position[unfinished] + index]
            value[unfinished] |= (octet & 0x7F).astype(np.uint64) << np.uint64(7 * index)
            width[unfinished] += 1
            unfinished = unfinished[octet >= 0x80]
        if len(unfinished):
            raise Malformed("a number does not end")
        return value, width

    def _group_end(self, position: int, end: int, number: int) -> int:
        """Return the end of the group of field ``number`` whose fields begin at ``position``. Raises Malformed.

        Groups of unknown fields are skipped, as protobuf and the Collector do.
        """
        data, open_groups = self.data, [number]
        while open_groups:
            self._group_fields += 1
            if self._group_fields > MAX_GROUP_FIELDS:
                raise TooManyFields(f"more than {MAX_GROUP_FIELDS} fields in groups")
            if position >= end:
                raise Malformed("a group does not end")
            tag, position = _varint(data, position, end)
            number, wire_type = tag >> 3, tag & 7
            if wire_type == _GROUP and len(open_groups) < _MAX_GROUP_DEPTH:
                open_groups.append(number)
            elif wire_type == VARINT:
                _, position = _varint(data, position, end)
            elif wire_type == BYTES:
                position = sum(_varint(data, position, end))
            elif wire_type in _FIXED:
                position += _FIXED[wire_type]
            elif wire_type != _GROUP_END or number != open_groups.pop():
                raise Malformed("a field of a group has an unknown wire type")
            if not number:
                raise Malformed("a field has no number")
        return position

    def _loop_over_fields(self, fields: Fields, owner: int, position: int, end: int) -> None:
        """Decode the fields of one message from ``position`` on."""
        data, by_tag, count = self.data, dict[int, tuple[list[int], list[int], list[int]]](), 0
        while position < end:
            tag, position = (data[position], position + 1) if data[position] < 0x80 else _varint(data, position, end)
            wire_type, begin, value = tag & 7, position, 0
            begins, ends, values = by_tag.setdefault(tag if tag < 0x80 else _HIGH_TAG, ([], [], []))
            if wire_type == BYTES:
                position = (
                    _repeated_field(data, position, end, tag, begins, ends)
                    if tag < 0x80
                    else sum(_varint(data, position, end))
                )
            elif wire_type == VARINT:
                value, position = _varint(data, position, end)
            elif wire_type in _FIXED:
                position += _FIXED[wire_type]
            elif wire_type == _GROUP:
                position = self._group_end(position, end, tag >> 3)
            else:
                raise Malformed("a field is of no known kind")
            count += 1
            check_field_count(max(count, len(begins)))
            if position > end or tag < 8:
                raise Malformed("a field does not end, or has no number")
            if wire_type != BYTES or tag >= 0x80:
                begins.append(begin)
                ends.append(position)
                values.append(value if tag < 0x80 else tag >> 3)
        for tag, (begins, ends, values) in by_tag.items():
            owners = np.full(len(begins), owner, np.int64)
            numbers = np.array(values, np.uint64) if values else np.zeros(len(begins), np.uint64)
            fields.add(tag, Values(owners, np.array(begins, np.int64), np.array(ends, np.int64), numbers))


def _repeated_field(data: bytes, position: int, end: int, tag: int, begins: list[int], ends: list[int]) -> int:
    """Decode consecutive byte fields of one tag, the first length at ``position``; return their end."""
    while position < end:
        size, begin = data[position], position + 1
        if size >= 0x80:
            # Fast path without a call: most lengths have two bytes.
            if begin < end and (high := data[begin]) < 0x80:
                size, begin = size & 0x7F | high << 7, begin + 1
            else:
                size, begin = _varint(data, position, end)
        position = begin + size
        begins.append(begin)
        ends.append(position)
        if position >= end or data[position] != tag or len(begins) > MAX_FIELDS:
            return position
        position += 1
    raise Malformed("a field has no length")


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    if position + 1 < end and data[position] >= 0x80 > data[position + 1]:  # fast path: most lengths have two bytes
        return data[position] & 0x7F | data[position + 1] << 7, position + 2
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if position + index >= end:
            break
        octet = data[position + index]
        value |= (octet & 0x7F) << 7 * index
        if octet < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position + index + 1
    raise Malformed("a number does not end")


def take_or_null(values: pa.Array[Any], indices: Ints) -> pa.Array[Any]:
    """Return ``values[indices]``, null for the index -1."""
    if len(values) == len(indices) and (indices == np.arange(len(indices))).all():
        return values
    absent = indices < 0
    return values.take(from_numpy(indices, absent if absent.any() else None))
