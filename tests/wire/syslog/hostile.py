"""Hostile syslog messages: combinations of pieces that no sender writes by mistake."""

from __future__ import annotations

import random

from hypothesis import strategies as st

PIECES = [
    *(b"<34>", b"1 ", b"-", b" ", b"Oct 11 22:14:15", b"2026-10-11T22:14:15Z", b"UTC", b"h ", b"[7]:", b"a", b":"),
    *(b"[", b"]", b'"', b"\\", b"=", b'="', b'" ', b'[a b="c"]', b'[a b="\\"" b=""]', b"%", b": %A-5-B:"),
    *(b"\xff", b"\n", b"\r\n", b"\t", b"\0", b"\xef\xbb\xbf"),
]
BEGINNINGS = (b"", b"<34>1 - h a - - ", b"<34>1 - - - - - [a", b"<34>Oct 11 22:14:15 ", b"<34>7: ", b"<34>7: h: ")
HOSTILE = st.one_of(
    st.binary(max_size=30),
    st.tuples(st.sampled_from(BEGINNINGS), st.lists(st.sampled_from(PIECES), max_size=25).map(b"".join)).map(b"".join),
)


def messages_of(kind: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes]]:
    """Return batches of messages."""
    return st.lists(kind, min_size=1, max_size=20)


def generate_messages(count: int) -> list[bytes]:
    """Return ``count`` messages, the same each time, faster than Hypothesis makes them."""
    draw = random.Random(5425)
    return [
        draw.choice(BEGINNINGS)
        + b"".join(draw.choices(PIECES, k=draw.randrange(25)))
        + draw.randbytes(draw.choice([0, 0, 3]))
        for _ in range(count)
    ]
