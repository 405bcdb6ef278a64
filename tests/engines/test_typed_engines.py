"""A typed table as other software reads it, without Penstock: the same uuids as the events of its type that landed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.landing.table.plain_session import session_settings, statements
from penstock.landing.table_paths import Layout
from penstock.landing.typed.columns import Column, TypedTable
from penstock.landing.typed.typed_delta import typed_names
from penstock.spark.extensions import package_settings
from penstock.upkeep.compaction.typed_compaction import compact_typed
from tests.landing.typed.typed_life import CLICK, Life, event, read
from tests.landing.writing.messages import AT, DAY, source

SCRIPT = """
import json, os, sys
engine, folder = sys.argv[1:3]
ASKED = "select uuid, ms, ok from {} where ms is null or ms >= 0 order by uuid"
if engine == "spark":
    from pyspark.sql import SparkSession
    builder = SparkSession.builder.master("local[1]")
    for name, value in json.loads(os.environ["SPARK_SETTINGS"]).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for statement in json.loads(os.environ["SPARK_STATEMENTS"]):
        spark.sql(statement)
    rows = [list(row) for row in spark.sql(ASKED.format("events_click")).collect()]
elif engine == "polars":
    import polars
    rows = polars.scan_delta(folder).select("uuid", "ms", "ok").sort("uuid").collect().rows()
else:
    import deltalake, duckdb
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
    files = SubTreeFileSystem(folder, LocalFileSystem())
    clicks = deltalake.DeltaTable(folder).to_pyarrow_dataset(filesystem=files)
    rows = duckdb.sql(ASKED.format("clicks")).fetchall()
assert "penstock" not in sys.modules
print(json.dumps([list(row) for row in rows]))
"""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Twelve batches on two days; a column came with the last six."""
    written = Layout.for_tables(tmp_path / "tables")
    wider = TypedTable("click", "click", (*CLICK.columns, Column("ok", "boolean", "ok")))
    for batch in range(12):
        rows = [(batch * 5 + n, event(f"u{batch * 5 + n:03}", ms=n, ok=True)) for n in range(5)]
        Life(written, [CLICK if batch < 6 else wider]).land(batch, [source(rows, at=AT + DAY * (batch % 2))])
    return written


@pytest.mark.parametrize("engine", ["duckdb", "polars", pytest.param("spark", marks=pytest.mark.spark)])
def test_each_engine_reads_each_row_once_with_its_columns(engine: str, layout: Layout, tmp_path: Path) -> None:
    expected = sorted(
        [row["uuid"], row["offset"] % 5, True if row["offset"] >= 30 else None] for row in read(layout.landed)
    )
    assert read_rows(engine, layout, tmp_path) == expected
    if engine != "spark":
        assert compact_typed(layout)[1] == 2
        assert read_rows(engine, layout, tmp_path) == expected


def read_rows(engine: str, layout: Layout, folder: Path) -> list[list[object]]:
    environment = dict(os.environ)
    if engine == "spark":
        jars = {name: value for name, value in package_settings(["delta"]).items() if name == "spark.jars"}
        settings = {name: v for name, v in session_settings(layout).items() if name != "spark.jars.packages"} | jars
        warehouse = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.ui.enabled": "false"}
        environment["SPARK_SETTINGS"] = json.dumps({**settings, **warehouse})
        environment["SPARK_STATEMENTS"] = json.dumps(statements(layout, typed_names(layout)))
    command = [sys.executable, "-c", SCRIPT, engine, str(layout.typed("click"))]
    process = subprocess.run(
        command, check=True, timeout=240, env=environment, cwd=folder, capture_output=True, text=True
    )
    uuids: list[list[object]] = json.loads(process.stdout.splitlines()[-1])
    return uuids
