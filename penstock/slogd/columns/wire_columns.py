"""Protobuf's wire format, written for many messages at once: numpy over columns, no statement per message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.records import binary_array

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Values = npt.NDArray[np.uint64]
MAX_VARINT = 10
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Block:
    """Bytes of a message for each row: a matrix, which of its cells there are (None: all), and how many in each row."""

    cells: Bytes
    there: Mask | None
    size: int | Places


def literal(tag: int, rows: int, there: Mask | None = None) -> Block:
    """One byte in the rows that are ``there`` (None: in all)."""
    cells = np.broadcast_to(np.uint8(tag), (rows, 1))
    if there is None or there.all():
        return Block(cells, None, 1)
    return Block(cells, there[:, np.newaxis], there.astype(np.int64))


def varint(values: Values, there: Mask | None = None) -> Block:
    """Varints, in the rows that are ``there`` (None: in all)."""
    every = there is None or bool(there.all())
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    least, most = _width(low), _width(high)
    if every and low == high:
        return Block(np.broadcast_to(_one(low), (len(values), most)), None, most)
    cells = np.empty((len(values), most), np.uint8)
    rest = values
    for place in range(most):
        cells[:, place] = rest & _SEVEN
        rest = rest >> _SHIFT
        if place < most - 1:
            cells[:, place] |= (rest != 0).view(np.uint8) << 7
    if every and least == most:
        return Block(cells, None, most)
    present = values[:, np.newaxis] >= _FLOORS[:most]
    size = widths(values)
    if not every:
        present &= there[:, np.newaxis]  # type: ignore[index]
        size *= there  # type: ignore[arg-type]
    return Block(cells, present, size)


def _one(value: int) -> Bytes:
    found: list[int] = []
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return np.array([*found, value], np.uint8)


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


def packed(blocks: Sequence[Block]) -> pa.Array[Any]:
    """The bytes of the blocks, one behind the other, as a binary array with one value a row."""
    edges = list(accumulate((block.cells.shape[1] for block in blocks), initial=0))
    rows, width = len(blocks[0].cells), edges[-1]
    cells = np.empty((rows, width), np.uint8)
    for block, (begin, end) in zip(blocks, pairwise(edges), strict=True):
        cells[:, begin:end] = block.cells
    bounds = np.zeros(rows + 1, np.int32)
    if all(block.there is None for block in blocks):
        bounds[1:] = np.arange(1, rows + 1) * width
        return binary_array(bounds, cells)
    np.cumsum(np.broadcast_to(size_of(blocks), rows), out=bounds[1:])
    there = np.ones(cells.shape, bool)
    for block, (begin, end) in zip(blocks, pairwise(edges), strict=True):
        if block.there is not None:
            there[:, begin:end] = block.there
    return binary_array(bounds, cells[there])
