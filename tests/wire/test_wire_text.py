"""Bytes of senders as text."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.text import strings, text


@given(st.text(st.characters(codec="utf-8")))
def test_utf8_stays_as_it_is(value: str) -> None:
    assert text(value.encode()) == value


@given(st.binary(max_size=30))
def test_anything_else_never_takes_more_bytes(data: bytes) -> None:
    assert len(text(data).encode()) <= len(data)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=8)), max_size=8))
def test_columns_become_valid_strings(values: list[bytes | None]) -> None:
    column = strings(pa.array(values, pa.binary()))
    column.validate(full=True)
    assert column.to_pylist() == [None if value is None else text(value) for value in values]
