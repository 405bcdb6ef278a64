"""MD5 of whole columns: the first 60 bits of each digest as a number, which every SQL engine computes alike."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.landing.rows.engine import pc, text_bytes

ROWS_AT_ONCE = 32_768
"""Rows hashed together: their words fit the processor's cache, and a call on columns costs little per row."""
MIN_ROWS_OF_COLUMN, MAX_BLOCKS_OF_COLUMN = 2048, 64
"""Limits: fewer rows, or longer texts, are hashed one by one, because a call on columns has a fixed cost per block."""
Words = npt.NDArray[np.uint32]
Hashes = npt.NDArray[np.uint64]
_START = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)
_CONSTANTS = [np.uint32(int(abs(math.sin(step + 1)) * 2**32)) for step in range(64)]
_SHIFTS = [(7, 12, 17, 22)[step % 4] for step in range(16)]
_SHIFTS += [(5, 9, 14, 20)[step % 4] for step in range(16)]
_SHIFTS += [(4, 11, 16, 23)[step % 4] for step in range(16)]
_SHIFTS += [(6, 10, 15, 21)[step % 4] for step in range(16)]
_WORD_OF_STEP = [
    *range(16),
    *((5 * step + 1) % 16 for step in range(16)),
    *((3 * step + 5) % 16 for step in range(16)),
    *((7 * step) % 16 for step in range(16)),
]
_BLOCK_BYTES, _LENGTH_BYTES = 64, 8


def text_hashes(texts: pa.Array[Any]) -> Hashes:
    """Return the hash of each text, or of its bytes; 0 for null."""
    parts = [_hash_chunk(texts.slice(start, ROWS_AT_ONCE)) for start in range(0, len(texts), ROWS_AT_ONCE)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _hash_chunk(texts: pa.Array[Any]) -> Hashes:
    offsets, content = text_bytes(texts)
    lengths = np.diff(offsets).astype(np.int64)
    length = int(lengths[0])
    # Fast path: uuids have one length, so their bytes are a matrix of words, and most words are the same in each row.
    if not texts.null_count and length % 4 == 0 and length + _LENGTH_BYTES < _BLOCK_BYTES and (lengths == length).all():
        columns = np.ascontiguousarray(content.view("<u4").reshape(len(texts), length // 4).T)
        fixed = [np.uint32(0x80), *[np.uint32(0)] * (13 - length // 4), np.uint32(8 * length), np.uint32(0)]
        return _heads(_md5_block([*columns, *fixed], _start(len(texts))))
    blocks = (lengths + _LENGTH_BYTES) // _BLOCK_BYTES + 1
    is_null = texts.is_null().to_numpy(zero_copy_only=False)
    hashed = np.zeros(len(texts), np.uint64)
    # Limit: texts of equally many blocks together, so that a long one does not widen the memory of all others.
    counts, rows_of_count = np.unique(blocks[~is_null], return_counts=True)
    for count, rows in zip(counts.tolist(), rows_of_count.tolist(), strict=True):
        indices = np.flatnonzero((blocks == count) & ~is_null)
        same = texts if rows == len(texts) else pc.take(texts, pa.array(indices, pa.int64()))
        as_column = rows >= MIN_ROWS_OF_COLUMN and count <= MAX_BLOCKS_OF_COLUMN
        hashed[indices] = _hash_blocks(same, lengths[indices], count) if as_column else _hash_singly(same)
    return hashed


def _hash_singly(texts: pa.Array[Any]) -> Hashes:
    contents: list[Any] = texts.cast(pa.binary()).to_pylist()
    digests = b"".join(hashlib.md5(content, usedforsecurity=False).digest() for content in contents)
    return np.frombuffer(digests, ">u8")[::2].astype(np.uint64) >> np.uint64(4)


def _hash_blocks(texts: pa.Array[Any], lengths: npt.NDArray[np.int64], blocks: int) -> Hashes:
    """Return the hashes of texts that have the same number of blocks."""
    marked = pc.binary_join_element_wise(texts.cast(pa.binary()), b"\x80", b"")
    # Arrow pads bytes ten times as fast as numpy copies them one by one.
    padded = pc.ascii_rpad(marked.view(pa.string()), blocks * _BLOCK_BYTES, "\0")
    words = text_bytes(padded)[1].view("<u4").reshape(len(texts), 16 * blocks)
    state = _start(len(texts))
    for block in range(blocks):
        columns = np.ascontiguousarray(words[:, 16 * block : 16 * (block + 1)].T)
        if block == blocks - 1:
            columns[14] = lengths * 8
        state = _md5_block([*columns], state)
    return _heads(state)


def _start(rows: int) -> list[Words]:
    return [np.full(rows, word, np.uint32) for word in _START]


def _heads(state: Sequence[Words]) -> Hashes:
    """Return the first 60 bits of each digest."""
    high, low = (word.byteswap().astype(np.uint64) for word in state[:2])
    return (high << np.uint64(28)) | (low >> np.uint64(4))


def _md5_block(words: Sequence[Words | np.uint32], state: Sequence[Words]) -> list[Words]:
    """Apply the 64 steps of MD5 (RFC 1321) to a block of each row; ``words``: 16 columns, or one number for all rows.

    Return the new state.
    """
    a, b, c, d = (word.copy() for word in state)
    mixed, shifted = np.empty_like(a), np.empty_like(a)
    for step in range(64):
        # All operations write into existing columns: allocating them would cost half of the time.
        if step < 16:
            np.bitwise_xor(c, d, out=mixed)
            np.bitwise_and(mixed, b, out=mixed)
            np.bitwise_xor(mixed, d, out=mixed)
        elif step < 32:
            np.bitwise_xor(b, c, out=mixed)
            np.bitwise_and(mixed, d, out=mixed)
            np.bitwise_xor(mixed, c, out=mixed)
        elif step < 48:
            np.bitwise_xor(b, c, out=mixed)
            np.bitwise_xor(mixed, d, out=mixed)
        else:
            np.bitwise_not(d, out=mixed)
            np.bitwise_or(mixed, b, out=mixed)
            np.bitwise_xor(mixed, c, out=mixed)
        np.add(mixed, a, out=mixed)
        word = words[_WORD_OF_STEP[step]]
        if isinstance(word, np.ndarray):
            np.add(mixed, word, out=mixed)
            np.add(mixed, _CONSTANTS[step], out=mixed)
        else:
            np.add(mixed, np.uint32((int(word) + int(_CONSTANTS[step])) & 0xFFFFFFFF), out=mixed)
        np.left_shift(mixed, np.uint32(_SHIFTS[step]), out=shifted)
        np.right_shift(mixed, np.uint32(32 - _SHIFTS[step]), out=mixed)
        np.bitwise_or(mixed, shifted, out=mixed)
        np.add(mixed, b, out=mixed)
        a, d, c, b, mixed = d, c, b, mixed, a
    return [old + new for old, new in zip(state, (a, b, c, d), strict=True)]
