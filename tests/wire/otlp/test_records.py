"""OTLP's records as messages with all their annotations; a request grows within bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from penstock.wire.otlp import records
from penstock.wire.otlp.records import read_logs
from penstock.wire.protobuf import Malformed
from penstock.wire.requests import MAX_GROWTH_FACTOR, MIN_ROOM_BYTES
from tests.fuzzed import RAW
from tests.wire.otlp.otlp_requests import request
from tests.wire.test_protobuf import encoded

MAX_MESSAGE_BYTES = 1 << 20


def rows(sent: ExportLogsServiceRequest, max_message_bytes: int = MAX_MESSAGE_BYTES) -> list[dict[str, Any]]:
    decoded = read_logs(sent.SerializeToString(), max_message_bytes).body.to_pylist()
    return [row | {"annotations": dict(row["annotations"] or [])} for row in decoded]


@pytest.mark.parametrize("count", [1, 3, 100])
def test_record_has_its_body_and_all_annotations(count: int) -> None:
    decoded = rows(request(count))
    assert len(decoded) == count
    for number, row in enumerate(decoded):
        assert row["payload"] == b"a message of some length, as applications write them, number %d" % number
        assert row["annotations"] == {
            "time": str(1_700_000_000_000_000_000 + number),
            "observed_time": "1700000000000000001",
            "severity_number": "9",
            "severity_text": "INFO",
            "trace_id": bytes(range(16)).hex(),
            "span_id": bytes(range(1, 9)).hex(),
            "flags": "1",
            "attributes.code.file.path": "/srv/app/main.py",
            "attributes.code.line.number": "17",
            "scope.name": "my.logger",
            "scope.version": "1.2",
            **{f"resource.service.part{part}": f"value {part}" for part in range(5)},
        }


def test_record_has_attributes_of_its_resource_and_scope() -> None:
    sent = ExportLogsServiceRequest()
    for name in ("a", "b"):
        logs = sent.resource_logs.add()
        attribute = logs.resource.attributes.add()
        attribute.key, attribute.value.string_value = "service.name", name
        for scope_name in ("x", ""):
            scope = logs.scope_logs.add()
            if scope_name:
                scope.scope.name = scope_name
                scope_attribute = scope.scope.attributes.add()
                scope_attribute.key, scope_attribute.value.bool_value = "own", True
            scope.log_records.add().body.string_value = name + scope_name
    assert {row["payload"]: row["annotations"] for row in rows(sent)} == {
        b"ax": {"scope.name": "x", "scope.attributes.own": "true", "resource.service.name": "a"},
        b"a": {"resource.service.name": "a"},
        b"bx": {"scope.name": "x", "scope.attributes.own": "true", "resource.service.name": "b"},
        b"b": {"resource.service.name": "b"},
    }


def test_values_of_all_types_become_texts() -> None:
    sent = request(1, 0)
    record = sent.resource_logs[0].scope_logs[0].log_records[0]
    del record.attributes[:]
    values: dict[str, Any] = {"bool_value": False, "int_value": -5, "double_value": 1.5, "bytes_value": b"\x00\xff"}
    for kind, value in values.items():
        attribute = record.attributes.add()
        attribute.key = kind
        setattr(attribute.value, kind, value)
    many = record.attributes.add()
    many.key = "list"
    many.value.array_value.values.add().int_value = 1
    many.value.array_value.values.add().string_value = "é"
    record.attributes.add().key = "nothing"
    inner = record.body.kvlist_value.values.add()
    inner.key, inner.value.double_value = "ratio", 0.25
    (row,) = rows(sent)
    texts = {name[11:]: text for name, text in row["annotations"].items() if name.startswith("attributes.")}
    assert texts == {
        "bool_value": "false",
        "int_value": "-5",
        "double_value": "1.5",
        "bytes_value": "AP8=",
        "list": '[1,"é"]',
        "nothing": "",
    }
    assert json.loads(row["payload"]) == {"ratio": 0.25}


def test_invalid_ids_are_left_out() -> None:
    sent = request(2, 0)
    first, second = sent.resource_logs[0].scope_logs[0].log_records
    first.trace_id, first.span_id = bytes(16), b"short"
    second.trace_id, second.span_id = bytes(range(16)), b"\x01" * 8
    ids = [{name: row["annotations"].get(name) for name in ("trace_id", "span_id")} for row in rows(sent)]
    assert ids == [{"trace_id": None, "span_id": None}, {"trace_id": bytes(range(16)).hex(), "span_id": "01" * 8}]


def test_oversize_record_is_refused_alone() -> None:
    sent = request(3)
    sent.resource_logs[0].scope_logs[0].log_records[1].body.string_value = "x" * 2000
    logs = read_logs(sent.SerializeToString(), 1500)
    assert logs.refused == {"oversize": 1}
    assert [payload[-1:] for payload in logs.body.column("payload").to_pylist()] == [b"0", b"2"]


def test_small_request_with_large_resource_takes_bounded_memory() -> None:
    sent = request(5000, 1)
    sent.resource_logs[0].resource.attributes[0].value.string_value = "x" * 100_000
    data = sent.SerializeToString()
    logs = read_logs(data, MAX_MESSAGE_BYTES)
    assert logs.body.nbytes < max(MAX_GROWTH_FACTOR * len(data), MIN_ROOM_BYTES) * 2
    assert logs.body.num_rows + logs.refused["oversize"] == 5000
    assert logs.body.num_rows > 0


def test_request_without_records_has_no_messages() -> None:
    assert read_logs(b"", MAX_MESSAGE_BYTES).body.num_rows == 0
    assert rows(request(0)) == []


ENCODED = request(40).SerializeToString()


@given(RAW | st.tuples(st.integers(0, len(ENCODED) - 1), st.binary(min_size=1, max_size=8)))
def test_any_bytes_are_records_or_malformed(change: bytes | tuple[int, bytes]) -> None:
    data = change
    if isinstance(change, tuple):
        index, replacement = change
        data = ENCODED[:index] + replacement + ENCODED[index + len(replacement) :]
    assert isinstance(data, bytes)
    try:
        logs = read_logs(data, MAX_MESSAGE_BYTES)
    except Malformed:
        return
    logs.body.validate(full=True)


def test_records_equal_those_that_protobuf_decodes() -> None:
    sent = request(60)
    sent.MergeFrom(request(3, 1))
    read = [row["payload"].decode() for row in rows(sent)]
    assert read == [
        record.body.string_value
        for resource in sent.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


INVALID_UTF8 = b"\x0a\x01\xff"  # an AnyValue: string_value "\xff"
TOO_DEEP = b""
for _ in range(200):  # protobuf itself stops at 100 levels
    TOO_DEEP = encoded(5, 2, encoded(1, 2, TOO_DEEP))

BAD_VALUES = {
    "list with invalid UTF-8": encoded(5, 2, encoded(1, 2, INVALID_UTF8)),
    "map with invalid UTF-8": encoded(6, 2, encoded(1, 2, encoded(1, 2, b"k") + encoded(2, 2, INVALID_UTF8))),
    "list that is cut off": encoded(5, 2, b"\x0a\x05x"),
    "nested too deep": TOO_DEEP,
    "group": b"\x0b",
    "number without an end": b"\x18" + b"\xff" * 11,
}


def with_bad_record(bad: bytes, good: int) -> bytes:
    """Return a request whose second record, of ``good`` + 1, has ``bad`` as its body."""
    records = [encoded(2, 2, encoded(5, 2, encoded(1, 2, b"good %d" % number))) for number in range(good)]
    records.insert(1, encoded(2, 2, encoded(5, 2, bad)))
    return encoded(1, 2, encoded(2, 2, b"".join(records)))


@pytest.mark.parametrize("good", [2, 300])
@pytest.mark.parametrize("bad", BAD_VALUES.values(), ids=BAD_VALUES.keys())
def test_record_with_bad_value_is_refused_alone(bad: bytes, good: int) -> None:
    logs = read_logs(with_bad_record(bad, good), MAX_MESSAGE_BYTES)
    assert logs.body["payload"].to_pylist() == [b"good %d" % number for number in range(good)]
    assert logs.refused == {"syntax": 1}
    assert logs.first_error.startswith("record 2: ")


@pytest.mark.parametrize("good", [1, 300])
def test_body_that_is_not_utf8_is_stored_as_it_was_sent(good: int) -> None:
    logs = read_logs(with_bad_record(encoded(1, 2, b"before-\xff\xfe-after"), good), MAX_MESSAGE_BYTES)
    assert logs.body["payload"].to_pylist()[1] == b"before-\xff\xfe-after"
    assert not logs.refused


@pytest.mark.parametrize("good", [1, 300])
def test_unknown_group_is_skipped(good: int) -> None:
    group = b"\x7b" + encoded(1, 2, b"x") + b"\x0b\x08\x01\x0c" + b"\x7c"
    logs = read_logs(with_bad_record(group + encoded(1, 2, b"known") + group, good) + group, MAX_MESSAGE_BYTES)
    assert logs.body["payload"].to_pylist()[1] == b"known"
    assert not logs.refused


def test_bad_attribute_refuses_its_record_alone() -> None:
    attribute = encoded(1, 2, b"k") + encoded(2, 2, BAD_VALUES["list with invalid UTF-8"])
    records = [encoded(2, 2, encoded(5, 2, encoded(1, 2, b"good"))), encoded(2, 2, encoded(6, 2, attribute))]
    logs = read_logs(encoded(1, 2, encoded(2, 2, b"".join(records))), MAX_MESSAGE_BYTES)
    assert (logs.body["payload"].to_pylist(), logs.refused) == ([b"good"], {"syntax": 1})


@pytest.mark.parametrize("level", ["resource", "scope"])
def test_bad_resource_or_scope_refuses_its_records_alone(level: str) -> None:
    attribute = encoded(1, 2, b"k") + encoded(2, 2, BAD_VALUES["map with invalid UTF-8"])
    record = encoded(2, 2, encoded(5, 2, encoded(1, 2, b"x")))
    scope_logs = encoded(2, 2, (encoded(1, 2, encoded(3, 2, attribute)) if level == "scope" else b"") + record * 2)
    resource = encoded(1, 2, encoded(1, 2, attribute)) if level == "resource" else b""
    data = encoded(1, 2, resource + scope_logs) + encoded(1, 2, encoded(2, 2, record))
    logs = read_logs(data, MAX_MESSAGE_BYTES)
    assert (logs.body.num_rows, logs.refused) == (1, {"syntax": 2})
    assert "resource or scope" in logs.first_error


def test_request_without_any_good_record_is_malformed() -> None:
    with pytest.raises(Malformed, match="no record can be decoded: record 1: "):
        read_logs(with_bad_record(b"\x0b", 0), MAX_MESSAGE_BYTES)


def test_search_for_bad_records_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third record is bad: beyond the limit of attempts, parts with a bad record are refused as a whole."""
    decoded = 0
    decode = records._decode

    def count_and_decode(*arguments: Any) -> Any:
        nonlocal decoded
        decoded += 1
        return decode(*arguments)

    monkeypatch.setattr(records, "_decode", count_and_decode)
    good, bad = (encoded(2, 2, encoded(5, 2, content)) for content in (encoded(1, 2, b"x"), b"\x0b"))
    data = encoded(1, 2, encoded(2, 2, (good + good + bad) * 10_000 + good))
    logs = read_logs(data, MAX_MESSAGE_BYTES)
    assert logs.body.num_rows + logs.refused["syntax"] == 30_001
    assert logs.body.num_rows > 0
    assert decoded < 2 * records.MAX_ATTEMPTS
