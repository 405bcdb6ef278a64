from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as ProtobufAny
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import Origin
from penstock.records import as_batch
from penstock.slogd import slogd_pb2 as pb
from penstock.slogd.columns import decode
from penstock.slogd.columns.decode import Append, parse_append, parse_logs
from penstock.slogd.columns.encode import response
from penstock.slogd.columns.entries import to_body
from penstock.slogd.errors import BadRequest
from penstock.slogd.slogd_pb2 import AppendRequest, GetLogsResponse, LogEntry
from tests.slogd.columns.test_entries import entries, from_batch, stored

requests = st.builds(
    AppendRequest,
    topic=st.sampled_from(["", "t", "x" * 200]),
    logs=st.lists(entries, max_size=8),
    transaction_id=st.sampled_from(["", "id"]),
    producer_id=st.sampled_from(["", "me"]),
    sequence=st.integers(0, 2**64 - 1),
)


def by_protobuf(request: AppendRequest) -> tuple[object, ...]:
    rest = (request.transaction_id, request.producer_id, request.sequence)
    return (request.topic, from_batch(stored(to_body(request.logs))), *rest)


def contents_of(append: Append) -> tuple[object, ...]:
    rest = (append.transaction_id, append.producer_id, append.sequence)
    return (append.topic, from_batch(stored(as_batch(append.body))), *rest)


@pytest.fixture(autouse=True, params=[0, 100])
def _by_columns_and_by_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MAX_LOOP_ENTRIES", request.param)


@given(requests, st.data())
def test_random_bytes_are_parsed_like_protobuf_or_refused(request: AppendRequest, data: st.DataObject) -> None:
    wire = bytearray(request.SerializeToString())
    for _ in range(data.draw(st.integers(0, 3))):
        position = data.draw(st.integers(0, len(wire)))
        wire[position : position + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    expected, has_origin = None, False
    with contextlib.suppress(DecodeError):
        parsed = AppendRequest.FromString(bytes(wire))
        expected, has_origin = by_protobuf(parsed), parsed.HasField("origin")
    try:
        assert contents_of(parse_append(bytes(wire))) == expected
    except BadRequest:
        assert expected is None or has_origin


def test_last_of_repeated_fields_counts() -> None:
    plain, any_ = LogEntry(raw_bytes=b"a").SerializeToString(), LogEntry(protobuf=ProtobufAny(value=b"b"))
    wire = b"".join(b"\x12" + bytes([len(entry)]) + entry for entry in (plain * 2, plain + any_.SerializeToString()))
    rows = as_batch(parse_append(wire).body).to_pylist()
    assert [(row["payload"], row["type_url"]) for row in rows] == [(b"a", None), (b"b", "")]


def test_origin_of_relayed_entries_is_parsed() -> None:
    times = {"bucket": 120, "first": 121_000_000, "last": 122_000_000}
    origin = pb.Origin(source="host/udp", **times, codec="plog", hops=["a/t", "b/t"])
    request = AppendRequest(topic="t", logs=[LogEntry()], origin=origin)
    append = parse_append(request.SerializeToString())
    assert append.origin == Origin("host/udp", **times, codec="plog", hops=("a/t", "b/t"))
    assert parse_append(AppendRequest(topic="t").SerializeToString()).origin is None


@pytest.mark.parametrize(
    "wrong",
    [
        *({"source": source} for source in ("", "udp", "/udp", "host/", "h/\n", f"host/{'x' * 28}")),
        *({"bucket": bucket} for bucket in (-60, 61, 1 << 62)),
        *({"first": first} for first in (-1, 3)),
        {"last": 1 << 62},
        {"codec": "x" * 33},
        *({"hops": hops} for hops in (["a/t"] * 17, [""], ["x" * 283])),
    ],
    ids=str,
)
def test_origin_out_of_bounds_is_refused(wrong: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"source": "host/udp", "bucket": 60, "first": 1, "last": 2} | wrong
    with pytest.raises(BadRequest, match="origin"):
        parse_append(AppendRequest(topic="t", origin=pb.Origin(**fields)).SerializeToString())


@given(st.lists(entries, max_size=8), st.integers(0, 2**62), st.integers(0, 2**62))
def test_parse_logs_returns_what_response_encoded(sent: list[LogEntry], first: int, following: int) -> None:
    batch = stored(to_body(sent), first)
    read, next_offset = parse_logs(response([batch] if sent else [], following))
    assert (from_batch(read), next_offset) == (from_batch(batch), following)


@given(st.binary(max_size=40))
def test_response_of_random_bytes_is_parsed_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse_logs(data)


@pytest.mark.parametrize("fields", [{"offset": 2**63}, {"timestamp": {"seconds": 2**62}}])
def test_response_with_impossible_numbers_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a GetLogsResponse"):
        parse_logs(GetLogsResponse(logs=[LogEntry(**fields)]).SerializeToString())


def test_append_with_too_many_entries_is_refused_before_it_takes_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.process_time()
    with pytest.raises(BadRequest, match="An append may have 1000000 entries"):
        parse_append(b"\x12\x00" * (32 << 20))
    assert time.process_time() - began < 10
    monkeypatch.setattr(decode, "MAX_ENTRIES", 1000)
    topic = b"\x0a\x01t"
    for entry in (b"\x12\x00", b"\x12\x82\x00\x2a\x00"):
        with pytest.raises(BadRequest, match="An append may have"):
            parse_append(topic + entry * 1001)
    append = parse_append(topic + b"\x12\x00" * 1000 + b"\x1a\x01\x12")
    assert len(as_batch(append.body)) == 1000


def test_payload_with_tags_of_entries_is_no_entry() -> None:
    payload = b"\x12" * 2_000_000
    append = parse_append(AppendRequest(topic="t", logs=[LogEntry(raw_bytes=payload)]).SerializeToString())
    assert as_batch(append.body).column("payload").to_pylist() == [payload]
