"""A typed table as other software reads it, without Penstock: the same uuids as the events of its type that landed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.landing.table.plain_session import statements
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.landing.typed.typed_delta import typed_names
from penstock.upkeep.compaction.typed_compaction import compact_typed
from tests.engines.foreign_spark import ForeignSpark
from tests.landing.typed.typed_life import CLICK, Life, event, read
from tests.landing.writing.messages import AT, DAY, source

STATEMENT = (
    "select uuid, ms, ok, cast(price as string) as price, tags, buyer.id as buyer from {} "
    "where ms is null or ms >= 0 order by uuid"
)
BUYER = Column("buyer", "struct<id:string,age:int,seen:array<struct<at:timestamp>>>", "user")
SCRIPT = """
import json, sys
engine, folder, statement = sys.argv[1:]
if engine == "polars":
    import polars
    price, buyer = polars.col("price").cast(str), polars.col("buyer").struct.field("id").alias("buyer")
    rows = polars.scan_delta(folder).sort("uuid").select("uuid", "ms", "ok", price, "tags", buyer).collect().rows()
else:
    import deltalake, duckdb
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
    files = SubTreeFileSystem(folder, LocalFileSystem())
    clicks = deltalake.DeltaTable(folder).to_pyarrow_dataset(filesystem=files)
    rows = duckdb.sql(statement.format("clicks")).fetchall()
assert "penstock" not in sys.modules
print(json.dumps([list(row) for row in rows]))
"""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Twelve batches on two days; a column came with the last six."""
    written = Layout.for_tables(tmp_path / "tables")
    prices, tags = Column("price", "decimal(6,2)", "price"), Column("tags", "array<string>", "tags")
    wider = TypedTable("click", "click", (*CLICK.columns, Column("ok", "boolean", "ok"), prices, tags, BUYER))
    for batch in range(12):
        more = {"ok": True, "price": "1.50", "tags": ["a", None], "user": {"id": "u", "age": 7}}
        rows = [(batch * 5 + n, event(f"u{batch * 5 + n:03}", ms=n, **more)) for n in range(5)]
        Life(written, [CLICK if batch < 6 else wider]).land(batch, [source(rows, at=AT + DAY * (batch % 2))])
    return written


def expected_rows(layout: Layout) -> list[list[object]]:
    return sorted(
        [row["uuid"], row["offset"] % 5, *([True, "1.50", ["a", None], "u"] if row["offset"] >= 30 else [None] * 4)]
        for row in read(layout.landed)
    )


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_each_engine_reads_each_row_once_with_its_columns(engine: str, layout: Layout, tmp_path: Path) -> None:
    assert read_rows(engine, layout, tmp_path) == expected_rows(layout)
    assert compact_typed(layout)[1] == 2
    assert read_rows(engine, layout, tmp_path) == expected_rows(layout)


@pytest.mark.spark
def test_spark_reads_each_row_once_with_its_columns(foreign_spark: ForeignSpark, layout: Layout) -> None:
    foreign_spark.use_tables(statements(layout, typed_names(layout)))
    rows = foreign_spark.sql(STATEMENT.format("events_click"))
    assert [list(row.values()) for row in rows] == expected_rows(layout)


def read_rows(engine: str, layout: Layout, folder: Path) -> list[list[object]]:
    command = [sys.executable, "-c", SCRIPT, engine, str(layout.typed("click")), STATEMENT]
    process = subprocess.run(command, check=True, timeout=240, cwd=folder, capture_output=True, text=True)
    rows: list[list[object]] = json.loads(process.stdout.splitlines()[-1])
    return rows
