"""A number that checks itself within one 8-byte word, so that it is loaded and stored as one: 52 bits, and 11 of check.

The check is the remainder by a prime: no flipped bit, and no two of them, leave it right; a word of zeros is none.
"""

from __future__ import annotations

BITS = 52
MOST = (1 << BITS) - 1
"""The largest number that a word holds."""
_PRIME = 2039


def encode_word(value: int) -> int:
    """The word that holds ``value``, as a signed integer. Raises ValueError for one that it cannot hold."""
    if not 0 <= value <= MOST:
        raise ValueError(f"{value} does not fit into {BITS} bits")
    return (value % _PRIME + 1) << BITS | value


def decode_word(word: int) -> int | None:
    """The number in a word; None when it is damaged."""
    value = word & MOST
    return value if word >> BITS == value % _PRIME + 1 else None
