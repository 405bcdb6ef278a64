"""ADBC's client of Flight SQL, and Arrow's own client of Flight."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import grpc
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from adbc_driver_manager import Error
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import SecurityConfig, Settings
from penstock.server.flight.batch_messages import bytes_field
from penstock.sql.flight_sql.commands import Handle, pack
from penstock.sql.flight_sql.server import SERVICE, FlightSqlServer
from penstock.sql.postgres.server import Server
from penstock.testing import wait_until
from tests.server.http2_attacker import Attacker
from tests.server.idle_connections import IdleConnections, Kind
from tests.server.running import Running
from tests.sql.postgres.postgres_server import fill

ENDLESS = "select count(*) from range(1000000) a, range(10000000) b where a.range + b.range = 3"
TOKENS = {"reader": {"token": "a-token-of-16-characters", "read": ["t"]}}


@contextmanager
def serving(folder: Path, **keys: Any) -> Iterator[FlightSqlServer]:
    sql = {"flight_sql": "127.0.0.1:0", "timeout": 120, **keys.pop("sql", {})}
    configured = Settings.model_validate({"data_dir": str(folder), "sql": sql, **keys})
    engine = Server(configured)
    server = FlightSqlServer(configured, engine.engine)
    server.start()
    try:
        yield server
    finally:
        server.close()
        engine.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlightSqlServer]:
    folder = tmp_path_factory.mktemp("flight_sql")
    fill(folder / "topics")
    with serving(folder) as server:
        yield server


def connect(server: FlightSqlServer, **options: str) -> Any:
    return adbc.connect(f"grpc://127.0.0.1:{server.port}", db_kwargs=options, autocommit=True)


@pytest.fixture(scope="module")
def cursor(server: FlightSqlServer) -> Iterator[Any]:
    with connect(server) as connection, connection.cursor() as cursor:
        yield cursor


def test_adbc_reads_rows_as_arrow(cursor: Any) -> None:
    cursor.execute('select topic, "offset", received, payload from events order by 1, 2')
    table = cursor.fetch_arrow_table()
    assert table.schema.field("received").type == pa.timestamp("us", "UTC")
    assert table.select(["topic", "offset"]).to_pylist() == [
        {"topic": "secret", "offset": 0},
        {"topic": "t", "offset": 0},
        {"topic": "t", "offset": 1},
    ]
    cursor.execute("select 'a'::enum('a', 'b') as e, {'x': [1]} as s, count(*) from range(5000)")
    assert cursor.fetch_arrow_table().to_pylist() == [{"e": "a", "s": {"x": [1]}, "count": 5000}]


@pytest.mark.parametrize("mark", ["?", "$1"])
def test_adbc_binds_parameters(cursor: Any, mark: str) -> None:
    for value in ("u1", "it's"):
        cursor.execute(f"select uuid from events where uuid = {mark}", (value,))
        assert cursor.fetchall() == ([("u1",)] if value == "u1" else [])


def test_adbc_lists_tables_with_their_columns(server: FlightSqlServer) -> None:
    with connect(server) as connection:
        (catalog,) = connection.adbc_get_objects(depth="columns", table_name_filter="events").read_all().to_pylist()
        assert catalog["catalog_name"] == "penstock"
        schemas = {schema["db_schema_name"]: schema["db_schema_tables"] for schema in catalog["catalog_db_schemas"]}
        (table,) = schemas["public"]
        assert table["table_type"] == "TABLE"
        assert {"topic", "offset", "payload"} <= {column["column_name"] for column in table["table_columns"]}
        assert connection.adbc_get_table_types() == ["TABLE"]
        assert connection.adbc_get_info()["vendor_name"] == "Penstock"
        assert "uuid" in connection.adbc_get_table_schema("events").names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select nocol from events", 'column "nocol"'),
        ("create table x(a int)", "only SELECT is allowed"),
        ("select 1; select 2", "one statement is needed"),
        ("select * from read_csv('/etc/passwd')", "read_csv is disabled"),
    ],
)
def test_error_says_what_is_wrong(cursor: Any, text: str, message: str) -> None:
    with pytest.raises(Error, match=message):
        cursor.execute(text)
    cursor.execute("select 1")
    assert cursor.fetchall() == [(1,)]


def rows_of(server: FlightSqlServer, text: str, **options: str) -> list[Any]:
    with connect(server, **options) as connection, connection.cursor() as cursor:
        cursor.execute(text)
        return list(cursor.fetchall())


def test_idle_connections_do_not_keep_clients_out(tmp_path: Path) -> None:
    with serving(tmp_path, sql={"max_connections": 5}) as server:
        for kind in (Kind.NOTHING, Kind.PREFACE):
            with IdleConnections(server.port, 40, kind, persist=True):
                assert rows_of(server, "select 1") == [(1,)]
                closed = server.connections.closed
                wait_until(lambda closed=closed: server.connections.closed > closed + 30, 10)


def test_connection_with_a_query_is_not_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.process.servers.connection_limit.MIN_IDLE_S", 0.5)
    with serving(tmp_path, sql={"max_connections": 5, "timeout": 3}) as server, contextlib.ExitStack() as opened:
        outcome: list[str] = []

        def query() -> None:
            with pytest.raises(Error) as raised:
                rows_of(server, ENDLESS)
            outcome.append(str(raised.value))

        waiting = threading.Thread(target=query)
        waiting.start()
        wait_until(lambda: server._calls)
        for _ in range(10):
            cursor = opened.enter_context(opened.enter_context(connect(server)).cursor())
            cursor.execute("select 1")
        wait_until(lambda: server.connections.closed >= 5, 10)
        waiting.join(30)
    assert "stopped after 3 s" in outcome[0]


def test_limits_of_rows_and_time_are_errors(tmp_path: Path) -> None:
    with serving(tmp_path, sql={"max_rows": 10}) as server:
        assert len(rows_of(server, "from range(10)")) == 10
        with pytest.raises(Error, match="more than 10 rows"):
            rows_of(server, "from range(11)")
    with serving(tmp_path, sql={"timeout": 1}) as server, pytest.raises(Error, match="stopped after 1 s"):
        rows_of(server, ENDLESS)


def test_schema_is_known_without_running_the_statement(tmp_path: Path) -> None:
    """A client may ask for as many schemas as it likes: none takes a query's place, time or memory."""
    with serving(tmp_path, sql={"timeout": 600}) as server, flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
        for query, kinds in {
            ENDLESS: ["int64"],
            "select a.range, {'x': [now()]} s from range(100000000000) a order by hash(a.range)": [
                "int64",
                "struct<x: list<l: timestamp[us, tz=UTC]>>",
            ],
            "select null n, 'a'::enum('a') e, 1.5 d, {'k': 'a'::enum('a')} k from range(100000000000) order by 1": [
                "null",
                "string",
                "decimal128(2, 1)",
            ],
        }.items():
            descriptor = flight.FlightDescriptor.for_command(pack("CommandStatementQuery", (1, query.encode())))
            options = flight.FlightCallOptions(timeout=60)
            schema = client.get_flight_info(descriptor, options).schema
            assert [str(field.type) for field in schema][: len(kinds)] == kinds


