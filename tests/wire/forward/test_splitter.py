"""Connections of the forward protocol: each form of a request, the shared key, and any other bytes."""

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

from penstock.config import ListenerConfig
from penstock.counts import open_books
from penstock.wire.codecs import codec_of
from penstock.wire.forward.codec import ForwardDecoder
from penstock.wire.forward.event_rows import MAX_CONTAINERS
from penstock.wire.forward.handshake import Handshake
from penstock.wire.forward.splitter import WORK_PER_TURN, ForwardSplitter, RequestMemory
from penstock.wire.framing.lines import separate_commands
from penstock.wire.plog.statistics import Statistics
from penstock.wire.requests import MAX_MESSAGES

EVENT_TIME = msgpack.ExtType(0, struct.pack(">II", 1_795_369_000, 123_456_789))
EXPECTED_TIME = {"timestamp": "2026-11-22T17:36:40.123456789Z"}


def splitter(handshake: Handshake | None = None) -> ForwardSplitter:
    return ForwardSplitter(10_000, 1 << 20, handshake)


def messages(lines: list[Any]) -> list[tuple[Any, dict[str, str]]]:
    decoded = ForwardDecoder().decode_lines(pa.concat_arrays([each.lines for each in lines]))
    decoded.body.validate(full=True)
    return [(row["payload"], dict(row["annotations"])) for row in decoded.body.to_pylist()]


def read(*requests: Any) -> tuple[list[tuple[Any, dict[str, str]]], ForwardSplitter, dict[str, int]]:
    """Return the messages of a connection, its splitter, and its counts."""
    connection = splitter()
    lines = connection.feed(b"".join(each if isinstance(each, bytes) else msgpack.packb(each) for each in requests))
    _, _, counts = separate_commands(lines, Statistics(), reserves=False)
    assert open_books(counts) == []
    return (
        [(json.loads(payload), annotations) for payload, annotations in messages([lines])],
        connection,
        counts.pruned(),
    )


def packed(*records: Any) -> bytes:
    return b"".join(msgpack.packb([EVENT_TIME, record]) for record in records)


FIRST, SECOND = {"log": "one", "n": 1}, {"log": "zwei, grüße", "deep": {"a": [1, None, True]}}


