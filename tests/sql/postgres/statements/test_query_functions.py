"""Functions that BI tools use, next to what PostgreSQL itself answers."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.sql.postgres.statements.query_functions import duckdb_format, parse_format

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
    "concat(true), concat('a', lower('B'), concat('c', 1 = 2)), concat(null), concat(1, null, 2.5)",
    "concat_ws('-', b, null, 'x'), concat_ws(null, b), concat_ws(',', b, 1) from (values (true)) v(b)",
    "to_hex(-1), to_hex(255), to_hex(-1::bigint), to_hex(x), to_hex(null::int) from (values (-2)) v(x)",
    "format('%1$s %1$s %2$s', 'a', 'b'), format('%2$s %s', 'a', 'b', 'c'), format('%2$L, %1$I', 'A b', 'c''d')",
    "format('%s %s', true, 1), format('%% %s', 5), format('%s:%s', 'a', format('%s', false))",
    "format('%s' || '-%s', 'a', true), format('%s-' || x, 'a', 'b') from (values ('%s')) v(x)",
    r"quote_literal('a''b'), quote_literal('a\b'), quote_literal(null), quote_nullable(null), quote_nullable(true)",
    "split_part('a,b', ',', -1), split_part('a,b', '', 1), split_part('a', '', 2), split_part('a', null, 1)",
    *(
        f"date_trunc('century', {time}), date_trunc('Millennium', {time})"
        for time in (TIME, "timestamp '2000-12-31 23:59:59'", "timestamp '2001-01-01'", "timestamp '2000-02-29'")
    ),
    "count(*) > 400 from pg_timezone_names",
    "* from pg_timezone_names where name in ('UTC', 'Europe/Berlin', 'Asia/Kolkata', 'America/Lima') order by name",
    "' 12 '::int, '-7'::bigint, int '+5', '0'::real, 'inf'::float8, '0e400'::float8, cast('1e3' as float8)",
    "'1e-310'::float8, '-4e-324'::float8, '1e-40'::real, '3.4028235e38'::real, '1.7976931348623157e308'::float8",
    "('12')::int, ' 12 '::text::int, (('7'::text))::bigint, cast(('5') as int), ('on')::bool, 'off'::text::bool",
    "12.7::int, (12.5)::int, ('1' || '2')::int, upper('7')::int, '0.5'::text::float8, ('1.5')::numeric::int",
    "string_agg(x, null), string_agg(distinct x, null), string_agg(x, ',') from (values ('a'), ('b')) t(x)",
    "row(null, null) is null, (1, null) is null, row(1, null) is not null, (1, 2) is not null",
    "count(*) filter (where (a, b) is null), sum(case when (a, b) is not null then 1 end) "
    "from (values (1, 2), (1, null), (null, null)) t(a, b)",
    "distinct (a, b) is null from (values (1, 2), (1, null), (null, null)) t(a, b) order by 1",
    "count(*) from (values (1, 2), (1, null), (null, null)) t(a, b) group by (a, b) is null order by 1",
    "'on' as bool, '12.7' as int, (select 5 as bit), cast('1e3' as double precision) as real",
    "'101'::bit(3)::text, b'101'::text, bit '1'::text, btrim('  a '), btrim('xyaxy', 'yx'), btrim(null)",
    "'on'::bool, 'off'::bool, ' TRUE '::bool, 'tr'::boolean, bool 'yes', cast('of' as bool), 'n'::bool, '1'::bool",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_answer_is_postgresqls(
    connection: psycopg.Connection[Any], postgres: psycopg.Connection[Any], expression: str
) -> None:
    postgres.execute("set timezone to 'UTC'")
    query = f"select {expression}".encode()
    assert connection.execute(query).fetchall() == postgres.execute(query).fetchall()


@pytest.mark.parametrize(
    "expression",
    [
        *("'12.7'::int", "'1e3'::integer", "int8 '12.0'", "cast('.5' as smallint)", "E'12.'::int4", "'abc'::int"),
        *(
            "'12.7'::text::int",
            "('12.7')::int",
            "('12.7'::text)::int",
            "cast('12.7'::varchar as int)",
            "(('1e3'))::int8",
        ),
        *("'1e400'::float8", "'1e-400'::double precision", "'1e39'::real", "'o'::bool", "''::bool", "'maybe'::bool"),
        *("'1e1000000'::float8", "'-1e-1000000'::float8", "'1e99999999999999999999'::real", "'1e-46'::real"),
        *("split_part('a,b', ',', 0)", "format('%s %s', 'a')", "format('%2$s', 'a')", "format('%0$s', 'a')"),
    ],
)
def test_text_that_postgresql_refuses_is_refused(
    connection: psycopg.Connection[Any], postgres: psycopg.Connection[Any], expression: str
) -> None:
    for peer in (postgres, connection):
        with pytest.raises(psycopg.Error):
            peer.execute(f"select {expression}".encode())


@pytest.mark.parametrize("cast", ["5::bit(3)", "'101'::bit(5)", "cast(5 as bit(4))", "x::bit", "1::bit(40)"])
def test_cast_to_another_number_of_bits_is_refused(connection: psycopg.Connection[Any], cast: str) -> None:
    """DuckDB ignores the number of bits, and takes that of the number's type."""
    with pytest.raises(psycopg.Error, match=r"a cast to bit\(\d+\) of anything but a text of as many bits"):
        connection.execute(f"select {cast} from (select 1 as x)".encode())


def test_statement_of_many_parentheses_is_an_error_and_the_connection_stays(
    connection: psycopg.Connection[Any],
) -> None:
    with pytest.raises(psycopg.Error, match="expression depth"):
        connection.execute(f"select {'(' * 1200}'1'{')' * 1200}::int".encode())
    assert connection.execute("select 1").fetchall() == [(1,)]


@pytest.mark.parametrize("place", ["%-5s", "%-s", "%05s", "%2$*1$s"])
def test_width_of_a_place_in_a_format_is_refused(connection: psycopg.Connection[Any], place: str) -> None:
    with pytest.raises(psycopg.Error, match=re.escape(f"no equivalent of the width in '{place}'")):
        connection.execute(f"select format('{place}|', 'a', 'b')".encode())


def test_digits_without_end_in_a_format_are_no_place() -> None:
    """A pattern that tries each pair of ends would take an hour, in which the server answers no client."""
    assert parse_format("%" + "1" * 1_000_000) is None


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
