"""Rows of a table sent into a topic, of the log or of Kafka: each once, by its uuid, or by its place if it has none."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (what everybody calls it)

from penstock.landing.journal import PARTITION_MARK
from penstock.landing.table_schema import VIEW_COLUMNS
from penstock.upkeep.quarantine.send_back import MAX_BATCH_ROWS, REPLAY_OF
from penstock.upkeep.quarantine.send_once import Resender, RowIdentity, Sent, to_body

PLACE = ("topic", "partition", "offset")


def chosen(spark: SparkSession, view: str, where: str | None, since: float | None, until: float | None) -> DataFrame:
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
    payload = F.coalesce("payload", _written_again()) if view == "events" else F.col("payload")
    columns: list[Column | str] = [*PLACE, uuid, "key", payload.alias("payload"), type_url, "annotations"]
    return rows.select(*columns).orderBy(*PLACE)


def _written_again() -> Column:
    """Rebuild the payload of an event, when it was not kept, from its fields."""
    fields: list[Column | str] = ["type", "uuid", "host", F.unix_millis("event_time").alias("timestamp"), "data"]
    return F.to_json(F.struct(*fields)).cast("binary")


def replay(rows: DataFrame, topic: str, resender: Resender) -> tuple[int, int]:
    """Send rows (of ``chosen``) into a topic: how many were sent, and how many had been before, or are there twice."""
    resender.finish()
    sent = before = 0
    left = (row.asDict() for row in rows.toLocalIterator())
    while part := list(islice(left, MAX_BATCH_ROWS)):
        new: dict[RowIdentity, Sent] = {}
        for row in part:
            key = _key(row)
            if resender.is_new(topic, key):
                new.setdefault(key, _sent(row))
        if new:
            resender.send(topic, list(new), to_body(list(new.values())))
        sent, before = sent + len(new), before + len(part) - len(new)
    return sent, before


def _key(row: Mapping[str, Any]) -> str:
    return f"u:{row['topic']}:{row['uuid']}" if row["uuid"] is not None else f"o:{_place(row)}"


def _place(row: Mapping[str, Any]) -> str:
    partition = "" if row["partition"] is None else f"{PARTITION_MARK}{row['partition']}"
    return f"{row['topic']}{partition}:{row['offset']}"


def _sent(row: Mapping[str, Any]) -> Sent:
    annotations = {**(row["annotations"] or {}), REPLAY_OF: _place(row)}
    return _bytes(row["key"]), _bytes(row["payload"]), row["type_url"], annotations


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
