"""The table ``landed`` for readers: its schema, and the views on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.landing.event_rules import VIEWS
from penstock.landing.table.begun_table import table_of
from penstock.landing.table_paths import Layout
from penstock.landing.table_schema import LANDED, VIEW_COLUMNS
from penstock.landing.watermarks import WATERMARKS, kept_watermarks

if TYPE_CHECKING:  # what the tables are is known without Spark
    from pyspark.sql import DataFrame, SparkSession


def landed_schema() -> str:
    """The table's columns as DDL. Always give it to readers of the files: else Spark infers the folders' types."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return ", ".join(f"`{one.name}` {one.dataType.simpleString()}" for one in from_arrow_schema(LANDED).fields)


def read_landed(spark: SparkSession, tables: Path | str) -> DataFrame:
    """The rows that were committed so far; empty where there is no table yet.

    By its list of files, whatever the session has: it shows what there was when it was asked for, ask again for newer
    rows.
    """
    layout = Layout.of(tables)
    names = table_of(layout).active()
    if not names:
        return spark.createDataFrame([], landed_schema())
    paths = [str(layout.landed / name) for name in names]
    return spark.read.schema(landed_schema()).option("basePath", str(layout.landed)).parquet(*paths)


def register_views(spark: SparkSession, tables: Path | str) -> None:
    """Create the temporary views: ``landed``, those of VIEWS (``data`` as VARIANT), and ``watermarks``."""
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_schema

    marks = spark.createDataFrame(kept_watermarks(Layout.of(tables)), from_arrow_schema(WATERMARKS))
    marks.createOrReplaceTempView("watermarks")
    landed = read_landed(spark, tables)
    landed.createOrReplaceTempView("landed")
    for name, kind in VIEWS.items():
        rows = landed.where(landed["kind"] == kind.value)
        rows = rows.withColumn("data", functions.try_parse_json("data")) if name == "events" else rows
        rows.select(*VIEW_COLUMNS[name].split(", ")).createOrReplaceTempView(name)
