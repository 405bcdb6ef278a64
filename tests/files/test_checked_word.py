"""Numbers that check themselves."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.files.checked_word import MOST, decode_word, encode_word


@given(st.integers(0, MOST))
def test_a_number_is_read_as_it_was_written_and_fits_a_signed_word(value: int) -> None:
    assert decode_word(encode_word(value)) == value
    assert 0 < encode_word(value) < 1 << 63


@given(st.integers(0, MOST))
def test_a_flipped_bit_anywhere_is_found(value: int) -> None:
    written = encode_word(value)
    for bit in range(64):
        assert decode_word(_signed(written ^ 1 << bit)) is None


def test_two_flipped_bits_of_the_number_are_found() -> None:
    written = encode_word(123_456_789_012_345)
    for one, other in combinations(range(52), 2):
        assert decode_word(written ^ 1 << one ^ 1 << other) is None


@pytest.mark.parametrize("word", [0, -1, 1, 1 << 40])
def test_zeros_ones_and_bare_numbers_are_none(word: int) -> None:
    assert decode_word(word) is None


@pytest.mark.parametrize("value", [-1, MOST + 1])
def test_what_does_not_fit_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="52 bits"):
        encode_word(value)


def _signed(word: int) -> int:
    return int.from_bytes(word.to_bytes(8, "little"), "little", signed=True)
