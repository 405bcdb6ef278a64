"""Statements that read no tables, as PostgreSQL answers them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.pq import DiagnosticField

from penstock.sql.postgres.server import Server
from tests.sql.postgres.postgres_server import connect


@pytest.mark.parametrize(
    "text",
    [
        *("close all", "close nosuch", "deallocate all", "deallocate prepare all", "deallocate nosuch"),
        *(
            "discard plans",
            "discard temporary",
            "discard",
            "unlisten *",
            "start transaction; end",
            "begin; abort",
            "savepoint a",
        ),
    ],
)
def test_command_has_the_tag_or_code_of_postgresql(
    sql_server: Server, postgres: psycopg.Connection[Any], text: str
) -> None:
    answers = []
    with connect(sql_server) as connection:
        for session in (connection, postgres):
            answer = session.pgconn.exec_(text.encode())
            answers.append((answer.command_status, answer.error_field(DiagnosticField.SQLSTATE)))
    assert answers[0] == answers[1]


def test_password_is_changed_elsewhere(sql_server: Server) -> None:
    """psql's ``\\password`` encrypts as libpq does, by the server's setting, and sends the statement."""
    with connect(sql_server) as connection:
        assert connection.execute("SHOW password_encryption").fetchone() == ("scram-sha-256",)
        # Named here: libpq would ask the server, which is in this process, while it holds the interpreter's lock.
        secret = connection.pgconn.encrypt_password(b"secret", b"ann", b"scram-sha-256").decode()
        assert secret.startswith("SCRAM-SHA-256")
        with pytest.raises(errors.ReadOnlySqlTransaction, match="tokens of"):
            connection.execute(f"ALTER USER ann PASSWORD '{secret}'".encode())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("listen a", errors.FeatureNotSupported),
        ("vacuum", errors.ReadOnlySqlTransaction),
    ],
)
def test_command_that_would_change_something_is_refused(
    sql_server: Server, text: str, error: type[psycopg.Error]
) -> None:
    with connect(sql_server) as connection, pytest.raises(error):
        connection.execute(text)
