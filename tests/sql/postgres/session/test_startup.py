"""The start-up of a session."""

from __future__ import annotations

import psycopg
import pytest

from penstock.sql.postgres.server import Server
from tests.sql.postgres.postgres_server import connect


def test_other_database_is_refused(sql_server: Server) -> None:
    with pytest.raises(psycopg.OperationalError, match='database "other" does not exist; the only one is "penstock"'):
        connect(sql_server, dbname="other")
