"""Protobuf's wire format for many messages at once: numpy over the bytes, no statement per message.

Only what encoders write in practice is read here (known fields, canonical order not required); for anything
else ``Irregular`` says that the message is to be parsed by protobuf itself, message by message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import PenstockError

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Values = npt.NDArray[np.uint64]

VARINT, LENGTH = 0, 2
"""Wire types (the low three bits of a tag)."""
MAX_ROUNDS = 64
"""Fields of one message that are read here: one round of numpy calls each, however many messages have it."""
MAX_VARINT = 10


class Irregular(PenstockError, ValueError):
    """Not encoded as expected: to be parsed by protobuf, which says whether it is wrong."""


def varints(data: Bytes, at: Places, end: Places) -> tuple[Values, Places]:
    """The varints that begin at ``at`` and the places behind them. Raises Irregular when one runs past ``end``."""
    value = np.zeros(len(at), np.uint64)
    place = at.copy()
    active = np.arange(len(at))
    for shift in range(0, 7 * MAX_VARINT, 7):
        if (place[active] >= end[active]).any():
            raise Irregular("a varint runs past its message")
        byte = data[place[active]]
        value[active] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(shift)
        place[active] += 1
        active = active[byte >= 0x80]
        if not len(active):
            return value, place
    raise Irregular("a varint of more than ten bytes")


@dataclass(slots=True)
class Found:
    """One field over all messages: ``rows`` ascending, with the value's span [begin, end), or its ``value``."""

    rows: Places
    begin: Places
    end: Places
    value: Values


@dataclass(slots=True)
class _Parts:
    rows: list[Places] = field(default_factory=list)
    begin: list[Places] = field(default_factory=list)
    end: list[Places] = field(default_factory=list)
    value: list[Values] = field(default_factory=list)

    def joined(self) -> Found:
        rows = np.concatenate(self.rows)
        order = np.argsort(rows, kind="stable")
        begin, end = (np.concatenate(part)[order] for part in (self.begin, self.end))
        return Found(rows[order], begin, end, np.concatenate(self.value)[order])


def fields(data: Bytes, begin: Places, end: Places, tags: Iterable[int]) -> dict[int, Found]:
    """The fields of the messages [begin, end), by tag (one byte each). Raises Irregular for a tag not in ``tags``."""
    parts = {tag: _Parts() for tag in tags}
    place = begin.copy()
    for _ in range(MAX_ROUNDS):
        rows = np.flatnonzero(place < end)
        if not len(rows):
            return {tag: found.joined() for tag, found in parts.items() if found.rows}
        _one_round(data, place, end, rows, parts)
    raise Irregular("a message of very many fields")


def _one_round(data: Bytes, place: Places, end: Places, rows: Places, parts: dict[int, _Parts]) -> None:
    """Read the next field of each message of ``rows``, and move ``place`` behind it."""
    tag = data[place[rows]]
    value, after = varints(data, place[rows] + 1, end[rows])
    spans = (tag & 7) == LENGTH
    if (value[spans] > np.uint64(len(data))).any():
        raise Irregular("a length runs past its message")
    behind = after + np.where(spans, value, np.uint64(0)).astype(np.int64)
    if (behind > end[rows]).any():
        raise Irregular("a length runs past its message")
    seen = 0
    for known, found in parts.items():
        chosen = np.flatnonzero(tag == known)
        if len(chosen):
            seen += len(chosen)
            found.rows.append(rows[chosen])
            found.begin.append(after[chosen])
            found.end.append(behind[chosen])
            found.value.append(value[chosen])
    if seen != len(rows):
        raise Irregular("a field that is not known")
    place[rows] = behind


def chain(data: Bytes, first: int, tag: int) -> tuple[Places, Places, int]:
    """The spans of the length-delimited fields ``tag`` that follow each other from ``first`` on, and where they end.

    Each one's place depends on the length of the one before. So all bytes that could be the tag are taken for
    one, and those that are reached from the first are found by doubling the step.
    """
    tags = np.flatnonzero(data[first:] == tag) + first
    length, after = _lenient(data, tags)
    behind = after + length
    jump = np.searchsorted(tags, behind)
    whole = behind <= len(data)
    nowhere = len(tags)
    follows = (jump < nowhere) & whole
    follows[follows] = tags[jump[follows]] == behind[follows]
    reached = _reached(np.append(np.where(follows, jump, nowhere), nowhere), nowhere)
    if not len(reached) or tags[0] != first:
        return np.empty(0, np.int64), np.empty(0, np.int64), first
    if not whole[reached[-1]]:
        raise Irregular("a length runs past its message")
    return after[reached], behind[reached], int(behind[reached[-1]])


