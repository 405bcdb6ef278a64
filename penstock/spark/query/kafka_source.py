"""Kafka as the source of the landing, through Spark's own connector."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.landing.from_kafka.rows import HEADERS, RECORD, clamp_timestamps
from penstock.landing.rows.engine import compute

_TO_TEXT = "CASE WHEN size(headers) > 0 THEN to_json(headers) END AS headers"
"""Headers travel as text: Spark computes the size of each row that it hands over, 5 us for a list of structures."""
_FROM_TEXT = """list_transform(
    from_json(texts, '[{"key": "VARCHAR", "value": "VARCHAR"}]'),
    lambda header: {'key': header.key, 'value': from_base64(header.value)}
)"""
EXPIRY_GAP = 1000
"""Offsets that a large message may span; the consumers' default of message.assembler.expiration.offset.gap."""


def kafka_records(
    spark: SparkSession, topics: tuple[str, ...], kafka: Mapping[str, str], *, max_rows: int
) -> DataFrame:
    """Return the stream of all records of the topics (names, or patterns with ``*``). ``kafka``: properties of the
    client.
    """
    # Limit: ten thousand records, Spark's default per Arrow batch, may be gigabytes with large messages.
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(16 << 20))
    return (
        spark.readStream.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in kafka.items()})
        .option("subscribePattern", topic_pattern(topics))
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", max_rows)
        .option("failOnDataLoss", "false")  # expired records become a gap, which is counted
        .load()
        .selectExpr(*(_TO_TEXT if name == "headers" else name for name in RECORD.names))
    )


def as_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of ``kafka_records`` with the schema RECORD."""
    values = {
        "timestamp": clamp_timestamps(batch.column("timestamp")),
        "headers": _headers(batch.column("headers")),  # type: ignore[arg-type]  # text by the schema
    }
    columns = [values[f.name] if f.name in values else batch.column(f.name) for f in RECORD]
    cast = [c if c.type.equals(f.type) else c.cast(f.type) for c, f in zip(columns, RECORD, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=RECORD)


def _headers(texts: pa.StringArray) -> pa.Array[Any]:
    """Decode headers from base64 in JSON; null if a record has none."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), HEADERS)
    return compute({"headers": _FROM_TEXT}, texts=texts)["headers"]


def topic_pattern(topics: tuple[str, ...]) -> str:
    """Return the topics as one regular expression of Java. Internal topics (``_...``) match by their full name only."""
    parts = []
    for topic in topics:
        escaped = re.escape(topic).replace(r"\*", ".*").replace(r"\?", ".")
        parts.append(escaped if topic.startswith("_") else f"(?!_){escaped}")
    return "|".join(parts)
