"""Public reports on servers that speak PostgreSQL's protocol: answers that differed from PostgreSQL's without an error.

PostgreSQL itself answers the same statements, in text and in binary.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import sql

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
