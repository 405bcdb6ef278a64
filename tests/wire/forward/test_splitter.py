"""Connections that speak the forward protocol: each of its forms, the shared key, and whatever else comes."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import socket
import struct
import tracemalloc
from types import SimpleNamespace
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import open_books
from penstock.wire.codecs import codec_of
from penstock.wire.forward.codec import ForwardDecoder
from penstock.wire.forward.handshake import Handshake
from penstock.wire.forward.splitter import ForwardSplitter
from penstock.wire.lines import line_counts
from penstock.wire.plog.statistics import Statistics

EVENT_TIME = msgpack.ExtType(0, struct.pack(">II", 1_795_369_000, 123_456_789))
AT = {"timestamp": "2026-11-22T17:36:40.123456789Z"}


def splitter(handshake: Handshake | None = None) -> ForwardSplitter:
    return ForwardSplitter(10_000, 1 << 20, handshake)


def messages(lines: list[Any]) -> list[tuple[Any, dict[str, str]]]:
    decoded = ForwardDecoder().decode_lines(pa.concat_arrays([each.lines for each in lines]))
    decoded.body.validate(full=True)
    return [(row["payload"], dict(row["annotations"])) for row in decoded.body.to_pylist()]


def read(*requests: Any) -> tuple[list[tuple[Any, dict[str, str]]], ForwardSplitter, dict[str, int]]:
    """The messages of a connection, itself, and what it counted."""
    here = splitter()
    lines = here.feed(b"".join(each if isinstance(each, bytes) else msgpack.packb(each) for each in requests))
    _, _, counts = line_counts(lines, Statistics(), reserves=False)
    assert open_books(counts) == []
    return [(json.loads(payload), said) for payload, said in messages([lines])], here, counts.pruned()


def packed(*records: Any) -> bytes:
    return b"".join(msgpack.packb([EVENT_TIME, record]) for record in records)


ONE, TWO = {"log": "one", "n": 1}, {"log": "zwei, grüße", "deep": {"a": [1, None, True]}}


@pytest.mark.parametrize(
    "requests",
    [
        [["app", EVENT_TIME, ONE], ["app", EVENT_TIME, TWO, {}]],
        [["app", [[EVENT_TIME, ONE], [EVENT_TIME, TWO]]]],
        [["app", [[EVENT_TIME, ONE], [EVENT_TIME, TWO]], {"size": 2}]],
        [["app", packed(ONE, TWO), {"size": 2}]],
        [msgpack.packb(["app", packed(ONE, TWO)], use_bin_type=False)],
        [["app", gzip.compress(packed(ONE, TWO)), {"compressed": "gzip"}]],
        [["app", gzip.compress(packed(ONE)) + gzip.compress(packed(TWO)), {"compressed": "gzip"}]],
        [["app", b"".join(msgpack.packb([[EVENT_TIME, {"m": 1}], each]) for each in (ONE, TWO)), {"fluent_signal": 0}]],
        [["app", [EVENT_TIME, {}], ONE], ["app", [EVENT_TIME, {}], TWO]],
    ],
    ids=[
        "message",
        "forward",
        "options",
        "packed",
        "packed as text",
        "gzip",
        "gzip twice",
        "metadata",
        "one with it",
    ],
)
def test_each_form_gives_the_records_with_tag_and_time(requests: list[Any]) -> None:
    found, here, counts = read(*requests)
    assert found == [(ONE, {"tag": "app"} | AT), (TWO, {"tag": "app"} | AT)]
    assert (here.closed, counts["accepted"], here.acknowledgements) == ("", 2, [])


def test_seconds_are_times_and_what_is_no_time_is_left_out() -> None:
    found, _, _ = read(["t", 1, {"a": 1}], ["t", 1.5, {"a": 2}], ["t", -1, {"a": 3}], ["t", None, {"a": 4}])
    times = [said.get("timestamp") for _, said in found]
    assert times == ["1970-01-01T00:00:01.000000000Z", "1970-01-01T00:00:01.500000000Z", None, None]


def test_chunks_are_to_be_acknowledged_in_their_order() -> None:
    _, here, _ = read(["t", [[1, {}]], {"chunk": "p1"}], ["t", 1, {}, {"chunk": "p2"}], ["t", 1, {}])
    assert [msgpack.unpackb(each) for each in here.acknowledgements] == [{"ack": "p1"}, {"ack": "p2"}]


def uuids(*requests: Any) -> list[str | None]:
    return [said.get("uuid") for _, said in read(*requests)[0]]


def test_a_chunk_that_comes_again_has_the_same_uuids_however_it_is_packed() -> None:
    first = uuids(["app", packed(ONE, ONE, TWO), {"chunk": "p1"}])
    gzipped = ["app", gzip.compress(packed(ONE, ONE, TWO)), {"compressed": "gzip", "chunk": "p1"}]
    assert (
        uuids(gzipped, ["app", [[EVENT_TIME, ONE], [EVENT_TIME, ONE], [EVENT_TIME, TWO]], {"chunk": "p1"}]) == first * 2
    )
    assert len(set(first)) == 3
    assert all(each and len(each) <= 256 for each in first)


@pytest.mark.parametrize(
    "other",
    [
        ["app", packed(ONE), {"chunk": "p2"}],
        ["other", packed(ONE), {"chunk": "p1"}],
        ["app", packed(TWO), {"chunk": "p1"}],
    ],
    ids=["another chunk", "another tag", "other records under the same id"],
)
def test_what_is_another_chunk_has_other_uuids(other: Any) -> None:
    assert not set(uuids(["app", packed(ONE), {"chunk": "p1"}])) & set(uuids(other))


def test_a_chunk_whose_id_is_a_hash_of_it_has_no_uuids() -> None:
    assert uuids(["app", packed(ONE), {"chunk": "0123456789abcdef" * 2}]) == [None]


def test_what_has_no_chunk_has_no_uuid() -> None:
    assert uuids(["app", packed(ONE)], ["app", 1, ONE, {"size": 1}]) == [None, None]


def test_texts_that_are_none_and_bytes_are_readable() -> None:
    found, _, _ = read(msgpack.packb(["t", 1, {b"a": b"\xff\xfe", b"b": "x\0y"}], use_bin_type=False))
    assert found[0][0] == {"a": "\xff\xfe", "b": "x\0y"}
    assert read(["t", 1, {"a": b"bytes"}])[0][0][0] == {"a": "bytes"}


def test_events_that_cannot_be_kept_are_counted_and_their_neighbours_stay() -> None:
    found, here, counts = read(["t", [[1, {"a": 1}], [1, "no map"], [1, {"a": "x" * 20_000}], [1, {"b": 2}]]])
    assert [record for record, _ in found] == [{"a": 1}, {"b": 2}]
    assert (counts["refused.damaged"], counts["refused.oversize"], counts["seen"], here.closed) == (1, 1, 4, "")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x01",
        b"\xc1",
        b"\x91" * 5000,
        msgpack.packb([]),
        msgpack.packb(["t"]),
        msgpack.packb(["t", 1]),
        msgpack.packb([7, 1, {}]),
        msgpack.packb(["t", b"\x00\x01"]),
        msgpack.packb(["t", packed(ONE)[:-3]]),
        msgpack.packb(["t", b"no gzip", {"compressed": "gzip"}]),
        msgpack.packb(["t", gzip.compress(packed(ONE), mtime=0)[:-9], {"compressed": "gzip"}]),
        msgpack.packb(["t", gzip.compress(bytes(4 << 20), mtime=0), {"compressed": "gzip"}]),
    ],
)
def test_what_is_no_request_is_counted_and_ends_the_connection(data: bytes) -> None:
    found, here, counts = read(["t", 1, ONE], data, ["t", 1, TWO])
    assert [record for record, _ in found] == [ONE]
    assert (here.closed, here.unfinished) == ("protocol", 0)
    assert sum(number for name, number in counts.items() if name.startswith("refused.")) == 1


def test_a_request_that_does_not_end_takes_bounded_memory() -> None:
    here = splitter()
    endless = msgpack.packb(["t", bytes(8 << 20)])
    lines = [here.feed(endless[at : at + 65_536]) for at in range(0, len(endless), 65_536)]
    assert here.closed == "protocol"
    assert sum(each.refused.get("oversize", 0) for each in lines) == 1


@pytest.mark.parametrize(
    "event", [b"\x92\x00\x80", b"\x80", b"\x92\x00\x81\xa1a\xd9\xff" + b"\0" * 255], ids=["tiny", "no pair", "escapes"]
)
def test_a_compressed_bomb_takes_bounded_memory(event: bytes) -> None:
    bomb = msgpack.packb(["t", gzip.compress(event * ((32 << 20) // len(event))), {"compressed": "gzip"}])
    here = ForwardSplitter(1 << 20, 4 << 20)
    tracemalloc.start()
    found = here.feed(bomb)
    while here.has_work:
        found = here.feed(b"")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(found.lines), here.closed, sum(found.refused.values())) == (0, "protocol", 1)
    assert peak < 40 << 20


def ping(nonce: bytes, key: str) -> bytes:
    digest = hashlib.sha512(b"salt" + b"me" + nonce + key.encode()).hexdigest()
    return msgpack.packb(["PING", "me", b"salt", digest, "", ""])


@pytest.mark.parametrize("key", ["secret", "another"])
def test_who_knows_the_shared_key_is_let_in_and_told_that_we_do(key: str) -> None:
    here = splitter(Handshake("secret", "log", b"n" * 16))
    hello, options = msgpack.unpackb(here.replies.pop())
    assert (hello, options["nonce"]) == ("HELO", b"n" * 16)
    lines = here.feed(ping(options["nonce"], key) + msgpack.packb(["t", 1, ONE]))
    verb, let_in, reason, name, digest = msgpack.unpackb(here.replies.pop())
    assert (verb, let_in, len(lines.lines)) == ("PONG", key == "secret", int(key == "secret"))
    if let_in:
        assert digest == hashlib.sha512(b"salt" + name.encode() + b"n" * 16 + b"secret").hexdigest()
    else:
        assert (reason, here.closed) == ("shared_key mismatch", "key")


def test_before_the_handshake_nothing_is_taken() -> None:
    here = splitter(Handshake("secret", "log", b"n" * 16))
    assert len(here.feed(msgpack.packb(["t", 1, ONE])).lines) == 0
    assert here.closed == "key"


VALUES: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
REQUESTS = st.one_of(
    st.binary(max_size=40),
    VALUES.map(msgpack.packb),
    st.tuples(st.text(max_size=4), VALUES, VALUES).map(list).map(msgpack.packb),
    st.lists(st.tuples(st.integers(0, 9), st.dictionaries(st.text(max_size=3), VALUES, max_size=3)), max_size=3).map(
        lambda events: msgpack.packb(["t", events, {"chunk": "c"}])
    ),
    VALUES.map(lambda value: msgpack.packb(["t", packed(value), {"compressed": "gzip"}])),
    VALUES.map(lambda value: msgpack.packb(["t", gzip.compress(packed(value)), {"compressed": "gzip"}])),
)


def test_a_ping_that_cannot_be_read_knows_no_key() -> None:
    a_map_as_key = b"\x91\x81\x80\x01"
    assert Handshake("secret", "log", b"n" * 16).answer(a_map_as_key)[0] is False


@given(st.lists(REQUESTS, max_size=5), st.integers(1, 50), st.booleans())
def test_any_bytes_are_counted_however_they_arrive(requests: list[bytes], size: int, asks_key: bool) -> None:
    data = b"".join(requests)
    found = []
    for step in (size, len(data) or 1):
        here = splitter(Handshake("secret", "log", b"n" * 16) if asks_key else None)
        lines = [here.feed(data[at : at + step]) for at in range(0, len(data), step)] + [here.finish()]
        counts = [line_counts(each, Statistics(), reserves=False)[2] for each in lines]
        assert all(open_books(each) == [] for each in counts)
        total = {name: sum(each[name] for each in counts) for name in ("seen", "accepted", "refused.damaged")}
        found.append((messages(lines), total, here.closed, here.acknowledgements, here.replies))
    assert found[0] == found[1]


def test_numbers_that_json_has_not_and_latin_1_are_kept_as_texts() -> None:
    record = {b"nan": math.nan, b"deep": [{b"inf": -math.inf}, None], b"name": "café".encode("latin-1")}
    found, _, _ = read(msgpack.packb(["t", 1, record], use_bin_type=False))
    assert found[0][0] == {"nan": "nan", "deep": [{"inf": "-inf"}, None], "name": "café"}


@pytest.mark.parametrize("frames", [1, 2])
def test_chunks_in_zstd_are_unpacked(frames: int) -> None:
    codec = pa.Codec("zstd")
    parts = [packed(ONE, TWO)] if frames == 1 else [packed(ONE), packed(TWO)]
    chunk = b"".join(codec.compress(part, asbytes=True) for part in parts)
    found, _, counts = read(["app", chunk, {"compressed": "zstd", "chunk": "c"}])
    assert [record for record, _ in found] == [ONE, TWO]
    assert counts["accepted"] == 2


def test_bombs_and_damaged_chunks_in_zstd_are_refused() -> None:
    bomb = pa.Codec("zstd").compress(bytes(4 << 20), asbytes=True)
    assert read(["app", bomb, {"compressed": "zstd"}])[2]["refused.oversize"] == 1
    assert read(["app", bomb[:20], {"compressed": "zstd"}])[2]["refused.damaged"] == 1
    assert read(["app", bomb, {"compressed": "lz4"}])[2]["refused.damaged"] == 1


@pytest.mark.parametrize(
    ("time", "written"),
    [
        (1545353025, "2018-12-21T00:43:45.000000000Z"),
        (1545353025250, "2018-12-21T00:43:45.250000000Z"),
        (1545353025250123, "2018-12-21T00:43:45.250123000Z"),
        (1545353025250123456, "2018-12-21T00:43:45.250123456Z"),
    ],
)
def test_the_unit_of_a_time_is_told_by_its_magnitude(time: int, written: str) -> None:
    found, _, _ = read(["t", time, ONE])
    assert found[0][1]["timestamp"] == written


def test_the_handshake_gives_a_name_that_no_fluentd_on_this_machine_has() -> None:
    make = codec_of("forward").splitter
    assert make is not None
    here = make(
        SimpleNamespace(shared_key="key", max_line=1000, max_unfinished=1000, max_body=1 << 20, max_messages=1000)
    )
    here.feed(msgpack.packb(["PING", socket.gethostname(), b"salt", "digest", "", ""]))
    assert msgpack.unpackb(here.replies[-1])[3] == f"penstock-{socket.gethostname()}"
