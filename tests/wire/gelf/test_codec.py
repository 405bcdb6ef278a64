"""GELF over UDP: chunks, compression and plain messages in any mixture, counted."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import Counts, open_books
from penstock.wire.datagrams import Datagrams
from penstock.wire.gelf.codec import GelfDecoder

MAGIC = b"\x1e\x0f"


def text(number: int, size: int = 0) -> bytes:
    noise = os.urandom(size // 2).hex()
    return json.dumps({"version": "1.1", "host": f"h{number}", "short_message": noise, "_n": number}).encode()


def chunks(message: bytes, size: int, name: bytes = b"12345678") -> list[bytes]:
    parts = [message[begin : begin + size] for begin in range(0, len(message), size)]
    return [MAGIC + name + bytes((number, len(parts))) + part for number, part in enumerate(parts)]


def decode_round(
    decoder: GelfDecoder, datagrams: list[bytes], now: float = 0.0, port: int = 1
) -> tuple[list[Any], Counts]:
    """Return the messages of a round, as (payload, annotations), and its counts."""
    rows: list[Any] = []
    total = Counts()
    remaining = Datagrams.from_bytes(datagrams, ports=[port] * len(datagrams))
    while len(remaining):
        decoded_part = decoder.decode(remaining, now)
        assert open_books(decoded_part.counts) == []
        assert decoded_part.consumed
        assert decoded_part.body.num_rows == decoded_part.counts["accepted"]
        rows += [(row["payload"], dict(row["annotations"])) for row in decoded_part.body.to_pylist()]
        total.absorb(decoded_part.counts)
        remaining = remaining.range(decoded_part.consumed, len(remaining))
    return rows, Counts(total.pruned())


def test_plain_compressed_and_chunked_messages_are_restored_in_order() -> None:
    sent = [text(number, 3000) for number in range(5)]
    datagrams = [sent[0], zlib.compress(sent[1]), *chunks(sent[2], 500), gzip.compress(sent[3])]
    datagrams += chunks(gzip.compress(sent[4]), 500, b"another ")
    rows, counts = decode_round(GelfDecoder(), datagrams)
    assert [payload for payload, _ in rows] == sent
    assert [fields for _, fields in rows] == [{"host": f"h{n}", "_n": str(n)} for n in range(5)]
    assert (counts["accepted"], counts["unboxed"]) == (5, 3)
    assert counts["fragment.used"] == len(datagrams) - 3


def test_nul_behind_a_message_is_removed_from_datagrams() -> None:
    """tracing-gelf (Rust) writes the end of a message over TCP into its datagrams too."""
    sent = [text(number, 1000) for number in range(4)]
    datagrams = [
        sent[0] + b"\0",
        zlib.compress(sent[1] + b"\0"),
        *chunks(sent[2] + b"\0", 500),
        sent[3],
        b"\0",
        b"\0\xff",
    ]
    rows, counts = decode_round(GelfDecoder(), datagrams)
    assert [payload for payload, _ in rows] == [*sent, b"\0", b"\0\xff"]
    assert [fields for _, fields in rows[:4]] == [{"host": f"h{n}", "_n": str(n)} for n in range(4)]
    assert counts["accepted"] == 6


def test_chunks_of_several_senders_and_rounds_are_reassembled_in_any_order() -> None:
    decoder, first_text, second_text = GelfDecoder(), text(1, 2000), text(2, 2000)
    first, second = chunks(first_text, 300), chunks(second_text, 300)
    assert decode_round(decoder, first[1:], port=1)[0] == []
    assert decode_round(decoder, second[::-1], port=2)[0] == [(second_text, {"host": "h2", "_n": "2"})]
    assert decoder.open_messages == 1
    rows, counts = decode_round(decoder, [first[3], first[0], first[0]], port=1)
    assert (rows[0][0], counts["fragment.duplicate"]) == (first_text, 2)
    assert (decoder.open_messages, decoder.open_fragments, decoder.held_bytes) == (0, 0, 0)


@pytest.mark.parametrize("first_size", [2000, 1000, 4000])
def test_message_that_takes_the_id_of_an_unfinished_one_is_whole_and_the_earlier_one_is_lost(first_size: int) -> None:
    decoder, first, second = GelfDecoder(), text(1, first_size), text(2, 2000)
    unfinished = chunks(first, 300)[:-1]
    rows, counts = decode_round(decoder, [*unfinished, *chunks(second, 300)])
    counts.absorb(decoder.expire(60.0))
    assert [payload for payload, _ in rows] == [second]
    lost = {"incomplete.replaced" if first_size == 2000 else "incomplete.expired": 1}
    parts = {"fragment.discarded": len(unfinished), "fragment.used": len(chunks(second, 300))}
    taken = len(unfinished) + len(chunks(second, 300))
    assert counts.pruned() == {"taken": taken, "seen": 2, "accepted": 1, **lost, **parts}


def test_incomplete_message_is_given_up_and_counted() -> None:
    decoder = GelfDecoder(expire_time=5)
    decode_round(decoder, chunks(text(1, 2000), 300)[1:], now=1.0)
    counts = decoder.expire(6.1)
    assert (counts["incomplete.expired"], counts["open"], decoder.held_bytes) == (1, -1, 0)


def test_unfinished_messages_take_bounded_memory() -> None:
    decoder, total = GelfDecoder(max_size=20_000), Counts()
    for number in range(100):
        total.absorb(decode_round(decoder, [MAGIC + number.to_bytes(8, "big") + b"\0\2" + bytes(6000)])[1])
        assert decoder.held_bytes <= 20_000
    assert total["incomplete.evicted"] == 97


def test_chunked_message_above_the_limit_is_refused() -> None:
    decoder = GelfDecoder(max_size=5_000)
    rows, counts = decode_round(decoder, chunks(bytes(10_000), 1000))
    assert (rows, counts["refused.oversize"], counts["fragment.discarded"]) == ([], 1, 10)
    assert (decoder.open_messages, decoder.held_bytes) == (0, 0)


def test_repeated_chunk_that_grows_is_measured_each_time() -> None:
    decoder = GelfDecoder(max_size=5_000)
    repeats = [MAGIC + b"12345678\0\2" + bytes(size) for size in (100, 4000, 6000)]
    _, counts = decode_round(decoder, repeats)
    assert (counts["refused.oversize"], decoder.held_bytes) == (1, 0)


def test_invalid_chunk_headers_are_counted() -> None:
    broken = [MAGIC, MAGIC + b"12345678\0", MAGIC + b"12345678\0\0", MAGIC + b"12345678\2\2", MAGIC + b"12345678\0\x81"]
    rows, counts = decode_round(GelfDecoder(), [*broken, b"", b"{}"])
    assert [payload for payload, _ in rows] == [b"{}"]
    assert (counts["invalid.header"], counts["empty"], counts["taken"]) == (5, 1, 7)


def test_compressed_bomb_is_refused_and_the_round_continues() -> None:
    bomb, small = zlib.compress(bytes(1 << 20), 9), text(1)
    decoder = GelfDecoder(max_size=100_000)
    large = [zlib.compress(json.dumps({"_x": "y" * 60_000}).encode()) for _ in range(10)]
    first = decoder.decode(Datagrams.from_bytes([bomb, *large, small]), 0.0)
    assert (first.consumed, first.body.num_rows, first.counts["refused.oversize"]) == (1, 0, 1)
    rows, counts = decode_round(GelfDecoder(max_size=100_000), [bomb, *large, small])
    assert (len(rows), counts["refused.oversize"], counts["accepted"]) == (11, 1, 11)


def test_damaged_compressed_messages_are_refused() -> None:
    rows, counts = decode_round(
        GelfDecoder(), [zlib.compress(b"{}" * 100)[:-3], *chunks(b"\x1f\x8b" + bytes(900), 300)]
    )
    assert (rows, counts["refused.damaged"]) == ([], 2)


def test_lines_are_messages_with_their_fields() -> None:
    decoded = GelfDecoder().decode_lines(pa.array([text(1), b"no json"], pa.binary()))
    assert [dict(row["annotations"]) for row in decoded.body.to_pylist()] == [{"host": "h1", "_n": "1"}, {}]


PIECES = st.one_of(
    st.binary(max_size=30),
    st.binary(max_size=30).map(lambda data: b'{"host":"a","_b":' + data),
    st.binary(max_size=60).map(zlib.compress),
    st.binary(max_size=60).map(lambda data: gzip.compress(data)[:-2]),
    st.just(zlib.compress(bytes(100_000))),
    st.tuples(st.sampled_from([b"1" * 8, b"2" * 8]), st.integers(0, 4), st.integers(0, 4), st.binary(max_size=20)).map(
        lambda each: MAGIC + each[0] + bytes(each[1:3]) + each[3]
    ),
)


@given(st.lists(st.lists(PIECES, max_size=12), max_size=5))
def test_any_bytes_are_counted(rounds: list[list[bytes]]) -> None:
    decoder, total = GelfDecoder(max_size=1000, expire_time=1.0), Counts()
    for second, datagrams in enumerate(rounds):
        total.absorb(decode_round(decoder, datagrams, now=second / 2)[1])
        assert (total["open"], total["fragment.open"]) == (decoder.open_messages, decoder.open_fragments)
        assert decoder.held_bytes <= 2000
    total.absorb(decoder.expire(1e9))
    assert open_books(total) == []
    assert (total["open"], decoder.held_bytes) == (0, 0)


def test_round_ends_at_message_that_is_too_large_unpacked() -> None:
    bombs = [zlib.compress(bytes(2000))] * 5
    first = GelfDecoder(max_size=1000).decode(Datagrams.from_bytes([*bombs, text(1)], ports=[1] * 6), 0.0)
    assert (first.consumed, first.counts["refused.oversize"]) == (1, 1)
    rows, counts = decode_round(GelfDecoder(max_size=1000), [*bombs, text(1)])
    assert (len(rows), counts["refused.oversize"]) == (1, 5)
