from __future__ import annotations

import contextlib

import pytest
from google.protobuf.any_pb2 import Any as ProtobufAny
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from penstock.slogd.columns import decode
from penstock.slogd.columns.decode import Append, parse_append, parse_logs, topic_of
from penstock.slogd.columns.encode import response
from penstock.slogd.columns.entries import from_batch, to_body
from penstock.slogd.columns.wire_columns import Irregular
from penstock.slogd.errors import BadRequest
from penstock.slogd.slogd_pb2 import AppendRequest, LogEntry
from tests.slogd.columns.test_entries import entries, stored

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


def given_by(append: Append) -> tuple[object, ...]:
    rest = (append.transaction_id, append.producer_id, append.sequence)
    return (append.topic, from_batch(stored(append.body)), *rest)


@pytest.fixture(autouse=True)
def _always_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "SMALL", -1)


@given(requests)
def test_columns_read_what_protobuf_reads(request: AppendRequest) -> None:
    read = decode._columnar(request.SerializeToString())
    assert given_by(read) == by_protobuf(request)
    read.body.validate(full=True)


@given(requests, st.data())
def test_any_bytes_are_read_as_protobuf_reads_them_or_refused(request: AppendRequest, data: st.DataObject) -> None:
    wire = bytearray(request.SerializeToString())
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(wire)))
        wire[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    expected = None
    with contextlib.suppress(DecodeError):
        expected = by_protobuf(AppendRequest.FromString(bytes(wire)))
    try:
        assert given_by(parse_append(bytes(wire))) == expected
    except BadRequest:
        assert expected is None


@pytest.mark.parametrize(
    "entry",
    [
        LogEntry(raw_bytes=b"a").SerializeToString() * 2,  # a field given twice
        LogEntry(raw_bytes=b"a").SerializeToString() + LogEntry(protobuf=ProtobufAny(value=b"b")).SerializeToString(),
        LogEntry(annotations={"a": "1"}).SerializeToString() + LogEntry(annotations={"a": "2"}).SerializeToString(),
        b"\x3a\x01a",  # a field that is not known
        b"\x0d\x01\x01\x01\x01",  # a number where another kind of number is expected
    ],
)
def test_what_columns_cannot_take_is_left_to_protobuf(entry: bytes) -> None:
    wire = b"\x0a\x01t\x12" + bytes([len(entry)]) + entry
    with pytest.raises(Irregular):
        decode._columnar(wire)
    assert given_by(parse_append(wire)) == by_protobuf(AppendRequest.FromString(wire))


@given(st.lists(entries, max_size=8), st.integers(0, 2**62), st.integers(0, 2**62))
def test_answers_are_read_by_columns_too(sent: list[LogEntry], first: int, following: int) -> None:
    batch = stored(to_body(sent), first)
    read, next_offset = parse_logs(response([batch] if sent else [], following))
    assert (from_batch(read), next_offset) == (from_batch(batch), following)


@given(st.binary(max_size=40))
def test_an_answer_of_any_bytes_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse_logs(data)


def test_the_topic_is_known_before_the_request_is_read() -> None:
    assert topic_of(AppendRequest(topic="events", logs=[LogEntry()]).SerializeToString()) == "events"
    assert [topic_of(data) for data in (b"", b"\x12\x00", b"\x0a", b"\x0a\x05\xff")] == ["", "", "", "�"]
