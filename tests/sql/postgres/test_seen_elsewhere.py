"""Public reports on servers that speak PostgreSQL's protocol: answers that differed from PostgreSQL's without an error.

PostgreSQL itself answers the same statements, in text and in binary.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import sql

from penstock.sql.postgres.server import Server
from tests.sql.postgres.postgres_server import connect

Connection = psycopg.Connection[Any]

STATEMENTS = [
    (
        "metabase/metabase#67075, cube-js/cube#7492, duckdb/pg_duckdb#813 (an escape in a pattern)",
        r"select 'a_b' like 'a\_b', 'axb' like 'a\_b', 'a\b' like 'a\\b', 'A_B' ilike '%a\_b%', 'a_b' not like 'a\_b'",
    ),
    (
        "metabase/metabase#67075 (patterns that are expressions)",
        r"select 'xa_b' like 'xa\_' || 'b' and true, 'a_b' like upper('a\_b'), 'a_b' like ('a\_b')::text",
    ),
    (
        "duckdb/pg_duckdb#813 (another escape, and none)",
        r"select 'a_b' like 'a!_b' escape '!', 'a\_b' like 'a\_b' escape '', 'a_b' like null",
    ),
    (
        "duckdb/pg_duckdb#813 (patterns of a column)",
        r"select x like p from (values ('a_b', 'a\_b'), ('axb', 'a\_b')) t(x, p)",
    ),
    (
        "duckdb/pg_duckdb#935, risingwavelabs/risingwave#3204 (nulls come first in a descending order)",
        "select x from (values (1), (null), (3)) t(x) order by x desc limit 2",
    ),
    (
        "duckdb/pg_duckdb#935 (in windows and aggregates)",
        "select x, row_number() over (order by x desc), (select string_agg(y::text, ',' order by y desc) "
        "from (values (1), (2)) u(y)) from (values (1), (null)) t(x) order by 2",
    ),
    (
        "duckdb/pg_duckdb#1033, duckdb/duckdb#23512 (numeric had three digits behind the point)",
        "select 0.0000123::numeric, '1.23456789'::numeric, cast(0.1234567 as numeric), '1e20'::decimal, null::numeric",
    ),
    (
        "duckdb/pg_duckdb#1033 (digits of a double, and of JSON)",
        "select round(x::numeric, 5), cast(x + 1 as numeric), ('{\"a\": 0.00001}'::json->>'a')::numeric "
        "from (values (0.123456789::float8)) t(x)",
    ),
    (
        "duckdb/duckdb#16563, #16561 (a double was multiplied by a power of ten)",
        "select 1.45::float8::numeric(3,1), cast(2.675::float8 as numeric(10,2)), 2e14::float8::decimal(38,9)",
    ),
    (
        "duckdb/duckdb#11739, #5015 (float had four bytes)",
        "select 16777217::float, cast(1.23456789 as float), 0.07::float / 12, 1.5::float(24)",
    ),
    (
        "nao1215/filesql#1018, paradedb/pg_analytics#53, apache/pinot#19263 (bytes were the text of their digits)",
        r"select '\x00ff5c'::bytea, cast('\xABCD' as bytea), bytea '\x4142', E'\\x00ff'::bytea, '\x'::bytea",
    ),
    ("nao1215/filesql#1018 (bytes with escapes)", r"select '\101\\b\000'::bytea, '\xDE AD'::bytea"),
    (
        "ralforion/orionbelt-semantic-layer#136, brianc/node-postgres#304 (decimals in arrays)",
        "select array[12345678901234567890.12, null, 0.01], array[1.5::numeric(5,2)]",
    ),
    (
        "apache/datafusion#22263, PostHog/duckgres#145 (SIMILAR TO has its own patterns)",
        r"select 'abc' similar to '%b%', 'a.c' similar to 'a.c', 'abc' similar to 'a.c', 'a%' similar to 'a\%', "
        "'ab' similar to '(a|b)+', 'a%' similar to '_[%_]', 'abc' not similar to 'b'",
    ),
    (
        "apache/datafusion#22266, cockroachdb/cockroach#40683 (seconds without their fraction)",
        "select extract(second from timestamp '2026-01-01 00:00:12.345678'), extract(second from interval '1.5 s'), "
        "date_part('second', time '10:00:05.25'), extract(minute from timestamp '2026-01-01 00:07:12.5')::int",
    ),
    (
        "apache/datafusion#22247 (an empty array has no length)",
        "select array_length(array[]::int[], 1), array_length(array[1, 2], 1), to_hex(255), replace('abc', '', 'x')",
    ),
    (
        "MaterializeInc/materialize#26188, risingwavelabs/risingwave#7136 (the point matches the end of a line)",
        r"select E'a\nb' ~ 'a.b', E'a\nb' ~* 'A.B', E'a\nb' !~ 'a.b', 'axb' ~ E'a.b', E'a\nb' ~ '^b', "
        r"regexp_replace(E'a\nb', 'a.', 'x'), substring(E'a\nb' from 'a.b'), regexp_split_to_array(E'a\nb', 'a.')",
    ),
    (
        "MaterializeInc/materialize#26188 (its kind: letters beyond ASCII)",
        r"select 'ä1' ~ '^\w+$', 'ä' ~ '\W', 'ä-b' ~ '^[\w-]+$', 'a w' ~ '\\w', 'ab' ~ '^[[:digit:]\w]+$', "
        r"']ä' ~ '^[]\w]+$', 'é' ~ '^[^]\w]', regexp_replace('é b', '\w', 'x', 'g')",
    ),
    (
        "nao1215/filesql#1084, FirebirdSQL/firebird#7594 (a number was 0 with a name)",
        "select 0x1F, 0b101, 0o17, 1_000, x from (values (0xff)) t(x)",
    ),
    ("tobymao/sqlglot#8192 (escapes of texts)", r"select E'\u00e4\x41\U0001F600\\u00e4\u0027', e'it''s \101\n'"),
    (
        "metabase/metabase#67075 (types and elements behind a pattern)",
        r"select 'a_b' like 'a\_b'::pg_catalog.text, 'a_b' like (array['a\_b', 'x'])[1], 'a_b' like text 'a\_b', "
        r"x like p[1], 'a_b' like 'a\_b'::character varying, 'a_b' like 'a\_b'::varchar(10) and true "
        "from (values ('ab', array['a%'])) t(x, p)",
    ),
    (
        "duckdb/pg_duckdb#1033 (spellings of numbers)",
        "select .5::numeric, 1.5E-3::numeric, -1.5e-3::numeric, 1e+2::numeric, 2.::numeric, x-.25::numeric, "
        "x-1e-2::numeric, cast(.5 as numeric), cast(-1e-3 as numeric), '1.'\n'5'::numeric from (values (1)) t(x)",
    ),
    (
        "duckdb/pg_duckdb#1033 (types with their schema, in quotes, and before a text)",
        'select 1.23456789::pg_catalog.numeric, cast(x as pg_catalog.numeric), 1.23456789::"numeric", '
        "numeric '1.23456789', float '16777217', decimal(10,2) '1.235', '\\x4142'::pg_catalog.bytea "
        "from (values (0.123456789::float8)) t(x)",
    ),
    (
        "apache/datafusion#22263 (classes of characters in a pattern of SIMILAR TO)",
        r"select 'd' similar to '\d', '5' similar to '\d', 'a' similar to '\w' and true",
    ),
    (
        "apache/datafusion#22266 (the field as a text)",
        "select extract('second' from timestamp '2026-01-01 00:00:12.345678')",
    ),
    (
        "MaterializeInc/materialize#26188 (other texts, and the operator with its schema)",
        r"select E'a\nb' ~ E'\u0061.b', E'a\nb' ~ $$a.b$$, E'a\nb' ~ $a$^\w.b$a$, E'a\nb' operator(pg_catalog.~) 'a.b'",
    ),
    (
        "MaterializeInc/materialize#26188 (classes of letters beyond ASCII)",
        r"select 'ä' ~ '[[:alpha:]]', 'ä' ~ '[^[:alpha:]]', 'ä' ~ '^[[:alnum:]]', "
        r"'Ä' ~ '[[:upper:]]', 'Ä' ~ '[[:lower:]]', 'ä' ~* '[[:upper:]]', regexp_replace('aä', '[[:alpha:]]', '', 'g')",
    ),
    (
        "MaterializeInc/materialize#26188 (classes of letters in texts with escapes)",
        r"select 'ä' ~ E'[[:alpha:]]', 'ä' ~ E'^\\w$', 'é5' ~ E'^[[:alnum:]]+$', E'ä\n' ~ E'\xc3\xa4\n', "
        r"'a' ~ E'\141', E'it''s' ~ E't''s', E'a\tb' ~ E'\t', "
        r"regexp_replace('Ä-ß', E'[^[:alpha:]\u00e4]', E'\\\\', 'g')",
    ),
    (
        "metabase/metabase#67075 (patterns that are a case)",
        r"select 'a_b' like case when true then 'a\_b' else case when false then 'x' end end, "
        r"'axb' like case 1 when 1 then 'a\_b' end and true, 'a_b!' like case when true then 'a\_b' end || '!'",
    ),
    (
        "apache/datafusion#22263 (a pattern of SIMILAR TO in other quotes)",
        r"select 'a%' similar to E'a\\%', 'ab' similar to $$a_$$, 'ab' similar to $x$a.$x$, 'ab' similar to ('a%'), "
        r"E'a\nb' similar to (E'a\nb'), 'it''s' similar to E'it\'s', "
        r"'b' not similar to (('a')) and true, 'ab' similar to (null)",
    ),
    (
        "apache/datafusion#22266 (milliseconds without their fraction)",
        "select extract(milliseconds from timestamp '2026-01-01 00:00:12.345678'), "
        "extract(ms from time '10:00:05.25'), date_part('milliseconds', timestamp '2026-01-01 00:00:12.345678'), "
        "extract('msec' from interval '1.5 s')",
    ),
    (
        "duckdb/duckdb#10721, ClickHouse/pg_clickhouse#332 (a position before the text counted from its end)",
        "select substring('abc', -1, 3), substring('abc' from -1), substr('hello', -2), substr('hello', 0, 2), "
        "substring('abc' from 2 for 2147483647), substring(null, -1), substring(x from y for 2), substr('hello', 9) "
        "from (values ('hello', -1), ('äöü', 2)) t(x, y) order by y",
    ),
    (
        "duckdb/duckdb#22864, #6664 (two nulls in rows were equal, and larger than a value)",
        "select (1, null) = (1, null), (1, 2) = (1, null), (2, 2) = (1, null), (1, null::int) <> (2, null), "
        "(null, 0) > (0, 0), (1, null) < (2, 0), row(1, 2) <= row(1, 2), (1, 2, null) < (1, 2, 4), "
        "(1, 3, 0) >= (1, 2, 4)",
    ),
    (
        "duckdb/duckdb#19242 (a page behind a row had rows with nulls)",
        "select a, b from (values ('a', 'b'), ('b', 'a'), ('a', null)) t(a, b) where (a, b) > ('a', 'a') order by a",
    ),
    (
        "duckdb/duckdb#22864 (rows in joins, functions and other conditions)",
        "select count(*), coalesce((1, 2) = (1, null), false), (upper('a'), (1 + 2) * 3) = ('A', 9), "
        "(1, 2) in ((1, 2)) "
        "from (values (1, null::int)) a(x, y) join (values (1, null::int)) b(x, y) on (a.x, a.y) = (b.x, b.y)",
    ),
    (
        "duckdb/duckdb#19242 (operators of several signs in rows)",
        "select (d->>'a', 1) > ('x', 0), (1 <= 2, 'a' || 'b') = (3 != 4, 'ab'), (1 -- a note\n, 2) = (1, /* c */ 2), "
        '(1 - -1, 2::int) >= (2, 2) from (values (\'{"a":"y"}\'::json)) t(d)',
    ),
    (
        "duckdb/duckdb#10721 (a null as the position or the length)",
        "select substr(x, y), substring(x, y, z) from (values ('abc', -1, 3), ('abc', null, 3), ('abc', 2, null), "
        "(null, 1, 1), ('abc', -1, null), ('abc', -5, 2)) t(x, y, z)",
    ),
    (
        "duckdb/pg_duckdb#1037 (an interval as a zone)",
        "select t at time zone i, t at time zone 'UTC' at time zone i, timezone(interval '-05:00', t) from (values "
        "(timestamptz '2026-01-01 12:00+00', interval '05:30'), ('2026-01-01 12:00+00', null)) v(t, i)",
    ),
    (
        "apache/datafusion#25170 (an offset in the name of a zone is west of UTC)",
        "select timestamptz '2026-01-01 12:00+00' at time zone 'UTC+3', "
        "timestamp '2026-01-01 12:00' at time zone '-05:00' at time zone 'UTC', "
        "timezone('GMT-3', timestamptz 'epoch'), timezone('Europe/Berlin', timestamptz 'epoch'), "
        "timestamptz '2026-01-01 12:00+00' at time zone 'Etc/GMT+3'",
    ),
    (
        "duckdb/pg_duckdb#1037 (abbreviations had summer time, or were of another country)",
        "select x, timestamptz '2026-07-01 12:00+00' at time zone x from (values ('ACT'), ('AST'), ('ART'), ('WET'), "
        "('MET'), ('EET'), ('CST'), ('MST'), ('EST'), ('PST'), ('CET'), ('cest'), ('BST'), ('IST'), ('EDT'), ('IDT'), "
        "('AKST'), ('AKDT'), ('ADT'), ('MDT'), ('CDT'), ('PDT'), ('MEST'), ('EEST'), ('EST5EDT'), ('utc')) t(x)",
    ),
    (
        "apache/datafusion#21104 (an empty text had an element, and null as the separator none)",
        "select string_to_array('', ','), string_to_array('a,b', null), string_to_array('abc', ''), "
        "string_to_array('a,b,NULL', ',', 'NULL'), string_to_array(null, ','), string_to_array('a,,b', ',')",
    ),
    (
        "duckdb/duckdb#19487 (an empty array became null)",
        "select array_to_string(array[]::text[], ','), array_to_string(array['a', null], ','), "
        "array_to_string(array['a', null], ',', '*'), array_to_string(null::text[], ','), "
        "array_to_string(array[1, null], ',', 'x'), array_to_string(array[]::int[], '')",
    ),
    (
        "Faveod/arel-extensions#34 (a doubled percent sign without arguments)",
        "select format('100%%'), format('a'), format('%s%%', 5)",
    ),
    (
        "meziantou/Meziantou.Framework#2972 (a name is not a type)",
        "select 1 as numeric, x as float from (values (2)) t(x)",
    ),
]


@pytest.mark.parametrize("is_binary", [False, True])
@pytest.mark.parametrize(("reference", "statement"), STATEMENTS, ids=[reference for reference, _ in STATEMENTS])
def test_answer_is_the_one_of_postgresql(
    connection: Connection, postgres: Connection, reference: str, statement: str, is_binary: bool
) -> None:
    ours, theirs = (
        peer.cursor(binary=is_binary).execute(sql.SQL(statement)).fetchall()  # type: ignore[arg-type]
        for peer in (connection, postgres)
    )
    assert ours == theirs, reference


ZONE_STATEMENTS = [
    "select timestamptz '2026-07-01 02:00+00', timestamptz '2026-07-01 02:00+00'::date, now()::date = current_date",
    "select date_trunc('day', timestamptz '2026-07-01 02:00+00'), extract(hour from timestamptz 'epoch')::int",
    "select '2026-07-01 02:00'::timestamptz, timestamp '2026-07-01 02:00' < timestamptz '2026-07-01 02:00+00'",
    "select date '2026-07-01'::timestamptz, timestamptz '2026-07-01 02:00+00'::timestamp, array[timestamptz 'epoch']",
    "select timestamptz '2026-03-07 12:00-05' + interval '1 day', to_char(timestamptz 'epoch', 'YYYY-MM-DD HH24:MI')",
    "select (timestamptz '2026-07-01 02:00+00')::text, current_setting('TimeZone')",
    "select date_trunc('hour', t), count(*) from (values (timestamptz '2026-11-01 05:30+00'), ('2026-11-01 06:30+00'), "
    "('2026-07-01 02:59:59.5+00')) v(t) group by date_trunc('hour', t) order by 1",
    "select date_trunc('HOUR', timestamp '2026-11-01 01:30:10'), date_trunc('hour', interval '1 day 2:30:01.5')",
    "show timezone",
]


@pytest.mark.parametrize("zone", ["Australia/Perth", "America/New_York", "utc"])
@pytest.mark.parametrize("is_binary", [False, True])
def test_times_are_in_the_zone_of_the_session(
    sql_server: Server, postgres: Connection, zone: str, is_binary: bool
) -> None:
    """xtdb/xtdb#4903, metabase/metabase#11819: days were grouped in UTC although the client had set its zone."""
    with connect(sql_server) as connection:
        postgres.execute("reset timezone")
        for peer in (connection, postgres):
            peer.execute(f"set session timezone to '{zone}'".encode())
            peer.cursor().execute("begin").execute("set local time zone 'Asia/Tokyo'").execute("commit")
        for statement in ZONE_STATEMENTS:
            ours, theirs = (
                [tuple(map(str, row)) for row in peer.cursor(binary=is_binary).execute(statement.encode()).fetchall()]
                for peer in (connection, postgres)
            )
            assert ours == theirs, statement
        assert connection.info.parameter_status("TimeZone") == postgres.info.parameter_status("TimeZone")
        copies = []
        for peer in (connection, postgres):
            with peer.cursor().copy("copy (select timestamptz '2026-07-01 02:00+00') to stdout") as copy:
                copies.append(b"".join(copy))
        assert copies[0] == copies[1]
    postgres.execute("set timezone to 'UTC'")


