"""A Bloom filter in blocks of one cache line, which answers most lookups of absent keys with two memory accesses.

A key's block follows from its upper half alone, and in the same order: sorted keys are added from one end of the
filter to the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[tuple[int], np.dtype[Any]]
BITS_PER_KEY = 16
"""Bits of the filter per key: with two bits set per key, one lookup of an absent key in sixty passes."""
BLOCK_BITS = 512
BLOCK_BYTES = BLOCK_BITS // 8
KEYS_PER_STEP = 1 << 16
"""Limit: keys added at once. Adding needs a byte per bit of their blocks, about 1 MiB for this many keys."""
_HALF_BITS, _BIT_MASK, _BIT_INDEX_BITS = np.uint64(32), np.uint64(BLOCK_BITS - 1), np.uint64(9)


def filter_bytes(rows: int) -> int:
    """Return the size of a filter for ``rows`` keys."""
    return max(1, -(-rows * BITS_PER_KEY // BLOCK_BITS)) * BLOCK_BYTES


def empty_filter(rows: int) -> Array:
    """Return a filter for ``rows`` keys, without any."""
    return np.zeros(filter_bytes(rows), np.uint8)


def add_keys(bitmap: Array, high: Array, low: Array) -> None:
    """Add keys, by their halves, in ascending order."""
    for start in range(0, len(high), KEYS_PER_STEP):
        _add_step(bitmap, high[start : start + KEYS_PER_STEP], low[start : start + KEYS_PER_STEP])


def build_filter(high: Array, low: Array) -> Array:
    """Return the filter of keys, by their halves, in ascending order."""
    bitmap = empty_filter(len(high))
    add_keys(bitmap, high, low)
    return bitmap


def _add_step(bitmap: Array, high: Array, low: Array) -> None:
    blocks = _blocks(bitmap, high)
    first, end = int(blocks[0]), int(blocks[-1]) + 1
    bits = np.zeros((end - first) * BLOCK_BITS, np.uint8)
    begins = (blocks - first) * BLOCK_BITS
    for bit_index in _bit_indexes(low):
        bits[begins + bit_index] = 1
    # The blocks of ascending keys are adjacent: only this part of the filter is written.
    bitmap[first * BLOCK_BYTES : end * BLOCK_BYTES] |= np.packbits(bits, bitorder="little")


def possible_rows(bitmap: Array, high: Array, low: Array) -> Array:
    """Return the row numbers of keys that may be present: of all present keys, and of few others."""
    begins = _blocks(bitmap, high) * BLOCK_BYTES
    first, second = _bit_indexes(low)
    # Fast path: the second bit is read only for keys whose first bit is set, about one absent key in eight.
    rows: Array = np.flatnonzero(_read_bits(bitmap, begins, first))
    candidates: Array = rows[_read_bits(bitmap, begins[rows], second[rows]) != 0]
    return candidates


def _blocks(bitmap: Array, high: Array) -> Array:
    count = np.uint64(len(bitmap) // BLOCK_BYTES)
    # The upper 32 bits scaled to the number of blocks: keeps the order of keys, and needs no division.
    blocks: Array = (((high >> _HALF_BITS) * count) >> _HALF_BITS).view(np.int64)
    return blocks


def _bit_indexes(low: Array) -> tuple[Array, Array]:
    return (low & _BIT_MASK).view(np.int64), ((low >> _BIT_INDEX_BITS) & _BIT_MASK).view(np.int64)


def _read_bits(bitmap: Array, begins: Array, bit_indexes: Array) -> Array:
    bits: Array = (bitmap[begins + (bit_indexes >> 3)] >> (bit_indexes & 7).astype(np.uint8)) & np.uint8(1)
    return bits
