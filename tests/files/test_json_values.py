"""Strict parsing of JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given

from penstock.files.json_values import parse_json, parse_object
from tests.fuzzed import JSON, RAW


@given(JSON.filter(lambda value: "NaN" not in json.dumps(value) and "Infinity" not in json.dumps(value)))
def test_value_survives_a_round_trip(value: Any) -> None:
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value).encode()) == value


@given(RAW)
def test_arbitrary_bytes_raise_only_value_errors(data: bytes) -> None:
    try:
        parse_json(data)
    except ValueError as error:
        assert str(error)  # noqa: PT017 some bytes are a value


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "1e999", "[" * 100_000, "{}x"])
def test_parse_json_refuses_invalid_and_infinite_values(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_json(text)


def test_parse_json_accepts_exponents() -> None:
    assert math.isclose(parse_json("1.5e3"), 1500.0)


@pytest.mark.parametrize("text", ["[]", "1", '"a"', "null"])
def test_parse_object_refuses_other_types(text: str) -> None:
    with pytest.raises(ValueError, match="not an object"):
        parse_object(text)
    assert parse_object('{"a": 1}') == {"a": 1}