def test_digits_of_arrays_are_all_sent(connection: Connection) -> None:
    """ralforion/orionbelt-semantic-layer#136: the largest numbers of DuckDB, which PostgreSQL has as numeric."""
    statement = "select [170141183460469231731687303715884105727::hugeint], [18446744073709551615::ubigint, 0]"
    for is_binary in (False, True):
        (row,) = connection.cursor(binary=is_binary).execute(statement).fetchall()
        assert row == ([Decimal(2**127 - 1)], [Decimal(2**64 - 1), Decimal(0)])


@pytest.mark.parametrize("number", ["0.0000123", "-12345678901234567890.123456789", "1.5"])
def test_number_of_a_client_that_is_cast_keeps_its_digits(connection: Connection, number: str) -> None:
    """duckdb/pg_duckdb#1033: clients of Go and Rust send ``$1::numeric``."""
    for form in ("%s", "%b", "%t"):
        cursor = connection.execute(sql.SQL(f"select {form}::numeric, cast({form} as numeric)"), [Decimal(number)] * 2)  # type: ignore[arg-type]
        assert cursor.fetchone() == (Decimal(number), Decimal(number))


def test_pattern_and_bytes_of_a_client_are_read_as_they_were_meant(connection: Connection) -> None:
    """metabase/metabase#67075, paradedb/pg_analytics#53: as parameters, and written into the statement."""
    for cursor in (connection.cursor(), psycopg.ClientCursor(connection)):
        row = cursor.execute("select 'a_b' like %s, 'axb' like %s, %s", ("a\\_b", "a\\_b", b"\x00\xff\\")).fetchone()
        assert row == (True, False, b"\x00\xff\\")


def test_pattern_of_similar_to_may_be_a_parameter(connection: Connection) -> None:
    """apache/datafusion#22263: prepared statements are described before their parameters have values."""
    for form in ("%s", "%b", "%t"):
        statement = sql.SQL(f"select 'abc' similar to {form}, 'a' not similar to {form}, 'a' similar to null")  # type: ignore[arg-type]
        assert connection.execute(statement, ["a%", "b_"]).fetchone() == (True, True, None)
        assert connection.execute(statement, [None, "a"]).fetchone() == (None, False, None)
