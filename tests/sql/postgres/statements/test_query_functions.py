"""Functions that BI tools use, next to what PostgreSQL itself answers."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.sql.postgres.statements.query_functions import duckdb_format

TIME = "timestamp '2026-03-07 04:05:06.789012'"
EXPRESSIONS = [
    f"to_char({TIME}, 'YYYY-MM-DD HH24:MI:SS')",
    f"to_char({TIME}, 'yyyy-mm-dd\"T\"hh24:mi:ss.ms')",
    f"to_char({TIME}, 'IYYY-IW ID DDD HH12 AM')",
    f"to_char({TIME} + interval '12 hours', 'Mon DD, YY at 100%')",
    "to_char(timestamptz '2026-03-07 04:05:06+01', 'YYYYMMDDHH24MISS')",
    "to_timestamp('2026-03-07 04:05:06.789000', 'YYYY-MM-DD HH24:MI:SS.US')",
    "to_timestamp(1700000000)",
    "to_date('2026/03/07', 'YYYY/MM/DD')",
    "date_bin('15 minutes', timestamptz '2026-03-07 04:05:06Z', timestamptz '2001-01-01 00:00:00Z')",
    f"date_trunc('minute', {TIME}) - interval '5 minutes' * mod(extract(minute from {TIME})::int, 5)",
    "(timestamp 'epoch' + 1700000000 * interval '1 second')",
    "floor(extract(epoch from timestamptz '2026-03-07 04:05:06Z') / 60) * 60",
    "encode(decode('00ff', 'hex'), 'hex')",
    "encode(decode('AP8=', 'base64'), 'base64')",
    "convert_from(decode('c3a4', 'hex'), 'UTF8')",
    "octet_length('ä'), char_length('ä')",
    "initcap('hello big-WORLD ab1c')",
    "width_bucket(5.35, 0.024, 10.06, 5), width_bucket(-1, 0, 10, 5), width_bucket(10, 0, 10, 5)",
    "(select every(x > 1) from (values (1), (2)) as t(x))",
    """('{"a": {"b": [1, {"c": "x"}]}}'::json) #>> '{a,b,1,c}'""",
    """('{"a": {"b": [1, "y"]}}'::json) #>> array['a', 'b', '1']::text[]""",
    """(('{"n": 2.5}'::json) #>> '{n}')::float8 + 1""",
    """('{"a": {"b": [1,2]}}'::json) #> '{a,b}'""",
    "octet_length(decode('00ff', 'hex')), octet_length(null::text)",
    "initcap('élan ÉTÉ x9y')",
    "width_bucket(3, 10, 0, 5), width_bucket(11, 10, 0, 5), width_bucket(0, 10, 0, 5), width_bucket(10, 10, 0, 5)",
    "width_bucket(0, 0, 10, 5), width_bucket(9.99, 0, 10, 5)",
    *(f"encode(decode(repeat('61', {count}), 'hex'), 'base64')" for count in (56, 57, 58, 100, 114)),
    "date_bin('1 day', timestamp '2026-01-01 05:00', timestamp '2026-01-01')",
    "clock_timestamp() >= now() - interval '1 day'",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_answer_is_postgresqls(
    connection: psycopg.Connection[Any], postgres: psycopg.Connection[Any], expression: str
) -> None:
    postgres.execute("set timezone to 'UTC'")
    query = f"select {expression}".encode()
    assert connection.execute(query).fetchall() == postgres.execute(query).fetchall()


def test_another_encoding_than_utf8_is_refused(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.Error, match="UTF8 only"):
        connection.execute("select convert_from(decode('e4', 'hex'), 'LATIN1')")


def test_a_pattern_that_duckdb_lacks_is_refused(connection: psycopg.Connection[Any]) -> None:
    assert [duckdb_format(text) for text in ("YYYY Q", "CC", "999.99", "")] == [None, None, "999.99", None]
    with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="no equivalent of the format 'Q'"):
        connection.execute("select to_char(now(), 'Q')")
    with pytest.raises(psycopg.errors.UndefinedFunction):
        connection.execute("select to_char(now(), upper('yyyy'))")


PATTERNS = [
    *[
        "YYYY",
        "yyyy",
        "YY",
        "Y",
        "IYYY",
        "IY",
        "I",
        "IW",
        "ID",
        "IDDD",
        "MM",
        "mm",
        "MI",
        "SS",
        "SSSS",
        "MS",
        "US",
        "HH24",
        "HH12",
        "HH",
        "DDD",
        "DD",
        "D",
        "WW",
        "W",
        "J",
        "Q",
        "CC",
        "TH",
        "TZ",
        "AM",
        "PM",
        "am",
    ],
    *[
        "Mon",
        "MON",
        "mon",
        "Month",
        "MONTH",
        "FMMonth",
        "Day",
        "FMDay",
        "fmday",
        "Dy",
        "DY",
        "a.m.",
        "FMDD",
        "FMMM",
        "FMHH12",
        "FMMI",
        "FMYYYY",
        "FM",
    ],
    *(":", "-", "/", "T", "at", "%", '"quoted %"', ""),
]


@given(st.lists(st.sampled_from(PATTERNS), max_size=5))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_format_is_postgresqls_or_refused(
    connection: psycopg.Connection[Any], postgres: psycopg.Connection[Any], patterns: list[str]
) -> None:
    text = " ".join(patterns)
    if duckdb_format(text) is None:
        return
    postgres.execute("set timezone to 'UTC'")
    query = "select to_char(timestamptz '2026-03-07 16:05:06.789012Z', '" + text + "')"
    assert connection.execute(query.encode()).fetchall() == postgres.execute(query.encode()).fetchall()
