"""A filter that answers nearly all questions for keys that are not there: a Bloom filter in blocks of a cache line.

A key's block follows from its upper half alone, and in the same order: keys that come sorted are entered from one end
to the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[tuple[int], np.dtype[Any]]
BITS = 16
"""Bits of the filter for each key: with two of them set, one question in sixty is asked in vain."""
BLOCK_BITS = 512
BLOCK_BYTES = BLOCK_BITS // 8
_AT_ONCE = 1 << 16
"""Keys entered at once: a byte for each of their bits is in memory."""
_HALF, _PLACE, _PLACE_BITS = np.uint64(32), np.uint64(BLOCK_BITS - 1), np.uint64(9)


def filter_bytes(rows: int) -> int:
    """The size of a filter for so many keys."""
    return max(1, -(-rows * BITS // BLOCK_BITS)) * BLOCK_BYTES


def empty_filter(rows: int) -> Array:
    """A filter for so many keys, none of them entered."""
    return np.zeros(filter_bytes(rows), np.uint8)


def enter(bitmap: Array, high: Array, low: Array) -> None:
    """Enter keys, by their halves, in ascending order."""
    for at in range(0, len(high), _AT_ONCE):
        _enter(bitmap, high[at : at + _AT_ONCE], low[at : at + _AT_ONCE])


def filter_of(high: Array, low: Array) -> Array:
    """The filter of keys, by their halves, in ascending order."""
    bitmap = empty_filter(len(high))
    enter(bitmap, high, low)
    return bitmap


def _enter(bitmap: Array, high: Array, low: Array) -> None:
    blocks = _blocks(bitmap, high)
    first, end = int(blocks[0]), int(blocks[-1]) + 1
    bits = np.zeros((end - first) * BLOCK_BITS, np.uint8)
    begins = (blocks - first) * BLOCK_BITS
    for place in _places(low):
        bits[begins + place] = 1
    bitmap[first * BLOCK_BYTES : end * BLOCK_BYTES] |= np.packbits(bits, bitorder="little")


def maybe_there(bitmap: Array, high: Array, low: Array) -> Array:
    """The numbers of the keys that may have been entered: of all that were, and of few others."""
    begins = _blocks(bitmap, high) * BLOCK_BYTES
    first, second = _places(low)
    rows: Array = np.flatnonzero(_bits(bitmap, begins, first))
    both: Array = rows[_bits(bitmap, begins[rows], second[rows]) != 0]
    return both


def _blocks(bitmap: Array, high: Array) -> Array:
    count = np.uint64(len(bitmap) // BLOCK_BYTES)
    blocks: Array = (((high >> _HALF) * count) >> _HALF).view(np.int64)
    return blocks


def _places(low: Array) -> tuple[Array, Array]:
    """Two bits of a block."""
    return (low & _PLACE).view(np.int64), ((low >> _PLACE_BITS) & _PLACE).view(np.int64)


def _bits(bitmap: Array, begins: Array, places: Array) -> Array:
    found: Array = (bitmap[begins + (places >> 3)] >> (places & 7).astype(np.uint8)) & np.uint8(1)
    return found
