"""Casts as DuckDB reads them; their values are compared in ``test_seen_elsewhere``."""

from __future__ import annotations

import time

import pytest

from penstock.sql.postgres.parameters import BadParameter
from penstock.sql.postgres.statements.statement import split
from penstock.sql.postgres.statements.translation import translate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x::numeric", "x::VARCHAR::DECIMAL(38,12)"),
        ("x::numeric(10, 2)", "x::VARCHAR::numeric(10, 2)"),
        ("cast(a + b as decimal)", "cast((a + b )::VARCHAR AS DECIMAL(38,12))"),
        ("cast(x as numeric(5))", "cast((x )::VARCHAR AS numeric(5))"),
        ("0.0001::numeric", "0.0001::DECIMAL(4,4)"),
        ("'1e20'::numeric", "'1e20'::DECIMAL(21,0)"),
        ("'NaN'::numeric", "'NaN'::VARCHAR::DECIMAL(38,12)"),
        ("x::numeric[]", "x::DECIMAL(38,12)[]"),
        ("x::float", "x::DOUBLE"),
        ("x::float(24)", "x::float(24)"),
        ("1 as numeric, 2 as float", "1 as numeric, 2 as float"),
        ("(select 1 as numeric)", "(select 1 as numeric)"),
        (r"'\x6869'::bytea", r"'\x68\x69'::bytea"),
        (r"'\x68\x69'::bytea", r"'\x68\x69'::bytea"),
        (r"'\x6869'", r"'\x6869'"),
        ("0x1F + 0b11", "31 + 3"),
        (r"E'\u00e4\n'", r"E'ä\n'"),
        (r"E'\\u00e4'", r"E'\\u00e4'"),
        (r"'\u00e4'", r"'\u00e4'"),
        ("numeric", "numeric"),
        ("cast(numeric", "cast(numeric"),
    ],
)
def test_cast_is_written_for_duckdb(text: str, expected: str) -> None:
    (statement,) = split(f"select {text}")
    assert translate(statement).text == f"select {expected}"


@pytest.mark.parametrize("text", ["0x", "0b12", r"E'\ud800'", r"E'\UFFFFFFFF'"])
def test_literal_without_a_value_is_refused(text: str) -> None:
    (statement,) = split(f"select {text}")
    with pytest.raises(BadParameter):
        translate(statement)


@pytest.mark.parametrize("piece", ["cast(x as numeric", "x::numeric(", "'a'::bytea, ", "cast("])
def test_many_casts_take_time_that_grows_with_their_number(piece: str) -> None:
    """Ten times the expected second."""
    (statement,) = split("select " + piece * 20_000)
    begin_s = time.process_time()
    assert translate(statement).text
    assert time.process_time() - begin_s < 10
