"""SQL's cursors: ``DECLARE c CURSOR FOR SELECT ...``, ``FETCH 100 FROM c``, ``CLOSE c`` (PostgreSQL, SQL commands).

Clients read large answers by them: psycopg's named cursors, PostgreSQL's postgres_fdw, the ODBC driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.sql.postgres.messages import SqlError
from penstock.sql.postgres.session.preparation import StatementFailed, syntax_error
from penstock.sql.postgres.statements.statement import Statement

_BACKWARD = frozenset({"prior", "first", "last", "absolute", "relative", "backward"})
_SYNTAX, _UNSUPPORTED, _NOT_SCROLLABLE = "42601", "0A000", "55000"


@dataclass(frozen=True, slots=True)
class Declaration:
    """A cursor that is declared. A held one outlives its transaction."""

    name: str
    query: Statement
    held: bool


@dataclass(frozen=True, slots=True)
class Fetch:
    """The next rows of a cursor that are asked for; ``max_rows`` is 0 for all."""

    name: str
    max_rows: int


def read_declaration(statement: Statement) -> Declaration:
    """Read a DECLARE. Raises StatementFailed."""
    tokens = statement.significant
    end = next((index for index, token in enumerate(tokens) if index > 1 and token.is_word("for")), 0)
    options = [token.text.lower() for token in tokens[2:end]]
    name = tokens[1].identifier if len(tokens) > 1 else ""
    if not name or "cursor" not in options or end + 1 >= len(tokens):
        raise syntax_error(statement.significant[-1])
    if "binary" in options:
        raise StatementFailed(SqlError(_UNSUPPORTED, "BINARY is not supported: clients ask for it as they fetch"))
    if "scroll" in options and "no" not in options:
        raise StatementFailed(SqlError(_UNSUPPORTED, "SCROLL is not supported: rows are fetched forward only"))
    query = Statement(statement.tokens[statement.tokens.index(tokens[end]) + 1 :])
    if not query.is_query:
        raise StatementFailed(SqlError(_SYNTAX, "a cursor is declared for a SELECT", tokens[end + 1].position + 1))
    held = "hold" in options and options[options.index("hold") - 1] == "with"
    return Declaration(name, query, held)


def read_fetch(statement: Statement) -> Fetch:
    """Read a FETCH. Raises StatementFailed."""
    words = [token.identifier or token.text for token in statement.significant[1:]]
    if not words or not statement.significant[-1].identifier:
        raise syntax_error(statement.significant[-1])
    *direction, name = words
    if direction[-1:] in (["from"], ["in"]):
        del direction[-1]
    if direction[:1] and (direction[0] in _BACKWARD or direction[-1:] == ["0"] or "-" in direction):
        raise StatementFailed(SqlError(_NOT_SCROLLABLE, "cursor can only scan forward"))
    if direction[:1] == ["forward"]:
        del direction[0]
    match direction:
        case [] | ["next"]:
            return Fetch(name, 1)
        case ["all"]:
            return Fetch(name, 0)
        case [count] if count.isascii() and count.isdecimal() and len(count) < 20:
            return Fetch(name, int(count))
    raise syntax_error(statement.significant[-1])
