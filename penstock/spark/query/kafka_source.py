"""Kafka as the landing's source, through Spark's own connector."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from penstock.landing.from_kafka.rows import RECORD

EXPIRY_GAP = 1000
"""Offsets that a large message may span, as in a consumer (message.assembler.expiration.offset.gap)."""


def kafka_records(
    spark: SparkSession, topics: tuple[str, ...], kafka: Mapping[str, str], *, max_rows: int
) -> DataFrame:
    """The stream of all records of the topics (names, or patterns with ``*``). ``kafka``: properties of the client."""
    # Records with large messages are many bytes: an Arrow batch must not hold ten thousand of them.
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(16 << 20))
    return (
        spark.readStream.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in kafka.items()})
        .option("subscribePattern", topic_pattern(topics))
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", max_rows)
        .option("failOnDataLoss", "false")  # what is gone becomes a gap, counted
        .load()
        .select(*RECORD.names)
    )


def topic_pattern(topics: tuple[str, ...]) -> str:
    """The topics as one regular expression of Java. Internal ones (``_...``) only by their full name."""
    parts = []
    for topic in topics:
        escaped = re.escape(topic).replace(r"\*", ".*").replace(r"\?", ".")
        parts.append(escaped if topic.startswith("_") else f"(?!_){escaped}")
    return "|".join(parts)
