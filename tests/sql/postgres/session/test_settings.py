"""Settings of a session, as PostgreSQL has them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.pq import DiagnosticField

from penstock.sql.postgres.server import Server
from penstock.sql.postgres.session.settings import MAX_SETTINGS
from tests.sql.postgres.postgres_server import connect


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
        assert not notices
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


def test_zone_ends_with_its_transaction_and_with_a_reset(sql_server: Server) -> None:
    with connect(sql_server, options="-c TimeZone=Asia/Tokyo") as connection:
        assert connection.execute("show time zone").fetchone() == ("Asia/Tokyo",)
        connection.execute("begin")
        connection.execute("set time zone 'Europe/Berlin'")
        assert connection.info.parameter_status("TimeZone") == "Europe/Berlin"
        assert connection.execute("select current_setting('timezone')").fetchone() == ("Europe/Berlin",)
        connection.execute("rollback")
        assert connection.info.parameter_status("TimeZone") == "Asia/Tokyo"
        assert connection.execute("select current_setting('timezone')").fetchone() == ("Asia/Tokyo",)
        connection.execute("set time zone utc")
        connection.execute("discard all")
        assert connection.info.parameter_status("TimeZone") == "Asia/Tokyo"
        with pytest.raises(psycopg.errors.InvalidParameterValue, match='invalid value for parameter "TimeZone": "x"'):
            connection.execute("set timezone = x")
        assert connection.execute("select '2026-01-01'::timestamptz::text").fetchone() == ("2026-01-01 00:00:00+09",)
