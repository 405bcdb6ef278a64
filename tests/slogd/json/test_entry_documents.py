from __future__ import annotations

import base64
import json

import pytest
from google.protobuf import any_pb2, duration_pb2, json_format, struct_pb2, timestamp_pb2, wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

from penstock.slogd.columns.entries import to_body
from penstock.slogd.json.entry_documents import any_document, dumps, logs_document, sorted_annotations, timestamp_text
from penstock.slogd.slogd_pb2 import LogEntry
from tests.slogd.columns.test_entries import START, stored


def test_entry_document_equals_that_of_slogd() -> None:
    first = LogEntry(raw_bytes=b"x", annotations={"a": "b"})
    second = LogEntry(key=b"k")
    logs = logs_document([stored(to_body([first, second]))])["logs"]
    assert logs == [
        {"timestamp": "2023-11-14T22:13:20Z", "annotations": {"a": "b"}, "raw_bytes": "eA=="},
        {"offset": "1", "timestamp": "2023-11-14T22:13:20.000001Z", "key": "aw=="},
    ]


def test_document_without_rows_is_an_empty_object() -> None:
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
def test_timestamp_has_0_3_or_6_decimals(micros: int, text: str) -> None:
    assert timestamp_text(micros) == text


def test_any_of_known_type_has_the_json_of_its_type() -> None:
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
def test_any_of_unknown_type_is_base64(type_url: str, value: bytes) -> None:
    assert any_document(type_url, value) == {"@type": type_url, "value": base64.b64encode(value).decode()}


@given(st.sampled_from(["Any", "Duration", "Struct", "Value", "FieldMask", "Api", "Timestamp"]), st.binary(max_size=30))
def test_random_any_has_a_document(name: str, value: bytes) -> None:
    json.loads(dumps(any_document(f"type.googleapis.com/google.protobuf.{name}", value)))


def struct_of(text: str) -> bytes:
    return json_format.Parse(text, struct_pb2.Struct()).SerializeToString()


def test_struct_has_numbers_and_order_of_go() -> None:
    text = '{"z": 1, "b": 1.5, "a": {"y": -3, "x": [2, 0.25]}, "m": 1e20, "n": true}'
    document = any_document("type.googleapis.com/google.protobuf.Struct", struct_of(text))
    assert dumps(document) == (
        b'{"@type":"type.googleapis.com/google.protobuf.Struct","value":'
        b'{"a":{"x":[2,0.25],"y":-3},"b":1.5,"m":100000000000000000000,"n":true,"z":1}}'
    )


def test_wrapper_has_the_number_of_go() -> None:
    value = wrappers_pb2.DoubleValue(value=1).SerializeToString()
    assert dumps(any_document("x/google.protobuf.DoubleValue", value)).endswith(b'"value":1}')


def test_sorted_annotations_are_ordered_by_name() -> None:
    document = {"logs": [{"annotations": {"z": "1", "a": "2", "B": "3"}}, {}, {"annotations": {"b": "1"}}]}
    assert list(sorted_annotations(document)["logs"][0]["annotations"]) == ["B", "a", "z"]
    assert sorted_annotations({}) == {}


def test_half_of_a_surrogate_pair_is_escaped() -> None:
    assert dumps({"\ud800": "\u00fc"}) == b'{"\\ud800":"\\u00fc"}'
    assert dumps({"a": "\u00fc"}) == '{"a":"\u00fc"}'.encode()
