"""The sender's side of fragments."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.datagrams import Datagrams
from penstock.wire.plog.codec import PlogDecoder
from penstock.wire.plog.cutting import MAX_DATAGRAM, fragment
from penstock.wire.plog.header import is_consistent, parse

TAGS = st.lists(st.text("abc:é", min_size=1, max_size=30), max_size=4)


@given(st.binary(max_size=400), TAGS, st.integers(1, 120), st.integers(0, 2**33))
def test_fragments_are_joined_to_the_message_that_was_cut(
    payload: bytes, tags: list[str], size: int, number: int
) -> None:
    datagrams = Datagrams.from_bytes(fragment(payload, number, tags=tags, fragment_size=size))
    headers, invalid = parse(datagrams, np.arange(len(datagrams)))
    room = len(payload) + len("\0".join(tags).encode())
    assert (invalid, len(headers)) == (0, max(-(-room // size), 1))
    assert len(headers) == 1 or is_consistent(headers).all()
    assert set(headers.id.tolist()) == {number % 2**32}
    (row,) = PlogDecoder().decode(datagrams, 0.0).body.to_pylist()
    assert (row["payload"], dict(row["annotations"] or ()).get("tags", "")) == (payload, "\0".join(tags))


def test_the_header_is_that_of_plog() -> None:
    fox = b"The quick brown fox jumps over the lazy dog"
    first, last = fragment(fox, 5, tags=("kt:t", "pk:k"), fragment_size=30)
    assert first == struct.pack(">BBHHHIIIHH", 0, 1, 2, 0, 30, 5, 43, 0x2E4FF723, 0, 0) + fox[:30]
    assert last == first[:4] + b"\0\1" + first[6:20] + b"\0\x09\0\0" + b"kt:t\0pk:k" + fox[30:]


@pytest.mark.parametrize(
    ("payload", "tags", "size"),
    [(b"x" * 65_536, (), 1), (b"", ("t" * MAX_DATAGRAM,), 1400), (b"x", (), 0), (b"x", (), MAX_DATAGRAM)],
    ids=["too many fragments", "tags too long", "no size", "size too large"],
)
def test_message_that_cannot_be_sent_is_refused(payload: bytes, tags: tuple[str, ...], size: int) -> None:
    with pytest.raises(ValueError, match=r"fit|fragment_size"):
        fragment(payload, 1, tags=tags, fragment_size=size)
