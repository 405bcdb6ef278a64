"""Rows that a client fetches in portions."""

from __future__ import annotations

from penstock.sql.postgres.server import Server
from tests.sql.postgres.postgres_server import connect


def test_rows_are_fetched_in_portions(sql_server: Server) -> None:
    with connect(sql_server) as connection:
        query = "select range as n, repeat('x', 1000) as t from range(5000)"
        with connection.cursor() as cursor:
            rows = list(cursor.stream(query, size=700))
        assert [row[0] for row in rows] == list(range(5000))
