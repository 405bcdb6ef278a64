from __future__ import annotations

import contextlib
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.records import as_batch, body
from penstock.slogd.columns.entries import to_body
from penstock.slogd.errors import BadRequest
from penstock.slogd.json import append_request
from penstock.slogd.json.append_request import parse_append
from penstock.slogd.json.entry_documents import dumps, logs_document
from penstock.slogd.slogd_pb2 import LogEntry
from tests.slogd.columns.test_entries import entries, stored

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("offset", "timestamp", "raw_bytes", "rawBytes", "protobuf", "annotations", "key", "@type", "value")
near_entries = st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=4)


def parse(entry: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = as_batch(parse_append("t", json.dumps({"logs": [entry]}).encode()).body).to_pylist()
    return rows


@given(st.binary(max_size=200))
@example(b"[" * 100_000)
@example(b'{"logs":[{"offset":' + b"9" * 10_000 + b"}]}")
@example(b'{"logs":[{"raw_bytes":"\xc3\xa9"}]}')
def test_random_bytes_raise_only_bad_request(data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        parse_append("t", data)


@given(st.lists(near_entries | json_values, max_size=3))
def test_random_entries_raise_only_bad_request(logs: list[Any]) -> None:
    with contextlib.suppress(BadRequest):
        parse_append("t", json.dumps({"logs": logs}).encode())


@given(st.sampled_from(["Any", "Duration", "Struct", "FieldMask", "Api", "BytesValue"]), json_values)
def test_random_any_raises_only_bad_request(name: str, value: Any) -> None:
    with contextlib.suppress(BadRequest):
        parse({"protobuf": {"@type": f"type.googleapis.com/google.protobuf.{name}", "value": value}})


@given(st.lists(entries, max_size=6))
def test_answered_entries_can_be_appended_again(sent: list[LogEntry]) -> None:
    # An Any of a type that is not known is answered, but not taken: slogd does not take it either.
    sent = [entry for entry in sent if entry.WhichOneof("entry") != "protobuf"]
    batch = to_body(sent)
    document = dumps(logs_document([stored(batch)]))
    assert as_batch(parse_append("t", document).body) == batch


def test_raw_bytes_win_over_an_any() -> None:
    (row,) = parse({"raw_bytes": "cg==", "protobuf": {"@type": "acme.Unknown", "value": ""}})
    assert (row["payload"], row["type_url"]) == (b"r", None)


def test_both_spellings_are_accepted_and_null_means_absent() -> None:
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
        {"raw_bytes": [97, 98]},
        {"offset": -1},
        {"offset": "18446744073709551616"},
        {"offset": True},
        {"timestamp": "today"},
        {"timestamp": 5},
        {"annotations": {"a": 1}},
        {"annotations": []},
        {"protobuf": {}},
        {"protobuf": {"value": "1s"}},
        {"protobuf": {"@type": 5}},
        {"protobuf": {"@type": "acme.Unknown", "field": 1}},
        {"protobuf": {"@type": "type.googleapis.com/google.protobuf.Duration"}},
        {"protobuf": {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "long"}},
        None,
    ],
)
def test_invalid_entry_is_refused(entry: Any) -> None:
    with pytest.raises(BadRequest):
        parse(entry)


def test_lone_surrogate_becomes_a_replacement_character() -> None:
    batch = parse_append("t", b'{"logs":[{"annotations":{"a":"\\ud800"}}]}')
    assert as_batch(batch.body).column("annotations").to_pylist() == [[("a", "\ufffd")]]


@pytest.mark.parametrize("data", [b"{}", b'{"logs":null}', b'{"logs":[]} rest', b'\n {"nope":1}', b'{"topic":"x"}'])
def test_request_without_entries_is_an_empty_batch(data: bytes) -> None:
    assert as_batch(parse_append("t", data).body) == body(pa.array([], pa.binary()))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("not json", "invalid character 'o' in literal null (expecting 'u')"),
        ("", "EOF"),
        ("[]", "json: cannot unmarshal array into Go value of type map[string]json.RawMessage"),
        ('{"logs":{}}', "json: cannot unmarshal object into Go value of type []json.RawMessage"),
        ('{"logs":[{"raw_bytes":"***"}]}', "illegal base64 data at input byte 0"),
        ('{"logs":[{"offset":"abc"}]}', "invalid character 'a' looking for beginning of value"),
    ],
)
def test_refusals_have_the_recorded_texts_of_slogd(body: str, message: str) -> None:
    with pytest.raises(BadRequest) as raised:
        parse_append("t", body.encode())
    assert raised.value.message == message


def test_scalar_fields_are_read_in_both_spellings() -> None:
    plain = parse_append("t", b'{"transaction_id":"x","producer_id":"p","sequence":"7"}')
    camel = parse_append("t", b'{"transactionId":"x","producerId":"p","sequence":7}')
    for append in (plain, camel):
        assert (append.topic, append.transaction_id, append.producer_id, append.sequence) == ("t", "x", "p", 7)


def test_unknown_field_is_ignored_and_named() -> None:
    append = parse_append("t", b'{"other":1,"logs":[{"raw_bytes":"eA==","colour":"red"}]}')
    assert (append.unknown, as_batch(append.body).column("payload").to_pylist()) == ("colour", [b"x"])


@pytest.mark.parametrize(("rest", "has_more"), [("", False), (" \r\n", False), ("x", True), ('\n{"logs":[]}', True)])
def test_second_value_is_ignored_and_reported(rest: str, has_more: bool) -> None:
    append = parse_append("t", b'{"logs":[{"raw_bytes":"eA=="}]}' + rest.encode())
    assert (append.has_more, as_batch(append.body).column("payload").to_pylist()) == (has_more, [b"x"])


@pytest.mark.parametrize(
    "name", ["raw_byte", "rawbytes", "raw-bytes", "bytes", "payload", "message", "Data", "protobufs"]
)
def test_payload_under_another_name_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match="raw_bytes has it in base64"):
        parse({name: "eA=="})
    assert parse({"raw_bytes": "eA==", name: "eA=="})[0]["payload"] == b"x"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"logs":[' + b",".join([b"{}"] * 11) + b"]}", "An append may have"),
        (b'{"x":[' + b",".join([b"[]"] * 100) + b"]}", "The body has more than 80 values"),
    ],
)
def test_body_with_too_many_values_is_refused(body: bytes, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_request, "MAX_ENTRIES", 10)
    monkeypatch.setattr(append_request, "MAX_VALUES", 80)
    with pytest.raises(BadRequest, match=message):
        parse_append("t", body)


def test_most_entries_fit_and_as_many_values_in_an_unknown_field_do_not() -> None:
    entries = b",".join([b'{"raw_bytes":""}'] * append_request.MAX_ENTRIES)
    assert not append_request._has_too_many_values(b'{"logs":[' + entries + b"]}")
    with pytest.raises(BadRequest, match="more than 2097152 values"):
        parse_append("t", b'{"logs":[{"raw_bytes":"eA=="}],"x":[' + b"1," * 2_097_152 + b"1]}")


def test_texts_that_look_like_many_values_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_request, "MAX_VALUES", 80)
    text = '{[,\\"\\\\,' * 100
    append = parse_append("t", b'{"logs":[{"annotations":{"a":%s}}]}' % json.dumps(text).encode())
    assert as_batch(append.body).column("annotations").to_pylist() == [[("a", text)]]
