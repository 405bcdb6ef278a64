"""Queries of psycopg: simple and extended, with parameters, transactions, portals and errors."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import socket
import struct
import uuid
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import errors
from psycopg.pq import DiagnosticField

from penstock.sql.postgres import messages
from penstock.sql.postgres.messages import Incoming
from penstock.sql.postgres.server import Server
from penstock.sql.postgres.settings import MAX_SETTINGS
from tests.sql.postgres.postgres_server import connect

UTC = dt.UTC


@pytest.fixture(scope="module")
def connection(sql_server: Server) -> Iterator[psycopg.Connection[Any]]:
    with connect(sql_server) as connection:
        yield connection


def simple(connection: psycopg.Connection[Any], text: str) -> list[tuple[Any, ...]]:
    with psycopg.ClientCursor(connection) as cursor:
        return cursor.execute(text).fetchall()


def test_simple_query_answers_the_rows_of_tables_and_log(connection: psycopg.Connection[Any]) -> None:
    assert simple(connection, 'select topic, uuid from events order by 1, "offset"') == [
        ("secret", "u2"),
        ("t", "u0"),
        ("t", "u1"),
    ]
    assert simple(connection, "select count(*) from public.landed") == [(4,)]
    assert simple(connection, "select count(*) from penstock.topics.t") == [(3,)]


VALUES: list[Any] = [
    *(1, 2**40, -1.5, "a'b", b"\x00\xff", True, None, dt.date(1999, 1, 2), dt.time(1, 2, 3, 4), [1, 2, None]),
    dt.datetime(2020, 1, 2, 3, 4, 5, 6),
    dt.datetime(1969, 1, 2, 3, 4, 5, tzinfo=UTC),
    dt.timedelta(days=400, seconds=5),
    *(decimal.Decimal("1.50"), decimal.Decimal("-123456789012345678901234567.125"), uuid.UUID(int=5), 2**80),
]


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("placeholder", ["%t", "%b"])
def test_parameter_comes_back_as_it_was_sent(
    connection: psycopg.Connection[Any], binary: bool, placeholder: str
) -> None:
    with connection.cursor(binary=binary) as cursor:
        row = cursor.execute(f"select {', '.join([placeholder] * len(VALUES))}", VALUES).fetchone()
    assert row is not None
    assert list(row) == VALUES


TYPES: dict[str, Any] = {
    "true": True,
    "1::utinyint": 1,
    "'-inf'::float": float("-inf"),
    "1e20::double": 1e20,
    "date '1999-12-31'": dt.date(1999, 12, 31),
    "timestamptz '2020-01-01 00:00:00+01'": dt.datetime(2019, 12, 31, 23, tzinfo=UTC),
    "interval '14 months 3 days 4 hours'": dt.timedelta(days=365 + 60 + 3, hours=4),
    "12345.6700::decimal(12,4)": decimal.Decimal("12345.6700"),
    "0.00::decimal(5,2)": decimal.Decimal("0.00"),
    "100000000::decimal(12,2)": decimal.Decimal("100000000.00"),
    "170141183460469231731687303715884105727::hugeint": decimal.Decimal(2**127 - 1),
    "[1, 2, null]": [1, 2, None],
    "['a\"b\\c', null, '']": ['a"b\\c', None, ""],
    "[date '2020-01-01']": [dt.date(2020, 1, 1)],
    "[timestamptz '2020-01-01']": [dt.datetime(2020, 1, 1, tzinfo=UTC)],
    "[1.5::decimal(4,2)]": [decimal.Decimal("1.50")],
    "[true, null]": [True, None],
    "[uuid '00000000-0000-0000-0000-000000000005']": [uuid.UUID(int=5)],
    "[]::int[]": [],
    "{'a': [{'b': null}]}": {"a": [{"b": None}]},
    "map {'k': 1}": {"k": 1},
    "'{\"a\": 1}'::json": {"a": 1},
    "null": None,
}


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_type_of_duckdb_arrives_as_a_type_of_the_client(connection: psycopg.Connection[Any], binary: bool) -> None:
    row = connection.cursor(binary=binary).execute(f"select {', '.join(TYPES)}").fetchone()
    assert row is not None
    assert list(row) == list(TYPES.values())


def test_statement_is_prepared_once_and_run_with_other_parameters(connection: psycopg.Connection[Any]) -> None:
    for number in range(3):
        rows = connection.execute("select uuid from events where uuid = %s", (f"u{number}",), prepare=True).fetchall()
        assert rows == [(f"u{number}",)]
    assert connection.execute('select count(*) from events where "offset" >= %s', ("1",)).fetchone() == (1,)


def test_columns_are_known_without_rows(connection: psycopg.Connection[Any]) -> None:
    cursor = connection.execute("select topic, payload, count(*) from landed where false group by all")
    assert [(column.name, column.type_code) for column in cursor.description or ()] == [
        ("topic", 25),
        ("payload", 17),
        ("count", 20),
    ]


@pytest.mark.parametrize(
    ("text", "error", "position"),
    [
        ("select nocol from events", errors.UndefinedColumn, 8),
        ("select * from nosuch", errors.UndefinedTable, 15),
        ("select nofun(1)", errors.UndefinedFunction, 8),
        ("selec", errors.SyntaxError, 1),
        ("select 1 +", errors.SyntaxError, 10),
        ("select cast('x' as int)", errors.InvalidTextRepresentation, None),
        ("select 1; select 2; create table x(a int)", errors.ReadOnlySqlTransaction, None),
        ("insert into events values (1)", errors.ReadOnlySqlTransaction, None),
        ("with x as (select 1) insert into y select * from x", errors.ReadOnlySqlTransaction, None),
        ("attach 'x' as y", errors.ReadOnlySqlTransaction, None),
        ("install httpfs", errors.ReadOnlySqlTransaction, None),
        ("pragma version", errors.ReadOnlySqlTransaction, None),
        ("select * from read_csv('/etc/passwd')", errors.InsufficientPrivilege, 15),
        ("select * from '/etc/passwd'", errors.UndefinedTable, 15),
        ("set client_encoding to latin1", errors.InvalidParameterValue, None),
    ],
)
def test_error_has_its_code_and_position(
    connection: psycopg.Connection[Any], text: str, error: type[psycopg.Error], position: int | None
) -> None:
    with pytest.raises(error) as caught:
        simple(connection, text)
    assert caught.value.diag.statement_position == (None if position is None else str(position))
    with pytest.raises(error):
        connection.execute(text.split("; ")[-1])
    assert connection.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize(
    ("text", "has_place"),
    [
        ("select cast('x' || uuid as int) from events", True),
        ("select cast(json_build_array(uuid)::text as int) from events", False),
        ("select 1; select cast('x' || uuid as int) from events", False),
    ],
)
def test_error_of_a_row_names_a_place_in_the_clients_text_only(
    connection: psycopg.Connection[Any], text: str, has_place: bool
) -> None:
    with pytest.raises(errors.InvalidTextRepresentation) as caught:
        simple(connection, text)
    assert ("(line 1, column 8)" in str(caught.value), "(line " in str(caught.value)) == (has_place, has_place)


@pytest.mark.parametrize(
    "text", [f"select ('{'9' * 5000}')::bignum", "select [date '9999-12-31' + 1]", "select [timestamp '290000-01-01']"]
)
def test_value_without_a_binary_form_is_an_error_of_the_statement(
    connection: psycopg.Connection[Any], text: str
) -> None:
    with connection.cursor(binary=True) as cursor, pytest.raises(errors.NumericValueOutOfRange, match="cast it"):
        cursor.execute(text)
    assert connection.execute("select 1").fetchone() == (1,)


def test_number_of_a_parameter_does_not_decide_how_many_there_are(sql_server: Server) -> None:
    with connect(sql_server) as connection:
        answer = connection.pgconn.prepare(b"far", b"select $60000")
        assert b"could not determine data type of parameter $1" in answer.error_message
        for number in range(2):
            oids = [25] * 60_000
            answer = connection.pgconn.prepare(b"wide%d" % number, b"select 1 where $60000 is null", oids)
            assert (answer.error_message != b"") == (number == 1)
        assert b"too many prepared statements" in answer.error_message


def test_hint_lists_the_tables(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(errors.UndefinedTable) as caught:
        connection.execute("select * from nosuch")
    assert "landed, events, syslog" in str(caught.value.diag.message_hint)


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


def test_rows_are_fetched_in_portions(sql_server: Server) -> None:
    with connect(sql_server) as connection:
        query = "select range as n, repeat('x', 1000) as t from range(5000)"
        with connection.cursor() as cursor:
            rows = list(cursor.stream(query, size=700))
        assert [row[0] for row in rows] == list(range(5000))


def test_settings_are_shown_as_they_were_set(sql_server: Server) -> None:
    notices: list[str] = []
    with connect(sql_server, application_name="first") as connection:
        connection.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
        assert connection.info.parameter_status("server_version") == "16.0"
        assert connection.execute("show application_name").fetchone() == ("first",)
        connection.execute("set application_name to 'second'")
        assert connection.info.parameter_status("application_name") == "second"
        assert connection.execute("select current_setting('application_name')").fetchone() == ("second",)
        connection.execute("set session statement_timeout = 0")
        connection.execute("set time zone 'Europe/Berlin'")
        assert connection.execute("show timezone").fetchone() == ("UTC",)
        assert notices == ["times are in UTC; cast them AT TIME ZONE for another zone"]
        connection.execute("set a.pid to '0, 1) AS 2; ATTACH ''x'' AS y; --'")
        assert connection.execute("select pg_backend_pid()").fetchone() == (connection.info.backend_pid,)
        connection.execute("discard all")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("set search_path = public, pg_catalog", "search_path"),
        ("set names 'UTF8'", "client_encoding"),
        ("set client_encoding to default", "client_encoding"),
        ("set a.b to 1", "a.b"),
        ("set a.b = -1", "a.b"),
        ("set a.b to 'x y'; reset a.b", "a.b"),
        ("set session client_min_messages to warning", "client_min_messages"),
        ("set client_min_messages to warning; reset client_min_messages", "client_min_messages"),
        ("set extra_float_digits = 3; reset all", "extra_float_digits"),
        ("set lock_timeout = 0", "lock_timeout"),
        ("set local client_min_messages to warning", "client_min_messages"),
        ("begin; set local client_min_messages to warning; commit", "client_min_messages"),
        ("begin; set local client_min_messages to warning; rollback", "client_min_messages"),
        ("begin; set client_min_messages to warning; commit", "client_min_messages"),
        ("begin; set client_min_messages to warning; rollback", "client_min_messages"),
        ("begin; set client_min_messages to warning; reset client_min_messages; begin; commit", "client_min_messages"),
        ("begin; set a.b to 1; set local a.b to 2; commit", "a.b"),
        ("begin; set local a.b to 1; set a.b to 2; commit", "a.b"),
        ("begin; set local application_name to x; end", "application_name"),
        ("set local lock_timeout = 5; begin; rollback", "lock_timeout"),
        ("set search_path to local", "search_path"),
        ("set schema 'x'", "search_path"),
        ("begin; set local schema 'x'; set schema 'y'; commit", "search_path"),
        ("set xml option document", "xmloption"),
        ("set default_with_oids = false", "default_with_oids"),
        ("set sort_mem = 1000; set work_mem = '5MB'", "work_mem"),
    ],
)
def test_setting_is_changed_as_in_postgresql(
    sql_server: Server, postgres: psycopg.Connection[Any], change: str, name: str
) -> None:
    with connect(sql_server) as connection:
        shown = []
        for session in (connection, postgres):
            session.execute(change)
            shown.append(session.execute(f"select current_setting('{name}')").fetchone())
        postgres.execute("reset all")
    assert shown[0] == shown[1]


def test_transaction_sees_its_local_settings(sql_server: Server, postgres: psycopg.Connection[Any]) -> None:
    seen = []
    with connect(sql_server) as connection:
        for session in (connection, postgres):
            session.execute("begin; set local application_name to inside")
            inside = (
                session.execute("show application_name").fetchone(),
                session.info.parameter_status("application_name"),
            )
            session.execute("commit")
            seen.append((inside, session.info.parameter_status("application_name")))
    assert seen[0] == seen[1] == ((("inside",), "inside"), "")


@pytest.mark.parametrize(
    "text",
    [
        "set schema 'x'",
        "set constraints all immediate",
        "SET CONSTRAINTS ALL DEFERRED",
        "begin; set constraints all immediate; commit",
        "begin; set constraints nosuch immediate",
        "reset session authorization",
        "reset time zone",
        "show session authorization",
        "set xml option content",
        "set default_with_oids to off",
        "set default_with_oids = on",
        "set schema = 'x'",
    ],
)
def test_statement_of_settings_is_answered_as_in_postgresql(
    sql_server: Server, postgres: psycopg.Connection[Any], text: str
) -> None:
    answers = []
    with connect(sql_server) as connection:
        for session in (connection, postgres):
            notices: list[str | None] = []
            session.add_notice_handler(collect := lambda notice, to=notices: to.append(notice.sqlstate))
            answer = session.pgconn.exec_(text.encode())
            answers.append((answer.command_status, answer.error_field(DiagnosticField.SQLSTATE), notices))
            session.remove_notice_handler(collect)
            session.execute("rollback")
        postgres.execute("reset all")
    assert answers[0] == answers[1]


def test_old_name_of_a_setting_is_accepted_as_in_postgresql_16(sql_server: Server) -> None:
    with connect(sql_server) as connection:
        connection.execute("set force_parallel_mode = off")
        assert connection.execute("show force_parallel_mode").fetchone() == ("off",)
        assert connection.execute("select current_setting('debug_parallel_query')").fetchone() == ("off",)
        connection.execute("reset force_parallel_mode")


@pytest.mark.parametrize(
    "reset", ["discard all", "reset all", "begin; reset all; commit", "begin; reset all; rollback"]
)
def test_reset_restores_the_initial_settings_as_in_postgresql(
    sql_server: Server, postgres: psycopg.Connection[Any], reset: str
) -> None:
    seen = []
    with connect(sql_server) as connection:
        for session in (connection, postgres):
            session.execute("set application_name to other; set client_min_messages to warning; set a.b to 1")
            session.execute(reset)
            names = ("application_name", "client_min_messages")
            shown = [session.execute(f"select current_setting('{name}')").fetchone() for name in names]
            seen.append((session.info.parameter_status("application_name"), shown))
        postgres.execute("reset all")
    assert seen[0] == seen[1]


@pytest.mark.parametrize("reset", ["discard all", "reset all", "begin; reset all; commit"])
def test_pooled_connection_may_invent_names_in_each_use(sql_server: Server, reset: str) -> None:
    with connect(sql_server) as connection:
        for use in range(MAX_SETTINGS + 1):
            connection.execute(f"set app.name{use} to x")
            connection.execute(reset, prepare=False)


@pytest.mark.parametrize("change", ["set nosuch = 1", "set local nosuch = 1", 'set "nosuch" to 1', "reset nosuch"])
def test_unknown_setting_is_refused_as_in_postgresql(
    sql_server: Server, postgres: psycopg.Connection[Any], change: str
) -> None:
    messages_of_both = []
    with connect(sql_server) as connection:
        for session in (connection, postgres):
            session.execute("begin")
            with pytest.raises(psycopg.errors.UndefinedObject) as error:
                session.execute(change)
            session.execute("rollback")
            messages_of_both.append(error.value.diag.message_primary)
    assert messages_of_both == ['unrecognized configuration parameter "nosuch"'] * 2


def test_every_setting_that_a_user_may_change_in_postgresql_is_accepted(
    sql_server: Server, postgres: psycopg.Connection[Any]
) -> None:
    names = postgres.execute("select name, setting from pg_settings where context = 'user'").fetchall()
    assert len(names) > 130
    with connect(sql_server) as connection:
        for name, setting in names:
            if name not in ("client_encoding", "TimeZone"):
                connection.execute(f"set {name} to {literal_of(setting)}")
                connection.execute(f"reset {name}")


def literal_of(setting: str) -> str:
    return "'" + setting.replace("'", "''") + "'"


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


async def with_asyncpg(server: Server) -> None:
    host, port = server.address
    options = {"host": host, "port": port, "user": "ann", "database": "penstock"}
    connection = await asyncpg.connect(**options)
    begin, end = dt.datetime(2000, 1, 1, tzinfo=dt.UTC), dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
    for condition, arguments in {
        '"offset" >= $1 and "offset" < $2': (0, 5),
        "received between $1 and $2": (begin, end),
        "uuid = any($1) and uuid <> all($2::text[])": (["u0", "u1"], ["none"]),
        '"offset" = any($1)': ([0, 1],),
        "uuid in ($1, $2) and $3 and length(uuid) = $4": ("u0", "u1", True, 2),
        "received > now() - $1::interval and $2::text is not null and uuid like $2": (dt.timedelta(days=9999), "u%"),
        "('{\"a\": 7}'::json->>'a')::bigint > $1 and payload <> $2": (5, b"none"),
    }.items():
        rows = await connection.fetch(
            f"select uuid from events where {condition} and topic = 't' order by 1", *arguments
        )
        assert [row["uuid"] for row in rows] == ["u0", "u1"], condition
    assert len(await connection.fetch("select uuid from events order by uuid limit $1 offset $2", 1, 1)) == 1
    assert await connection.fetchval("select $1::int + $2::numeric", 1, decimal.Decimal("1.5")) == decimal.Decimal(
        "2.5"
    )
    assert await connection.fetchval("select upper($1)", "a") == "A"
    texts = "select 'parameter 7', cast('penstock parameter 7' as varchar), $1::int limit $2"
    assert await connection.fetchval(texts, 1, 1) == "parameter 7"
    async with connection.transaction():
        assert len([row async for row in connection.cursor("select uuid from events where uuid <> $1", "u0")]) == 2
    with pytest.raises(TimeoutError):
        await connection.fetch("select count(*) from range(100000000000)", timeout=1)
    assert await connection.fetchval("select 1") == 1
    await connection.close()
    async with asyncpg.create_pool(**options, min_size=1, max_size=2) as pool:
        counts = [await pool.fetchval('select count(*) from events where "offset" = $1', n) for n in range(3)]
        assert sum(counts) == 3


def test_types_of_parameters_follow_from_their_places(sql_server: Server) -> None:
    """asyncpg, like pgx and tokio-postgres, encodes by the types that the server names."""
    asyncio.run(with_asyncpg(sql_server))


def test_many_parameters_of_unknown_type_are_texts(sql_server: Server) -> None:
    """Their types are not asked for one by one; psycopg's texts are numbers in their places all the same."""
    with connect(sql_server) as connection:
        places = ", ".join(["%s"] * 300)
        found = connection.execute(f'select count(*) from events where "offset" in ({places})'.encode(), ["0"] * 300)
        assert found.fetchone() == (2,)
