"""Ids of messages that come again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.message_ids import message_id

PARTS = st.lists(st.binary(max_size=4), max_size=4)


@given(PARTS, PARTS)
def test_equal_parts_have_equal_ids(first: list[bytes], second: list[bytes]) -> None:
    assert (message_id(first) == message_id(second)) == (first == second)
    assert len(message_id(first)) == 32
