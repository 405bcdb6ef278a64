"""The table ``landed`` for readers: its schema, and the views on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.layout import Layout

if TYPE_CHECKING:  # what the tables are is known without Spark
    from pyspark.sql import DataFrame, SparkSession

VARIANT = "variant"
JSON = "json"
VIEWS = {
    "events": (
        "event",
        "topic, offset, timestamp, received, source, bucket, landed_at, date, type, uuid, host, event_time, data, "
        "payload, key, annotations",
    ),
    "syslog": (
        "syslog",
        "topic, offset, timestamp, received, source, bucket, landed_at, date, host, event_time, payload, key, "
        "annotations",
    ),
    "messages": (
        "message",
        "topic, offset, timestamp, received, source, bucket, landed_at, date, payload, key, type_url, annotations",
    ),
    "quarantine": (
        "quarantine",
        "topic, offset, timestamp, received, source, bucket, landed_at, date, reason, payload, key, annotations",
    ),
}
"""Name of the view: the kind it shows, and its columns."""


class FormatDiffers(ValueError):
    """The table was begun with another ``data_format``."""


def landed_schema(data_format: str = VARIANT) -> str:
    """The table's columns as DDL.

    Always give it to readers: without it Spark infers the types of kind, date and type from their folders'
    names (``007`` would become 7).
    """
    data = "variant" if data_format == VARIANT else "string"
    return (
        "topic string, offset bigint, timestamp timestamp, received timestamp, source string, bucket timestamp, "
        f"landed_at timestamp, uuid string, host string, event_time timestamp, data {data}, payload binary, "
        "key binary, type_url string, annotations map<string,string>, reason string, "
        "kind string, date date, type string"
    )


def read_landed(spark: SparkSession, tables: Path | str) -> DataFrame:
    """The rows that were committed so far; empty where there is no table yet.

    Like every file table in Spark it shows what there was when it was asked for: ask again for newer rows.
    """
    layout = Layout.of(tables)
    schema = landed_schema(table_format(layout) or VARIANT)
    if not layout.sink_log.is_dir():
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(str(layout.landed))


def register_views(spark: SparkSession, tables: Path | str) -> None:
    """Create the temporary views ``landed``, ``events``, ``syslog``, ``messages`` and ``quarantine``."""
    landed = read_landed(spark, tables)
    landed.createOrReplaceTempView("landed")
    for name, (kind, columns) in VIEWS.items():
        rows = landed.where(landed["kind"] == kind)
        rows.select(*columns.split(", ")).createOrReplaceTempView(name)


def table_format(layout: Layout) -> str | None:
    """The ``data_format`` the table was begun with; None where it was not begun."""
    try:
        return str(json.loads(layout.format.read_text())["data_format"])
    except FileNotFoundError:
        return None


def begin_table(layout: Layout, data_format: str) -> None:
    """Remember the form of a new table. Raises FormatDiffers where it has another one already."""
    begun = table_format(layout)
    if begun is None:
        layout.format.parent.mkdir(parents=True, exist_ok=True)
        temporary = layout.format.with_suffix(".new")
        temporary.write_text(json.dumps({"data_format": data_format}))
        temporary.replace(layout.format)
    elif begun != data_format:
        raise FormatDiffers(f"{layout.landed} has data_format = {begun}: keep it, or choose another folder of tables")