@pytest.mark.parametrize(
    "requests",
    [
        [["app", EVENT_TIME, FIRST], ["app", EVENT_TIME, SECOND, {}]],
        [["app", [[EVENT_TIME, FIRST], [EVENT_TIME, SECOND]]]],
        [["app", [[EVENT_TIME, FIRST], [EVENT_TIME, SECOND]], {"size": 2}]],
        [["app", packed(FIRST, SECOND), {"size": 2}]],
        [msgpack.packb(["app", packed(FIRST, SECOND)], use_bin_type=False)],
        [["app", gzip.compress(packed(FIRST, SECOND)), {"compressed": "gzip"}]],
        [["app", gzip.compress(packed(FIRST)) + gzip.compress(packed(SECOND)), {"compressed": "gzip"}]],
        [
            [
                "app",
                b"".join(msgpack.packb([[EVENT_TIME, {}], each]) for each in (FIRST, SECOND)),
                {"fluent_signal": 0},
            ]
        ],
        [["app", [EVENT_TIME, {}], FIRST], ["app", [EVENT_TIME, {}], SECOND]],
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
    records, connection, counts = read(*requests)
    assert records == [(FIRST, {"tag": "app"} | EXPECTED_TIME), (SECOND, {"tag": "app"} | EXPECTED_TIME)]
    assert (connection.closed, counts["accepted"], connection.acknowledgements) == ("", 2, [])


def test_invalid_times_are_left_out() -> None:
    records, _, _ = read(["t", 1, {"a": 1}], ["t", 1.5, {"a": 2}], ["t", -1, {"a": 3}], ["t", None, {"a": 4}])
    times = [annotations.get("timestamp") for _, annotations in records]
    assert times == ["1970-01-01T00:00:01.000000000Z", "1970-01-01T00:00:01.500000000Z", None, None]


def test_chunks_are_acknowledged_in_order() -> None:
    _, connection, _ = read(["t", [[1, {}]], {"chunk": "p1"}], ["t", 1, {}, {"chunk": "p2"}], ["t", 1, {}])
    assert [msgpack.unpackb(each) for each in connection.acknowledgements] == [{"ack": "p1"}, {"ack": "p2"}]


def uuids(*requests: Any) -> list[str | None]:
    return [annotations.get("uuid") for _, annotations in read(*requests)[0]]


def test_repeated_chunk_has_the_same_uuids_however_it_is_packed() -> None:
    first = uuids(["app", packed(FIRST, FIRST, SECOND), {"chunk": "p1"}])
    gzipped = ["app", gzip.compress(packed(FIRST, FIRST, SECOND)), {"compressed": "gzip", "chunk": "p1"}]
    assert (
        uuids(gzipped, ["app", [[EVENT_TIME, FIRST], [EVENT_TIME, FIRST], [EVENT_TIME, SECOND]], {"chunk": "p1"}])
        == first * 2
    )
    assert len(set(first)) == 3
    assert all(each and len(each) <= 256 for each in first)


@pytest.mark.parametrize(
    "changed",
    [
        ["app", packed(FIRST), {"chunk": "p2"}],
        ["other", packed(FIRST), {"chunk": "p1"}],
        ["app", packed(SECOND), {"chunk": "p1"}],
    ],
    ids=["another chunk", "another tag", "other records under the same id"],
)
def test_another_chunk_has_other_uuids(changed: Any) -> None:
    assert not set(uuids(["app", packed(FIRST), {"chunk": "p1"}])) & set(uuids(changed))


def test_chunk_whose_id_is_a_hash_has_no_uuids() -> None:
    assert uuids(["app", packed(FIRST), {"chunk": "0123456789abcdef" * 2}]) == [None]


def test_chunk_of_fluent_bit_5_has_no_uuids_because_its_id_is_a_hash_in_base64() -> None:
    """Two hosts whose records are equal would be each other's duplicates."""
    options = {"chunk": "uYCU63ui18WnSsFrGBKyUA==", "size": 1, "fluent_signal": 0}
    events = [[[EVENT_TIME, {}], FIRST]]
    assert uuids(["app", events, options], ["app", EVENT_TIME, FIRST, options]) == [None, None]
    connection = read(["app", events, options])[1]
    assert [msgpack.unpackb(each) for each in connection.acknowledgements] == [{"ack": options["chunk"]}]


def test_events_without_a_chunk_have_no_uuid() -> None:
    assert uuids(["app", packed(FIRST)], ["app", 1, FIRST, {"size": 1}]) == [None, None]


def test_invalid_utf8_and_bytes_become_texts() -> None:
    records, _, _ = read(msgpack.packb(["t", 1, {b"a": b"\xff\xfe", b"b": "x\0y"}], use_bin_type=False))
    assert records[0][0] == {"a": "\xff\xfe", "b": "x\0y"}
    assert read(["t", 1, {"a": b"bytes"}])[0][0][0] == {"a": "bytes"}


def test_bad_events_are_counted_and_refused_alone() -> None:
    records, connection, counts = read(["t", [[1, {"a": 1}], [1, "no map"], [1, {"a": "x" * 20_000}], [1, {"b": 2}]]])
    assert [record for record, _ in records] == [{"a": 1}, {"b": 2}]
    assert (counts["refused.damaged"], counts["refused.oversize"], counts["seen"], connection.closed) == (1, 1, 4, "")


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
        msgpack.packb(["t", packed(FIRST)[:-3]]),
        msgpack.packb(["t", b"no gzip", {"compressed": "gzip"}]),
        msgpack.packb(["t", gzip.compress(packed(FIRST), mtime=0)[:-9], {"compressed": "gzip"}]),
        msgpack.packb(["t", gzip.compress(bytes(4 << 20), mtime=0), {"compressed": "gzip"}]),
    ],
)
def test_bytes_that_are_no_request_are_counted_and_end_the_connection(data: bytes) -> None:
    records, connection, counts = read(["t", 1, FIRST], data, ["t", 1, SECOND])
    assert [record for record, _ in records] == [FIRST]
    assert (connection.closed, connection.unfinished) == ("protocol", 0)
    assert sum(number for name, number in counts.items() if name.startswith("refused.")) == 1


def test_request_without_an_end_takes_bounded_memory() -> None:
    connection = splitter()
    endless = msgpack.packb(["t", bytes(8 << 20)])
    lines = [connection.feed(endless[begin : begin + 65_536]) for begin in range(0, len(endless), 65_536)]
    assert connection.closed == "protocol"
    assert sum(each.refused.get("oversize", 0) for each in lines) == 1


