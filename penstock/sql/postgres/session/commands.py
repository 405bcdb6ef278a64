"""Statements that read no tables: transactions, settings, and the ends of cursors and prepared statements."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.sql.postgres.messages import SqlError
from penstock.sql.postgres.rows import data_rows
from penstock.sql.postgres.session.output import Output
from penstock.sql.postgres.session.portals import Portals
from penstock.sql.postgres.session.preparation import READ_ONLY, StatementFailed, syntax_error
from penstock.sql.postgres.session.prepared_statements import PreparedStatements
from penstock.sql.postgres.session.settings import SessionSettings
from penstock.sql.postgres.session.transactions import IDLE, TRANSACTIONS, Transaction
from penstock.sql.postgres.statements.statement import Statement
from penstock.sql.postgres.types import TEXT, TEXT_FORMAT, Column

_CHANGES = frozenset(
    {
        *("insert", "update", "delete", "merge", "create", "drop", "alter", "truncate", "grant", "revoke", "comment"),
        *("call", "do", "lock", "vacuum", "analyze", "reindex", "cluster", "refresh", "import", "security"),
        *("attach", "detach", "install", "load", "export", "checkpoint", "pragma", "use"),
    }
)
_DISCARDED = {"all": "ALL", "plans": "PLANS", "sequences": "SEQUENCES", "temp": "TEMP", "temporary": "TEMP"}
_UNSUPPORTED = frozenset({"listen", "notify", "prepare", "execute", "move"})


class Commands:
    """Carries out a session's statements that read no tables, and refuses the ones that would change something."""

    def __init__(
        self,
        output: Output,
        settings: SessionSettings,
        prepared: PreparedStatements,
        portals: Portals,
        transaction: Transaction,
    ) -> None:
        self._output, self._settings, self._transaction = output, settings, transaction
        self._prepared, self._portals = prepared, portals

    def run(self, statement: Statement) -> str:
        """Carry out a statement that reads no tables; return its tag. Raises StatementFailed."""
        words = statement.words
        verb = words[0] if words else ""
        if verb in TRANSACTIONS:
            return self._transaction.run(words)
        match verb:
            case "set":
                self._output.send(self._settings.change(statement))
                return "SET CONSTRAINTS" if words[1:2] == ["constraints"] else "SET"
            case "show":
                return self._show(words)
            case "reset":
                self._output.send(self._settings.reset(statement))
                return "RESET"
            case "discard":
                return self._discard(statement)
            case "deallocate":
                return self._deallocate(statement)
            case "unlisten":
                return "UNLISTEN"
            case "close":
                return self._close_cursor(statement)
        if verb == "alter" and words[1:2] in (["user"], ["role"]):
            raise StatementFailed(
                SqlError(READ_ONLY, "passwords are the tokens of [security.tokens]: change them there")
            )
        if verb in _CHANGES:
            raise StatementFailed(SqlError(READ_ONLY, "the tables are read-only: only SELECT is allowed"))
        if verb in _UNSUPPORTED:
            raise StatementFailed(SqlError("0A000", f"{verb.upper()} is not supported"))
        raise syntax_error(statement.significant[0])

    def _close_cursor(self, statement: Statement) -> str:
        name = statement.significant[-1]
        if name.is_word("all"):
            self._portals.close_all(held=True)
            return "CLOSE CURSOR ALL"
        self._portals.named(name.identifier, "cursor")
        self._portals.close(name.identifier)
        return "CLOSE CURSOR"

    def _show(self, words: Sequence[str]) -> str:
        name = self._settings.shown_name(words) or ""
        row = pa.record_batch({"setting": pa.array([self._settings.texts.get(name, "")], pa.string())})
        self._output.send(data_rows(row, [Column(name, TEXT)], [TEXT_FORMAT]))
        return "SHOW"

    def _discard(self, statement: Statement) -> str:
        target = " ".join(statement.words[1:])
        if target not in _DISCARDED:
            raise syntax_error(statement.significant[-1])
        if target == "all":
            if self._transaction.state != IDLE:
                raise StatementFailed(SqlError("25001", "DISCARD ALL cannot run inside a transaction block"))
            self._prepared.clear()
            self._portals.close_all(held=True)
            self._output.send(self._settings.reset_all())
        return f"DISCARD {_DISCARDED[target]}"

    def _deallocate(self, statement: Statement) -> str:
        names = [token.identifier for token in statement.significant[1:] if not token.is_word("prepare")]
        if names == ["all"]:
            self._prepared.clear()
            return "DEALLOCATE ALL"
        if names:
            self._prepared.named(names[0])
            self._prepared.close(names[0])
        return "DEALLOCATE"
