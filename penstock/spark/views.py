"""The table ``landed`` for readers: its schema, and the views on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.config.tables_url import TablesPlace
from penstock.landing.event_rules import VIEWS
from penstock.landing.storage.object_path import ObjectPath, TablePath
from penstock.landing.storage.parquet_files import parquet_file
from penstock.landing.table.begun_table import table_of
from penstock.landing.table_paths import Layout
from penstock.landing.table_schema import LANDED, PARTITION_COLUMNS, VIEW_COLUMNS
from penstock.landing.typed.typed_delta import TypedDelta, all_typed
from penstock.landing.watermarks import WATERMARKS, kept_watermarks
from penstock.landing.writing.written_file import ROW_GROUP, in_columns_of_today, with_place

if TYPE_CHECKING:  # what the tables are is known without Spark
    from pyspark.sql import DataFrame, SparkSession

MOST_TASKS = 32
"""That read a table in an object store side by side."""


def landed_schema(schema: pa.Schema = LANDED) -> str:
    """The table's columns as DDL. Always give it to readers of the files: else Spark infers the folders' types."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return ", ".join(f"`{one.name}` {one.dataType.simpleString()}" for one in from_arrow_schema(schema).fields)


def read_landed(spark: SparkSession, tables: TablesPlace | str) -> DataFrame:
    """The rows that were committed so far; empty where there is no table yet.

    By its list of files, whatever the session has: it shows what there was when it was asked for, ask again for newer
    rows.
    """
    layout = Layout.of(tables)
    return _read_files(spark, layout.landed, table_of(layout).active(), LANDED)


def read_typed(spark: SparkSession, table: TypedDelta) -> DataFrame:
    """Likewise of a typed table."""
    return _read_files(spark, table.folder, table.active(), table.schema)


def _read_files(spark: SparkSession, folder: TablePath, names: Sequence[str], schema: pa.Schema) -> DataFrame:
    if not names:
        return spark.createDataFrame([], landed_schema(schema))
    if isinstance(folder, ObjectPath):
        return _read_in_store(spark, folder, names, schema)
    paths = [str(folder / name) for name in names]
    return spark.read.schema(landed_schema(schema)).option("basePath", str(folder)).parquet(*paths)


def _read_in_store(spark: SparkSession, folder: ObjectPath, names: Sequence[str], schema: pa.Schema) -> DataFrame:
    """As delta-rs reads it: the store needs no jar then, and no second set of keys."""
    in_file = pa.schema([one for one in schema if one.name not in PARTITION_COLUMNS])

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for name in (str(name) for batch in batches for name in batch["name"].to_pylist()):
            with parquet_file(folder / name) as file:
                for rows in file.iter_batches(ROW_GROUP):
                    yield with_place(in_columns_of_today(rows, in_file), name, schema)

    files = spark.createDataFrame([(name,) for name in names], "name string").repartition(min(len(names), MOST_TASKS))
    return files.mapInArrow(read, landed_schema(schema))


def register_views(spark: SparkSession, tables: TablesPlace | str) -> None:
    """Create the temporary views: ``landed``, those of VIEWS (``data`` as VARIANT), typed ones, and ``watermarks``."""
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_schema

    marks = spark.createDataFrame(kept_watermarks(Layout.of(tables)), from_arrow_schema(WATERMARKS))
    marks.createOrReplaceTempView("watermarks")
    landed = read_landed(spark, tables)
    landed.createOrReplaceTempView("landed")
    for table in all_typed(Layout.of(tables)):
        read_typed(spark, table).createOrReplaceTempView(table.folder.name)
    for name, kind in VIEWS.items():
        rows = landed.where(landed["kind"] == kind.value)
        rows = rows.withColumn("data", functions.try_parse_json("data")) if name == "events" else rows
        rows.select(*VIEW_COLUMNS[name].split(", ")).createOrReplaceTempView(name)
