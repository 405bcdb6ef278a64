"""Messages of a session in any order, and simple queries."""

from __future__ import annotations

import socket
import struct
from typing import Any

import psycopg
import pytest

from penstock.sql.postgres import messages
from penstock.sql.postgres.messages import Incoming
from penstock.sql.postgres.server import Server
from tests.sql.postgres.postgres_server import simple


def test_simple_query_answers_the_rows_of_tables_and_log(connection: psycopg.Connection[Any]) -> None:
    assert simple(connection, 'select topic, uuid from events order by 1, "offset"') == [
        ("secret", "u2"),
        ("t", "u0"),
        ("t", "u1"),
    ]
    assert simple(connection, "select count(*) from public.landed") == [(4,)]
    assert simple(connection, "select count(*) from penstock.topics.t") == [(3,)]


def replies(address: tuple[str, int] | str, user: str, database: str, sent: bytes, ready: int) -> list[tuple[str, ...]]:
    """Return type, severity and code of the answers to ``sent`` up to the last of ``ready`` ReadyForQuery."""
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as client:
        client.settimeout(60)
        client.connect(address)
        options = f"user\0{user}\0database\0{database}\0\0".encode()
        client.sendall(struct.pack("!II", 8 + len(options), 3 << 16) + options + sent)
        answers = Incoming(client.recv)
        seen, remaining = list[tuple[str, ...]](), ready + 1
        while remaining:
            kind, fields = answers.next()
            if kind in b"EN":
                # Fields S, V and C, each with its letter.
                severity, _, code = (fields.text()[1:] for _ in range(3))
                seen.append((kind.decode(), severity, code))
            elif kind == b"Z":
                remaining -= 1
                seen.append((kind.decode(), fields.read_bytes(1).decode()))
        return seen[1:]


def query(text: str) -> bytes:
    return messages.message(b"Q", messages.text_field(text))


SYNC = messages.message(b"S")


PARSED = messages.message(b"P", b"\0select 1\0\0\0")


@pytest.mark.parametrize(
    ("sent", "ready"),
    [
        (messages.message(b"P", b"a") + SYNC + query("select 1"), 2),
        (messages.message(b"Q", b"select 1"), 1),
        (messages.message(b"D", b"Xa\0") + SYNC, 1),
        (PARSED + messages.message(b"B", b"\0\0\0\0\0\0\0\3\0\1\0\0\0\1") + SYNC, 1),
        (query("commit"), 1),
        (query("rollback"), 1),
        (query("begin") + query("begin") + query("rollback"), 3),
        (query("savepoint a") + query("release a") + query("rollback to a"), 3),
        (query("begin") + query("discard all") + query("rollback"), 3),
        (query("begin") + query("select nosuch") + PARSED + SYNC + query("rollback"), 4),
    ],
)
def test_answers_to_the_same_bytes_are_postgresqls(
    sql_server: Server, postgres: psycopg.Connection[Any], sent: bytes, ready: int
) -> None:
    theirs = postgres.info
    place = f"{theirs.host}/.s.PGSQL.{theirs.port}" if theirs.host.startswith("/") else (theirs.host, theirs.port)
    expected = replies(place, theirs.user, theirs.dbname, sent, ready)
    assert replies(sql_server.address, "ann", "penstock", sent, ready) == expected


def test_function_call_is_answered_without_a_sync(sql_server: Server) -> None:
    sent = messages.message(b"F", struct.pack("!IHHH", 1, 0, 0, 0))
    assert replies(sql_server.address, "ann", "penstock", sent, 1) == [("E", "ERROR", "0A000"), ("Z", "I")]


def test_empty_query_and_several_statements_are_answered(connection: psycopg.Connection[Any]) -> None:
    connection.execute("")
    connection.execute("-- nothing")
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute("select 1; show server_version; select 2")
        answers = [cursor.fetchall()]
        while cursor.nextset():
            answers.append(cursor.fetchall())
    assert answers == [[(1,)], [("16.0",)], [(2,)]]
