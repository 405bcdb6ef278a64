"""Positions of faults in quarantined payloads."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.rows.json_events import EventRules, event_columns
from penstock.landing.rows.payload_fault import find_fault
from penstock.landing.rows.type_schemas import BOOLEAN, TEXT, WHOLE, Field, Schema, TypeSchema
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable


def judge(payload: bytes, *event_types: str) -> str:
    reason: str = event_columns(pa.array([payload], pa.binary()), EventRules(event_types))["reason"][0].as_py()
    return reason


VALID = '"type":"t","uuid":"u","timestamp":1'


@pytest.mark.parametrize(
    ("payload", "text", "marked", "character"),
    [
        (b'{"a":1,}', "not valid JSON: expecting property name enclosed in double quotes, at character 8", b"}", 8),
        ('{"é":1 "b"}'.encode(), "not valid JSON: expecting ',' delimiter, at character 8", b'"', 8),
        (b'{"a":1', "not valid JSON: expecting ',' delimiter, at character 7", b"", 7),
        (b'{"a":1} x', "not valid JSON: extra data, at character 9", b"x", 9),
        (b'{"a":"\n"}', "not valid JSON: invalid control character, at character 7", b"\n", 7),
        (b'{"b":"NaN","a":NaN}', "not valid JSON: NaN, at character 16", b"NaN", 16),
        (b'{"a":[-Infinity]}', "not valid JSON: -Infinity, at character 7", b"-Infinity", 7),
        ('{"é":"'.encode() + b'\xff"}', "not UTF-8 at byte 8", b"\xff", 8),
        (b'{"a":' + b"[" * 999 + b"]" * 999 + b"}", "nested deeper than 999 levels, at character 1004", b"[", 1004),
        (b"{}", "type is missing", None, None),
        (b'{"type":null}', "type is null, at character 9", b"null", 9),
        (b'{"type": 5}', "type is not a string of 1 to 80 bytes without control characters, at character 10", b"5", 10),
        (b'{"type":"t"}', "uuid is missing", None, None),
        (b'{"type":"t","uuid":""}', "uuid is not a string of 1 to 256 bytes, at character 20", b'""', 20),
        (b'{"type":"t","uuid":"u"}', "timestamp is missing", None, None),
        (
            '{"type":"é","uuid":"u","timestamp":"soon"}'.encode(),
            "timestamp is not a number of milliseconds within the years 1 to 9999, at character 36",
            b'"soon"',
            36,
        ),
    ],
)
def test_fault_names_text_and_position(payload: bytes, text: str, marked: bytes | None, character: int | None) -> None:
    fault = find_fault(judge(payload), payload)
    assert (fault.text, fault.character) == (text, character)
    assert (None if fault.begin is None else payload[fault.begin : fault.end]) == marked


def test_type_that_is_not_allowed_is_marked() -> None:
    payload = f"{{{VALID}}}".encode()
    fault = find_fault(judge(payload, "other"), payload)
    assert (fault.text, payload[fault.begin : fault.end]) == (
        "type is not in pipeline.event_types, at character 9",
        b'"t"',
    )


CLICK = TypedTable(
    "click", "t", (Column("ms", "bigint", "ms"), Column("id", "string", "user.id", required=True)), strict=True
)
SCHEMA = TypeSchema("t", (Field("ms", WHOLE, "INTEGER"), Field("ok", BOOLEAN), Field("name", TEXT, required=True)))


@pytest.mark.parametrize(
    ("schema", "data", "text", "marked"),
    [
        (CLICK, '{"ms":"fast"}', 'data.ms is text "fast", it must be bigint', '"fast"'),
        (CLICK, '{"ms": 1.5}', "data.ms is number 1.5, it must be bigint", "1.5"),
        (CLICK, '{"ms":1, "user": {"id": [1]}}', "data.user.id is list, it must be string", "[1]"),
        (CLICK, '{"ms":1,"user":{"id":null}}', "data.user.id is null, it must be string", "null"),
        (CLICK, '{"ms":1,"user":{}}', "data.user.id is missing, it must be string", None),
        (CLICK, '{"ms":1,"user":5}', "data.user.id is missing, it must be string", None),
        (CLICK, "[1]", "data is list, it must be object", "[1]"),
        (SCHEMA, '{"ms":3000000000}', "data.ms is number 3000000000, it must be integer", "3000000000"),
        (SCHEMA, '{"ok":"yes"}', 'data.ok is text "yes", it must be boolean', '"yes"'),
        (SCHEMA, '{"ok":true}', "data.name is missing, it must be text", None),
        (SCHEMA, '{"name":true}', "data.name is boolean true, it must be text", "true"),
    ],
)
def test_misfit_names_field_value_and_needed_type(schema: Schema, data: str, text: str, marked: str | None) -> None:
    payload = f'{{{VALID},"data":{data}}}'.encode()
    rules = EventRules((), (schema,))
    (reason,) = event_columns(pa.array([payload], pa.binary()), rules)["reason"].to_pylist()
    assert reason == "schema_not_met"
    fault = find_fault(reason, payload, rules.schemas)
    assert fault.text.partition(", at character ")[0] == text
    assert (None if fault.begin is None else payload[fault.begin : fault.end].decode()) == marked
    assert find_fault(reason, payload).text.startswith("data does not meet the schema of its type"), "schemas unknown"
    good = payload.replace(data.encode(), b'{"ms":1,"user":{"id":"u"},"name":"n"}')
    assert find_fault(reason, good, rules.schemas).text.startswith("data does not meet"), "the schema has changed since"


def test_reason_of_a_transformation_has_no_position() -> None:
    assert find_fault("transform_failed", b"{\xff").document() == {
        "text": "transform failed",
        "byte": None,
        "character": None,
    }


JSON = st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2))


@given(st.dictionaries(st.sampled_from(["type", "uuid", "timestamp"]), JSON), st.binary(max_size=3), st.integers(0, 60))
def test_any_quarantined_payload_has_a_fault_inside_it(document: dict[str, object], noise: bytes, at: int) -> None:
    text = json.dumps(document).encode()
    payload = b"{" + text[1 : 1 + at] + noise + text[1 + at :]
    reason = judge(payload)
    if reason:
        fault = find_fault(reason, payload)
        assert fault.text
        assert fault.begin is None or 0 <= fault.begin <= (fault.end or 0) <= len(payload)


def test_details_are_empty_if_the_text_only_repeats_the_reason() -> None:
    assert find_fault("too_old", b"{}").details("too_old") == ""
    assert find_fault("bad_json", b"{,}").details("bad_json").startswith("not valid JSON")
