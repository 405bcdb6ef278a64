"""What a column holds as it is, and where the rest goes."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.rows.engine import compute
from penstock.landing.typed.columns import TYPES, Column, TypedTable, compute_columns


def values(kind: str, *texts: str) -> list[tuple[Any, str | None]]:
    """For each JSON value what the column has, and the rest."""
    table = TypedTable("t", "t", (Column("v", kind, "v"),))
    found = compute_columns(table, pa.array([f'{{"v":{text}}}' for text in texts]))
    return list(zip(found["v"].to_pylist(), found["rest"].to_pylist(), strict=True))


def held(kind: str, *texts: str) -> list[Any]:
    """What fits; what does not is in the rest as it was."""
    pairs = values(kind, *texts)
    assert all((value is None) == (rest is not None) for value, rest in pairs)
    return [value for value, _ in pairs]


def test_each_type_holds_its_own() -> None:
    assert held("string", '"a\\u00e9\\n"', '""', "1", "[]") == ["aé\n", "", None, None]
    assert held("boolean", "true", "false", '"true"', "1") == [True, False, None, None]
    assert held("int", "0", "-2147483648", "2147483648", "1.0", '"1"') == [0, -(1 << 31), None, None, None]
    assert held("bigint", "9223372036854775807", "9223372036854775808", "1e3") == [(1 << 63) - 1, None, None]
    assert held("double", "1", "-0.5", "1e300", "1e400", '"1"') == [1.0, -0.5, 1e300, None, None]
    assert held("date", '"2026-02-28"', '"2026-02-30"', '"0000-01-01"', '"2026-2-1"') == [
        date(2026, 2, 28),
        *[None] * 3,
    ]
    assert held("json", "[1,{}]", '"a"', "1", "false") == ["[1,{}]", '"a"', "1", "false"]


def test_a_time_says_its_zone_and_lies_within_the_years_that_tables_hold() -> None:
    texts = ["2026-01-01T00:00:00.123456Z", "2026-01-01T05:30:00+05:30", "9999-12-31T23:59:59.999999Z"]
    first = datetime(2026, 1, 1, tzinfo=UTC)
    last = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
    assert held("timestamp", *map(json.dumps, texts)) == [first.replace(microsecond=123456), first, last]
    others = ["2026-01-01T00:00:00", "2026-01-01 00:00:00Z", "0001-01-01T00:00:00+05:00", "now", "2026-02-30T00:00:00Z"]
    assert held("timestamp", *map(json.dumps, others), "1770000000000") == [None] * 6


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_null_fits_and_so_does_nothing(kind: str) -> None:
    assert values(kind, "null") == [(None, None)]
    assert compute_columns(TypedTable("t", "t", (Column("v", kind, "v"),)), pa.array(["{}"]))["rest"].to_pylist() == [
        None
    ]


COLUMNS = (Column("data", "string", "data"), Column("found", "int", "found"), Column("odd", "string", 'a/b~"c.d e'))


def test_what_is_no_object_or_has_no_column_is_in_the_rest() -> None:
    texts = [
        '"text"',
        "[1]",
        "null",
        None,
        '{"data":"x","found":1,"more":{"x":null},"n":123456789012345678901234567890}',
    ]
    found = compute_columns(TypedTable("t", "t", COLUMNS), pa.array(texts, pa.string()))
    assert found["rest"].to_pylist() == [*texts[:4], '{"more":{"x":null},"n":123456789012345678901234567890}']
    assert (found["data"].to_pylist()[4], found["found"].to_pylist()[4]) == ("x", 1)
    assert compute_columns(TypedTable("t", "t"), pa.array(['{"a":1}', "{}"]))["rest"].to_pylist() == ['{"a":1}', None]


def test_fields_may_have_any_name_and_of_two_of_one_name_the_first_counts() -> None:
    texts = ['{"a/b~\\"c.d e":"x"}', '{"found":1,"found":"two"}', '{"found":"one","found":2}']
    found = compute_columns(TypedTable("t", "t", COLUMNS), pa.array(texts))
    assert found["odd"].to_pylist() == ["x", None, None]
    assert found["found"].to_pylist() == [None, 1, None]
    assert found["rest"].to_pylist()[:2] == [None, None]


def test_text_that_a_transformation_broke_stays_whole() -> None:
    found = compute_columns(TypedTable("t", "t", COLUMNS), pa.array(['{"data":"x"', "{}", '{"found":2}']))
    assert found["rest"].to_pylist() == ['{"data":"x"', None, None]
    assert found["found"].to_pylist() == [None, None, 2]


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-(1 << 65), 1 << 65) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT | st.dates().map(str),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ALL = tuple(Column(f"v_{kind}", kind, kind) for kind in TYPES)


@given(st.lists(st.dictionaries(st.sampled_from([*TYPES, "other", "é"]), JSON), min_size=1, max_size=5))
def test_nothing_is_lost_whatever_data_is(objects: list[dict[str, Any]]) -> None:
    table = TypedTable("t", "t", ALL)
    texts = pa.array([json.dumps(one, separators=(",", ":")) for one in objects])
    found = compute_columns(table, texts)
    fits = compute({"fits": table.condition}, table.given, data=texts)["fits"].to_pylist()
    for row, given_object in enumerate(objects):
        rest = json.loads(found["rest"][row].as_py() or "{}")
        back = {kind: _meant(kind, found[f"v_{kind}"][row].as_py()) for kind in TYPES}
        again = {**{kind: value for kind, value in back.items() if value is not None}, **rest}
        wanted = {name: value for name, value in given_object.items() if value is not None or name not in TYPES}
        assert _plain(again) == _plain(wanted)
        assert fits[row] == (not rest.keys() & TYPES.keys())


def _meant(kind: str, value: Any) -> Any:
    if value is None:
        return None
    return json.loads(value) if kind == "json" else str(value) if kind == "date" else value


def _plain(value: Any) -> Any:
    """Numbers as doubles: more no reader of JSON promises."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    return value if abs(value) < 1 << 53 else math.copysign(round(math.log2(abs(value)), 9), value)
