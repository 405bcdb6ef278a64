"""The table ``landed`` for readers: its schema, and the views on it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.table_files import DELTA_LOG
from penstock.landing.table_paths import Layout

if TYPE_CHECKING:  # what the tables are is known without Spark
    from pyspark.sql import DataFrame, SparkSession

PARQUET = "parquet"
DELTA = "delta"
VARIANT = "variant"
JSON = "json"
PLACE = "topic, partition, offset, timestamp, received, source, bucket"
VIEWS = {
    "events": (
        "event",
        f"{PLACE}, landed_at, date, type, uuid, host, event_time, data, payload, key, annotations",
    ),
    "syslog": (
        "syslog",
        f"{PLACE}, landed_at, date, host, event_time, payload, key, annotations",
    ),
    "messages": (
        "message",
        f"{PLACE}, landed_at, date, payload, key, type_url, annotations",
    ),
    "quarantine": (
        "quarantine",
        f"{PLACE}, landed_at, date, reason, payload, key, annotations",
    ),
}
"""Name of the view: the kind it shows, and its columns."""

WATERMARKS = "table string, topic string, until timestamp, landed bigint, share double"
"""Columns of the view ``watermarks``: the table holds all it ever will of what a topic received before ``until``, so
many rows; ``share`` (0 to 1) of those that are known to have come."""


_LOGGER = logging.getLogger(__name__)


class FormatDiffers(PenstockError, ValueError):
    """The table was begun with another ``format`` or ``data_format``."""


def landed_schema(data_format: str = VARIANT) -> str:
    """The table's columns as DDL.

    Always give it to readers: without it Spark infers the types of kind, date and type from their folders'
    names (``007`` would become 7).
    """
    data = "variant" if data_format == VARIANT else "string"
    return (
        "topic string, partition int, offset bigint, timestamp timestamp, received timestamp, source string, "
        "bucket timestamp, "
        f"landed_at timestamp, uuid string, host string, event_time timestamp, data {data}, payload binary, "
        "key binary, type_url string, annotations map<string,string>, reason string, "
        "kind string, date date, type string"
    )


def read_landed(spark: SparkSession, tables: Path | str) -> DataFrame:
    """The rows that were committed so far; empty where there is no table yet.

    Like every file table in Spark it shows what there was when it was asked for: ask again for newer rows.
    """
    layout = Layout.of(tables)
    schema = landed_schema(begun_as(layout).get("data_format", VARIANT))
    if (layout.landed / DELTA_LOG).is_dir():
        return spark.read.format(DELTA).load(str(layout.landed))
    if not layout.sink_log.is_dir():
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(str(layout.landed))


def register_views(spark: SparkSession, tables: Path | str) -> None:
    """Create the temporary views: ``landed``, those of VIEWS, and ``watermarks``."""
    marks = spark.createDataFrame(kept_watermarks(Layout.of(tables)), WATERMARKS)
    marks.createOrReplaceTempView("watermarks")
    landed = read_landed(spark, tables)
    landed.createOrReplaceTempView("landed")
    for name, (kind, columns) in VIEWS.items():
        rows = landed.where(landed["kind"] == kind)
        rows.select(*columns.split(", ")).createOrReplaceTempView(name)


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


def begun_as(layout: Layout) -> dict[str, str]:
    """The ``format`` and ``data_format`` the table was begun with; empty where it was not begun. Raises DamagedFile.

    In the file the former is called ``form``: ``format`` is the file's own.
    """
    try:
        begun = read_document(layout.format)
    except FileNotFoundError:
        return {}
    if not isinstance(begun.get("data_format"), str):
        raise DamagedFile(f"{layout.format} is damaged: it does not say what form the table has")
    return {"format": str(begun.get("form", begun.get("format", PARQUET))), "data_format": begun["data_format"]}


def begin_table(layout: Layout, form: str, data_format: str) -> None:
    """Remember the form of a new table. Raises FormatDiffers where it has another one already."""
    wanted = {"format": form, "data_format": data_format}
    begun = begun_as(layout)
    if not begun:
        layout.format.parent.mkdir(parents=True, exist_ok=True)
        write_document(layout.format, {"form": form, "data_format": data_format})
    for key, value in begun.items():
        if value != wanted[key]:
            raise FormatDiffers(f"{layout.landed} has {key} = {value}: keep it, or choose another folder of tables")
