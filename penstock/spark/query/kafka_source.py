"""Kafka as the landing's source, through Spark's own connector."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from penstock.landing.admitted_types import TypeRegistry
from penstock.landing.event_rules import MessageKind
from penstock.landing.from_kafka.range_assembler import RangeAssembler
from penstock.landing.from_kafka.rows import RECORD, ROW
from penstock.spark.source.type_admission import admitted

SCHEMA = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, payload binary, type_url string, "
    "annotations map<string,string>, source string, bucket timestamp, received timestamp, codec string, admitted string"
)
"""The rows of the source as DDL."""
EXPIRY_GAP = 1000
"""Offsets that a large message may span, as in a consumer (message.assembler.expiration.offset.gap)."""


def kafka_rows(
    spark: SparkSession,
    topics: tuple[str, ...],
    kafka: Mapping[str, str],
    registry: tuple[Path, int],
    *,
    max_rows: int,
    gap: int = EXPIRY_GAP,
) -> DataFrame:
    """The stream of all messages of the topics (names, or patterns with ``*``), large ones whole.

    ``kafka``: properties of the client; ``registry``: folder and limit of the TypeRegistry.
    """
    # Records with large messages are many bytes: an Arrow batch must not hold ten thousand of them.
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(16 << 20))
    records = (
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
    return records.mapInArrow(_task(dict(kafka), registry, gap), SCHEMA)


def topic_pattern(topics: tuple[str, ...]) -> str:
    """The topics as one regular expression of Java. Internal ones (``_...``) only by their full name."""
    parts = []
    for topic in topics:
        escaped = re.escape(topic).replace(r"\*", ".*").replace(r"\?", ".")
        parts.append(escaped if topic.startswith("_") else f"(?!_){escaped}")
    return "|".join(parts)


def _task(
    kafka: Mapping[str, str], registry: tuple[Path, int], gap: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.landing.from_kafka.read_back import LookBack  # on the executor: only here is the client needed

        types = TypeRegistry(*registry)
        assembler = RangeAssembler(LookBack(kafka, gap), gap)
        for batch in batches:
            for rows in assembler.take(as_records(batch)):
                yield _admitted(rows, types)
        for rows in assembler.finish():
            yield _admitted(rows, types)

    return run


def as_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of Spark's as RECORD."""
    columns = [batch.column(f.name) for f in RECORD]
    cast = [c if c.type.equals(f.type) else c.cast(f.type) for c, f in zip(columns, RECORD, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=RECORD)


def _admitted(rows: pa.RecordBatch, types: TypeRegistry) -> pa.RecordBatch:
    is_syslog = pc.fill_null(pc.equal(rows.column("codec"), pa.scalar(MessageKind.SYSLOG.value)), pa.scalar(False))
    payloads = pc.if_else(is_syslog, pa.scalar(None, pa.binary()), rows.column("payload"))
    return rows.select(ROW.names).append_column("admitted", admitted(payloads, types))
