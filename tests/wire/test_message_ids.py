"""Ids of messages that come again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.message_ids import message_id

PARTS = st.lists(st.binary(max_size=4), max_size=4)


@given(PARTS, PARTS)
def test_the_same_parts_have_the_same_id_and_others_another(one: list[bytes], other: list[bytes]) -> None:
    assert (message_id(one) == message_id(other)) == (one == other)
    assert len(message_id(one)) == 32
