from __future__ import annotations

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sql.error_text import explain_error

VIEWS = ["landed", "events", "syslog"]
LONG = f"select {', '.join(f'type as t{number}' for number in range(60))}"


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("select * form events", 'Parser Error: syntax error at or near "events" (line 1, column 15)'),
        (
            "select typ from events",
            'Binder Error: Referenced column "typ" not found in FROM clause! '
            'Candidate bindings: "type" (line 1, column 8)',
        ),
        (
            "select * from event",
            "Catalog Error: Table with name event does not exist (did you mean 'events'?) (line 1, column 15): "
            "Existing views: landed, events, syslog",
        ),
        (
            "select * from x1",
            "Catalog Error: Table with name x1 does not exist (line 1, column 15): "
            "Existing views: landed, events, syslog",
        ),
        (
            "select lenght(type) from events",
            'Catalog Error: Scalar Function with name lenght does not exist! Did you mean "length"? (line 1, column 8)',
        ),
        (
            'select *\nfrom events where type = "click"',
            'Binder Error: Referenced column "click" not found in FROM clause! Candidate bindings: "payload" '
            "(line 2, column 26): a text has single quotes: 'click'",
        ),
        (
            "select sum(type) from events",
            "Binder Error: No function matches the given name and argument types 'sum(VARCHAR)'. "
            "You might need to add explicit type casts (line 1, column 8)",
        ),
        (
            f"{LONG}, typo from events",
            'Binder Error: Referenced column "typo" not found in FROM clause! '
            f'Candidate bindings: "type", "payload" (line 1, column {len(LONG) + 3})',
        ),
        (
            "select 'é日本', typo from events",
            'Binder Error: Referenced column "typo" not found in FROM clause! '
            'Candidate bindings: "type", "payload" (line 1)',
        ),
        (
            "select\t\tfoo, 1\tfrom events",
            'Binder Error: Referenced column "foo" not found in FROM clause! '
            'Candidate bindings: "payload" (line 1, column 9)',
        ),
        ("\n\nselect * form\tevents", 'Parser Error: syntax error at or near "events" (line 3, column 15)'),
        (
            "select 'a'::int",
            "Conversion Error: Could not convert string 'a' to INT32 (line 1, column 11): try_cast gives NULL instead",
        ),
        (
            "select offset from events",
            'Parser Error: syntax error at or near "from" (line 1, column 15): '
            'the column "offset" needs quotes: it is an SQL keyword',
        ),
    ],
    ids=lambda text: text[:30],
)
def test_error_of_duckdb_is_one_line_with_the_place_and_the_next_step(query: str, line: str) -> None:
    with duckdb.connect() as connection:
        connection.execute("create table events(type varchar, payload blob)")
        with pytest.raises(duckdb.Error) as caught:
            connection.execute(query).fetchall()
    assert explain_error(caught.value, query, VIEWS) == line


@pytest.mark.parametrize("before", ["", "\n\n", "  ", "\t", "-- numbers\n", "/* a\nb */ ", "\n-- a\n  -- b\n "])
@pytest.mark.parametrize("limit", [None, 5])
def test_place_of_a_wrong_row_is_in_the_authors_text(before: str, limit: int | None) -> None:
    query = f"{before}select 1,\n\tcast('x' || range as int) from range(3)"
    with duckdb.connect() as connection:
        rows = connection.sql(query)
        with pytest.raises(duckdb.ConversionException) as caught:
            (rows if limit is None else rows.limit(limit)).to_arrow_table()
    place = f"(line {query.count(chr(10)) + 1}, column 2)"
    assert place in explain_error(caught.value, query, VIEWS)


def test_no_place_is_named_if_two_lines_are_the_same() -> None:
    query = "select cast('x' as int)\nunion\nselect cast('x' as int)"
    with duckdb.connect() as connection, pytest.raises(duckdb.ConversionException) as caught:
        connection.sql(query).limit(5).to_arrow_table()
    assert "line" not in explain_error(caught.value, query, VIEWS)


@given(st.text(" \t", min_size=1, max_size=99), st.text(" \t", max_size=99), st.text(" \t", max_size=99))
def test_column_is_right_among_blanks(before: str, comma: str, behind: str) -> None:
    query = f"select{before}1{comma},{before}typo{behind}"
    with duckdb.connect() as connection, pytest.raises(duckdb.Error) as caught:
        connection.execute(query)
    place = f"(line 1, column {query.index('typo') + 1})"
    assert place in explain_error(caught.value, query, VIEWS)
    assert "line" not in explain_error(caught.value, query, VIEWS, is_verbatim=False)


@given(st.text(), st.text(), st.integers(-1, 99), st.text(), st.integers(0, 99))
def test_any_error_is_one_line(words: str, query: str, number: int, excerpt: str, mark: int) -> None:
    error = duckdb.ParserException(f"{words}\n\nLINE {number}: {excerpt}\n{' ' * mark}^^")
    assert len(explain_error(error, query, VIEWS).splitlines()) <= 1