@pytest.mark.parametrize(
    "event", [b"\x92\x00\x80", b"\x80", b"\x92\x00\x81\xa1a\xd9\xff" + b"\0" * 255], ids=["tiny", "no pair", "escapes"]
)
def test_compressed_bomb_takes_bounded_memory(event: bytes) -> None:
    bomb = msgpack.packb(["t", gzip.compress(event * ((32 << 20) // len(event))), {"compressed": "gzip"}])
    connection = ForwardSplitter(1 << 20, 4 << 20)
    tracemalloc.start()
    lines = connection.feed(bomb)
    while connection.has_work:
        lines = connection.feed(b"")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(lines.lines), connection.closed, sum(lines.refused.values())) == (0, "protocol", 1)
    assert peak < 40 << 20


def feed_in_turns(connection: ForwardSplitter, request: bytes) -> list[Any]:
    """Feed a request and let the connection work until it has no more work; return the lines of each turn."""
    turns = [connection.feed(request)]
    while connection.has_work:
        turns.append(connection.feed(b""))
    return turns


@pytest.mark.parametrize("options", [{}, {"chunk": "p1"}], ids=["no id", "id"])
def test_rows_of_a_large_request_leave_in_turns_and_in_order(options: dict[str, str]) -> None:
    events = b"".join(msgpack.packb([1, {"n": number}]) for number in range(9_000))
    request = msgpack.packb(["t", gzip.compress(events), {"compressed": "gzip", **options}])
    connection = ForwardSplitter(10_000, 8 << 20)
    turns = feed_in_turns(connection, request + msgpack.packb(["t", 1, {"n": 9_000}]))
    records = messages(turns)
    assert [json.loads(payload)["n"] for payload, _ in records] == list(range(9_001))
    assert max(len(turn.lines) for turn in turns) == WORK_PER_TURN
    assert len({annotations["uuid"] for _, annotations in records[:-1]} if options else range(9_000)) == 9_000
    acknowledgements = [msgpack.unpackb(each) if each else None for each in connection.acknowledgements]
    assert acknowledgements == ([None] * 4 + [{"ack": "p1"}] if options else [])


def test_default_limits_take_a_chunk_of_the_default_size_of_fluentd() -> None:
    limits = ListenerConfig(name="forward", protocol="tcp", port=0, codec="forward")
    events = msgpack.packb([1, {"log": "x" * 1_000}])
    # `chunk_limit_size` of a buffer in memory.
    count = (8 << 20) // len(events)
    connection = ForwardSplitter(limits.max_line, limits.max_body)
    turns = feed_in_turns(connection, msgpack.packb(["t", events * count, {"chunk": "p1"}]))
    assert sum(len(turn.lines) for turn in turns) == count
    assert (connection.closed, connection.acknowledgements[-1]) == ("", msgpack.packb({"ack": "p1"}))


def test_no_row_of_a_request_leaves_before_its_last_event_is_read() -> None:
    events = msgpack.packb([1, {}]) * 9_000 + b"no pair"
    connection = ForwardSplitter(10_000, 8 << 20)
    turns = feed_in_turns(connection, msgpack.packb(["t", events, {"chunk": "p1"}]))
    assert sum(len(turn.lines) for turn in turns) == 0
    assert (connection.closed, connection.acknowledgements, turns[-1].refused["damaged"]) == ("protocol", [], 1)


def test_settle_returns_the_remaining_rows_of_a_request_that_is_read() -> None:
    connection = ForwardSplitter(10_000, 8 << 20)
    turns = [connection.feed(msgpack.packb(["t", [[1, {}]] * 9_000, {"chunk": "p1"}]))]
    assert len(connection.settle().lines) == 0, "it is not read to its end"
    while not len(turns[-1].lines):
        turns.append(connection.feed(b""))
    turns.append(connection.settle())
    assert sum(len(turn.lines) for turn in turns) == 9_000
    assert connection.acknowledgements[-1] == msgpack.packb({"ack": "p1"})
    assert connection.unfinished == 0


def test_settle_returns_all_remaining_rows_of_a_request_above_the_default_limit() -> None:
    count = MAX_MESSAGES + 2 * WORK_PER_TURN
    connection = ForwardSplitter(10_000, 8 << 20, max_events=count)
    lines = connection.feed(msgpack.packb(["t", msgpack.packb([1, {}]) * count, {}]))
    while not len(lines.lines):
        lines = connection.feed(b"")
    assert len(lines.lines) + len(connection.settle().lines) == count
    assert connection.unfinished == 0


def ping(nonce: bytes, key: str) -> bytes:
    digest = hashlib.sha512(b"salt" + b"me" + nonce + key.encode()).hexdigest()
    return msgpack.packb(["PING", "me", b"salt", digest, "", ""])


@pytest.mark.parametrize("key", ["secret", "another"])
def test_shared_key_is_checked_and_proved(key: str) -> None:
    connection = splitter(Handshake("secret", "log", b"n" * 16))
    hello, options = msgpack.unpackb(connection.replies.pop())
    assert (hello, options["nonce"]) == ("HELO", b"n" * 16)
    lines = connection.feed(ping(options["nonce"], key) + msgpack.packb(["t", 1, FIRST]))
    verb, is_accepted, reason, name, digest = msgpack.unpackb(connection.replies.pop())
    assert (verb, is_accepted, len(lines.lines)) == ("PONG", key == "secret", int(key == "secret"))
    if is_accepted:
        assert digest == hashlib.sha512(b"salt" + name.encode() + b"n" * 16 + b"secret").hexdigest()
    else:
        assert (reason, connection.closed) == ("shared_key mismatch", "key")


def test_nothing_is_accepted_before_the_handshake() -> None:
    connection = splitter(Handshake("secret", "log", b"n" * 16))
    assert len(connection.feed(msgpack.packb(["t", 1, FIRST])).lines) == 0
    assert connection.closed == "key"


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


def test_malformed_ping_is_refused() -> None:
    map_as_key = b"\x91\x81\x80\x01"
    assert Handshake("secret", "log", b"n" * 16).answer(map_as_key)[0] is False


@given(st.lists(REQUESTS, max_size=5), st.integers(1, 50), st.booleans())
def test_any_bytes_are_counted_however_they_arrive(requests: list[bytes], size: int, asks_key: bool) -> None:
    data = b"".join(requests)
    outcomes = []
    for step in (size, len(data) or 1):
        connection = splitter(Handshake("secret", "log", b"n" * 16) if asks_key else None)
        lines = [connection.feed(data[begin : begin + step]) for begin in range(0, len(data), step)] + [
            connection.finish()
        ]
        counts = [separate_commands(each, Statistics(), reserves=False)[2] for each in lines]
        assert all(open_books(each) == [] for each in counts)
        total = {name: sum(each[name] for each in counts) for name in ("seen", "accepted", "refused.damaged")}
        outcomes.append((messages(lines), total, connection.closed, connection.acknowledgements, connection.replies))
    assert outcomes[0] == outcomes[1]


def test_non_finite_numbers_and_latin_1_become_texts() -> None:
    record = {b"nan": math.nan, b"deep": [{b"inf": -math.inf}, None], b"name": "café".encode("latin-1")}
    records, _, _ = read(msgpack.packb(["t", 1, record], use_bin_type=False))
    assert records[0][0] == {"nan": "nan", "deep": [{"inf": "-inf"}, None], "name": "café"}


@pytest.mark.parametrize("frames", [1, 2])
def test_chunks_in_zstd_are_unpacked(frames: int) -> None:
    codec = pa.Codec("zstd")
    parts = [packed(FIRST, SECOND)] if frames == 1 else [packed(FIRST), packed(SECOND)]
    chunk = b"".join(codec.compress(part, asbytes=True) for part in parts)
    records, _, counts = read(["app", chunk, {"compressed": "zstd", "chunk": "c"}])
    assert [record for record, _ in records] == [FIRST, SECOND]
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
def test_unit_of_a_time_follows_from_its_magnitude(time: int, written: str) -> None:
    records, _, _ = read(["t", time, FIRST])
    assert records[0][1]["timestamp"] == written


def test_handshake_uses_another_name_than_fluentd_on_this_machine() -> None:
    make_splitters = codec_of("forward").splitters
    assert make_splitters is not None
    connection = make_splitters(
        SimpleNamespace(shared_key="key", max_line=1000, max_unfinished=1000, max_body=1 << 20, max_messages=1000)
    )()
    connection.feed(msgpack.packb(["PING", socket.gethostname(), b"salt", "digest", "", ""]))
    assert msgpack.unpackb(connection.replies[-1])[3] == f"penstock-{socket.gethostname()}"


def encode_pairs(*pairs: tuple[Any, Any]) -> bytes:
    """Encode a map in which keys may be repeated, as some filters of Fluent Bit write it."""
    return bytes([0x80 | len(pairs)]) + b"".join(msgpack.packb(part) for pair in pairs for part in pair)


@pytest.mark.parametrize(
    "time",
    [EVENT_TIME, 1_795_369_000, 1.5, 7, [EVENT_TIME, {}]],
    ids=["event time", "seconds", "double", "small", "with metadata"],
)
def test_repeated_keys_of_a_record_stay_as_they_were_sent(time: Any) -> None:
    record = encode_pairs(("a", 1), (7, [{"x": math.nan}]), ("a", "é"), ("b", b"\xff"), ("a", None))
    request = b"\x92" + msgpack.packb("t") + b"\x92" + b"\x92" + msgpack.packb(time) + record
    request += msgpack.packb([time, {"b": 2}])
    ((payload, _), (following, _)) = messages([splitter().feed(request)])
    assert payload.decode() == '{"a":1,"7":[{"x":"nan"}],"a":"é","b":"ÿ","a":null}'
    assert following == b'{"b":2}'


def _is_readable(encoded: bytes) -> bool:
    try:
        msgpack.unpackb(encoded)
    except ValueError:
        return False
    return True


def encodings_of_a_time() -> list[bytes]:
    """Return a time in each of msgpack's encodings, also of kinds that are not time."""
    numbers = [b"\x07", b"\xff", b"\xc0", b"\xc2", b"\xc3", b"\xca" + bytes(4), b"\xcb" + bytes(8)]
    numbers += [bytes([first + step]) + bytes(1 << step) for first in (0xCC, 0xD0) for step in range(4)]
    extensions = [bytes([0xD4 + step, kind]) + bytes(1 << step) for step in range(5) for kind in (0, 5, 0xFF)]
    extensions += [
        header + size.to_bytes(octets, "big") + bytes([kind]) + bytes(size)
        for header, octets in ((b"\xc7", 1), (b"\xc8", 2), (b"\xc9", 4))
        for size in (0, 4, 8, 12, 200)
        for kind in (0, 5, 0xFF)
    ]
    # The kind 0xFF is msgpack's own time, of 4, 8 or 12 bytes.
    extensions = list(filter(_is_readable, extensions))
    texts = [b"\xa0", b"\xa17", b"\xd9\x017", b"\xda\0\x017", b"\xdb\0\0\0\x017"]
    texts += [b"\xc4\x017", b"\xc5\0\x017", b"\xc6\0\0\0\x017", b"\x80", b"\xde\0\0", b"\xdf\0\0\0\0", b"\x81\x01\x02"]
    single = [*numbers, *extensions, *texts]
    lists = [b"\x92" + time + metadata for time in single for metadata in (b"\x80", b"\x81\xa1m\x01")]
    return [*single, *lists, b"\x90", b"\xdc\0\0", b"\xdd\0\0\0\0", b"\x92\x92\x01\x80\x80"]


@given(st.sampled_from(encodings_of_a_time()), st.integers(0, 40), st.integers(2, 3))
def test_repeated_keys_stay_in_events_with_a_time_of_any_encoding(time: bytes, others: int, times: int) -> None:
    pairs = [("a", number) for number in range(times)] + [(f"k{number}", number) for number in range(others)]
    members = b"".join(msgpack.packb(part) for pair in pairs for part in pair)
    header = bytes([0x80 | len(pairs)]) if len(pairs) < 16 else b"\xde" + len(pairs).to_bytes(2, "big")
    lines = splitter().feed(b"\x92\xa1t\x91\x92" + time + header + members)
    ((payload, _),) = messages([lines])
    assert payload.decode() == "{" + ",".join(f'"{key}":{number}' for key, number in pairs) + "}"


def test_map_with_many_keys_has_no_repeated_ones() -> None:
    for size in (15, 16, 70_000):
        record = {f"k{number}": number for number in range(size)}
        connection = ForwardSplitter(4 << 20, 16 << 20)
        ((payload, _),) = messages(feed_in_turns(connection, msgpack.packb(["t", 1, record])))
        assert json.loads(payload) == record


def test_large_requests_of_a_listener_are_unpacked_one_after_the_other() -> None:
    limit = 8 << 20
    memory = RequestMemory(limit)
    events = gzip.compress(msgpack.packb([1, {"log": "x" * 1_000}]) * 5_000)
    request = msgpack.packb(["t", events, {"compressed": "gzip"}])
    connections = [ForwardSplitter(10_000, limit, memory=memory) for _ in range(40)]
    largest = 0
    counts = [len(connection.feed(request).lines) for connection in connections]
    for connection in connections[:5]:  # those that end early give back what they hold
        connection.abandon()
    busy = list(range(5, len(connections)))
    while busy:
        for number in busy:
            counts[number] += len(connections[number].feed(b"").lines)
            largest = max(largest, sum(each.held_bytes for each in connections))
        busy = [number for number in busy if connections[number].has_work]
    assert counts[5:] == [5_000] * 35
    assert largest < 6 * limit, "all of them hold 350 MB"


def test_small_request_does_not_wait_for_large_ones() -> None:
    memory = RequestMemory(1 << 20)
    large = msgpack.packb(["t", msgpack.packb([1, {"log": "x" * 1_000}]) * 3_000])
    for _ in range(3):
        ForwardSplitter(10_000, 8 << 20, memory=memory).feed(large)
    small = ForwardSplitter(10_000, 8 << 20, memory=memory)
    assert len(small.feed(msgpack.packb(["t", [[1, {}]] * 100])).lines) == 100
    assert not small.has_work


@pytest.mark.parametrize("bad", [None, 7, "text", {}, [], [1], [1, {"a": 1}, 2], [1, None]])
@pytest.mark.parametrize("options", [(), ({"size": 2},)])
def test_bad_entry_of_a_list_is_refused_alone(bad: Any, options: tuple[Any, ...]) -> None:
    for entries in ([bad, [1, FIRST], [1, SECOND]], [[1, FIRST], bad], [bad, [1, FIRST]]):
        records, connection, counts = read(["t", entries, *options])
        assert [record for record, _ in records] == [FIRST, SECOND][: len(entries) - 1]
        assert (counts["refused.damaged"], connection.closed) == (1, "")


@pytest.mark.parametrize(
    ("part", "count"),
    [(b"\xa0\xc0", 400_000), (b"\xc4\x01a\xc0", 200_000), (b"\xa0\xd4\x05a", 200_000), (b"\xa0\x91\xd4\x05a", 100_000)],
    ids=["repeated keys", "keys of type bin", "extensions", "nested extensions"],
)
def test_event_with_very_many_values_that_json_lacks_is_refused_alone(part: bytes, count: int) -> None:
    connection = ForwardSplitter(1 << 20, 32 << 20)
    event = b"\x92\x01\xdf" + count.to_bytes(4, "big") + part * count
    turns = feed_in_turns(connection, b"\x92\xa1t\x92" + event + msgpack.packb([1, FIRST]))
    assert [json.loads(payload) for payload, _ in messages(turns)] == [FIRST]
    assert (turns[-1].refused, connection.closed) == ({"oversize": 1}, "")


@pytest.mark.parametrize("container", [b"\x80", b"\x90", b"\x91\x01", b"\x81\x01\x01"])
def test_event_with_very_many_maps_or_lists_is_refused_alone(container: bytes) -> None:
    connection = ForwardSplitter(1 << 20, 32 << 20)
    many = MAX_CONTAINERS + 1
    event = b"\x92\x01\x81\xa1a\xdd" + many.to_bytes(4, "big") + container * many
    # Text may consist of the same bytes.
    record = {"text": "\u0440" * 200_000, "list": [{}, []] * 1000}
    turns = feed_in_turns(connection, b"\x92\xa1t\x92" + event + msgpack.packb([1, record]))
    assert [json.loads(payload) for payload, _ in messages(turns)] == [record]
    assert (turns[-1].refused, connection.closed) == ({"oversize": 1}, "")


def test_long_list_of_nulls_is_taken() -> None:
    record = {"list": [None] * 100_000, "number": 1.5}
    ((payload, _),) = messages(feed_in_turns(ForwardSplitter(1 << 20, 32 << 20), msgpack.packb(["t", 1, record])))
    assert json.loads(payload) == record


@given(st.floats(), st.booleans())
def test_number_that_is_not_finite_becomes_text_in_any_width(number: float, is_single: bool) -> None:
    if is_single and math.isfinite(number):
        number = 0.5
    encoded = msgpack.packb({"a": number, "b": None}, use_single_float=is_single)
    ((payload, _),) = messages([splitter().feed(b"\x93\xa1t\x01" + encoded)])
    assert json.loads(payload) == {"a": number if math.isfinite(number) else str(number), "b": None}


def test_large_request_is_read_after_other_connections() -> None:
    connection = ForwardSplitter(1 << 20, 8 << 20)
    turns = feed_in_turns(connection, msgpack.packb(["t", 1, {"log": "x" * 300_000}]))
    assert [len(turn.lines) for turn in turns] == [0, 1]
