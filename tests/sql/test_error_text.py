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


@given(st.text(), st.text(), st.integers(-1, 99), st.text(), st.integers(0, 99))
def test_any_error_is_one_line(words: str, query: str, number: int, excerpt: str, mark: int) -> None:
    error = duckdb.ParserException(f"{words}\n\nLINE {number}: {excerpt}\n{' ' * mark}^^")
    assert len(explain_error(error, query, VIEWS).splitlines()) <= 1
