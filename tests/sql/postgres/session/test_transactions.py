"""Transactions of a session: an error fails them until they end."""

from __future__ import annotations

import pytest
from psycopg import errors

from penstock.sql.postgres.server import Server
from tests.sql.postgres.postgres_server import connect


def test_failed_transaction_is_ignored_until_it_ends(sql_server: Server) -> None:
    with connect(sql_server, autocommit=False) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
        with pytest.raises(errors.UndefinedColumn):
            connection.execute("select nocol")
        with pytest.raises(errors.InFailedSqlTransaction):
            connection.execute("select 1")
        connection.rollback()
        with connection.transaction():
            assert connection.execute("select 2").fetchone() == (2,)
        assert connection.execute("show transaction isolation level").fetchone() == ("read committed",)
