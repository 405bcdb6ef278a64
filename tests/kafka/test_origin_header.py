"""The header with a record's origin: read for whole batches, and never believed if it cannot be true."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.origin_header import (
    LOG_OFFSET_HEADER,
    MAX_AGE_S,
    MAX_AHEAD_S,
    NO_ORIGIN,
    ORIGIN_HEADER,
    OTHER_ORIGINS,
    OriginReader,
    encode_origin,
)

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
NOW = 1_795_806_960 + 7
MINUTE = NOW // 60 * 60


def origins(reader: OriginReader, *records: list[tuple[str, bytes | None]] | None) -> list[tuple[str, int]]:
    headers = [None if r is None else [{"key": key, "value": text} for key, text in r] for r in records]
    sources, buckets = reader.read(pa.array(headers, HEADERS), np.full(len(records), NOW))
    return list(zip(sources.to_pylist(), buckets.tolist(), strict=True))


def header(text: str) -> list[tuple[str, bytes | None]]:
    return [(ORIGIN_HEADER, text.encode())]


def test_written_origin_is_read_and_records_without_one_count_by_their_time() -> None:
    written = encode_origin("edge-1", "events-udp", MINUTE - 120)
    repeated = [*header(encode_origin("edge-2", "syslog", 0)), ("a", b"x"), *header(written)]
    assert origins(OriginReader(), header(written), None, [("codec", b"syslog")], repeated) == [
        ("edge-1/events-udp", MINUTE - 120),
        (NO_ORIGIN, MINUTE),
        (NO_ORIGIN, MINUTE),
        ("edge-1/events-udp", MINUTE - 120),
    ]


def test_header_that_cannot_be_true_is_ignored() -> None:
    minutes = [MINUTE + 1, MINUTE - MAX_AGE_S - 60, MINUTE + MAX_AHEAD_S + 60, 0]
    texts = ["", "h/l", "h/l@", f"h@{MINUTE}", f"/l@{MINUTE}", f"h//m@{MINUTE}", f"h/l@-{MINUTE}", f"h/l@{MINUTE}\n"]
    texts += [f"h/@{MINUTE}", f"{'h/' * 16}@{MINUTE}", f"{'h' * 21}/m/l@{MINUTE}", f"/h/l@{MINUTE}"]
    texts += [f"{'h' * 33}/l@{MINUTE}", f"ü/l@{MINUTE}", *(f"h/l@{minute}" for minute in minutes)]
    records = [*map(header, texts), [(ORIGIN_HEADER, None)], [(ORIGIN_HEADER, b"\xff")]]
    assert origins(OriginReader(), *records) == [(NO_ORIGIN, MINUTE)] * len(records)


def test_minute_of_a_promoted_record_may_be_far_from_its_time() -> None:
    minutes = [MINUTE - MAX_AGE_S - 60, MINUTE + MAX_AHEAD_S + 60, MINUTE + 1]
    records = [[(LOG_OFFSET_HEADER, b"7"), *header(f"site/edge/l@{minute}")] for minute in minutes]
    records.append([(LOG_OFFSET_HEADER, b"8")])
    expected = [("site/edge/l", minutes[0]), ("site/edge/l", minutes[1]), (NO_ORIGIN, MINUTE), (NO_ORIGIN, MINUTE)]
    assert origins(OriginReader(), None, *records) == [(NO_ORIGIN, MINUTE), *expected]


def test_origins_beyond_the_limit_count_together_and_earlier_ones_keep_their_name() -> None:
    reader = OriginReader(limit=2)
    names = ["a", "b", "a", "c", "d", "b"]
    first = origins(reader, *(header(f"{name}/l@{MINUTE}") for name in names))
    assert [source for source, _ in first] == ["a/l", "b/l", "a/l", OTHER_ORIGINS, OTHER_ORIGINS, "b/l"]
    later = origins(reader, *(header(f"{name}/l@{MINUTE}") for name in ("e", "b")))
    assert later == [(OTHER_ORIGINS, MINUTE), ("b/l", MINUTE)]


@st.composite
def damaged_headers(draw: st.DrawFn) -> bytes:
    """Generate a good header of which some bytes are replaced, removed or added."""
    text = bytearray(encode_origin("web-1", "events-udp", MINUTE).encode())
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        text[begin : begin + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(text)


TEXTS = st.one_of(
    st.binary(max_size=20),
    damaged_headers(),
    st.from_regex(re.compile(r"([a-c]/){1,3}[a-cA]?@[0-9]{1,12}", re.ASCII), fullmatch=True).map(str.encode),
    st.tuples(st.sampled_from("abc"), st.integers(-20_000, 200)).map(
        lambda p: f"{p[0]}/l@{MINUTE + p[1] * 60}".encode()
    ),
    st.none(),
)
RECORDS = st.lists(
    st.none() | st.lists(st.tuples(st.sampled_from([ORIGIN_HEADER, LOG_OFFSET_HEADER, "_t"]), TEXTS), max_size=3),
    max_size=8,
)


@given(st.lists(RECORDS, max_size=3))
def test_any_headers_give_the_origin_that_a_reader_of_one_record_finds(batches: list[Any]) -> None:
    reader = OriginReader()
    for batch in batches:
        assert origins(reader, *batch) == [_origin_of(record) for record in batch]


def _origin_of(record: list[tuple[str, bytes | None]] | None) -> tuple[str, int]:
    texts = [text for key, text in record or () if key == ORIGIN_HEADER]
    match = re.fullmatch(rb"([A-Za-z0-9_./-]+)@([0-9]{1,11})", texts[-1] or b"") if texts else None
    if match is None or int(match[2]) % 60:
        return NO_ORIGIN, MINUTE
    *hosts, listener = match[1].decode().split("/")
    is_of_handler = len(hosts) == 1 and len(hosts[0]) <= 32 and re.fullmatch(r"[a-z0-9_.-]{1,64}", listener)
    is_relayed = len(hosts) <= 15 and all(len(host) <= 20 for host in hosts) and len(listener) <= 30
    if not all(hosts) or not hosts or not (listener or len(hosts) > 1) or not (is_of_handler or is_relayed):
        return NO_ORIGIN, MINUTE
    is_near = NOW - MAX_AGE_S <= int(match[2]) <= NOW + MAX_AHEAD_S
    if not is_near and not any(key == LOG_OFFSET_HEADER for key, _ in record or ()):
        return NO_ORIGIN, MINUTE
    return match[1].decode(), int(match[2])
