"""PostgreSQL's JDBC driver and Spark's JDBC reader against the server for SQL clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.java.jars import Library, fetch
from penstock.sql.postgres.server import Server
from tests.sql.postgres.postgres_server import fill, serving

DRIVER = Library("org.postgresql", "postgresql", "42.7.7", alone=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("jdbc")
    fill(folder / "topics")
    with serving(folder) as server:
        yield server


@pytest.fixture(scope="module")
def connection(spark: SparkSession, server: Server) -> Iterator[Any]:
    """A connection of the driver, loaded into the JVM of the session."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    (jar,) = fetch(DRIVER)
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
    driver = jvm.java.net.URLClassLoader(urls).loadClass("org.postgresql.Driver").newInstance()
    properties = jvm.java.util.Properties()
    for name, value in {"user": "ann", "prepareThreshold": "1", "connectTimeout": "120"}.items():
        properties.setProperty(name, value)
    host, port = server.address
    connection = driver.connect(f"jdbc:postgresql://{host}:{port}/penstock", properties)
    yield connection
    connection.close()


def rows_of(result: Any, read: Callable[[Any], Any]) -> list[Any]:
    rows = []
    while result.next():
        rows.append(read(result))
    return rows


def test_driver_describes_the_tables(connection: Any) -> None:
    metadata = connection.getMetaData()
    tables = rows_of(metadata.getTables(None, "public", "%", None), lambda row: row.getString("TABLE_NAME"))
    assert {"events", "landed", "watermarks"} <= {*tables}
    columns = rows_of(
        metadata.getColumns(None, "public", "events", "%"),
        lambda row: (row.getString("COLUMN_NAME"), row.getString("TYPE_NAME")),
    )
    assert {("offset", "int8"), ("received", "timestamptz"), ("payload", "bytea"), ("data", "json")} <= {*columns}
    assert rows_of(metadata.getPrimaryKeys(None, "public", "events"), lambda row: row.getString(1)) == []
    assert rows_of(metadata.getImportedKeys(None, "public", "events"), lambda row: row.getString(1)) == []
    assert rows_of(metadata.getIndexInfo(None, "public", "events", False, False), lambda row: row.getString(1)) == []
    assert {"public", "topics"} <= {*rows_of(metadata.getSchemas(), lambda row: row.getString(1))}
    assert rows_of(metadata.getCatalogs(), lambda row: row.getString(1)) == ["penstock"]
    assert {"int8", "text", "timestamptz"} <= {*rows_of(metadata.getTypeInfo(), lambda row: row.getString(1))}
    assert "abs" not in metadata.getSQLKeywords().split(",")


def test_driver_runs_statements_with_parameters(connection: Any) -> None:
    statement = connection.prepareStatement('select uuid, "offset" from events where topic = ? and "offset" >= ?')
    # Several times: from the second on, the driver asks for binary values.
    for begin in (0, 1, 0):
        statement.setString(1, "t")
        statement.setLong(2, begin)
        rows = rows_of(statement.executeQuery(), lambda row: (row.getString(1), row.getLong(2)))
        assert rows == [("u0", 0), ("u1", 1)][begin:]
    statement.close()


def test_driver_fetches_rows_in_portions_within_a_transaction(connection: Any) -> None:
    connection.setAutoCommit(False)
    try:
        statement = connection.createStatement()
        statement.setFetchSize(3)
        query = "select range, sum(range) over (), 1.50::decimal(6,2), range * interval '1 day' from range(10)"
        rows = rows_of(
            statement.executeQuery(query),
            lambda row: (row.getInt(1), row.getString(2), str(row.getBigDecimal(3))),
        )
        assert rows == [(number, "45", "1.50") for number in range(10)]
        connection.commit()
    finally:
        connection.setAutoCommit(True)
