"""Requests of few records give the same messages record by record as in columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from penstock.records import as_batch
from penstock.wire.otlp.few_records import MAX_FEW_BYTES, MAX_FEW_RECORDS, read_few
from penstock.wire.otlp.records import read_logs
from penstock.wire.protobuf import Malformed
from tests.wire.otlp.otlp_requests import request
from tests.wire.test_protobuf import encoded

MAX_MESSAGE_BYTES = 1 << 20
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string_value": TEXTS,
    "bool_value": st.booleans(),
    "int_value": st.integers(-(1 << 63), (1 << 63) - 1),
    "double_value": st.floats(),
    "bytes_value": st.binary(max_size=9),
}
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "time_unix_nano": st.integers(0, (1 << 64) - 1),
    "observed_time_unix_nano": st.integers(0, (1 << 64) - 1),
    "severity_number": st.integers(0, 24),
    "severity_text": TEXTS,
    "event_name": TEXTS,
    "trace_id": st.binary(max_size=2) | st.binary(min_size=16, max_size=16) | st.just(bytes(16)),
    "span_id": st.binary(max_size=2) | st.binary(min_size=8, max_size=8),
    "flags": st.integers(0, (1 << 32) - 1),
    "dropped_attributes_count": st.integers(0, (1 << 28) - 1),
}


@st.composite
def values(draw: Callable[[Any], Any]) -> AnyValue:
    value = AnyValue()
    kind = draw(st.sampled_from([*SCALARS, "array_value", "kvlist_value", ""]))
    if kind in SCALARS:
        setattr(value, kind, draw(SCALARS[kind]))
    elif kind:
        content = getattr(value, kind).values.add()
        element = content if kind == "array_value" else content.value
        element.string_value = draw(TEXTS)
    return value


@st.composite
def requests(draw: Callable[[Any], Any]) -> ExportLogsServiceRequest:
    sent = ExportLogsServiceRequest()
    pairs = st.lists(st.tuples(TEXTS, values()), max_size=3)
    for _ in range(draw(st.integers(0, 2))):
        resource = sent.resource_logs.add()
        for name, value in draw(pairs):
            resource.resource.attributes.add(key=name, value=value)
        for _ in range(draw(st.integers(0, 2))):
            scope = resource.scope_logs.add(schema_url=draw(TEXTS))
            scope.scope.name = draw(TEXTS)
            for _ in range(draw(st.integers(0, 5))):
                fields = {name: draw(field) for name, field in FIELDS.items() if draw(st.booleans())}
                record = scope.log_records.add(**fields)
                if draw(st.booleans()):
                    record.body.CopyFrom(draw(values()))
                for name, value in draw(pairs):
                    record.attributes.add(key=name, value=value)
    return sent


def assert_same(data: bytes) -> bool:
    """Check that both ways agree if the fast one decodes ``data``; report whether it does."""
    few = read_few(data, MAX_MESSAGE_BYTES)
    if few is None:
        return False
    many = read_logs(data, MAX_MESSAGE_BYTES)
    assert as_batch(few.body).equals(as_batch(many.body))
    assert (few.refused, few.malformed_ids, few.first_error) == (many.refused, many.malformed_ids, many.first_error)
    return True


@given(requests())
def test_any_ordinary_request_is_decoded_as_in_columns(sent: ExportLogsServiceRequest) -> None:
    has_records = any(scope.log_records for resource in sent.resource_logs for scope in resource.scope_logs)
    assert assert_same(sent.SerializeToString()) is has_records


ENCODED = request(2).SerializeToString()


@given(
    st.binary(max_size=60)
    | st.tuples(st.integers(0, len(ENCODED) - 1), st.binary(min_size=1, max_size=3)).map(
        lambda change: ENCODED[: change[0]] + change[1] + ENCODED[change[0] + len(change[1]) :]
    )
)
def test_any_bytes_are_decoded_as_in_columns_or_left_to_them(data: bytes) -> None:
    try:
        assert_same(data)
    except Malformed as error:  # the columns refuse what was decoded here
        raise AssertionError(data) from error


@pytest.mark.parametrize("count", [1, MAX_FEW_RECORDS])
def test_request_of_an_sdk_takes_the_fast_path(count: int) -> None:
    assert assert_same(request(count, 2).SerializeToString())


@pytest.mark.parametrize("count", [1, MAX_FEW_RECORDS])
def test_record_without_annotations_has_none(count: int) -> None:
    sent = ExportLogsServiceRequest()
    records = sent.resource_logs.add().scope_logs.add().log_records
    for _ in range(count):
        records.add().body.string_value = "text"
    assert assert_same(sent.SerializeToString())
    few = read_few(sent.SerializeToString(), MAX_MESSAGE_BYTES)
    assert few is not None
    assert as_batch(few.body).column("annotations").null_count == count


TWO_BODIES = encoded(5, 2, encoded(1, 2, b"first")) + encoded(5, 2, encoded(1, 2, b"second"))
UNUSUAL = {
    "a field twice": encoded(1, 2, encoded(2, 2, encoded(2, 2, TWO_BODIES))),
    "an unknown field": encoded(1, 2, encoded(2, 2, encoded(2, 2, encoded(13, 2, b"x")))),
    "a group": encoded(1, 2, encoded(2, 2, encoded(2, 2, b"\x0b"))),
    "an explicit zero": encoded(1, 2, encoded(2, 2, encoded(2, 2, encoded(7, 0, 0)))),
    "a number that protobuf cuts": encoded(1, 2, encoded(2, 2, encoded(2, 2, encoded(7, 0, (5 << 32) + (1 << 28))))),
    "a negative severity": encoded(1, 2, encoded(2, 2, encoded(2, 2, encoded(2, 0, (1 << 64) - 1)))),
    "invalid UTF-8": encoded(1, 2, encoded(2, 2, encoded(2, 2, encoded(5, 2, encoded(1, 2, b"\xff"))))),
    "a field beyond its message": encoded(1, 2, encoded(2, 2, encoded(2, 2, b"\x2a\x05"))),
    "no record": b"",
    "too many records": request(MAX_FEW_RECORDS + 1, 0).SerializeToString(),
    "too many bytes": request(200, 2000).SerializeToString(),
    "too large with what its records share": request(MAX_FEW_RECORDS, 200).SerializeToString(),
}


@pytest.mark.parametrize("data", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_unusual_request_is_left_to_the_columns(data: bytes) -> None:
    assert read_few(data, MAX_MESSAGE_BYTES) is None


def test_request_near_the_limit_of_a_message_is_left_to_the_columns() -> None:
    data = request(1).SerializeToString()
    assert len(data) < MAX_FEW_BYTES
    assert read_few(data, 1000) is None
