"""Prepared statements of one connection, within limits that one client cannot exceed."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.sql.postgres.messages import SqlError
from penstock.sql.postgres.session.preparation import StatementFailed
from penstock.sql.postgres.types import Column

MAX_PREPARED, MAX_PREPARED_CHARS = 1_000, 1 << 20
"""Limits of a connection's prepared statements."""
MAX_PREPARED_FIELDS = 100_000
"""Limit for the parameters and columns of a connection's prepared statements."""


@dataclass(slots=True)
class PreparedStatement:
    """A statement with the declared types of its parameters.

    ``columns`` is None if they depend on the parameters; ``failure`` then is the error without them.
    """

    text: str
    oids: list[int]
    columns: list[Column] | None
    failure: StatementFailed | None = None
    described: bool = False

    @property
    def fields(self) -> int:
        """The number of parameters and columns."""
        return len(self.oids) + len(self.columns or ())


class PreparedStatements:
    """Prepared statements by name; the empty name is replaced by the next statement without a name."""

    def __init__(self) -> None:
        self._statements: dict[str, PreparedStatement] = {}

    def make_room(self, name: str, text: str) -> None:
        """Check, before a statement is prepared, whether it may have this name and length. Raises StatementFailed."""
        if name and name in self._statements:
            raise StatementFailed(SqlError("42P05", f'prepared statement "{name}" already exists'))
        self._statements.pop(name, None)
        chars = sum(len(statement.text) for statement in self._statements.values())
        if len(self._statements) >= MAX_PREPARED or chars + len(text) > MAX_PREPARED_CHARS:
            raise _too_many()

    def add(self, name: str, statement: PreparedStatement) -> None:
        """Store a statement after ``make_room``. Raises StatementFailed."""
        if sum(other.fields for other in self._statements.values()) + statement.fields > MAX_PREPARED_FIELDS:
            raise _too_many()
        self._statements[name] = statement

    def named(self, name: str) -> PreparedStatement:
        """Return a statement. Raises StatementFailed if it does not exist."""
        try:
            return self._statements[name]
        except KeyError:
            raise StatementFailed(SqlError("26000", f'prepared statement "{name}" does not exist')) from None

    def close(self, name: str) -> None:
        """Remove a statement; one that does not exist is not an error, as in PostgreSQL."""
        self._statements.pop(name, None)

    def clear(self) -> None:
        """Remove all statements."""
        self._statements.clear()


def _too_many() -> StatementFailed:
    return StatementFailed(SqlError("53400", "too many prepared statements; close some"))
