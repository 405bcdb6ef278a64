"""The answers of portals: rows of queries and cursors, copies, and the tags of other statements."""

from __future__ import annotations

from penstock.sql.postgres import messages
from penstock.sql.postgres.messages import SqlError
from penstock.sql.postgres.session import cursors
from penstock.sql.postgres.session.client_catalog import ClientCatalog
from penstock.sql.postgres.session.commands import Commands
from penstock.sql.postgres.session.copying import Copy, read_copy
from penstock.sql.postgres.session.output import Output
from penstock.sql.postgres.session.portals import Portal, Portals
from penstock.sql.postgres.session.preparation import StatementFailed
from penstock.sql.postgres.session.settings import SessionSettings
from penstock.sql.postgres.session.transactions import IDLE, Transaction
from penstock.sql.postgres.statements.statement import Statement
from penstock.sql.postgres.types import TEXT_FORMAT


class Execution:
    """Executes the portals of one session, on its thread."""

    def __init__(
        self,
        output: Output,
        settings: SessionSettings,
        portals: Portals,
        transaction: Transaction,
        catalog: ClientCatalog,
        commands: Commands,
    ) -> None:
        self._output, self._settings, self._portals = output, settings, portals
        self._transaction, self._catalog, self._commands = transaction, catalog, commands

    def execute(self, portal: Portal, max_rows: int) -> None:
        """Send the answer of a portal, at most ``max_rows`` rows of it; 0 for all. Raises StatementFailed."""
        statement = portal.statement
        if statement is None:
            self._output.send(messages.EMPTY_QUERY)
            return
        self._transaction.check(statement)
        if statement.is_query and not self._is_setting(statement):
            row_count = self._send_rows(portal, max_rows)
            if portal.batch is not None:
                self._output.send(messages.PORTAL_SUSPENDED)
                return
            tag = "EXPLAIN" if statement.words[:1] == ["explain"] else f"SELECT {row_count}"
        elif statement.words[:1] == ["declare"]:
            tag = self._declare(cursors.read_declaration(statement), portal.literals)
        elif statement.words[:1] == ["fetch"]:
            tag = self._fetch(cursors.read_fetch(statement), portal.formats)
        elif statement.words[:1] == ["copy"]:
            tag = self._copy(read_copy(statement), portal.literals)
        else:
            tag = self._commands.run(statement)
        self._output.send(messages.command_complete(tag))

    def _is_setting(self, statement: Statement) -> bool:
        return statement.words[:1] == ["show"] and self._settings.shown_name(statement.words) is not None

    def _send_rows(self, portal: Portal, max_rows: int) -> int:
        """Send the next rows of a portal, all if ``max_rows`` is 0; return how many. Raises StatementFailed."""
        sent_before = portal.sent
        preparation = self._catalog.preparation()
        self._portals.start(portal, preparation, self._catalog.readable())
        for rows in self._portals.rows(portal, max_rows):
            self._output.send(rows)
            self._output.flush_full()
        return portal.sent - sent_before

    def _declare(self, cursor: cursors.Declaration, literals: list[str]) -> str:
        if self._transaction.state == IDLE and not cursor.held:
            raise StatementFailed(SqlError("25P01", "DECLARE CURSOR can only be used in transaction blocks"))
        columns = self._catalog.columns(cursor.query, literals)
        portal = Portal(
            cursor.query, literals, columns, [TEXT_FORMAT] * len(columns), cursor.held, self._transaction.state != IDLE
        )
        self._portals.add(cursor.name, portal, "cursor")
        return "DECLARE CURSOR"

    def _fetch(self, fetch: cursors.Fetch, formats: list[int]) -> str:
        cursor = self._portals.named(fetch.name, "cursor")
        if cursor.rows is None:
            cursor.formats = formats
        elif cursor.formats != formats:
            raise StatementFailed(SqlError("0A000", "all rows of a cursor are fetched in the same formats"))
        try:
            return f"FETCH {self._send_rows(cursor, fetch.max_rows)}"
        except BaseException:
            # A cursor that failed must not end like one that has no more rows.
            self._portals.close(fetch.name)
            raise

    def _copy(self, copy: Copy, literals: list[str]) -> str:
        columns = self._catalog.columns(copy.query, literals)
        portal = Portal(copy.query, literals, columns, [copy.column_format] * len(columns), copy=copy)
        self._output.send(copy.start(columns))
        try:
            row_count = self._send_rows(portal, 0)
        finally:
            portal.close()
        self._output.send(copy.end(row_count))
        return f"COPY {row_count}"
