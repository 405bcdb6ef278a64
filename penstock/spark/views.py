"""The table ``landed`` for readers: its schema, and the views on it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.event_rules import VIEWS
from penstock.landing.table.begun_table import table_of
from penstock.landing.table_paths import Layout
from penstock.landing.table_schema import LANDED, SYSLOG_COLUMNS

if TYPE_CHECKING:  # what the tables are is known without Spark
    from pyspark.sql import DataFrame, SparkSession

PLACE = "topic, partition, offset, timestamp, received, source, bucket"
COLUMNS = {
    "events": f"{PLACE}, landed_at, date, type, uuid, host, event_time, data, payload, key, annotations",
    "syslog": (
        f"{PLACE}, landed_at, date, host, event_time, {', '.join(SYSLOG_COLUMNS)}, message, payload, key, annotations"
    ),
    "messages": f"{PLACE}, landed_at, date, payload, key, type_url, annotations",
    "quarantine": f"{PLACE}, landed_at, date, reason, payload, key, annotations",
}
"""The columns of each view."""

WATERMARKS = "table string, topic string, until timestamp, landed bigint, share double"
"""Columns of the view ``watermarks``: the table holds all it ever will of what a topic received before ``until``, so
many rows; ``share`` (0 to 1) of those that are known to have come."""


_LOGGER = logging.getLogger(__name__)


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

    marks = spark.createDataFrame(kept_watermarks(Layout.of(tables)), WATERMARKS)
    marks.createOrReplaceTempView("watermarks")
    landed = read_landed(spark, tables)
    landed.createOrReplaceTempView("landed")
    for name, kind in VIEWS.items():
        rows = landed.where(landed["kind"] == kind.value)
        rows = rows.withColumn("data", functions.try_parse_json("data")) if name == "events" else rows
        rows.select(*COLUMNS[name].split(", ")).createOrReplaceTempView(name)


def keep_watermarks(layout: Layout, marks: Sequence[Mapping[str, Any]]) -> None:
    """Keep how far the tables are complete, as the ledger says it."""
    write_document(layout.watermarks, {"marks": list(marks)})


def kept_watermarks(layout: Layout) -> list[tuple[str, str, datetime, int, float]]:
    """The rows of the view ``watermarks``; none before the pipeline has asked the ledger, as it does all the time."""
    try:
        return [
            (one["table"], one["topic"], datetime.fromtimestamp(one["until"], UTC), one["landed"], one["share"])
            for one in read_document(layout.watermarks)["marks"]
        ]
    except FileNotFoundError:
        return []
    except (DamagedFile, KeyError, TypeError, ValueError):
        _LOGGER.warning("%s cannot be read: the running pipeline makes it anew", layout.watermarks)
        return []
