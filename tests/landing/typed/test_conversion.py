"""Values are the same, whether Arrow or DuckDB converts their texts."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.rows.engine import compute
from penstock.landing.typed.column_types import TYPES
from penstock.landing.typed.conversion import convert, convert_in_sql

KINDS = [*TYPES, "decimal(10,2)", "decimal(2,2)", "decimal(38,20)", "array<int>", "array<struct<a:string>>"]
DAYS = ("2026-01-31", "2026-02-30", "0000-01-01", "0001-01-01", "9999-12-31", "2026-1-1")
CLOCKS = (
    "T14:00:00Z",
    "T14:00:00.1+05:30",
    "T23:59:60Z",
    "T24:00:00Z",
    "T14:00:00.123456000Z",
    "T23:59:59-14:00",
    "T1:00Z",
)
NUMBERS = (
    "0",
    "-0",
    "1.0",
    "1e5",
    "1e400",
    "-2147483649",
    "9223372036854775807",
    "18446744073709551616",
    "99999999.99",
    "4.350",
)
STRINGS = (
    "",
    "x",
    "a\\nb",
    "\\u00e9",
    "null",
    "12.5",
    "-0.00",
    " 1",
    "1e2",
    *DAYS,
    *(day + clock for day in DAYS for clock in CLOCKS),
)
TEXTS = st.one_of(
    st.sampled_from(["null", "true", "false", "{}", "[]", "[1,null]", '[{"a":"x"}]', '[{"b":1}]', *NUMBERS]),
    st.sampled_from(STRINGS).map(lambda text: f'"{text}"'),
    st.integers(-(1 << 70), 1 << 70).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9).map(str),
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(texts=st.lists(st.none() | TEXTS, min_size=1, max_size=12))
def test_arrow_and_duckdb_convert_alike(kind: str, texts: list[str | None]) -> None:
    # The texts of fields are as DuckDB writes them.
    fields = compute({"text": "json_extract(text::JSON, '$')"}, text=pa.array(texts, pa.string()))["text"]
    converted, by_sql = convert(kind, fields), convert_in_sql(kind, "text::JSON", text=fields)
    assert converted.type == by_sql.type
    assert repr(converted.to_pylist()) == repr(by_sql.to_pylist())
