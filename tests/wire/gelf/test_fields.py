"""Fields of flat JSON objects, located as columns, equal the fields of a JSON parser."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.gelf.fields import LEFT_OUT, MAX_FIELDS, fields_of
from tests.fuzzed import json_texts


def fields(*messages: bytes) -> list[dict[str, str]]:
    return [dict(each) for each in fields_of(pa.array(messages, pa.binary())).to_pylist()]


def test_fields_except_the_text_are_annotations() -> None:
    message = {"version": "1.1", "host": "web-1", "short_message": "a", "full_message": "b\nc", "timestamp": 1.25}
    further = {"level": 3, "_user": 'ü "x" \\', "_ok": True, "_nothing": None, "_list": [1, {"a": "b,c:d}"}]}
    annotations = fields(json.dumps(message | further).encode())
    expected = {"host": "web-1", "timestamp": "1.25", "level": "3", "_user": 'ü "x" \\', "_ok": "true"}
    assert annotations == [expected | {"_list": '[1, {"a": "b,c:d}"}]'}]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"text",
        b'"',
        b"{",
        b"}",
        b"[]",
        b"{}",
        b'{"a":1',
        b'["a"]',
        b'[{"a":1}]',
        b'{"a":1}{"b":2}',
        b'{"a}',
        b"{:}",
    ],
)
def test_text_that_is_no_object_has_no_fields_and_does_not_affect_its_neighbours(message: bytes) -> None:
    good = b'{"a": "x" ,\n "b":2}'
    assert fields(good, message, good) == [{"a": "x", "b": "2"}, {}, {"a": "x", "b": "2"}]


def test_annotations_of_a_message_are_limited() -> None:
    many = json.dumps({f"_{number}": number for number in range(MAX_FIELDS + 10)}).encode()
    assert len(fields(many)[0]) == MAX_FIELDS


def test_invalid_utf8_takes_no_more_bytes() -> None:
    assert fields(b'{"a":"\xff\xfe","b":"\\ud800","c":"\\u00fc"}') == [{"a": "??", "b": "?", "c": "ü"}]


SCALARS: Any = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=3), SCALARS, max_size=3)
OBJECTS = st.dictionaries(st.text(max_size=5).filter(lambda key: key not in LEFT_OUT), VALUES, max_size=6)


def text_of(value: Any, ascii_only: bool) -> str:
    return (
        value.encode("utf-8", "replace").decode()
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=ascii_only)
    )


@given(st.lists(OBJECTS, max_size=5), st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_fields_equal_those_of_a_parser(objects: list[dict[str, Any]], ascii_only: bool, indent: Any) -> None:
    messages = [json.dumps(each, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "replace") for each in objects]
    flat = [{k: v for k, v in each.items() if indent is None or not isinstance(v, list | dict)} for each in objects]
    for decoded, parsed in zip(fields(*messages), flat, strict=True):
        expected = {text_of(k, False): text_of(v, ascii_only) for k, v in parsed.items() if v is not None}
        assert expected.items() <= decoded.items()


@given(st.lists(json_texts("host", "level", "_a"), max_size=5))
def test_any_bytes_have_fields_or_none(messages: list[bytes]) -> None:
    column = fields_of(pa.array(messages, pa.binary()))
    column.validate(full=True)
    for message, each in zip(messages, column.to_pylist(), strict=True):
        assert sum(len(key.encode()) + len(value.encode()) for key, value in each) <= len(message)
