"""Statements before they run: their columns, and their errors with codes and positions."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.sql.postgres.postgres_server import simple


def test_columns_are_known_without_rows(connection: psycopg.Connection[Any]) -> None:
    cursor = connection.execute("select topic, payload, count(*) from landed where false group by all")
    assert [(column.name, column.type_code) for column in cursor.description or ()] == [
        ("topic", 25),
        ("payload", 17),
        ("count", 20),
    ]


@pytest.mark.parametrize(
    ("text", "error", "position"),
    [
        ("select nocol from events", errors.UndefinedColumn, 8),
        ("select * from nosuch", errors.UndefinedTable, 15),
        ("select nofun(1)", errors.UndefinedFunction, 8),
        ("selec", errors.SyntaxError, 1),
        ("select 1 +", errors.SyntaxError, 10),
        ("select cast('x' as int)", errors.InvalidTextRepresentation, None),
        ("select 1; select 2; create table x(a int)", errors.ReadOnlySqlTransaction, None),
        ("insert into events values (1)", errors.ReadOnlySqlTransaction, None),
        ("with x as (select 1) insert into y select * from x", errors.ReadOnlySqlTransaction, None),
        ("attach 'x' as y", errors.ReadOnlySqlTransaction, None),
        ("install httpfs", errors.ReadOnlySqlTransaction, None),
        ("pragma version", errors.ReadOnlySqlTransaction, None),
        ("select * from read_csv('/etc/passwd')", errors.InsufficientPrivilege, 15),
        ("select * from '/etc/passwd'", errors.UndefinedTable, 15),
        ("set client_encoding to latin1", errors.InvalidParameterValue, None),
    ],
)
def test_error_has_its_code_and_position(
    connection: psycopg.Connection[Any], text: str, error: type[psycopg.Error], position: int | None
) -> None:
    with pytest.raises(error) as caught:
        simple(connection, text)
    assert caught.value.diag.statement_position == (None if position is None else str(position))
    with pytest.raises(error):
        connection.execute(text.split("; ")[-1])
    assert connection.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize(
    ("text", "has_place"),
    [
        ("select cast('x' || uuid as int) from events", True),
        ("select cast(json_build_array(uuid)::text as int) from events", False),
        ("select 1; select cast('x' || uuid as int) from events", False),
    ],
)
def test_error_of_a_row_names_a_place_in_the_clients_text_only(
    connection: psycopg.Connection[Any], text: str, has_place: bool
) -> None:
    with pytest.raises(errors.InvalidTextRepresentation) as caught:
        simple(connection, text)
    assert ("(line 1, column 8)" in str(caught.value), "(line " in str(caught.value)) == (has_place, has_place)


@pytest.mark.parametrize(
    "text", [f"select ('{'9' * 5000}')::bignum", "select [date '9999-12-31' + 1]", "select [timestamp '290000-01-01']"]
)
def test_value_without_a_binary_form_is_an_error_of_the_statement(
    connection: psycopg.Connection[Any], text: str
) -> None:
    with connection.cursor(binary=True) as cursor, pytest.raises(errors.NumericValueOutOfRange, match="cast it"):
        cursor.execute(text)
    assert connection.execute("select 1").fetchone() == (1,)


def test_hint_lists_the_tables(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(errors.UndefinedTable) as caught:
        connection.execute("select * from nosuch")
    assert "landed, events, syslog" in str(caught.value.diag.message_hint)
