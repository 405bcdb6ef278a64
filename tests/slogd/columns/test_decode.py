from __future__ import annotations

import contextlib
import struct
import time
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.any_pb2 import Any as ProtobufAny
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import Origin
from penstock.log.store.producers import checksum
from penstock.records import ANNOTATIONS, BODY, Rows, as_batch, body, bounds
from penstock.slogd import slogd_pb2 as pb
from penstock.slogd.columns import decode
from penstock.slogd.columns.decode import Append, parse_append, parse_logs
from penstock.slogd.columns.encode import append_request, columns_request, response
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
        expected, has_origin = by_protobuf(parsed), parsed.HasField("origin") or bool(parsed.columns)
    try:
        assert contents_of(parse_append(bytes(wire))) == expected
    except BadRequest:
        assert expected is None or has_origin


def test_last_of_repeated_fields_counts() -> None:
    plain, any_ = LogEntry(raw_bytes=b"a").SerializeToString(), LogEntry(protobuf=ProtobufAny(value=b"b"))
    wire = b"".join(b"\x12" + bytes([len(entry)]) + entry for entry in (plain * 2, plain + any_.SerializeToString()))
    rows = as_batch(parse_append(wire).body).to_pylist()
    assert [(row["payload"], row["type_url"]) for row in rows] == [(b"a", None), (b"b", "")]


FIELDS: dict[str, Any] = {"producer_id": "me", "sequence": 7, "origin": pb.Origin(source="host/udp", bucket=60)}


@given(st.lists(entries, max_size=30))
def test_columns_and_entries_of_a_relay_give_the_same_batch(sent: list[LogEntry]) -> None:
    rows = to_body(sent)
    by_entries = parse_append(append_request("t", rows, **FIELDS))
    by_columns = parse_append(columns_request("t", rows, **FIELDS))
    # Protobuf's maps have no order, and columns keep it.
    assert from_batch(stored(as_batch(by_columns.body))) == from_batch(stored(as_batch(by_entries.body)))
    assert as_batch(by_columns.body).equals(rows)
    assert replace(by_columns, body=Rows()) == replace(by_entries, body=Rows())


@given(st.lists(entries, max_size=30), st.data())
def test_part_of_a_batch_travels_without_the_rest(sent: list[LogEntry], data: st.DataObject) -> None:
    part = to_body(sent).slice(data.draw(st.integers(0, len(sent))), data.draw(st.integers(0, len(sent))))
    body = parse_append(columns_request("t", part)).body
    assert from_batch(stored(as_batch(body))) == from_batch(stored(part))


@given(st.lists(entries, min_size=1, max_size=30), st.data())
def test_damaged_columns_are_a_valid_batch_or_refused(sent: list[LogEntry], data: st.DataObject) -> None:
    message = bytearray(to_body(sent).serialize().to_pybytes())
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    message = message[: data.draw(st.integers(0, len(message)) | st.just(len(message)))]
    with contextlib.suppress(BadRequest):
        body = as_batch(parse_append(AppendRequest(columns=bytes(message)).SerializeToString()).body)
        body.validate(full=True)
        from_batch(stored(body))


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_columns_are_refused(codec: str) -> None:
    rows, sink = body([b"x" * 1000]), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BODY, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(rows)
    messages = pa.BufferReader(sink.getvalue())
    pa.ipc.read_message(messages)
    compressed = pa.ipc.read_message(messages).serialize().to_pybytes()
    assert pa.ipc.read_record_batch(pa.py_buffer(compressed), BODY) == rows
    with pytest.raises(BadRequest, match="must not be compressed"):
        parse_append(AppendRequest(columns=compressed).SerializeToString())


def with_shared_bytes(size: int) -> bytes:
    """Return columns of one entry whose texts are all the same ``size`` bytes of the message."""
    text = "a" * size
    rows = body(
        [text.encode()],
        keys=pa.array([text.encode()]),
        type_urls=pa.array([text]),
        annotations=pa.array([[(text, text)]], ANNOTATIONS),
    )
    message = bytearray(rows.serialize().to_pybytes())
    begin = 8 + int.from_bytes(message[4:8], "little")
    content, shared = bytes(message[begin:]), bytes(size)
    # The metadata are a flatbuffer that has offset and length of each buffer, and the length of all.
    for position in range(8, begin - 15, 8):
        offset, length = struct.unpack_from("<qq", message, position)
        if length == size:
            struct.pack_into("<q", message, position, 0)
        elif length == 8 and content[offset : offset + 8] == struct.pack("<ii", 0, size):
            struct.pack_into("<q", message, position, size)
        elif length == 8 and content[offset : offset + 8] == struct.pack("<ii", 0, 1):
            struct.pack_into("<q", message, position, size + 8)
    shared = text.encode() + struct.pack("<ii", 0, size) + struct.pack("<ii", 0, 1) + bytes(48)
    length_at = bytes(message[:begin]).index(struct.pack("<q", len(content)), 8)
    struct.pack_into("<q", message, length_at, len(shared))
    return bytes(message[:begin]) + shared


