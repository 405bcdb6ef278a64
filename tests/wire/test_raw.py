"""The codec without a protocol."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import Name
from penstock.wire.datagrams import Datagrams
from penstock.wire.raw import RawDecoder


@given(st.lists(st.binary(max_size=60), max_size=12))
def test_every_datagram_that_is_not_empty_is_a_message_as_it_is(sent: list[bytes]) -> None:
    decoder = RawDecoder()
    decoded = decoder.decode(Datagrams.from_bytes(sent), 0.0)
    filled = [datagram for datagram in sent if datagram]
    assert decoded.body["payload"].to_pylist() == filled
    assert decoded.rows.tolist() == [row for row, datagram in enumerate(sent) if datagram]
    assert decoded.counts[Name.TAKEN] == len(sent)
    assert decoded.counts[Name.EMPTY] == len(sent) - len(filled)
    assert decoded.counts[Name.ACCEPTED] == decoder.statistics.udp_simple_messages == len(filled)


def test_every_line_is_a_message_as_it_is() -> None:
    decoder = RawDecoder()
    lines = pa.array([b"one", b"", b"two"], pa.binary())
    assert decoder.decode_lines(lines).body["payload"].to_pylist() == lines.to_pylist()
    assert decoder.statistics.udp_simple_messages == 3


def test_nothing_waits() -> None:
    decoder = RawDecoder()
    assert not decoder.expire(1e9)
    assert (decoder.open_messages, decoder.open_fragments, decoder.held_bytes) == (0, 0, 0)
