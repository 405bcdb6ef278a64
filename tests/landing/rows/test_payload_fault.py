"""Positions of faults in quarantined payloads."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.rows.json_events import EventRules, event_columns
from penstock.landing.rows.payload_fault import find_fault


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