def test_columns_that_share_bytes_are_refused() -> None:
    """Stored, each column would have a copy, and the entry could become larger than any answer."""
    message = with_shared_bytes(64_000)
    batch = pa.ipc.read_record_batch(pa.py_buffer(message), BODY)
    batch.validate(full=True)
    assert batch.nbytes > 4 * len(message)
    with pytest.raises(BadRequest, match="share bytes"):
        parse_append(AppendRequest(columns=message).SerializeToString())


def test_columns_whose_offsets_end_within_a_number_are_read() -> None:
    """The size of a buffer is the sender's: it may be a byte longer than its numbers."""
    message = bytearray(body([b"abc"]).serialize().to_pybytes())
    begin = 8 + int.from_bytes(message[4:8], "little")
    content = bytes(message[begin:])
    for position in range(8, begin - 15, 8):
        offset, length = struct.unpack_from("<qq", message, position)
        if length == 8 and content[offset : offset + 8] == struct.pack("<ii", 0, 3):
            struct.pack_into("<q", message, position + 8, 9)
    columns = as_batch(parse_append(AppendRequest(columns=bytes(message)).SerializeToString()).body)
    assert len(columns["payload"].buffers()[1]) == 9
    assert bounds(columns["payload"]).tolist() == [0, 3]
    assert checksum(columns) == checksum(body([b"abc"]))


def test_columns_of_another_kind_are_refused() -> None:
    for message in (b"x", BODY.serialize().to_pybytes(), pa.record_batch({"a": [1]}).serialize().to_pybytes()):
        with pytest.raises(BadRequest, match=r"not an Arrow record batch of the log|must have format V5"):
            parse_append(AppendRequest(columns=message).SerializeToString())
    rows = body([b"a"]).serialize().to_pybytes()
    with pytest.raises(BadRequest, match="entries or columns, not both"):
        parse_append(AppendRequest(logs=[LogEntry()], columns=rows).SerializeToString())


def test_offsets_beyond_a_column_are_refused() -> None:
    message = body([b"abc"]).serialize().to_pybytes()
    offsets, wrong = bytes([0, 0, 0, 0, 3, 0, 0, 0]), bytes([0, 0, 0, 0, 255, 0, 0, 0])
    head, _, rest = message.rpartition(offsets)
    assert rest.startswith(b"abc")
    with pytest.raises(BadRequest, match="not an Arrow record batch of the log"):
        parse_append(AppendRequest(columns=head + wrong + rest).SerializeToString())


def test_columns_have_at_most_the_entries_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MAX_ENTRIES", 2)
    assert parse_append(columns_request("t", body([b"a", b"b"]))).body.num_rows == 2
    with pytest.raises(BadRequest, match="An append may have"):
        parse_append(columns_request("t", body([b"a", b"b", b"c"])))


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


@pytest.mark.parametrize(
    ("before", "entry"),
    [
        (b"\x28\x01", b"\x12\x00"),  # a number first
        (b"\x41" + bytes(8) + b"\x45" + bytes(4), b"\x12\x00"),  # unknown fields of fixed size
        (b"\x43\x44", b"\x12\x00"),  # an unknown group
        (b"", b"\x92\x00\x00"),  # a tag of two octets
        (b"", b"\x12\x80\x00"),  # a size of two octets
    ],
)
def test_entries_in_any_encoding_that_protobuf_reads_are_counted(before: bytes, entry: bytes) -> None:
    data = before + decode.MAX_ENTRIES * entry
    assert len(AppendRequest.FromString(before + 3 * entry).logs) == 3
    assert not decode._has_too_many_entries(data)
    assert decode._has_too_many_entries(data + entry)


def test_many_other_fields_are_refused_as_entries_are() -> None:
    data = 3 * decode.MAX_ENTRIES * b"\x0a\x01\x12"
    assert decode._has_too_many_entries(data)
    assert not decode._has_too_many_entries(b"\x0a\x01t\x3a\x80\x80\x80\x02" + (4 << 20) * b"\x12")


def test_payload_with_tags_of_entries_is_no_entry() -> None:
    payload = b"\x12" * 2_000_000
    append = parse_append(AppendRequest(topic="t", logs=[LogEntry(raw_bytes=payload)]).SerializeToString())
    assert as_batch(append.body).column("payload").to_pylist() == [payload]
