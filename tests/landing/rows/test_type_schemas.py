"""Whether data is what its type promises."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.rows.type_schemas import (
    BOOLEAN,
    LIST,
    NUMBER,
    OBJECT,
    TEXT,
    WHOLE,
    Field,
    TypeSchema,
    violates_schema,
)

KINDS: dict[str, Any] = {
    WHOLE: st.integers(-(2**63), 2**63 - 1),
    NUMBER: st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False),
    BOOLEAN: st.booleans(),
    TEXT: st.text(max_size=5),
    LIST: st.lists(st.integers(0, 3), max_size=2),
    OBJECT: st.dictionaries(st.text(max_size=3), st.integers(0, 3), max_size=2),
}
ODD = ["a", "a b", "a'b", 'a"b', "a\\b", "a.b", "$", "a[0]", "*", "é", "", "~", "/", "~1", "0", "#", " "]


def meets(data: object, *fields: Field) -> bool:
    found = violates_schema(pa.array(["t"]), pa.array([json.dumps(data)]), [TypeSchema("t", fields)])
    return not found[0]


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(sorted(KINDS)), st.sampled_from(sorted(KINDS)))
def test_a_value_of_the_kind_fits_and_one_of_another_does_not(data: st.DataObject, kind: str, other: str) -> None:
    value = data.draw(KINDS[other])
    fits = (
        kind == other
        or (kind == NUMBER and other == WHOLE)
        or (kind == WHOLE and isinstance(value, int) and other == NUMBER)
    )
    assert meets({"f": value}, Field("f", kind)) is fits


@pytest.mark.parametrize("name", ODD)
def test_a_name_of_any_letters_is_that_field(name: str) -> None:
    assert meets({name: 1}, Field(name, WHOLE, required=True))
    assert not meets({name: "1", "a": "1"}, Field(name, WHOLE, required=True))
    assert not meets({name + "x": 1}, Field(name, WHOLE, required=True))


def test_a_field_may_be_missing_or_null_unless_it_is_required() -> None:
    for data in ({}, {"f": None}):
        assert meets(data, Field("f", WHOLE))
        assert not meets(data, Field("f", WHOLE, required=True))


@pytest.mark.parametrize("data", [None, [], "text", 5, True])
def test_data_has_to_be_an_object(data: object) -> None:
    assert not meets(data, Field("f", WHOLE))
    assert not violates_schema(pa.array(["other"]), pa.array([json.dumps(data)]), [TypeSchema("t", ())])[0]


def test_an_event_without_data_does_not_meet_a_schema() -> None:
    assert violates_schema(pa.array(["t"]), pa.array([None], pa.string()), [TypeSchema("t", ())])[0]


@pytest.mark.parametrize(
    ("cast", "value", "fits"),
    [
        ("INTEGER", 2**31 - 1, True),
        ("INTEGER", 2**31, False),
        ("TINYINT", -128, True),
        ("TINYINT", 128, False),
        ("DECIMAL(5, 2)", "123.45", True),
        ("DECIMAL(5, 2)", 1234, False),
        ("DATE", "2026-02-03", True),
        ("DATE", "2026-02-30", False),
        ("TIMESTAMP", "2026-01-01T00:00:00Z", True),
        ("TIMESTAMP", "yesterday", False),
    ],
)
def test_a_value_fits_into_its_type(cast: str, value: object, fits: bool) -> None:
    assert meets({"f": value}, Field("f", "", cast)) is fits


def test_each_type_has_its_schema() -> None:
    schemas = [TypeSchema("a", (Field("f", WHOLE),)), TypeSchema("b", (Field("f", TEXT),))]
    types, data = pa.array(["a", "b", "c", None, "a"]), pa.array(['{"f":"x"}'] * 4 + ['{"f":1}'])
    assert violates_schema(types, data, schemas).tolist() == [True, False, False, False, False]
