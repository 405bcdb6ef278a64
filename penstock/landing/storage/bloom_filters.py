"""Bloom filters of Parquet files: whether a row group may have a value, from 32 bytes of the file.

The format is Parquet's split-block filter with XXH64. pyarrow 26 writes these filters, but does not read them.
"""

from __future__ import annotations

import os

HEADER_BYTES = 16
"""Bytes that hold the filter's size: the first field of its header."""
BLOCK_BYTES, BLOCK_WORDS = 32, 8
_NUM_BYTES_FIELD = 0x15
"""Thrift's compact protocol: field 1, a 32-bit integer."""
_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def may_contain(handle: int, offset: int, length: int, hashed: int) -> bool:
    """Report whether the filter at ``offset`` of an open file may contain a value with this hash. Raises OSError."""
    size = _bitset_bytes(os.pread(handle, HEADER_BYTES, offset), length)
    if size is None:
        return True  # another program's filter in a form that is not known here
    block = ((hashed >> 32) * (size // BLOCK_BYTES)) >> 32
    content = os.pread(handle, BLOCK_BYTES, offset + length - size + block * BLOCK_BYTES)
    words = [int.from_bytes(content[4 * number : 4 * number + 4], "little") for number in range(BLOCK_WORDS)]
    key = hashed & 0xFFFFFFFF
    return all(word >> ((key * salt & 0xFFFFFFFF) >> 27) & 1 for word, salt in zip(words, _SALTS, strict=True))


def _bitset_bytes(header: bytes, length: int) -> int | None:
    """Return the size of the filter's bits, which end at the filter's end; None if the header is not understood."""
    if not header or header[0] != _NUM_BYTES_FIELD:
        return None
    number = shift = 0
    for byte in header[1:6]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            size = number >> 1  # zigzag
            return size if BLOCK_BYTES <= size < length and size % BLOCK_BYTES == 0 else None
    return None


def xxh64(content: bytes) -> int:
    """Return XXH64 with seed 0."""
    size, position = len(content), 0
    if size >= 32:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while position + 32 <= size:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], _word(content, position + 8 * lane, 8))
            position += 32
        hashed = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            hashed = ((hashed ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        hashed = _P5
    hashed = (hashed + size) & _MASK
    while position + 8 <= size:
        hashed ^= _round(0, _word(content, position, 8))
        hashed = (_rotated(hashed, 27) * _P1 + _P4) & _MASK
        position += 8
    if position + 4 <= size:
        hashed ^= _word(content, position, 4) * _P1 & _MASK
        hashed = (_rotated(hashed, 23) * _P2 + _P3) & _MASK
        position += 4
    for byte in content[position:]:
        hashed = _rotated(hashed ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    for bits, prime in ((33, _P2), (29, _P3)):
        hashed = (hashed ^ (hashed >> bits)) * prime & _MASK
    return hashed ^ (hashed >> 32)


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & _MASK


def _word(content: bytes, position: int, size: int) -> int:
    return int.from_bytes(content[position : position + size], "little")