def _reached(jump: Places, nowhere: int) -> Places:
    """The numbers reached from 0 by following ``jump``, ascending, without ``nowhere``, from which nothing leads on."""
    reached = np.zeros(min(nowhere, 1), np.int64)
    while len(reached):
        further = jump[reached]
        further = further[further != nowhere]
        if not len(further):
            break
        reached = np.concatenate((reached, further))
        jump = jump[jump]
    return np.sort(reached)


def _lenient(data: Bytes, tags: Places) -> tuple[Places, Places]:
    """Lengths of up to four bytes behind each of ``tags``, and the places behind them; longer ones lead outside."""
    place = tags + 1
    length = np.zeros(len(tags), np.int64)
    active = np.arange(len(tags))
    last = len(data) - 1
    for shift in (0, 7, 14, 21):
        byte = data[np.minimum(place[active], last)].astype(np.int64)
        length[active] |= (byte & 0x7F) << shift
        place[active] += 1
        active = active[byte >= 0x80]
        if not len(active):
            return length, place
    length[active] = len(data)
    return length, place


def gather(data: pa.Buffer, begin: Places, end: Places, kind: pa.DataType, missing: npt.NDArray[np.bool_]) -> pa.Array:
    """The spans [begin, end), ascending, as an array of binary or string ``kind``, null where ``missing``.

    Raises Irregular for a string that is not UTF-8.
    """
    rows = len(begin)
    bounds = np.empty(2 * rows, np.int32)
    bounds[0::2], bounds[1::2] = begin, end
    spans = pa.Array.from_buffers(pa.binary(), max(2 * rows - 1, 0), [None, pa.py_buffer(bounds), data])
    chosen = pa.array(np.arange(rows, dtype=np.int32) * 2, mask=missing if missing.any() else None)
    taken = spans.take(chosen)
    if kind == pa.binary():
        return taken
    try:
        return taken.cast(kind)
    except pa.ArrowInvalid:
        raise Irregular("a text is not UTF-8") from None


Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Block:
    """Bytes of a message for each row: a matrix, which of its cells there are (None: all), and how many in each row."""

    cells: Bytes
    there: Mask | None
    size: int | Places


def literal(tag: int, rows: int, there: Mask | None = None) -> Block:
    """One byte in the rows that are ``there`` (None: in all)."""
    cells = np.full((rows, 1), tag, np.uint8)
    if there is None or there.all():
        return Block(cells, None, 1)
    return Block(cells, there[:, np.newaxis], there.astype(np.int64))


def varint(values: Values, there: Mask | None = None) -> Block:
    """Varints, in the rows that are ``there`` (None: in all)."""
    least, most = (_width(int(value)) for value in (values.min(initial=0), values.max(initial=0)))
    cells = np.empty((len(values), most), np.uint8)
    rest = values
    for place in range(most):
        cells[:, place] = rest & _SEVEN
        rest = rest >> _SHIFT
        if place < most - 1:
            cells[:, place] |= (rest != 0).view(np.uint8) << 7
    every = there is None or bool(there.all())
    if every and least == most:
        return Block(cells, None, most)
    present = values[:, np.newaxis] >= _FLOORS[:most]
    size = widths(values)
    if not every:
        present &= there[:, np.newaxis]  # type: ignore[index]
        size *= there  # type: ignore[arg-type]
    return Block(cells, present, size)


_SEVEN, _SHIFT = np.uint64(0x7F), np.uint64(7)
_FLOORS = np.array([0] + [1 << 7 * place for place in range(1, MAX_VARINT)], np.uint64)
"""The least value whose varint has a byte at that place."""


def _width(value: int) -> int:
    return max((value.bit_length() + 6) // 7, 1)


def widths(values: Values) -> Places:
    """The bytes that each varint takes."""
    return np.asarray(np.searchsorted(_FLOORS[1:], values, side="right") + 1, np.int64)


def number(tag: int, values: Values) -> list[Block]:
    """A number field; 0 is left out."""
    there = values != 0
    return [literal(tag, len(values), there), varint(values, there)]


def size_of(blocks: Sequence[Block]) -> Places | int:
    """The bytes that the blocks take in each row."""
    return sum((block.size for block in blocks), start=0)


def packed(blocks: Sequence[Block]) -> pa.Array:
    """The bytes of the blocks, one behind the other, as a binary array with one value a row."""
    cells = np.concatenate([block.cells for block in blocks], axis=1)
    rows, width = cells.shape
    bounds = np.zeros(rows + 1, np.int32)
    if all(block.there is None for block in blocks):
        bounds[1:] = np.arange(1, rows + 1) * width
        return _binary(bounds, cells)
    np.cumsum(np.broadcast_to(size_of(blocks), rows), out=bounds[1:])
    there = np.ones(cells.shape, bool)
    place = 0
    for block in blocks:
        if block.there is not None:
            there[:, place : place + block.cells.shape[1]] = block.there
        place += block.cells.shape[1]
    return _binary(bounds, cells[there])


def _binary(bounds: npt.NDArray[np.int32], data: Bytes) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
