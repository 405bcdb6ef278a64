from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import any_pb2, duration_pb2, struct_pb2, timestamp_pb2
from hypothesis import example, given
from hypothesis import strategies as st
from test_server_entries import START, entries, stored

from penstock.records import body
from penstock.server.documents import any_document, dumps, logs_document, parse_append, timestamp_text
from penstock.server.entries import to_body
from penstock.server.errors import BadRequest
from penstock.server.slogd_pb2 import LogEntry

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("offset", "timestamp", "raw_bytes", "rawBytes", "protobuf", "annotations", "key", "@type", "value")
near_entries = st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=4)


def parse(entry: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parse_append(json.dumps({"logs": [entry]}).encode()).to_pylist()
    return rows


@given(st.binary(max_size=200))
@example(b"[" * 100_000)
@example(b'{"logs":[{"offset":' + b"9" * 10_000 + b"}]}")
@example(b'{"logs":[{"raw_bytes":"\xc3\xa9"}]}')
def test_no_bytes_raise_anything_but_bad_request(data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        parse_append(data)


@given(st.lists(near_entries | json_values, max_size=3))
def test_no_document_raises_anything_but_bad_request(logs: list[Any]) -> None:
    with contextlib.suppress(BadRequest):
        parse_append(json.dumps({"logs": logs}).encode())


@given(st.sampled_from(["Any", "Duration", "Struct", "FieldMask", "Api", "BytesValue"]), json_values)
def test_no_any_raises_anything_but_bad_request(name: str, value: Any) -> None:
    with contextlib.suppress(BadRequest):
        parse({"protobuf": {"@type": f"type.googleapis.com/google.protobuf.{name}", "value": value}})


@given(st.lists(entries, max_size=6))
def test_what_is_answered_can_be_appended_again(sent: list[LogEntry]) -> None:
    # An Any without a type cannot be spelled in JSON.
    sent = [entry for entry in sent if entry.WhichOneof("entry") != "protobuf" or entry.protobuf.type_url]
    batch = to_body(sent)
    document = dumps(logs_document([stored(batch)]))
    assert parse_append(document) == batch


def test_an_entry_reads_as_slogd_writes_it() -> None:
    first = LogEntry(raw_bytes=b"x", annotations={"a": "b"})
    second = LogEntry(key=b"k")
    logs = logs_document([stored(to_body([first, second]))])["logs"]
    assert logs == [
        {"timestamp": "2023-11-14T22:13:20Z", "annotations": {"a": "b"}, "raw_bytes": "eA=="},
        {"offset": "1", "timestamp": "2023-11-14T22:13:20.000001Z", "key": "aw=="},
    ]


def test_no_rows_are_an_empty_object() -> None:
    assert logs_document([]) == {}


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (START, "2023-11-14T22:13:20Z"),
        (START + 1_000, "2023-11-14T22:13:20.001Z"),
        (START + 1, "2023-11-14T22:13:20.000001Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
    ],
)
def test_timestamps_have_as_many_decimals_as_they_need(micros: int, text: str) -> None:
    assert timestamp_text(micros) == text


def test_a_known_any_reads_as_its_type_does() -> None:
    packed = any_pb2.Any()
    packed.Pack(duration_pb2.Duration(seconds=1, nanos=500_000_000))
    assert any_document(packed.type_url, packed.value) == {"@type": packed.type_url, "value": "1.500s"}


@pytest.mark.parametrize(
    ("type_url", "value"),
    [
        ("type.googleapis.com/acme.Unknown", b"\x08\x01"),
        ("type.googleapis.com/google.protobuf.Duration", b"\xff"),
        ("type.googleapis.com/google.protobuf.Timestamp", timestamp_pb2.Timestamp(nanos=-1).SerializeToString()),
        ("type.googleapis.com/google.protobuf.Value", struct_pb2.Value(number_value=float("nan")).SerializeToString()),
        ("", b"x"),
        ("/", b""),
    ],
)
def test_any_other_any_reads_as_base64(type_url: str, value: bytes) -> None:
    assert any_document(type_url, value) == {"@type": type_url, "value": base64.b64encode(value).decode()}


@given(st.sampled_from(["Any", "Duration", "Struct", "Value", "FieldMask", "Api", "Timestamp"]), st.binary(max_size=30))
def test_every_any_can_be_read(name: str, value: bytes) -> None:
    json.loads(dumps(any_document(f"type.googleapis.com/google.protobuf.{name}", value)))


def test_raw_bytes_win_over_an_any() -> None:
    (row,) = parse({"raw_bytes": "cg==", "protobuf": {"@type": "acme.Unknown", "value": ""}})
    assert (row["payload"], row["type_url"]) == (b"r", None)


def test_both_spellings_are_taken_and_null_means_not_given() -> None:
    assert parse({"raw_bytes": None, "rawBytes": "eg=="})[0]["payload"] == b"z"
    assert parse({"raw_bytes": None})[0]["payload"] is None


def test_offset_and_timestamp_are_checked_and_left_out() -> None:
    (row,) = parse({"offset": "12", "timestamp": "2026-11-21T01:05:57.112292720Z"})
    assert row == {"key": None, "payload": None, "type_url": None, "annotations": None}


@pytest.mark.parametrize(
    "entry",
    [
        {"raw_bytes": "YQ"},
        {"raw_bytes": "_-8="},
        {"raw_bytes": 5},
        {"offset": -1},
        {"offset": "18446744073709551616"},
        {"offset": True},
        {"timestamp": "today"},
        {"timestamp": 5},
        {"annotations": {"a": 1}},
        {"annotations": []},
        {"protobuf": {}},
        {"protobuf": {"@type": "acme.Unknown", "field": 1}},
        {"protobuf": {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "long"}},
        None,
    ],
)
def test_what_cannot_be_taken_is_refused(entry: Any) -> None:
    with pytest.raises(BadRequest):
        parse(entry)


def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    batch = parse_append(b'{"logs":[{"annotations":{"a":"\\ud800"}}]}')
    assert batch.column("annotations").to_pylist() == [[("a", "\ufffd")]]


@pytest.mark.parametrize("data", [b"{}", b'{"logs":null}', b'{"logs":[]} rest', b'\n {"nope":1}', b'{"topic":"x"}'])
def test_a_request_without_entries_is_an_empty_batch(data: bytes) -> None:
    assert parse_append(data) == body(pa.array([], pa.binary()))
