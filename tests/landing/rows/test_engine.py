"""Whole columns: what is looked for in the bytes of all their texts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.rows.engine import Bytes, Places, byte_mask, rows_with, text_bytes

TEXTS = st.lists(st.none() | st.text("abé", max_size=4), max_size=8)


def letters_a(content: Bytes) -> Places:
    return np.flatnonzero(content == ord("a"))


@given(TEXTS, st.integers(0, 8), st.integers(0, 8))
def test_rows_are_found_by_their_bytes_also_in_a_part_of_a_column(
    texts: list[str | None], begin: int, end: int
) -> None:
    column = pa.array(texts, pa.string())[begin:end]
    part = texts[begin:end]
    assert rows_with(column, letters_a).tolist() == ["a" in (text or "") for text in part]
    offsets, content = text_bytes(column)
    assert content.tobytes() == "".join(text or "" for text in part).encode()
    assert np.diff(offsets).tolist() == [len((text or "").encode()) for text in part]


def test_a_column_of_nothing_has_no_bytes() -> None:
    for column in (pa.nulls(3, pa.string()), pa.nulls(0, pa.string()), pa.array([], pa.string())):
        assert not rows_with(column, letters_a).any()
        assert text_bytes(column)[1].tobytes() == b""


def test_a_set_of_letters_knows_its_own() -> None:
    assert np.flatnonzero(byte_mask(b" ,\xff")).tolist() == [0x20, 0x2C, 0xFF]
