"""Checked words detect flipped bits."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.files.checked_word import MAX_WORD, decode_word, encode_word


@given(st.integers(0, MAX_WORD))
def test_word_survives_a_round_trip_and_fits_a_signed_integer(value: int) -> None:
    assert decode_word(encode_word(value)) == value
    assert 0 < encode_word(value) < 1 << 63


@given(st.integers(0, MAX_WORD))
def test_decode_detects_any_flipped_bit(value: int) -> None:
    written = encode_word(value)
    for bit in range(64):
        assert decode_word(_signed(written ^ 1 << bit)) is None


def test_decode_detects_two_flipped_bits_of_the_number() -> None:
    written = encode_word(123_456_789_012_345)
    for first, second in combinations(range(52), 2):
        assert decode_word(written ^ 1 << first ^ 1 << second) is None


@pytest.mark.parametrize("word", [0, -1, 1, 1 << 40])
def test_decode_refuses_words_without_a_check(word: int) -> None:
    assert decode_word(word) is None


@pytest.mark.parametrize("value", [-1, MAX_WORD + 1])
def test_encode_refuses_numbers_that_do_not_fit(value: int) -> None:
    with pytest.raises(ValueError, match="52 bits"):
        encode_word(value)


def _signed(word: int) -> int:
    return int.from_bytes(word.to_bytes(8, "little"), "little", signed=True)
