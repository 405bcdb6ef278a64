"""COPY to the client, next to what PostgreSQL itself answers to the same statement."""

from __future__ import annotations

import io
from typing import Any

import adbc_driver_postgresql.dbapi
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import errors, sql

from penstock.sql.postgres.server import Server
from penstock.sql.postgres.session.copying import read_copy
from penstock.sql.postgres.session.preparation import StatementFailed
from penstock.sql.postgres.statements.statement import split


def copied(connection: psycopg.Connection[Any], statement: str | sql.Composed) -> list[bytes]:
    """Return the messages with the rows."""
    query = sql.SQL(statement) if isinstance(statement, str) else statement  # type: ignore[arg-type]
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        return [bytes(message) for message in copy]


ROWS = (
    "select * from (values (1, 'plain', null, true, 1.5::float8, date '2026-11-27', decode('00ff', 'hex')), "
    "(2, '', 'a,b', false, 'nan'::float8, null, decode('', 'hex')), "
    "(3, e'a\\tb\\nc\\\\d\\r', e'q\"uo''te', null, -2, null, null), "
    "(4, '\\N', '\\.', null, 1e300, date '0044-01-01', null)) as t(n, a, b, c, d, e, f)"
)
OPTIONS = [
    "",
    "csv",
    "with csv header",
    "(format csv, header, delimiter ';', null 'nothing')",
    "(format csv, header true, force_quote *)",
    "(format csv, force_quote (a, b))",
    "csv quote '''' escape '\\'",
    "(format csv, quote '$', header false)",
    "with delimiter '|' null 'nothing'",
    "(format text, delimiter ',')",
    "with (delimiter e'\\t', null e'\\\\t')",
    "with (format binary)",
    "binary",
]


@pytest.mark.parametrize("options", OPTIONS)
def test_rows_are_the_bytes_that_postgresql_sends(
    connection: psycopg.Connection[Any], postgres: psycopg.Connection[Any], options: str
) -> None:
    statement = f"copy ({ROWS}) to stdout {options}"
    assert copied(connection, statement) == copied(postgres, statement)


def test_a_column_alone_is_quoted_if_it_would_end_the_rows(
    connection: psycopg.Connection[Any], postgres: psycopg.Connection[Any]
) -> None:
    for options in ("csv", "text", "binary"):
        for text in ("select '\\.' as a", "select null::text", "select 1 where false", "select ''"):
            statement = f"copy ({text}) to stdout (format {options})"
            assert copied(connection, statement) == copied(postgres, statement), statement


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_characters="\0", codec="utf-8")), st.none() | st.text("\\.,\"\n\r\tN;'")
        )
    )
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_texts_come_back(
    connection: psycopg.Connection[Any], postgres: psycopg.Connection[Any], pairs: list[tuple[str, str | None]]
) -> None:
    """PostgreSQL reads what was copied here into a table of its own, and has the same rows."""
    texts = [sql.SQL("({}, {}::text)").format(*pair) for pair in (*pairs, ("", None))]
    query = sql.SQL("select * from (values {}) as t(a, b)").format(sql.SQL(", ").join(texts))
    postgres.execute("create temp table if not exists back (a text, b text)")
    for form in ("text", "csv", "binary"):
        content = b"".join(copied(connection, sql.SQL("copy ({}) to stdout (format {})").format(query, sql.SQL(form))))
        postgres.execute("truncate back")
        with postgres.cursor() as cursor, cursor.copy(f"copy back from stdin (format {form})".encode()) as copy:
            copy.write(io.BytesIO(content).getvalue())
        assert postgres.execute("select * from back").fetchall() == [*pairs, ("", None)], form


def test_a_table_with_some_columns_is_copied(connection: psycopg.Connection[Any]) -> None:
    rows = connection.execute('select uuid, "offset" from events order by 1').fetchall()
    lines = b"".join(copied(connection, 'copy public.events (uuid, "offset") to stdout csv')).decode().splitlines()
    assert sorted(lines) == [f"{uuid},{offset}" for uuid, offset in rows]
    assert copied(connection, "copy events to stdout")
    with connection.cursor() as cursor, cursor.copy("copy (select 7::bigint, 'x') to stdout (format binary)") as copy:
        copy.set_types(["int8", "text"])
        assert list(copy.rows()) == [(7, "x")]


def test_adbc_reads_tables_by_copy(sql_server: Server) -> None:
    host, port = sql_server.address
    uri = f"postgresql://ann@{host}:{port}/penstock"
    with adbc_driver_postgresql.dbapi.connect(uri) as connection, connection.cursor() as cursor:
        cursor.execute('select uuid, "offset", received, payload from events order by uuid')
        table = cursor.fetch_arrow_table()
    assert [str(field.type) for field in table.schema] == ["string", "int64", "timestamp[us, tz=UTC]", "binary"]
    assert table["uuid"].to_pylist()[:2] == ["u0", "u1"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("copy events from stdin", errors.ReadOnlySqlTransaction),
        ("copy events to '/tmp/x'", errors.InsufficientPrivilege),
        ("copy events to program 'sh'", errors.InsufficientPrivilege),
        ("copy (insert into events values (1)) to stdout", errors.FeatureNotSupported),
        ("copy (with x as (select 1) insert into y select 1) to stdout", errors.ReadOnlySqlTransaction),
        ("copy (select 1; select 2) to stdout", errors.SyntaxError),
        ("copy nosuch to stdout", errors.UndefinedTable),
        ("copy topics.secret to stdout (format xml)", errors.InvalidParameterValue),
        ("copy events to stdout (header, header)", errors.SyntaxError),
        ("copy events to stdout (quote '\"')", errors.FeatureNotSupported),
        ("copy events to stdout csv delimiter '\"'", errors.InvalidParameterValue),
        ("copy events to stdout (delimiter 'ab')", errors.InvalidParameterValue),
        ("copy events to stdout (encoding 'latin1')", errors.InvalidParameterValue),
        (f"copy events to stdout (null '{'n' * 101}')", errors.InvalidParameterValue),
        ("copy events to stdout (format csv, format csv", errors.SyntaxError),
        ("copy events to stdout (delimiter e'\\x41')", errors.SyntaxError),
        ("copy (select 1", errors.SyntaxError),
        ("copy", errors.SyntaxError),
        ("copy (select 1, 'a'::int) to stdout", errors.InvalidTextRepresentation),
    ],
)
def test_refused_copy_says_why(connection: psycopg.Connection[Any], text: str, error: type[psycopg.Error]) -> None:
    with pytest.raises(error):
        copied(connection, text)
    assert connection.execute("select 1").fetchone() == (1,)


@given(st.text("copy (select 1) to stdout csv,'\"$;E\\", max_size=60) | st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for statement in split(f"copy {text}"):
        try:
            assert read_copy(statement).query.significant
        except StatementFailed:
            continue
