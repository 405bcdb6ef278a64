"""The landing: one streaming query from all topics into the one table ``landed``.

Exactly once by Spark's own file sink, or Delta's. Duplicates are dropped by a typed key within a window of landing
time: ``u:topic:uuid`` for valid events, ``o:topic:offset`` (with Kafka ``o:topic:partition:offset``) for everything
else, so that nothing but an event can be taken for a duplicate. The watermark is the time of landing, behind which no
row can be; a watermark on the messages' own time would drop late rows without a trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (what everybody calls it)
from pyspark.sql.streaming.query import StreamingQuery

from penstock.landing.checkpoint_repair import check_batches, check_source, last_landing
from penstock.landing.daemon_connection import DaemonConnection
from penstock.landing.event_rules import MessageKind
from penstock.landing.table_paths import Layout
from penstock.spark.extensions import KAFKA
from penstock.spark.query.kafka_source import EXPIRY_GAP, kafka_rows
from penstock.spark.query.message_kinds import Rules, classified
from penstock.spark.query.type_schemas import parse_schemas
from penstock.spark.source.type_admission import register_landing
from penstock.spark.views import DELTA, PARQUET, VARIANT, begin_table, landed_schema

MIN_WINDOW = 10.0
"""Seconds. What lands later than this after newer rows may be dropped, so that a clock's small jumps do no harm."""
MIN_TRIGGER = 0.1
"""Seconds. A micro-batch takes longer than that anyway."""
PARTITION_COLUMNS = ("kind", "date", "type")


@dataclass(frozen=True, slots=True)
class Landing:
    """What is landed and how. ``topics`` and ``tables`` are folders; times in seconds.

    ``topic``: names or patterns with commas. ``log``: the log daemon, where its topics are read from there and not from
    their folder. ``kafka``: properties of the client where the topics are Kafka's and not
    the log's; ``expiry_gap``: how many offsets a large message may span there. ``max_rows``, ``max_bytes``: most of one
    micro-batch (bytes as stored; of the log alone). ``only_refills``: nothing but what was asked for out of turn.
    """

    topics: Path
    tables: Path
    topic: str = "*"
    event_types: tuple[str, ...] = ()
    max_types: int = 1000
    table_format: str = PARQUET
    data_format: str = VARIANT
    keep_payload: bool = True
    schemas: Mapping[str, str] = field(default_factory=dict)
    duplicate_window: float = 600.0
    target_lag: float = 1.0
    log: DaemonConnection | None = None
    kafka: Mapping[str, str] | None = None
    expiry_gap: int = EXPIRY_GAP
    max_rows: int = 500_000
    max_bytes: int = 512 << 20
    only_refills: bool = False

    @property
    def layout(self) -> Layout:
        return Layout.of(self.tables)

    @property
    def packages(self) -> list[str]:
        """What the session has to have besides Spark itself."""
        return [*([DELTA] if self.table_format == DELTA else []), *([KAFKA] if self.kafka is not None else [])]

    @property
    def registry(self) -> tuple[Path, int]:
        """Folder and limit of the registry of types."""
        return self.layout.types, 0 if self.event_types else self.max_types

    def rules(self, spark: SparkSession) -> Rules:
        """What makes an event. Raises BadSchema."""
        return Rules(self.event_types, self.data_format, self.keep_payload, parse_schemas(spark, self.schemas))


def start_landing(spark: SparkSession, landing: Landing, *, available_now: bool = False) -> StreamingQuery:
    """Start the query from its checkpoint. ``available_now``: it ends when it has landed what there is.

    Raises FormatDiffers where the table was begun with another ``table_format`` or ``data_format``, CheckpointLost
    where the checkpoint is not the table's, SourceDiffers where the table is landed from another source.
    """
    layout = landing.layout
    check_batches(layout)
    check_source(layout, landing.kafka is not None)
    begin_table(layout, landing.table_format, landing.data_format)
    writer = (
        landed_rows(source_rows(spark, landing), landing, landing.rules(spark))
        .writeStream.queryName("landed")
        .format(landing.table_format)
        .partitionBy(*PARTITION_COLUMNS)
        .option("path", str(layout.landed))
        .option("checkpointLocation", str(layout.checkpoint))
        .outputMode("append")
    )
    if available_now:
        return writer.trigger(availableNow=True).start()
    interval = max(landing.target_lag / 2, MIN_TRIGGER)
    return writer.trigger(processingTime=f"{round(interval * 1000)} milliseconds").start()


def source_rows(spark: SparkSession, landing: Landing) -> DataFrame:
    """The stream of all rows of the topics."""
    if landing.kafka is not None:
        topics = tuple(landing.topic.split(","))
        rows, gap = landing.max_rows, landing.expiry_gap
        return kafka_rows(spark, topics, landing.kafka, landing.registry, max_rows=rows, gap=gap)
    register_landing(spark)
    where = landing.log.options() if landing.log else {"path": str(Path(landing.topics).absolute())}
    return (
        spark.readStream.format("penstock_landing")
        .options(**where)
        .option("topic", landing.topic)
        .option("maxRowsPerTrigger", landing.max_rows)
        .option("maxBytesPerTrigger", landing.max_bytes)
        .option("typesFolder", str(landing.registry[0]))
        .option("maxTypes", landing.registry[1])
        .option("landedBefore", last_landing(landing.layout.checkpoint))
        .option("holdFile", str(landing.layout.hold))
        .option("refillsFolder", str(landing.layout.refills))
        .option("onlyRefills", str(landing.only_refills).lower())
        .load()
    )


def landed_rows(rows: DataFrame, landing: Landing, rules: Rules) -> DataFrame:
    """The rows of the table: classified, and without duplicates."""
    identity = F.when(F.col("kind") == MessageKind.EVENT.value, F.concat(F.lit("u:"), "topic", F.lit(":"), "uuid"))
    places = [F.col(name).cast("string") for name in ("partition", "offset")]
    key = F.coalesce(identity, F.concat(F.lit("o:"), F.concat_ws(":", "topic", *places)))
    if "refill" in rows.columns:  # its uuid may still be remembered from the row that is in the table no more
        again = F.concat(F.lit("r:"), F.concat_ws(":", F.col("refill").cast("string"), "topic", *places))
        key = F.when(F.col("refill").isNotNull(), again).otherwise(key)
    names = [part.split()[0] for part in landed_schema().split(", ")]
    return (
        classified(rows, rules)
        .withColumn("landed_at", F.current_timestamp())
        .withColumn("identity", key)
        .withWatermark("landed_at", f"{round(max(landing.duplicate_window, MIN_WINDOW) * 1000)} milliseconds")
        .dropDuplicatesWithinWatermark(["identity"])
        .select(*names)
    )
