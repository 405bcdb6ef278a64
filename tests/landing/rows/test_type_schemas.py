"""Whether data is what its type promises."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.rows.engine import Mask
from penstock.landing.rows.type_schemas import (
    BOOLEAN,
    LIST,
    NUMBER,
    OBJECT,
    TEXT,
    WHOLE,
    Field,
    TypeSchema,
    find_violations,
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


def violates_schema(types: pa.Array[Any], data: pa.Array[Any], schemas: list[TypeSchema]) -> Mask:
    """Return a mask of the rows that violate a schema, which has one reason."""
    violations = find_violations(types, data, schemas)
    assert set(violations) <= {"schema_not_met"}
    return violations.get("schema_not_met", np.zeros(len(types), bool))


def meets_schema(data: object, *fields: Field) -> bool:
    violations = violates_schema(pa.array(["t"]), pa.array([json.dumps(data)]), [TypeSchema("t", fields)])
    return not violations[0]


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(sorted(KINDS)), st.sampled_from(sorted(KINDS)))
def test_value_fits_only_its_kind(data: st.DataObject, kind: str, value_kind: str) -> None:
    value = data.draw(KINDS[value_kind])
    fits = (
        kind == value_kind
        or (kind == NUMBER and value_kind == WHOLE)
        or (kind == WHOLE and isinstance(value, int) and value_kind == NUMBER)
    )
    assert meets_schema({"f": value}, Field("f", kind)) is fits


@pytest.mark.parametrize("name", ODD)
def test_field_name_may_have_any_characters(name: str) -> None:
    assert meets_schema({name: 1}, Field(name, WHOLE, required=True))
    assert not meets_schema({name: "1", "a": "1"}, Field(name, WHOLE, required=True))
    assert not meets_schema({name + "x": 1}, Field(name, WHOLE, required=True))


def test_only_required_field_must_be_present() -> None:
    for data in ({}, {"f": None}):
        assert meets_schema(data, Field("f", WHOLE))
        assert not meets_schema(data, Field("f", WHOLE, required=True))


@pytest.mark.parametrize("data", [None, [], "text", 5, True])
def test_data_must_be_an_object(data: object) -> None:
    assert not meets_schema(data, Field("f", WHOLE))
    assert not violates_schema(pa.array(["other"]), pa.array([json.dumps(data)]), [TypeSchema("t", ())])[0]


def test_event_without_data_violates_schema() -> None:
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
def test_value_fits_its_type(cast: str, value: object, fits: bool) -> None:
    assert meets_schema({"f": value}, Field("f", "", cast)) is fits


def test_event_has_to_meet_all_schemas_of_its_type() -> None:
    schemas = [TypeSchema("a", (Field("f", TEXT),)), TypeSchema("a", (Field("g", TEXT),))]
    data = pa.array(['{"f":1}', '{"g":1}', "{}"])
    assert violates_schema(pa.array(["a"] * 3), data, schemas).tolist() == [True, True, False]


def test_each_type_has_its_schema() -> None:
    schemas = [TypeSchema("a", (Field("f", WHOLE),)), TypeSchema("b", (Field("f", TEXT),))]
    types, data = pa.array(["a", "b", "c", None, "a"]), pa.array(['{"f":"x"}'] * 4 + ['{"f":1}'])
    assert violates_schema(types, data, schemas).tolist() == [True, False, False, False, False]
