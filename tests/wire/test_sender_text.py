"""Bytes of senders as text."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.growth import MAX_GROWTH_BYTES
from penstock.wire.sender_text import strings, text


@given(st.text(st.characters(codec="utf-8")))
def test_utf8_stays_as_it_is(value: str) -> None:
    assert text(value.encode()) == value


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (b"a\xff\xe2\x82b\xc3", "a\ufffd\ufffdb\ufffd"),
        (b"\xc0\x80 \xe0\x80\x80 \xf0\x80\x80\x80", "\ufffd" * 2 + " " + "\ufffd" * 3 + " " + "\ufffd" * 4),
        (b"\xed\xa0\xbd\xed\xb8\x80", "\ufffd" * 2),  # CESU-8: one for each surrogate
        (b"\xed\xa0b\xf0\x9f\x98", "\ufffdb\ufffd"),
    ],
)
def test_invalid_utf8_becomes_replacement_characters_as_in_plog(data: bytes, read: str) -> None:
    assert text(data) == read


@given(st.binary(max_size=30), st.integers(1, 300))
def test_a_text_grows_within_bounds(data: bytes, times: int) -> None:
    assert len(text(data * times).encode()) <= len(data) * times + MAX_GROWTH_BYTES


def test_a_text_that_would_grow_too_large_does_not_grow_at_all() -> None:
    assert text(b"\xff" * 1000) == "?" * 1000


@given(st.lists(st.one_of(st.none(), st.binary(max_size=8)), max_size=8))
def test_columns_become_valid_strings(values: list[bytes | None]) -> None:
    column = strings(pa.array(values, pa.binary()))
    column.validate(full=True)
    assert column.to_pylist() == [None if value is None else text(value) for value in values]
