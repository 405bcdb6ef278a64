"""Limits of prepared statements."""

from __future__ import annotations

import pytest

from penstock.sql.postgres.session.preparation import StatementFailed
from penstock.sql.postgres.session.prepared_statements import (
    MAX_PREPARED,
    MAX_PREPARED_CHARS,
    MAX_PREPARED_FIELDS,
    PreparedStatement,
    PreparedStatements,
)


def add(statements: PreparedStatements, name: str, text: str = "SELECT 1", parameters: int = 0) -> None:
    statements.make_room(name, text)
    statements.add(name, PreparedStatement(text, [0] * parameters, []))


@pytest.mark.parametrize(
    ("text", "parameters", "allowed"),
    [("SELECT 1", 0, MAX_PREPARED), ("x" * (MAX_PREPARED_CHARS // 4), 0, 4), ("", MAX_PREPARED_FIELDS // 2, 2)],
)
def test_statements_of_a_connection_are_limited(text: str, parameters: int, allowed: int) -> None:
    statements = PreparedStatements()
    for number in range(allowed):
        add(statements, str(number), text, parameters)
    with pytest.raises(StatementFailed) as error:
        add(statements, "further", text or "x", parameters)
    assert error.value.error.code == "53400"
    statements.close("0")
    add(statements, "further", text, parameters)
    assert statements.named("further").text == text


def test_name_is_used_once_and_the_empty_name_again() -> None:
    statements = PreparedStatements()
    add(statements, "a")
    with pytest.raises(StatementFailed, match="already exists"):
        add(statements, "a")
    add(statements, "", "SELECT 1")
    add(statements, "", "SELECT 2")
    assert statements.named("").text == "SELECT 2"
    statements.clear()
    with pytest.raises(StatementFailed, match="does not exist"):
        statements.named("a")
