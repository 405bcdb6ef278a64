"""The tables as the client of a session may read them now, and the columns of its statements."""

from __future__ import annotations

import time
from collections.abc import Sequence

from penstock.sql.catalog import read_catalog
from penstock.sql.postgres.access import Engine, Reader, RightsUnknown, WrongPassword
from penstock.sql.postgres.catalog.system_catalog import SystemCatalog
from penstock.sql.postgres.messages import SqlError
from penstock.sql.postgres.session import cursors
from penstock.sql.postgres.session.portals import Portals, unreadable
from penstock.sql.postgres.session.preparation import Preparation, StatementFailed
from penstock.sql.postgres.session.settings import SessionSettings
from penstock.sql.postgres.statements.statement import Statement
from penstock.sql.postgres.types import TEXT, Column

CATALOG_MAX_AGE_S = 30.0
"""Time after which new topics and tables are seen by the statements of a connection."""


class ClientCatalog:
    """The catalog of one session, read again once it is old or the client's rights have changed.

    ``process`` is the number of the session. Used on the session's thread only.
    """

    def __init__(self, engine: Engine, reader: Reader, user: str, settings: SessionSettings, portals: Portals) -> None:
        self._engine, self._reader, self._user = engine, reader, user
        self._settings, self._portals = settings, portals
        self.process = 0
        self._preparation: Preparation | None = None
        self._prepared_until_s = 0.0
        self._prepared_for: frozenset[str] | None = None

    def close(self) -> None:
        """Release the connection in which statements are bound."""
        if self._preparation is not None:
            self._preparation.close()

    def columns(self, statement: Statement, literals: Sequence[str]) -> list[Column]:
        """Return the columns of a statement's answer, without running it. Raises StatementFailed."""
        words = statement.words
        if words[:1] == ["show"] and (setting := self._settings.shown_name(words)):
            return [Column(setting, TEXT)]
        if words[:1] == ["fetch"]:
            cursor = self._portals.find_portal(cursors.read_fetch(statement).name)
            return cursor.columns if cursor else []
        if statement.is_query:
            preparation = self.preparation()
            return preparation.columns(preparation.translate(statement, literals))
        return []

    def preparation(self) -> Preparation:
        """Return the preparation of the tables as the client may read them now. Raises StatementFailed."""
        readable = self.readable()
        now_s = time.monotonic()
        if self._preparation is None or now_s >= self._prepared_until_s or readable != self._prepared_for:
            try:
                tables = read_catalog(self._engine.tables(readable))
            except OSError as error:
                raise unreadable(error) from None
            catalog = SystemCatalog(tables, self._user, self._settings.texts, self.process)
            preparation = Preparation(catalog)
            if self._preparation is not None:
                self._preparation.close()
            self._preparation, self._prepared_for = preparation, readable
            self._prepared_until_s = now_s + CATALOG_MAX_AGE_S
        return self._preparation

    def readable(self) -> frozenset[str] | None:
        """Return the topics that the client may read; None for all. Raises StatementFailed."""
        try:
            return self._reader.topics()
        except WrongPassword:
            raise StatementFailed(SqlError("28000", "the token was revoked")) from None
        except RightsUnknown as error:
            raise StatementFailed(SqlError("57P03", str(error))) from None
