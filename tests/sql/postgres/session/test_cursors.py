"""Cursors of SQL, by psycopg's named cursors and as text, and every text that begins like one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors

from penstock.sql.postgres.server import Server
from penstock.sql.postgres.session import cursors
from penstock.sql.postgres.session.preparation import StatementFailed
from penstock.sql.postgres.statements.statement import Statement, split
from tests.sql.postgres.postgres_server import connect


@pytest.fixture
def connection(sql_server: Server) -> Iterator[psycopg.Connection[Any]]:
    with connect(sql_server) as connection:
        connection.autocommit = True
        yield connection


def test_named_cursor_of_psycopg_reads_all_rows_in_parts(connection: psycopg.Connection[Any]) -> None:
    for binary in (False, True):
        with connection.transaction(), connection.cursor("rows of 'it'", binary=binary) as cursor:
            cursor.itersize = 300
            cursor.execute("select range from range(%s)", (1_000,))
            assert cursor.fetchmany(7) == [(number,) for number in range(7)]
            assert list(cursor) == [(number,) for number in range(7, 1_000)]
            assert cursor.fetchone() is None


def simple(connection: psycopg.Connection[Any], text: str) -> tuple[str | None, list[tuple[Any, ...]]]:
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute(text)
        return cursor.statusmessage, cursor.fetchall() if cursor.description else []


def test_fetch_returns_the_next_rows_and_counts_them(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction():
        declared = simple(connection, "DECLARE c NO SCROLL CURSOR WITHOUT HOLD FOR SELECT range FROM range(5)")
        assert declared == ("DECLARE CURSOR", [])
        assert simple(connection, "FETCH c") == ("FETCH 1", [(0,)])
        assert simple(connection, "fetch forward 2 from C") == ("FETCH 2", [(1,), (2,)])
        assert simple(connection, 'FETCH ALL IN "c"') == ("FETCH 2", [(3,), (4,)])
        assert simple(connection, "FETCH 10 FROM c") == ("FETCH 0", [])
        assert simple(connection, "CLOSE c") == ("CLOSE CURSOR", [])
        with pytest.raises(errors.InvalidCursorName), connection.transaction():
            simple(connection, "FETCH c")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_cursor_ends_with_its_transaction_unless_it_is_held(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction():
        simple(connection, "DECLARE c CURSOR FOR SELECT 1")
        simple(connection, "DECLARE h CURSOR WITH HOLD FOR SELECT range FROM range(3)")
        assert simple(connection, "FETCH h") == ("FETCH 1", [(0,)])
    with pytest.raises(errors.InvalidCursorName, match='cursor "c" does not exist'):
        simple(connection, "FETCH c")
    assert simple(connection, "FETCH ALL FROM h") == ("FETCH 2", [(1,), (2,)])
    assert simple(connection, "CLOSE ALL") == ("CLOSE CURSOR ALL", [])
    with pytest.raises(errors.InvalidCursorName):
        simple(connection, "FETCH h")


def test_cursor_that_fails_does_not_end_like_one_without_more_rows(connection: psycopg.Connection[Any]) -> None:
    simple(connection, "DECLARE h CURSOR WITH HOLD FOR SELECT CAST(range::VARCHAR || 'x' AS INT) FROM range(3)")
    with pytest.raises(errors.DataError):
        simple(connection, "FETCH h")
    with pytest.raises(errors.InvalidCursorName):
        simple(connection, "FETCH h")


def test_held_cursor_of_a_transaction_that_is_rolled_back_ends(connection: psycopg.Connection[Any]) -> None:
    simple(connection, "BEGIN")
    simple(connection, "DECLARE h CURSOR WITH HOLD FOR SELECT 1")
    simple(connection, "ROLLBACK")
    assert simple(connection, "DECLARE h CURSOR WITH HOLD FOR SELECT 2") == ("DECLARE CURSOR", [])
    simple(connection, "BEGIN")
    simple(connection, "ROLLBACK")
    assert simple(connection, "FETCH h") == ("FETCH 1", [(2,)])


SLOW = "SELECT range FROM range(1000000000000) WHERE range < 100_000 OR md5(range::VARCHAR) = 'x'"


def test_cancel_request_reaches_a_cursor_that_began_before_another_query(connection: psycopg.Connection[Any]) -> None:
    simple(connection, f"DECLARE h CURSOR WITH HOLD FOR {SLOW}")
    assert simple(connection, "FETCH h") == ("FETCH 1", [(0,)])
    simple(connection, "SELECT 1")
    cancel = threading.Timer(0.5, connection.cancel_safe)
    cancel.start()
    with pytest.raises(errors.QueryCanceled, match="cancelled"):
        simple(connection, "FETCH ALL FROM h")
    cancel.join()


REFUSED: dict[str, type[psycopg.Error]] = {
    "DECLARE c CURSOR FOR SELECT 1": errors.NoActiveSqlTransaction,
    "DECLARE h CURSOR WITH HOLD FOR DELETE FROM landed": errors.SyntaxError,
    "DECLARE h CURSOR WITH HOLD FOR WITH x AS (DELETE FROM landed RETURNING *) SELECT * FROM x": errors.Error,
    "DECLARE h CURSOR WITH HOLD FOR SELECT * FROM nothing": errors.UndefinedTable,
    "DECLARE h SCROLL CURSOR WITH HOLD FOR SELECT 1": errors.FeatureNotSupported,
    "DECLARE h BINARY CURSOR WITH HOLD FOR SELECT 1": errors.FeatureNotSupported,
    "DECLARE h CURSOR WITH HOLD FOR": errors.SyntaxError,
    "DECLARE": errors.SyntaxError,
    "FETCH": errors.SyntaxError,
    "FETCH 5 x FROM c": errors.SyntaxError,
    "FETCH BACKWARD 5 FROM c": errors.ObjectNotInPrerequisiteState,
    "CLOSE nothing": errors.InvalidCursorName,
}


@pytest.mark.parametrize("text", REFUSED)
def test_cursor_refuses_impossible_commands_with_their_codes(connection: psycopg.Connection[Any], text: str) -> None:
    with pytest.raises(REFUSED[text]):
        simple(connection, text)
    assert simple(connection, "SELECT 1") == ("SELECT 1", [(1,)])


WORDS = [
    "c",
    "5",
    "-1",
    "0",
    "1e3",
    "from",
    "in",
    "all",
    "forward",
    "cursor",
    "for",
    "select",
    "scroll",
    "no",
    "hold",
    '"x',
]


READ: dict[str, Callable[[Statement], Any]] = {"declare": cursors.read_declaration, "fetch": cursors.read_fetch}


@given(st.sampled_from([*READ]), st.lists(st.sampled_from(WORDS)))
def test_any_words_are_a_cursor_or_refused(verb: str, words: list[str]) -> None:
    for statement in split(" ".join([verb, *words])):
        with contextlib.suppress(StatementFailed):
            READ[verb](statement)
