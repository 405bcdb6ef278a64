"""Partition by key as Flink assigns keys to operators, for plog's FlinkPartitioner: by the key group of each key.

The group is Flink's murmur hash (MathUtils.murmurHash) of Java's String.hashCode modulo the maximum parallelism;
ranges of groups map to partitions (KeyGroupRangeAssignment).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]

LONG_KEY_CHARS = 256
"""Limit: longer keys are hashed one by one, so that one long key does not widen the table of all keys."""


def partitions_of(keys: Sequence[bytes], partitions: int, max_parallelism: int) -> Ints:
    """Return the partition of each key (read as UTF-8): int64, shape (n,)."""
    groups = key_groups(hash_codes([key.decode("utf-8", "replace") for key in keys]), max_parallelism)
    return groups * partitions // max_parallelism


def key_groups(codes: Words, max_parallelism: int) -> Ints:
    """Return the key group of each hash code."""
    return _murmur(codes) % max_parallelism


def hash_codes(texts: Sequence[str]) -> Words:
    """Return Java's String.hashCode of each text as uint32: s[0] * 31^(n-1) + ... + s[n-1] over UTF-16 units."""
    units = [np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2") for text in texts]
    lengths = np.fromiter(map(len, units), np.int64, len(units))
    codes = np.zeros(len(units), np.uint32)
    short = np.flatnonzero(lengths <= LONG_KEY_CHARS)
    codes[short] = _table_codes([units[row] for row in short], lengths[short])
    for row in np.flatnonzero(lengths > LONG_KEY_CHARS):
        codes[row] = _long_code(units[row])
    return codes


def _table_codes(units: Sequence[npt.NDArray[np.uint16]], lengths: Ints) -> Words:
    # Fast path: one numpy step per character position, for all texts at once.
    table = np.zeros((len(units), int(lengths.max(initial=0))), np.uint32)
    table[np.arange(table.shape[1]) < lengths[:, None]] = np.concatenate(units) if units else 0
    codes = np.zeros(len(units), np.uint32)
    for column in range(table.shape[1]):
        codes = np.where(column < lengths, codes * np.uint32(31) + table[:, column], codes)
    return codes


def _long_code(units: npt.NDArray[np.uint16]) -> np.uint32:
    powers = np.full(len(units), 31, np.uint32)
    powers[-1] = 1
    powers = np.multiply.accumulate(powers[::-1])[::-1]
    return np.uint32(np.sum(units * powers, dtype=np.uint32))


def _murmur(codes: Words) -> Ints:
    """Apply Flink's MathUtils.murmurHash: MurmurHash3 of one 32-bit word, made positive."""
    mixed = codes * np.uint32(0xCC9E2D51)
    mixed = _rotate_left(mixed, 15) * np.uint32(0x1B873593)
    mixed = _rotate_left(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    mixed ^= np.uint32(4)
    mixed ^= mixed >> np.uint32(16)
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    signed = mixed.view(np.int32).astype(np.int64)
    return np.where(signed == -(1 << 31), 0, np.abs(signed))


def _rotate_left(words: Words, bits: int) -> Words:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)
