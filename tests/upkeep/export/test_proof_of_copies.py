"""The documented SQL of the proof over copies of ``landed`` in databases names the row that was altered there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import clickhouse_connect
import deltalake
import duckdb
import psycopg
import pyarrow as pa
import pytest
from psycopg.rows import dict_row

from penstock.landing.row_hashes import HASHED_COLUMNS
from penstock.landing.table_paths import Layout
from penstock.landing.table_schema import LANDED
from tests.proof.proof_sql import documented_sql
from tests.proof.test_proofs_table import land, prove
from tests.spark.spark_helpers import HandWritten, append, event, landed_event
from tests.upkeep.export.exported import Exported, exported

ALTER = "UPDATE {} SET data = 'altered' WHERE \"offset\" = 16"


def from_duckdb(export: Exported, statement: str) -> pa.Table:
    with duckdb.connect(export.config.to.removeprefix("duckdb:")) as connection:
        if statement:
            connection.execute(statement.format("rows"))
        return connection.sql("SELECT * FROM rows").to_arrow_table()


def from_delta(export: Exported, statement: str) -> pa.Table:
    table = deltalake.DeltaTable(export.config.to.removeprefix("delta:"))
    if statement:
        table.update({"data": "'altered'"}, predicate='"offset" = 16')
    return table.to_pyarrow_table()


def from_postgresql(export: Exported, statement: str) -> pa.Table:
    with psycopg.connect(export.config.to, row_factory=dict_row) as connection:
        if statement:
            connection.execute(statement.format(export.config.table))  # type: ignore[arg-type]
        rows = connection.execute(f"SELECT * FROM {export.config.table}").fetchall()  # type: ignore[arg-type]
    for row in rows:
        # JSON objects of PostgreSQL become maps.
        row["annotations"] = None if row["annotations"] is None else [*row["annotations"].items()]
    return pa.Table.from_pylist(rows, schema=LANDED)


def from_clickhouse(export: Exported, statement: str) -> pa.Table:
    with clickhouse_connect.get_client(dsn=f"chdb://{export.config.to.removeprefix('chdb:')}") as client:
        if statement:
            client.command("ALTER TABLE rows UPDATE data = 'altered' WHERE offset = 16 SETTINGS mutations_sync = 1")
        rows = client.query_arrow("SELECT * FROM rows", use_strings=False)
    columns = {field.name: rows[field.name].cast(field.type) for field in LANDED}
    return pa.table(columns, schema=LANDED)


READERS: dict[str, Callable[[Exported, str], pa.Table]] = {
    "duckdb": from_duckdb,
    "delta": from_delta,
    "postgresql": from_postgresql,
    "clickhouse": from_clickhouse,
}


def differences_of_copy(layout: Layout, rows: pa.Table) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        connection.register("landed", rows)
        connection.register("proofs", deltalake.DeltaTable(str(layout.proof_table)).to_pyarrow_table())
        found: list[dict[str, Any]] = connection.sql(documented_sql("DuckDB")).to_arrow_table().to_pylist()
        return found


@pytest.mark.parametrize("kind", READERS)
def test_documented_sql_names_the_altered_row_of_a_copy(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    table = HandWritten(Layout.for_tables(tmp_path / "tables"), hashed=True)
    topics = tmp_path / "topics"
    topics.mkdir()
    land(topics, table, range(3))
    columns = {"annotations": [("a", "1"), ("b", "\u00e9")], "payload": b"\xff\x00", "data": "{}", "host": "web-1"}
    append(topics, "t", [event(n) for n in (15, 16, 17)])
    table.commit({"t": 18}, [landed_event(n, f"u{n}", **columns) for n in (15, 16, 17)])
    prove(topics, table)
    server = request.getfixturevalue("postgresql") if kind == "postgresql" else ""
    export = exported(kind, table.layout, tmp_path, server, source="landed")
    export.step()
    assert {*HASHED_COLUMNS} <= {*READERS[kind](export, "").schema.names}
    assert differences_of_copy(table.layout, READERS[kind](export, "")) == []
    (difference,) = differences_of_copy(table.layout, READERS[kind](export, ALTER))
    assert (difference["topic"], difference["offset"], difference["rows"]) == ("t", 16, 0)
