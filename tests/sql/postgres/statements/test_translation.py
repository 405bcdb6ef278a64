"""A statement as DuckDB reads it, and places in the client's text."""

from __future__ import annotations

import time

import pytest

from penstock.sql.postgres.catalog.system_tables import INFORMATION_SCHEMA_NAMES
from penstock.sql.postgres.statements.statement import split
from penstock.sql.postgres.statements.translation import translate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select * from pg_catalog.pg_class", "select * from pg_class"),
        ('select * from "pg_catalog".pg_class', "select * from pg_class"),
        ("select 'pg_catalog.x'", "select 'pg_catalog.x'"),
        ("select * from information_schema.tables", "select * from ischema.tables"),
        ("select * from information_schema.unheard_of", "select * from information_schema.unheard_of"),
        ("where a OPERATOR(pg_catalog.~) 'x' COLLATE pg_catalog.default", "where a ~ '(?s)x'  "),
        ("select current_user", "select pg_user_name()"),
        ("select 1 = any(array[1, 2", "select 1 = any(array[1, 2"),
        ("select all - array[1]", "select all - array[1]"),
        ("select any, array", "select any, array"),
        ("select 'public.t'::regclass", "select 7::regclass"),
        ("select 'none'::pg_catalog.regclass", "select CAST(NULL AS BIGINT)::regclass"),
        ("where a = ANY ('{r,\"p q\"}')", "where a = ANY (['r', 'p q'])"),
        ("where a = ANY ('{broken')", "where a = ANY ('{broken')"),
        ("select $1, '$1', \"$1\", $2", "select 'it''s', '$1', \"$1\",  5 "),
        ("select $3", "select $3"),
    ],
)
def test_statement_is_written_for_duckdb(text: str, expected: str) -> None:
    (statement,) = split(text)
    numbers = {"public.t": 7}
    translation = translate(statement, ["'it''s'", "5"], lambda _, name: numbers.get(name), INFORMATION_SCHEMA_NAMES)
    assert translation.text == expected


def test_operator_without_a_near_end_is_left_as_it_is() -> None:
    text = f"select operator({'a ' * 20})"
    assert translate(split(text)[0]).text == text


def test_position_is_the_one_in_the_clients_text() -> None:
    text = "select $1, pg_catalog.nofun(1)"
    (statement,) = split(f"select 1;{text}")[1:]
    translation = translate(statement, ["'a long text literal'"])
    position = translation.source_position(translation.text.index("nofun"))
    assert position == len("select 1;") + text.index("nofun") + 1


@pytest.mark.parametrize(
    "piece",
    [
        "to_char(",
        "#>array[",
        "#>array['a',",
        "operator(",
        "any(",
        "unnest(",
        "unnest(a,",
        "any(array[",
        "from generate_subscripts(",
    ],
)
def test_long_text_is_written_in_time_that_grows_with_its_length(piece: str) -> None:
    """Ten times the expected second: each piece must not look at all that follow."""
    (statement,) = split("select " + piece * 20_000)
    begin_s = time.process_time()
    assert translate(statement).text
    assert time.process_time() - begin_s < 10
