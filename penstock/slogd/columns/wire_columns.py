"""Writes protobuf's wire format for many messages at once: numpy over columns, no statement per message."""

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
Counts = npt.NDArray[np.int64]
Values = npt.NDArray[np.uint64]
MAX_VARINT = 10
"""Bytes of the longest varint, of a 64-bit number."""
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Block:
    """Bytes for each row: a matrix, the mask of its cells that are present (None: all), and their number per row."""

    cells: Bytes
    present: Mask | None
    size: int | Counts


def literal(tag: int, rows: int, present: Mask | None = None) -> Block:
    """Return a constant byte in the rows that are ``present`` (None: all)."""
    cells = np.broadcast_to(np.uint8(tag), (rows, 1))
    if present is None or present.all():
        return Block(cells, None, 1)
    return Block(cells, present[:, np.newaxis], present.astype(np.int64))


def varint(values: Values, present: Mask | None = None) -> Block:
    """Return varints in the rows that are ``present`` (None: all)."""
    every = present is None or bool(present.all())
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    least, most = _width(low), _width(high)
    # Fast path: equal values, such as lengths of entries of one size, are encoded once.
    if every and low == high:
        return Block(np.broadcast_to(_encode_varint(low), (len(values), most)), None, most)
    cells = np.empty((len(values), most), np.uint8)
    rest = values
    for position in range(most):
        cells[:, position] = rest & _LOW_BITS
        rest = rest >> _SHIFT
        if position < most - 1:
            cells[:, position] |= (rest != 0).view(np.uint8) << 7
    # Fast path: varints of equal width fill the matrix, so no mask is needed.
    if every and least == most:
        return Block(cells, None, most)
    cell_mask = values[:, np.newaxis] >= _FLOORS[:most]
    size = widths(values)
    if not every:
        cell_mask &= present[:, np.newaxis]  # type: ignore[index]
        size *= present  # type: ignore[arg-type]
    return Block(cells, cell_mask, size)


def _encode_varint(value: int) -> Bytes:
    encoded: list[int] = []
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return np.array([*encoded, value], np.uint8)


_LOW_BITS, _SHIFT = np.uint64(0x7F), np.uint64(7)
_FLOORS = np.array([0] + [1 << 7 * position for position in range(1, MAX_VARINT)], np.uint64)
"""Smallest value whose varint has a byte at each position."""


def _width(value: int) -> int:
    return max((value.bit_length() + 6) // 7, 1)


def widths(values: Values) -> Counts:
    """Return the bytes of each varint."""
    return np.asarray(np.searchsorted(_FLOORS[1:], values, side="right") + 1, np.int64)


def number(tag: int, values: Values) -> list[Block]:
    """Return a number field; 0 is left out, as proto3 does."""
    present = values != 0
    return [literal(tag, len(values), present), varint(values, present)]


def size_of(blocks: Sequence[Block]) -> Counts | int:
    """Return the bytes of the blocks in each row."""
    return sum((block.size for block in blocks), start=0)


def packed(blocks: Sequence[Block]) -> pa.Array[Any]:
    """Concatenate the blocks by row, as a binary array with one value per row."""
    edges = list(accumulate((block.cells.shape[1] for block in blocks), initial=0))
    rows, width = len(blocks[0].cells), edges[-1]
    cells = np.empty((rows, width), np.uint8)
    for block, (begin, end) in zip(blocks, pairwise(edges), strict=True):
        cells[:, begin:end] = block.cells
    bounds = np.zeros(rows + 1, np.int32)
    if all(block.present is None for block in blocks):
        bounds[1:] = np.arange(1, rows + 1) * width
        return binary_array(bounds, cells)
    np.cumsum(np.broadcast_to(size_of(blocks), rows), out=bounds[1:])
    present = np.ones(cells.shape, bool)
    for block, (begin, end) in zip(blocks, pairwise(edges), strict=True):
        if block.present is not None:
            present[:, begin:end] = block.present
    return binary_array(bounds, cells[present])
