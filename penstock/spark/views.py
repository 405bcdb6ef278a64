"""The table ``landed`` for readers: its schema, and the views on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.config.tables_url import TablesPlace
from penstock.landing.event_rules import VIEWS
from penstock.landing.storage.object_path import ObjectPath, TablePath
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import TableFile, open_rows
from penstock.landing.table_paths import Layout
from penstock.landing.table_schema import LANDED, PARTITION_COLUMNS, VIEW_COLUMNS
from penstock.landing.typed.typed_delta import TypedDelta, existing_typed_tables
from penstock.landing.writing.written_file import ROW_GROUP, in_current_columns, with_partition_columns
from penstock.proof.watermarks import WATERMARKS, kept_watermarks

if TYPE_CHECKING:  # what the tables are is known without Spark
    from pyspark.sql import DataFrame, SparkSession

MOST_TASKS = 32
"""Limit of parallel tasks that read a table in an object store."""


def landed_schema(schema: pa.Schema = LANDED) -> str:
    """The table's columns as DDL. Always give it to readers of the files: else Spark infers the folders' types."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return ", ".join(f"`{one.name}` {one.dataType.simpleString()}" for one in from_arrow_schema(schema).fields)


def read_landed(spark: SparkSession, tables: TablesPlace | str) -> DataFrame:
    """Return the rows that are committed so far; an empty frame if the table does not exist yet.

    The frame reads the list of files at the time of the call; call again for newer rows.
    """
    layout = Layout.for_tables(tables)
    return _read_files(spark, layout.landed, table_of(layout).active(), LANDED)


def read_typed(spark: SparkSession, table: TypedDelta) -> DataFrame:
    """Return the rows of a typed table that are committed so far."""
    return _read_files(spark, table.folder, table.active(), table.schema)


def _read_files(spark: SparkSession, folder: TablePath, files: Sequence[TableFile], schema: pa.Schema) -> DataFrame:
    if not files:
        return spark.createDataFrame([], landed_schema(schema))
    in_store = isinstance(folder, ObjectPath)
    by_spark = [] if in_store else [file for file in files if file.live is None]
    by_us = [file for file in files if in_store or file.live is not None]
    parts = [_read_in_tasks(spark, folder, by_us, schema)] if by_us else []
    if by_spark:
        paths = [str(folder / file) for file in by_spark]
        parts.append(spark.read.schema(landed_schema(schema)).option("basePath", str(folder)).parquet(*paths))
    return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])


def _read_in_tasks(spark: SparkSession, folder: TablePath, listed: Sequence[TableFile], schema: pa.Schema) -> DataFrame:
    """Read files with Penstock's own reader: it applies deletion vectors and needs no jar for an object store."""
    in_file = pa.schema([one for one in schema if one.name not in PARTITION_COLUMNS])

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for one in (row for batch in batches for row in batch.to_pylist()):
            live = None if one["live"] is None else np.unpackbits(np.frombuffer(one["live"], np.uint8)).astype(bool)
            file = TableFile.listed(one["name"], 0, None if live is None else live[: one["rows"]])
            with open_rows(folder, file) as rows:
                for part in rows.batches(batch_rows=ROW_GROUP):
                    yield with_partition_columns(in_current_columns(part, in_file), file, schema)

    described = [
        (str(file), None, 0) if file.live is None else (str(file), np.packbits(file.live).tobytes(), len(file.live))
        for file in listed
    ]
    files = spark.createDataFrame(described, "name string, live binary, rows long")
    files = files.repartition(min(len(listed), MOST_TASKS))
    return files.mapInArrow(read, landed_schema(schema))


def register_views(spark: SparkSession, tables: TablesPlace | str) -> None:
    """Create the temporary views: ``landed``, those of VIEWS (``data`` as VARIANT), typed ones, and ``watermarks``."""
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_schema

    marks = spark.createDataFrame(kept_watermarks(Layout.for_tables(tables)), from_arrow_schema(WATERMARKS))
    marks.createOrReplaceTempView("watermarks")
    landed = read_landed(spark, tables)
    landed.createOrReplaceTempView("landed")
    for table in existing_typed_tables(Layout.for_tables(tables)):
        read_typed(spark, table).createOrReplaceTempView(table.folder.name)
    for name, kind in VIEWS.items():
        rows = landed.where(landed["kind"] == kind.value)
        rows = rows.withColumn("data", functions.try_parse_json("data")) if name == "events" else rows
        rows.select(*VIEW_COLUMNS[name].split(", ")).createOrReplaceTempView(name)
