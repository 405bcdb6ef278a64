"""The landing: one streaming query from all topics into the one table ``landed``.

Spark plans each micro-batch and writes its offsets down; tasks write files (``landing_tasks``); the driver decides
which rows are duplicates and commits the files under the micro-batch's number
(``penstock.landing.writing.batch_commit``). A batch that is done again is decided alike, and one that the table has is
passed over: so each message lands once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.config.tables_url import TablesPlace
from penstock.landing.daemon_connection import DaemonConnection
from penstock.landing.duplicates.landed_keys import NO_LIMIT
from penstock.landing.journal import CommitInProgress
from penstock.landing.requests.deletions import DeletionRecord
from penstock.landing.rows.json_events import EventRules
from penstock.landing.rows.table_rows import Rules
from penstock.landing.rows.type_schemas import save_schemas
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from penstock.landing.transform.rules import TransformRules
from penstock.landing.typed.columns import TypedTable, strict_tables
from penstock.landing.typed.typed_tables import TypedTables
from penstock.landing.writing.background_commit import BackgroundCommit
from penstock.landing.writing.batch_commit import BatchCommit
from penstock.landing.writing.part_writer import Job
from penstock.spark.extensions import KAFKA
from penstock.spark.package_zip import send_module
from penstock.spark.query.kafka_source import EXPIRY_GAP, kafka_records
from penstock.spark.query.landing_tasks import Sources, of_kafka, of_the_log, written_parts
from penstock.spark.query.type_schemas import parse_schemas
from penstock.spark.source.landing_ranges import register_landing
from penstock.upkeep.checkpoint_repair import check_batches, check_source, take_back

MIN_TRIGGER = 0.1
"""Seconds. A micro-batch takes longer than that anyway."""


@dataclass(frozen=True, slots=True)
class Landing:
    """What is landed and how. ``topics`` is a folder, ``tables`` one or a URL; times in seconds.

    ``topic``: names or patterns with commas. ``log``: the log daemon, where its topics are read from there and not from
    their folder. ``kafka``: properties of the client where the topics are Kafka's and not the log's; ``kafka_group``:
    the consumer group that shows how far they landed; ``expiry_gap``: how many offsets a large message may span there.
    ``max_rows``, ``max_bytes``: most of one micro-batch (bytes as stored; of the log alone). ``only_refills``: nothing
    but what was asked for out of turn.
    """

    topics: Path
    tables: TablesPlace
    topic: str = "*"
    event_types: tuple[str, ...] = ()
    keep_payload: bool = True
    transform: TransformRules = field(default_factory=TransformRules)
    schemas: Mapping[str, str] = field(default_factory=dict)
    typed: tuple[TypedTable, ...] = ()
    duplicate_window: float = 600.0
    target_lag: float = 1.0
    merge_files_every: float = 0.0
    retention: Mapping[str, float] = field(default_factory=dict)
    log: DaemonConnection | None = None
    kafka: Mapping[str, str] | None = None
    kafka_group: str = ""
    expiry_gap: int = EXPIRY_GAP
    max_rows: int = 1_000_000
    max_bytes: int = 512 << 20
    only_refills: bool = False

    @property
    def layout(self) -> Layout:
        return Layout.for_tables(self.tables)

    @property
    def packages(self) -> list[str]:
        """What the session has to have besides Spark itself."""
        return [KAFKA] if self.kafka is not None else []

    @property
    def window(self) -> int:
        """The duplicate window in microseconds."""
        return round(self.duplicate_window * 1_000_000)

    def rules(self, spark: SparkSession) -> Rules:
        """What makes an event; schemas are kept for who has no Spark. Raises BadSchema."""
        schemas = parse_schemas(spark, self.schemas)
        if self.schemas:
            save_schemas(self.layout.type_schemas, self.schemas, schemas)
        return Rules(EventRules(self.event_types, (*schemas, *strict_tables(self.typed))), self.keep_payload)


class RunningLanding:
    """The landing query, and the commit that may be under way when Spark takes its batch for done."""

    def __init__(self, query: StreamingQuery, commits: BackgroundCommit) -> None:
        self.query, self._commits = query, commits

    def wait(self, patience: int) -> None:
        """Wait until it has landed what there was. Raises what ended it, or TimeoutError after so many seconds."""
        try:
            if not self.query.awaitTermination(patience):
                raise TimeoutError(f"it goes on after {patience} s")
        finally:
            self.stop()
        self._commits.settle()

    @property
    def goes_on(self) -> bool:
        return self._commits.failure() is None and (self.query.isActive or self._commits.is_busy)

    def failure(self) -> BaseException | None:
        """Why it does not go on; None where it has landed what there was."""
        return self._commits.failure() or self.query.exception()

    def uncommitted(self) -> BaseException | None:
        """Why the last batch is not in the table, once it has been stopped."""
        return self._commits.failure()

    def stop(self) -> None:
        """End it: a batch whose tasks run is done again, one that is written is committed."""
        try:
            self.query.stop()
        finally:  # also where the JVM is gone
            self._commits.close()


def start_landing(
    spark: SparkSession,
    landing: Landing,
    *,
    available_now: bool = False,
    stop: Event | None = None,
    under_way: CommitInProgress | None = None,
    latest_time: Callable[[], int] = lambda: NO_LIMIT,
) -> RunningLanding:
    """Start the query from its checkpoint. ``available_now``: it ends when it has landed what there is. A store that is
    away is waited for until ``stop`` is set. ``under_way`` is kept up to date for who enters what is committed.
    ``latest_time`` returns what the clock should say, in microseconds: log times after it let no key of duplicates go.

    Raises UnknownFormat where another version began the table, CheckpointLost where the checkpoint is
    not the table's, SchemaDiffers and TypedTableAhead of typed tables, SourceDiffers where the table is landed from
    another source, BadTransform.
    """
    layout = landing.layout
    send_module(spark, landing.transform.function)
    check_source(layout, landing.kafka is not None)
    table = begin_table(layout)
    take_back(layout, table)
    check_batches(layout)
    typed = TypedTables(layout, table, landing.typed)
    typed.begin()
    commit = BatchCommit(
        table, layout.keys, landing.window, lambda: DeletionRecord(layout).keys(), typed.commit, latest_time
    )
    commits = BackgroundCommit(commit, stop or Event(), under_way or CommitInProgress())
    frame, sources = _planned(spark, landing)
    job = Job(table.folder, layout.keys, landing.window, landing.rules(spark), landing.transform)

    def land(batch: DataFrame, number: int) -> None:
        commits.land(number, lambda: written_parts(batch, sources, job, time.time_ns() // 1000, layout.scratch))

    writer = frame.writeStream.queryName("landed").option("checkpointLocation", str(layout.checkpoint))
    writer = writer.foreachBatch(land).outputMode("append")
    if available_now:
        return RunningLanding(writer.trigger(availableNow=True).start(), commits)
    interval = max(landing.target_lag / 2, MIN_TRIGGER)
    query = writer.trigger(processingTime=f"{round(interval * 1000)} milliseconds").start()
    return RunningLanding(query, commits)


def _planned(spark: SparkSession, landing: Landing) -> tuple[DataFrame, Sources]:
    """The stream of what there is to land, and how tasks read it."""
    if landing.kafka is not None:
        records = kafka_records(spark, tuple(landing.topic.split(",")), landing.kafka, max_rows=landing.max_rows)
        return records, of_kafka(dict(landing.kafka), landing.expiry_gap)
    register_landing(spark)
    where = landing.log.options() if landing.log else {"path": str(Path(landing.topics).absolute())}
    ranges = (
        spark.readStream.format("penstock_landing")
        .options(**where)
        .option("topic", landing.topic)
        .option("maxRowsPerTrigger", landing.max_rows)
        .option("maxBytesPerTrigger", landing.max_bytes)
        .option("holdFile", str(landing.layout.hold))
        .option("refillsFolder", str(landing.layout.refills))
        .option("onlyRefills", str(landing.only_refills).lower())
        .load()
    )
    return ranges, of_the_log(where)
