"""Whatever is sent: nothing raises, both books close, and no message comes out that did not go in."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.counts import Counts, open_books
from penstock.wire.datagrams import Datagrams
from penstock.wire.plog.codec import PlogDecoder, PlogSettings
from penstock.wire.plog.cutting import fragment

HEADERS = st.tuples(
    st.just(b"\0\1"),
    st.sampled_from([b"\0\0", b"\0\1", b"\0\2", b"\0\3", b"\xff\xff"]),
    st.sampled_from([b"\0\0", b"\0\1", b"\0\2", b"\xff\xfe"]),
    st.sampled_from([b"\0\0", b"\0\4", b"\xff\xff"]),
    st.sampled_from([b"\0\0\0\1", b"\0\0\0\2", b"\xff\xff\xff\xff", b"\x80\0\0\0"]),
    st.sampled_from([b"\0\0\0\0", b"\0\0\0\7", b"\0\0\0\x0c", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"]),
    st.sampled_from([b"\0\0\0\0", b"abcd"]),
    st.sampled_from([b"\0\0", b"\0\1", b"\xff\xff"]),
    st.sampled_from([b"\0\0", b"zz"]),
    st.binary(max_size=12),
).map(b"".join)
DATAGRAMS = st.one_of(st.binary(max_size=40), st.binary(max_size=40).map(lambda rest: b"\0" + rest), HEADERS)
SMALL = PlogSettings(max_size=4096, expire_time=1.0)


def check(decoder: PlogDecoder, decoded: Counts, total: Counts) -> None:
    total.absorb(decoded)
    assert open_books(decoded) == []
    assert (total["open"], total["fragment.open"]) == (decoder.open_messages, decoder.open_fragments)
    if not decoder.open_messages:
        assert decoder.held_bytes == 0


def rows_of(batch: Any) -> list[tuple[Any, ...]]:
    return [(row["payload"], row["key"], tuple(row["annotations"] or ())) for row in batch.to_pylist()]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.tuples(DATAGRAMS, st.integers(1, 3)), max_size=20), max_size=6), st.integers(24, 64))
@example([[(b"\0\1\0\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0", 1)]], 24)
def test_any_bytes_are_counted(rounds: list[list[tuple[bytes, int]]], slot_size: int) -> None:
    decoder, total = PlogDecoder(SMALL), Counts()
    for second, sent in enumerate(rounds):
        datagrams = Datagrams.from_bytes(
            [data for data, _ in sent], ports=[port for _, port in sent], slot_size=slot_size
        )
        decoded = decoder.decode(datagrams, second / 2)
        decoded.body.validate(full=True)
        check(decoder, decoded.counts, total)
        assert decoded.body.num_rows == decoded.counts["accepted"]
    check(decoder, decoder.expire(1e9), total)
    assert (decoder.open_messages, decoder.open_fragments, decoder.held_bytes) == (0, 0, 0)


@st.composite
def traffic(draw: st.DrawFn) -> tuple[list[tuple[bytes, int]], list[tuple[bytes, int]]]:
    """Messages of a few senders, and the datagrams that arrive: some lost, some doubled, in any order."""
    sizes = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 3), st.booleans()), min_size=1, max_size=8)
    messages, datagrams = [], []
    for number, (size, port, tagged) in enumerate(draw(sizes)):
        payload = bytes((number + index) % 251 for index in range(size))
        tags = ("a", f"pk:{number}") if tagged else ()
        messages.append((payload, port))
        datagrams += [(part, port) for part in fragment(payload, number, tags=tags, fragment_size=50)]
    arrived = draw(st.lists(st.sampled_from(datagrams), max_size=len(datagrams) * 2))
    retained = draw(st.sampled_from([datagrams, []]))
    return messages, draw(st.permutations(retained + arrived))


@settings(max_examples=200, deadline=None)
@given(traffic(), st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_fragments_in_any_order_give_the_messages_sent_and_no_others(
    sent: tuple[list[tuple[bytes, int]], list[tuple[bytes, int]]], cuts: list[int]
) -> None:
    messages, datagrams = sent
    decoder, total, got = PlogDecoder(), Counts(), Counter[bytes]()
    rest = datagrams
    for size in [*cuts, len(datagrams)]:
        now, rest = rest[:size], rest[size:]
        decoded = decoder.decode(Datagrams.from_bytes([data for data, _ in now], ports=[port for _, port in now]), 0.0)
        check(decoder, decoded.counts, total)
        got.update(payload for payload, _, _ in rows_of(decoded.body))
    assert set(got) <= {payload for payload, _ in messages}
    for number, (payload, port) in enumerate(messages):
        parts = [part for part, p in datagrams if p == port and part[8:12] == number.to_bytes(4, "big")]
        count = int.from_bytes(parts[0][2:4], "big") if parts else 0
        if count and len(set(parts)) == count:
            assert got[payload] >= 1


@settings(max_examples=200, deadline=None)
@given(traffic(), st.lists(st.tuples(DATAGRAMS, st.integers(1, 3)), max_size=10), st.integers(1, 10))
def test_rounds_do_not_change_the_messages(
    sent: tuple[Any, list[tuple[bytes, int]]], noise: list[tuple[bytes, int]], size: int
) -> None:
    datagrams = [*sent[1], *noise]
    outcomes = []
    for step in (size, len(datagrams) or 1):
        decoder, total, rows = PlogDecoder(), Counts(), []
        for begin in range(0, len(datagrams), step):
            now = datagrams[begin : begin + step]
            decoded = decoder.decode(
                Datagrams.from_bytes([data for data, _ in now], ports=[port for _, port in now]), 0.0
            )
            check(decoder, decoded.counts, total)
            rows += rows_of(decoded.body)
        outcomes.append((rows, total.pruned(), decoder.statistics.as_dict()))
    assert outcomes[0] == outcomes[1]
