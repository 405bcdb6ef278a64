"""Batches of OTAP become the messages that the same records become by OTLP."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from penstock.records import as_batch
from penstock.wire.otap.batches import logs_of
from penstock.wire.otap.streams import (
    LOG_ATTRIBUTES,
    LOGS,
    RESOURCE_ATTRIBUTES,
    SCOPE_ATTRIBUTES,
    BatchArrowRecords,
    OtapStream,
    Tables,
)
from penstock.wire.otlp.records import Logs, read_logs
from penstock.wire.protobuf import MAX_FIELDS, Malformed
from penstock.wire.requests import OVERSIZE, Refused
from tests.wire.otap.otap_batches import ArrowSender, attributes_schema, logs_schema, tables_of
from tests.wire.otlp.otlp_requests import request

LIMIT, MAX_MESSAGES = 1 << 20, 100_000


def decode(tables: dict[int, pa.RecordBatch], max_bytes: int = LIMIT) -> Logs:
    return logs_of(Tables(tables, max_bytes), LIMIT, MAX_MESSAGES)


def rows(logs: Logs) -> list[tuple[bytes, list[tuple[str, str]]]]:
    return [(row["payload"], sorted(row["annotations"] or [])) for row in as_batch(logs.body).to_pylist()]


def through_arrow(sent: ExportLogsServiceRequest, **options: Any) -> Logs:
    payloads = BatchArrowRecords.FromString(ArrowSender().batch(tables_of(sent, **options))).arrow_payloads
    return logs_of(OtapStream(LIMIT).read(payloads), LIMIT, MAX_MESSAGES)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("count", [1, 3, 1000])
def test_records_are_those_of_otlp(count: int, plain: bool) -> None:
    sent = request(count)
    assert rows(through_arrow(sent, plain=plain)) == rows(read_logs(sent.SerializeToString(), LIMIT))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
WITHOUT_DOUBLES = st.one_of(
    st.builds(lambda text: {"string_value": text}, TEXTS),
    st.builds(lambda number: {"int_value": number}, st.integers(-(1 << 63), (1 << 63) - 1)),
    st.builds(lambda flag: {"bool_value": flag}, st.booleans()),
    st.builds(lambda octets: {"bytes_value": octets}, st.binary(max_size=4)),
    st.just({}),
)
"""OTLP writes doubles of a resource or scope as JSON does, with a point, and doubles of records as Arrow does."""
VALUES = WITHOUT_DOUBLES | st.builds(lambda number: {"double_value": number}, st.floats())
ATTRIBUTES = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)
SHARED_ATTRIBUTES = st.dictionaries(st.sampled_from("abc"), WITHOUT_DOUBLES, max_size=3)
RECORDS = st.fixed_dictionaries(
    {
        "time_unix_nano": st.integers(0, (1 << 63) - 1),
        "severity_number": st.integers(0, 24),
        "severity_text": TEXTS,
        "event_name": TEXTS,
        "flags": st.integers(0, (1 << 32) - 1),
        "trace_id": st.sampled_from([b"", bytes(16), bytes(range(16))]),
        "body": st.none() | VALUES,
        "attributes": ATTRIBUTES,
    }
)
SCOPES = st.tuples(TEXTS, TEXTS, SHARED_ATTRIBUTES, st.lists(RECORDS, max_size=4))
RESOURCES = st.lists(st.tuples(SHARED_ATTRIBUTES, st.lists(SCOPES, max_size=2)), max_size=3)


def built(resources: list[Any]) -> ExportLogsServiceRequest:
    sent = ExportLogsServiceRequest()
    for resource_attributes, scopes in resources:
        resource_logs = sent.resource_logs.add()
        add(resource_logs.resource.attributes, resource_attributes)
        for name, version, scope_attributes, logs in scopes:
            scope_logs = resource_logs.scope_logs.add()
            scope_logs.scope.name, scope_logs.scope.version = name, version
            add(scope_logs.scope.attributes, scope_attributes)
            for fields in logs:
                plain = {name: field for name, field in fields.items() if name not in ("attributes", "body")}
                log = scope_logs.log_records.add(**plain)
                add(log.attributes, fields["attributes"])
                if fields["body"] is not None:
                    log.body.SetInParent()
                    fill(log.body, fields["body"])
    return sent


def add(target: Any, attributes: dict[str, Any]) -> None:
    for name, fields in attributes.items():
        pair = target.add(key=name)
        fill(pair.value, fields)


def fill(target: Any, fields: dict[str, Any]) -> None:
    for name, content in fields.items():
        setattr(target, name, content)


@given(RESOURCES, st.booleans())
def test_any_records_are_those_of_otlp(resources: list[Any], plain: bool) -> None:
    sent = built(resources)
    assert rows(through_arrow(sent, plain=plain)) == rows(read_logs(sent.SerializeToString(), LIMIT))


def test_attribute_of_unknown_record_is_ignored() -> None:
    tables = tables_of(request(2), plain=True)
    attributes = [{"parent_id": 7, "key": "a", "type": 1, "str": "b"}]
    tables[LOG_ATTRIBUTES] = pa.RecordBatch.from_pylist(attributes, attributes_schema(plain=True))
    assert not any(name.startswith("attributes.") for _, pairs in rows(decode(tables)) for name, _ in pairs)


def test_map_and_list_are_json() -> None:
    attributes = [
        {"parent_id": 0, "key": "deep", "type": 5, "ser": b"\xbf\x61x\xa1\x61y\x01\xff"},
        {"parent_id": 0, "key": "names", "type": 6, "ser": b"\x9f\x61a\x61b\xff"},
    ]
    tables = tables_of(request(1), plain=True)
    tables[LOG_ATTRIBUTES] = pa.RecordBatch.from_pylist(attributes, attributes_schema(plain=True))
    ((_, pairs),) = rows(decode(tables))
    assert ("attributes.deep", '{"x":{"y":1}}') in pairs
    assert ("attributes.names", '["a","b"]') in pairs


@pytest.mark.parametrize("is_null", [False, True])
@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [(1, "str", ""), (2, "int", "0"), (3, "double", "0"), (4, "bool", "false"), (7, "bytes", "")],
)
def test_values_of_an_absent_column_are_equal_zeros(kind: int, name: str, text: str, is_null: bool) -> None:
    """A decoder that takes their differences for ids gives the attributes to other records."""
    logs = pa.RecordBatch.from_pylist([{"id": int(number > 0)} for number in range(4)], logs_schema())
    attributes = [{"parent_id": int(number > 0), "key": "a", "type": kind} for number in range(4)]
    batch = pa.RecordBatch.from_pylist(attributes, attributes_schema())
    batch = batch if is_null else batch.drop_columns([name])
    decoded = rows(decode({LOGS: logs, LOG_ATTRIBUTES: batch}))
    assert decoded == [(b"", [("attributes.a", text)])] * 4


def test_value_that_a_dictionary_has_twice_equals_itself() -> None:
    logs = pa.RecordBatch.from_pylist([{"id": int(number > 0)} for number in range(3)], logs_schema())
    attributes = [{"parent_id": int(number > 0), "key": "a", "type": 1, "str": "b"} for number in range(3)]
    batch = pa.RecordBatch.from_pylist(attributes, attributes_schema())
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.uint16()), pa.array(["b", "b"]))
    batch = batch.set_column(batch.schema.get_field_index("str"), batch.schema.field("str"), twice)
    assert rows(decode({LOGS: logs, LOG_ATTRIBUTES: batch})) == [(b"", [("attributes.a", "b")])] * 3


def test_batch_without_logs_is_empty() -> None:
    assert decode({}).body.num_rows == 0


@pytest.mark.parametrize(
    ("name", "column", "error"),
    [
        ("id", pa.array(["x"]), "id is string"),
        ("resource", pa.array([1]), "resource is int64"),
        ("severity_text", pa.array([1]), "int64 and not string"),
        ("trace_id", pa.array([b"x"]), "binary and not fixed_size_binary"),
        ("body", pa.array([{"str": "x"}]), "no type"),
        ("severity_text", pa.array([["x"]]), "list<item: string> and not string"),
        ("body", pa.array([{"type": 9}], pa.struct([("type", pa.uint8())])), "type 9"),
        ("time_unix_nano", pa.array([1], pa.timestamp("us")), r"timestamp\[us\] and not int64"),
    ],
)
def test_column_of_wrong_type_is_malformed(name: str, column: pa.Array[Any], error: str) -> None:
    with pytest.raises(Malformed, match=error):
        decode({LOGS: pa.RecordBatch.from_arrays([column], [name])})


def test_too_many_messages_are_refused() -> None:
    with pytest.raises(Refused, match="max_messages"):
        logs_of(Tables(tables_of(request(3)), 1), LIMIT, 2)


def test_growth_by_a_dictionary_is_refused() -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(50_000, np.uint8)), pa.array(["x" * 10_000]))
    with pytest.raises(Refused, match="exceed 16777216 bytes") as refused:
        decode({LOGS: pa.RecordBatch.from_arrays([texts], ["severity_text"])})
    assert refused.value.reason == OVERSIZE


def test_growth_by_a_shared_resource_is_refused() -> None:
    count = 20_000
    logs = [{"resource": {"id": 0}, "scope": {"id": number % 2}} for number in range(count)]
    attributes = [{"parent_id": 0, "key": "a", "type": 1, "str": "x" * 50_000}]
    tables = {
        LOGS: pa.RecordBatch.from_pylist(logs, logs_schema(plain=True)),
        RESOURCE_ATTRIBUTES: pa.RecordBatch.from_pylist(attributes, attributes_schema(plain=True)),
    }
    with pytest.raises(Refused, match="exceed 16777216 bytes"):
        decode(tables)


def test_attributes_of_repeated_record_ids_are_bounded() -> None:
    logs = pa.RecordBatch.from_arrays(
        [pa.array(np.zeros(50_000, np.uint16))], schema=logs_schema().empty_table().select(["id"]).schema
    )
    attributes = [{"parent_id": 0, "key": "a", "type": 0}] * 1000
    tables = {LOGS: logs, LOG_ATTRIBUTES: pa.RecordBatch.from_pylist(attributes, attributes_schema(plain=True))}
    with pytest.raises(Refused, match="attributes"):
        decode(tables)


@pytest.mark.parametrize("name", ["id", "resource", "scope"])
def test_id_without_attributes_allocates_nothing(name: str) -> None:
    ids = pa.array([4_000_000_000], pa.uint32())
    column = ids if name == "id" else pa.StructArray.from_arrays([ids], ["id"])
    attributes = pa.RecordBatch.from_pylist([{"parent_id": 1, "key": "a", "type": 0}], attributes_schema(plain=True))
    kinds = (LOG_ATTRIBUTES, RESOURCE_ATTRIBUTES, SCOPE_ATTRIBUTES)
    tables = {LOGS: pa.RecordBatch.from_arrays([column], [name]), **dict.fromkeys(kinds, attributes)}
    assert rows(decode(tables)) == [(b"", [])]


def test_items_of_lists_are_bounded() -> None:
    encoded = b"\x9f" + b"\x80" * (MAX_FIELDS + 1) + b"\xff"
    body = pa.array([{"type": 6, "ser": encoded}], pa.struct([("type", pa.uint8()), ("ser", pa.binary())]))
    with pytest.raises(Malformed, match="too many items"):
        decode({LOGS: pa.RecordBatch.from_arrays([body], ["body"])})


def test_batch_that_is_compressed_well_is_accepted() -> None:
    sent = request(5000)
    for record in sent.resource_logs[0].scope_logs[0].log_records:
        record.body.string_value = "x" * 400
    data = ArrowSender("zstd").batch(tables_of(sent))
    assert 16 * len(data) < 5000 * 400
    decoded = logs_of(OtapStream(32 << 20).read(BatchArrowRecords.FromString(data).arrow_payloads), LIMIT, MAX_MESSAGES)
    assert (decoded.body.num_rows, decoded.refused) == (5000, {})


@pytest.mark.parametrize("name", ["key", "str"])
def test_attribute_column_of_wrong_type_is_malformed(name: str) -> None:
    columns = {
        "parent_id": pa.array([0, 0], pa.uint16()),
        "type": pa.array([1, 1], pa.uint8()),
        "key": pa.array(["a"] * 2),
    }
    columns[name] = pa.array([["a"], ["a"]])
    attributes = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    with pytest.raises(Malformed, match="type"):
        decode({LOGS: tables_of(request(1))[LOGS], LOG_ATTRIBUTES: attributes})


COLUMNS = st.sampled_from(
    [
        pa.array([1, 2], pa.uint16()),
        pa.array([None, 1], pa.uint32()),
        pa.array([None, "x"]),
        pa.array([None, None]),
        pa.array(["a", "a"]).dictionary_encode(),
        pa.array([1, None], pa.uint8()),
        pa.array([{"type": 1, "str": "x"}, None]),
        pa.array([{"id": 1}, None], pa.struct([("id", pa.uint16())])),
        pa.array([1, None], pa.timestamp("ns")),
        pa.array([bytes(16), None], pa.binary(16)),
        pa.array([1.5, None]),
        pa.array([True, None]),
        pa.array([[1], None]),
        pa.array([b"\xa1", b"\xff"]),
    ]
)
LOG_NAMES, ATTRIBUTE_NAMES = logs_schema().names, attributes_schema().names


@given(
    st.dictionaries(st.sampled_from(LOG_NAMES), COLUMNS, min_size=1),
    st.dictionaries(st.sampled_from(ATTRIBUTE_NAMES), COLUMNS, min_size=1),
    st.sampled_from([LOG_ATTRIBUTES, RESOURCE_ATTRIBUTES]),
)
def test_any_columns_are_messages_or_malformed(logs: dict[str, Any], attributes: dict[str, Any], kind: int) -> None:
    tables = {
        LOGS: pa.RecordBatch.from_arrays(list(logs.values()), list(logs)),
        kind: pa.RecordBatch.from_arrays(list(attributes.values()), list(attributes)),
    }
    try:
        decoded = decode(tables)
    except (Malformed, Refused):
        return
    assert decoded.body.num_rows == 2
