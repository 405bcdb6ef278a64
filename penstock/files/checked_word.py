"""A number of 52 bits with an 11-bit check in one 8-byte word, so that it is loaded and stored atomically.

The check is the remainder by a prime, plus one: it detects any flipped bit and any two, and a word of zeros is invalid.
"""

from __future__ import annotations

BITS = 52
MAX_WORD = (1 << BITS) - 1
# The largest prime below 2^11: the remainder plus one fits 11 bits, and the word stays positive as a signed integer.
_PRIME = 2039


def encode_word(value: int) -> int:
    """Return the word that holds ``value`` as a signed integer. Raises ValueError when ``value`` does not fit."""
    if not 0 <= value <= MAX_WORD:
        raise ValueError(f"{value} does not fit into {BITS} bits")
    return (value % _PRIME + 1) << BITS | value


def decode_word(word: int) -> int | None:
    """Return the number in a word; None when the word is damaged."""
    value = word & MAX_WORD
    return value if word >> BITS == value % _PRIME + 1 else None
