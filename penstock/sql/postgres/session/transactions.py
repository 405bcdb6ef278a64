"""The transaction of a session. It holds no snapshot, but an error fails it, because clients rely on that."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.sql.postgres import messages
from penstock.sql.postgres.messages import SqlError
from penstock.sql.postgres.session.output import Output
from penstock.sql.postgres.session.portals import Portals
from penstock.sql.postgres.session.preparation import StatementFailed
from penstock.sql.postgres.session.settings import SessionSettings
from penstock.sql.postgres.statements.statement import Statement

IDLE, IN_TRANSACTION, FAILED = b"I", b"T", b"E"
TRANSACTIONS = {
    "begin": "BEGIN",
    "start": "START TRANSACTION",
    "commit": "COMMIT",
    "end": "COMMIT",
    "rollback": "ROLLBACK",
    "abort": "ROLLBACK",
    "savepoint": "SAVEPOINT",
    "release": "RELEASE",
}
"""Tags of the statements that begin, end and divide a transaction, by their first word."""
_ENDS_FAILED = frozenset({"rollback", "abort", "commit", "end"})


class Transaction:
    """The state of a transaction, as ReadyForQuery tells the client; its end also ends portals and settings."""

    def __init__(self, output: Output, portals: Portals, settings: SessionSettings) -> None:
        self._output, self._portals, self._settings = output, portals, settings
        self.state = IDLE

    def check(self, statement: Statement) -> None:
        """Check that a statement may run. Raises StatementFailed if the transaction has failed."""
        if self.state == FAILED and not _ENDS_FAILED.intersection(statement.words[:1]):
            text = "the transaction has failed: its statements are ignored until ROLLBACK"
            raise StatementFailed(SqlError("25P02", text))

    def fail(self) -> None:
        """Take note of an error; without a transaction it ends the portals."""
        if self.state == IN_TRANSACTION:
            self.state = FAILED
        if self.state == IDLE:
            self._portals.close_all()

    def run(self, words: Sequence[str]) -> str:
        """Carry out a statement whose first word is in ``TRANSACTIONS``; return its tag. Raises StatementFailed."""
        verb = words[0]
        tag = TRANSACTIONS[verb]
        if verb in ("savepoint", "release") or (verb == "rollback" and "to" in words):
            if self.state == IDLE:
                raise StatementFailed(SqlError("25P01", f"{tag} can only be used in transaction blocks"))
            if self.state == FAILED and verb == "rollback":
                self.state = IN_TRANSACTION
            return tag
        if verb in ("begin", "start"):
            if self.state != IDLE:
                self._output.send(messages.notice("there is already a transaction in progress", "25001"))
            self.state = IN_TRANSACTION
            self._settings.begin()
            return tag
        if self.state == IDLE:
            self._output.send(messages.notice("there is no transaction in progress", "25P01"))
        # PostgreSQL answers ROLLBACK to a COMMIT of a failed transaction.
        failed = self.state == FAILED
        self.state = IDLE
        committed = tag == "COMMIT" and not failed
        self._portals.end_transaction(committed=committed)
        self._output.send(self._settings.end(committed))
        return "ROLLBACK" if failed else tag
