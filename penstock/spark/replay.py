"""Replay of a table's rows into a topic, of the log or of Kafka.

Invariant: each row is sent once. Its identity is its uuid, or its topic and offset if it has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the usual name

from penstock.landing.table_schema import VIEW_COLUMNS
from penstock.qualified_names import partition_name
from penstock.upkeep.quarantine.send_back import MAX_BATCH_ROWS, REPLAY_OF
from penstock.upkeep.quarantine.send_once import Resender, RowIdentity, Sent, to_body

POSITION_COLUMNS = ("topic", "partition", "offset")


def select_rows(
    spark: SparkSession, view: str, where: str | None, since: float | None, until: float | None
) -> DataFrame:
    """Return the rows of a view that match an SQL condition and were logged from ``since`` to before ``until``.

    Times are in seconds since the epoch. Raises Spark's error for an invalid condition.
    """
    rows = spark.table(view)
    rows = rows.where(where) if where else rows
    for bound, comparison in ((since, Column.__ge__), (until, Column.__lt__)):
        if bound is not None:
            rows = rows.where(comparison(F.col("timestamp"), F.timestamp_micros(F.lit(round(bound * 1_000_000)))))
    columns_of_view = VIEW_COLUMNS[view].split(", ")
    uuid = F.col("uuid") if "uuid" in columns_of_view else F.lit(None).cast("string").alias("uuid")
    type_url = F.col("type_url") if "type_url" in columns_of_view else F.lit(None).cast("string").alias("type_url")
    payload = F.coalesce("payload", _rebuilt_payload()) if view == "events" else F.col("payload")
    columns: list[Column | str] = [*POSITION_COLUMNS, uuid, "key", payload.alias("payload"), type_url, "annotations"]
    return rows.select(*columns).orderBy(*POSITION_COLUMNS)


def _rebuilt_payload() -> Column:
    """Return the payload of an event, rebuilt from its fields if it was not stored."""
    fields: list[Column | str] = ["type", "uuid", "host", F.unix_millis("event_time").alias("timestamp"), "data"]
    return F.to_json(F.struct(*fields)).cast("binary")


def replay(rows: DataFrame, topic: str, resender: Resender) -> tuple[int, int]:
    """Send rows of ``select_rows`` to a topic; return how many were sent, and how many were sent before or are
    duplicates.
    """
    # Crash: a request that a killed replay left behind is completed first, so that none of its rows is sent twice.
    resender.finish()
    sent_count = earlier = 0
    # Limit: one partition of the frame in memory at a time.
    remaining = (row.asDict() for row in rows.toLocalIterator())
    while rows_of_request := list(islice(remaining, MAX_BATCH_ROWS)):
        unsent: dict[RowIdentity, Sent] = {}
        for row in rows_of_request:
            identity = _identity(row)
            if resender.is_new(topic, identity):
                unsent.setdefault(identity, _message_fields(row))
        if unsent:
            resender.send(topic, list(unsent), to_body(list(unsent.values())))
        sent_count, earlier = sent_count + len(unsent), earlier + len(rows_of_request) - len(unsent)
    return sent_count, earlier


def _identity(row: Mapping[str, Any]) -> str:
    return f"u:{row['topic']}:{row['uuid']}" if row["uuid"] is not None else f"o:{_row_position(row)}"


def _row_position(row: Mapping[str, Any]) -> str:
    return f"{partition_name(row['topic'], row['partition'])}:{row['offset']}"


def _message_fields(row: Mapping[str, Any]) -> Sent:
    annotations = {**(row["annotations"] or {}), REPLAY_OF: _row_position(row)}
    return _bytes(row["key"]), _bytes(row["payload"]), row["type_url"], annotations


def _bytes(buffer: bytearray | None) -> bytes | None:
    return None if buffer is None else bytes(buffer)
