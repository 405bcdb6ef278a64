"""The tables as Spark frames and views: ``landed``, the views on it, typed tables, and watermarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.config.syntax.tables_url import TablesPlace
from penstock.landing.event_rules import VIEWS
from penstock.landing.storage.object_path import ObjectPath, TablePath
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import TableFile, open_rows
from penstock.landing.table_paths import Layout
from penstock.landing.table_schema import LANDED, PARTITION_COLUMNS, VIEW_COLUMNS
from penstock.landing.typed.typed_delta import TypedDelta, existing_typed_tables
from penstock.landing.writing.written_file import ROW_GROUP, in_current_columns, with_partition_columns
from penstock.proof.watermarks import WATERMARKS, kept_watermarks

if TYPE_CHECKING:  # schemas are used without Spark
    from pyspark.sql import DataFrame, SparkSession

MAX_READ_TASKS = 32
"""Limit of parallel tasks that read a table in an object store."""


def landed_schema(schema: pa.Schema = LANDED) -> str:
    """Return the table's columns as DDL. Readers of the files need it: Spark would infer other types for partition
    columns.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = from_arrow_schema(schema, prefer_timestamp_ntz=True).fields  # as Spark's default from 4.2 on
    return ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in columns)


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
    # Spark's own reader knows neither deletion vectors nor the credentials of a store.
    by_penstock = [file for file in files if in_store or file.live is not None]
    frames = [_read_in_tasks(spark, folder, by_penstock, schema)] if by_penstock else []
    if by_spark:
        paths = [str(folder / file) for file in by_spark]
        frames.append(spark.read.schema(landed_schema(schema)).option("basePath", str(folder)).parquet(*paths))
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def _read_in_tasks(spark: SparkSession, folder: TablePath, listed: Sequence[TableFile], schema: pa.Schema) -> DataFrame:
    """Read files with Penstock's own reader: it applies deletion vectors and needs no jar for an object store."""
    in_file = pa.schema([column for column in schema if column.name not in PARTITION_COLUMNS])

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for entry in (row for batch in batches for row in batch.to_pylist()):
            live = None if entry["live"] is None else np.unpackbits(np.frombuffer(entry["live"], np.uint8)).astype(bool)
            file = TableFile.listed(entry["name"], 0, None if live is None else live[: entry["rows"]])
            with open_rows(folder, file) as rows:
                for part in rows.batches(batch_rows=ROW_GROUP):
                    yield with_partition_columns(in_current_columns(part, in_file), file, schema)

    described = [
        # Deletion vectors travel as packed bits: one bit per row.
        (str(file), None, 0) if file.live is None else (str(file), np.packbits(file.live).tobytes(), len(file.live))
        for file in listed
    ]
    files = spark.createDataFrame(described, "name string, live binary, rows long")
    files = files.repartition(min(len(listed), MAX_READ_TASKS))
    return files.mapInArrow(read, landed_schema(schema))


def register_views(spark: SparkSession, tables: TablesPlace | str) -> None:
    """Create the temporary views ``landed``, ``events`` and its siblings (``data`` as VARIANT), typed tables,
    ``watermarks``.
    """
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
