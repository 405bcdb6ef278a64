"""Records of OTLP as messages: everything that is said of them stands with them, and requests grow within bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from penstock.wire.otlp.records import read_logs
from penstock.wire.protobuf import Malformed
from penstock.wire.requests import MAX_GROWTH_FACTOR, MIN_ROOM_BYTES
from tests.fuzzed import RAW
from tests.wire.otlp.otlp_requests import request

MOST = 1 << 20


def rows(made: ExportLogsServiceRequest, most: int = MOST) -> list[dict[str, Any]]:
    found = read_logs(made.SerializeToString(), most).body.to_pylist()
    return [row | {"annotations": dict(row["annotations"] or [])} for row in found]


@pytest.mark.parametrize("count", [1, 3, 100])
def test_a_record_is_its_body_and_all_that_is_said_of_it(count: int) -> None:
    found = rows(request(count))
    assert len(found) == count
    for number, row in enumerate(found):
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


def test_each_record_has_what_its_own_resource_and_scope_say() -> None:
    made = ExportLogsServiceRequest()
    for name in ("a", "b"):
        logs = made.resource_logs.add()
        one = logs.resource.attributes.add()
        one.key, one.value.string_value = "service.name", name
        for scope_name in ("x", ""):
            scope = logs.scope_logs.add()
            if scope_name:
                scope.scope.name = scope_name
                own = scope.scope.attributes.add()
                own.key, own.value.bool_value = "own", True
            scope.log_records.add().body.string_value = name + scope_name
    assert {row["payload"]: row["annotations"] for row in rows(made)} == {
        b"ax": {"scope.name": "x", "scope.attributes.own": "true", "resource.service.name": "a"},
        b"a": {"resource.service.name": "a"},
        b"bx": {"scope.name": "x", "scope.attributes.own": "true", "resource.service.name": "b"},
        b"b": {"resource.service.name": "b"},
    }


def test_values_of_all_kinds_are_texts() -> None:
    made = request(1, 0)
    record = made.resource_logs[0].scope_logs[0].log_records[0]
    del record.attributes[:]
    values: dict[str, Any] = {"bool_value": False, "int_value": -5, "double_value": 1.5, "bytes_value": b"\x00\xff"}
    for kind, value in values.items():
        one = record.attributes.add()
        one.key = kind
        setattr(one.value, kind, value)
    many = record.attributes.add()
    many.key = "list"
    many.value.array_value.values.add().int_value = 1
    many.value.array_value.values.add().string_value = "é"
    record.attributes.add().key = "nothing"
    inner = record.body.kvlist_value.values.add()
    inner.key, inner.value.double_value = "ratio", 0.25
    (row,) = rows(made)
    said = {name[11:]: text for name, text in row["annotations"].items() if name.startswith("attributes.")}
    assert said == {
        "bool_value": "false",
        "int_value": "-5",
        "double_value": "1.5",
        "bytes_value": "AP8=",
        "list": '[1,"é"]',
        "nothing": "",
    }
    assert json.loads(row["payload"]) == {"ratio": 0.25}


def test_ids_that_are_none_are_left_out() -> None:
    made = request(2, 0)
    first, second = made.resource_logs[0].scope_logs[0].log_records
    first.trace_id, first.span_id = bytes(16), b"short"
    second.trace_id, second.span_id = bytes(range(16)), b"\x01" * 8
    found = [{name: row["annotations"].get(name) for name in ("trace_id", "span_id")} for row in rows(made)]
    assert found == [{"trace_id": None, "span_id": None}, {"trace_id": bytes(range(16)).hex(), "span_id": "01" * 8}]


def test_a_record_that_is_too_large_is_refused_alone() -> None:
    made = request(3)
    made.resource_logs[0].scope_logs[0].log_records[1].body.string_value = "x" * 2000
    logs = read_logs(made.SerializeToString(), 1500)
    assert logs.refused == {"oversize": 1}
    assert [payload[-1:] for payload in logs.body.column("payload").to_pylist()] == [b"0", b"2"]


def test_a_small_request_with_a_large_resource_takes_bounded_memory() -> None:
    made = request(5000, 1)
    made.resource_logs[0].resource.attributes[0].value.string_value = "x" * 100_000
    data = made.SerializeToString()
    logs = read_logs(data, MOST)
    assert logs.body.nbytes < max(MAX_GROWTH_FACTOR * len(data), MIN_ROOM_BYTES) * 2
    assert logs.body.num_rows + logs.refused["oversize"] == 5000
    assert logs.body.num_rows > 0


def test_a_request_without_records_has_no_messages() -> None:
    assert read_logs(b"", MOST).body.num_rows == 0
    assert rows(request(0)) == []


SPOILT = request(40).SerializeToString()


@given(RAW | st.tuples(st.integers(0, len(SPOILT) - 1), st.binary(min_size=1, max_size=8)))
def test_any_bytes_are_records_or_malformed(given: bytes | tuple[int, bytes]) -> None:
    data = given
    if isinstance(given, tuple):
        at, spoilt = given
        data = SPOILT[:at] + spoilt + SPOILT[at + len(spoilt) :]
    assert isinstance(data, bytes)
    try:
        logs = read_logs(data, MOST)
    except Malformed:
        return
    logs.body.validate(full=True)


def test_what_is_read_is_what_protobuf_reads() -> None:
    made = request(60)
    made.MergeFrom(request(3, 1))
    read = [row["payload"].decode() for row in rows(made)]
    assert read == [
        record.body.string_value
        for resource in made.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]