def test_token_is_needed_and_has_its_rights(tmp_path: Path) -> None:
    fill(tmp_path / "topics")
    running = Running(tmp_path / "topics", SecurityConfig.model_validate({"tokens": TOKENS}))
    try:
        log = {"http": running.bound.http, "grpc": running.bound.grpc}
        with serving(tmp_path, security={"tokens": TOKENS}, log=log) as server:
            name, password = {"username": "ann"}, {"password": "a-token-of-16-characters"}
            header = "adbc.flight.sql.authorization_header"
            for options in ({**name, **password}, {header: "Bearer a-token-of-16-characters"}):
                assert rows_of(server, "select distinct topic from landed", **options) == [("t",)]
            with pytest.raises(Error, match="is not a token"):
                rows_of(server, "select 1", **{header: "Bearer wrong"})
    finally:
        running.stop()


def test_call_that_is_cancelled_gives_its_query_back(tmp_path: Path) -> None:
    with serving(tmp_path, sql={"max_queries": 1, "timeout": 600}) as server:
        client = flight.connect(f"grpc://127.0.0.1:{server.port}")
        reader = client.do_get(flight.Ticket(pack("TicketStatementQuery", (1, Handle(ENDLESS).encode()))))
        reader.cancel()
        client.close()
        assert rows_of(server, "select 1") == [(1,)]


