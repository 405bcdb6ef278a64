"""Messages that nobody sends by mistake."""

from __future__ import annotations

from hypothesis import strategies as st

PIECES = st.sampled_from(
    [
        *(b"<34>", b"1 ", b"-", b" ", b"Oct 11 22:14:15", b"2026-10-11T22:14:15Z", b"UTC", b"h ", b"[7]:", b"a", b":"),
        *(b"[", b"]", b'"', b"\\", b"=", b'="', b'" ', b'[a b="c"]', b'[a b="\\"" b=""]', b"%", b": %A-5-B:"),
        *(b"\xff", b"\n", b"\r\n", b"\t", b"\0", b"\xef\xbb\xbf"),
    ]
)
MIXED = st.lists(PIECES, max_size=25).map(b"".join)
HOSTILE = st.one_of(
    st.binary(max_size=30),
    MIXED,
    MIXED.map(lambda rest: b"<34>1 - h a - - " + rest),
    MIXED.map(lambda rest: b"<34>1 - - - - - [a" + rest),
    MIXED.map(lambda rest: b"<34>Oct 11 22:14:15 " + rest),
    MIXED.map(lambda rest: b"<34>7: " + rest + b": %A-5-B: x"),
)


def messages_of(kind: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes]]:
    """Batches of messages."""
    return st.lists(kind, min_size=1, max_size=20)