@pytest.mark.survives("SQL", "slow peer")
def test_silent_puts_do_not_keep_clients_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("penstock.sql.flight_sql.server.END_AFTER_S", 1.0)
    silence = threading.Event()

    def stay_silent() -> Iterator[bytes]:
        silence.wait(60)
        yield from ()

    with (
        serving(tmp_path, sql={"max_connections": 3, "timeout": 1}) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        silent = [channel.stream_stream(f"/{SERVICE}/DoPut")(stay_silent(), timeout=60) for _ in range(3)]
        wait_until(lambda: len(server._calls) == 3)
        wait_until(lambda: not server._calls, 20)
        assert [call.code() for call in silent] == [grpc.StatusCode.CANCELLED] * 3
        assert rows_of(server, "select 1") == [(1,)]
        silence.set()
    assert not caplog.messages


ONE = pack("CommandStatementQuery", (1, b"select 1"))
UNREAD = {
    "Handshake": b"x",
    "GetFlightInfo": flight.FlightDescriptor.for_command(ONE).serialize(),
    "GetSchema": flight.FlightDescriptor.for_command(ONE).serialize(),
    "DoAction": flight.Action(
        "CreatePreparedStatement", pack("ActionCreatePreparedStatementRequest", (1, b"select 1"))
    ).serialize(),
    "ListActions": b"",
}


@pytest.mark.parametrize("method", UNREAD)
def test_unread_answers_do_not_keep_clients_out(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sql.flight_sql.server.END_AFTER_S", 1.0)
    with serving(tmp_path, sql={"max_connections": 3, "timeout": 1}) as server:
        attacker = Attacker(f"127.0.0.1:{server.port}", f"/{SERVICE}/{method}")
        for _ in range(3):
            attacker.send_without_reading([UNREAD[method]])
        wait_until(lambda: len(server._calls) == 3)
        wait_until(lambda: not server._calls, 20)
        assert rows_of(server, "select 1") == [(1,)]
        attacker.close()


METHODS = st.sampled_from(["GetFlightInfo", "GetSchema", "DoGet", "DoAction"])
CONTENTS = st.binary(max_size=30) | st.builds(
    lambda name, body: pack(name, (1, body)),
    st.sampled_from(["CommandStatementQuery", "TicketStatementQuery", "CommandGetTables", "CommandGetSqlInfo"]),
    st.binary(max_size=20),
)
REQUESTS = CONTENTS | st.builds(
    lambda content, number: b"\x08\x02" * (number == 2) + bytes_field(number, content), CONTENTS, st.integers(1, 2)
)
HEADERS = st.sampled_from(["Basic !", "Basic YQ", "Basic _w", "Bearer", "", "basic YTpi"])


@settings(max_examples=40)
@given(METHODS, REQUESTS, HEADERS)
def test_any_request_ends_with_a_code(server: FlightSqlServer, method: str, request: bytes, header: str) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = channel.unary_stream(f"/{SERVICE}/{method}")(request, metadata=(("authorization", header),), timeout=120)
        with contextlib.suppress(grpc.RpcError):
            list(call)
        assert call.code() in (
            grpc.StatusCode.OK,
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.NOT_FOUND,
            grpc.StatusCode.UNAUTHENTICATED,
        )
