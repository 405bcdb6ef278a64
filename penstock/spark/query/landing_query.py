"""The landing: one streaming query from all topics into the one table ``landed``.

Spark plans each micro-batch and stores its offsets; tasks write files (``landing_tasks``); the driver decides which
rows are duplicates and commits the files under the micro-batch's number (``penstock.landing.writing.batch_commit``).

Invariant: each message lands once. A repeated batch is decided in the same way, and a batch that the table already has
is skipped. Start with ``start_landing``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event, Thread

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.config.keys.export import ExportConfig
from penstock.config.keys.pipeline import IcebergConfig
from penstock.config.syntax.tables_url import TablesPlace
from penstock.handover.landing_failure import FailurePage
from penstock.landing.daemon_connection import DaemonConnection
from penstock.landing.duplicates.landed_keys import NO_LIMIT
from penstock.landing.from_kafka.range_assembler import EXPIRY_GAP
from penstock.landing.journal import CommitInProgress
from penstock.landing.requests.deletions import DeletionRecord
from penstock.landing.rows.json_events import EventRules
from penstock.landing.rows.table_rows import Rules
from penstock.landing.rows.type_schemas import Schema, load_schemas, save_schemas
from penstock.landing.spark_checkpoint import planned_ranges
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from penstock.landing.topics.continuity import Continuity, LogContinuity
from penstock.landing.topics.from_folder import FolderStore
from penstock.landing.transform.rules import TransformRules
from penstock.landing.typed.columns import TypedTable, strict_tables
from penstock.landing.typed.typed_tables import TypedTables
from penstock.landing.writing.background_commit import BackgroundCommit
from penstock.landing.writing.batch_commit import BatchCommit
from penstock.landing.writing.part_writer import Job
from penstock.proof.kafka_records import kafka_records as proof_records
from penstock.spark.package_zip import send_module
from penstock.spark.query.checked_reader import CheckedReader
from penstock.spark.query.landing_tasks import Sources, kafka_messages, log_messages, run_tasks
from penstock.spark.query.type_schemas import parse_schemas
from penstock.spark.source.landing_ranges import register_landing
from penstock.upkeep.repair.checkpoint_repair import (
    check_batches,
    check_source,
    repair_positions,
    repeat_missing_batch,
)
from penstock.upkeep.repair.reread_rows import LogMessages, RowSources

MIN_TRIGGER_S = 0.1
"""Shortest interval between micro-batches; a micro-batch takes longer."""


@dataclass(frozen=True, slots=True)
class Landing:
    """Settings of a landing; times in seconds. ``topics`` is a folder, ``tables`` a folder or a URL.

    ``topic``: names or patterns separated by commas. ``log``: connection to the log daemon; None reads the folder.
    ``kafka``: properties of the client if the source is Kafka; ``kafka_group``: consumer group that shows the
    progress; ``expiry_gap``: offsets that a large message may span. ``max_rows``, ``max_bytes``: limits of one micro-
    batch (bytes as stored; log only). ``only_backfills``: land requested offsets only. ``hashed`` as of ``Job``.
    """

    topics: Path
    tables: TablesPlace
    topic: str = "*"
    event_types: tuple[str, ...] = ()
    keep_payload: bool = True
    hashed: bool = False
    transform: TransformRules = field(default_factory=TransformRules)
    schemas: Mapping[str, str] = field(default_factory=dict)
    typed: tuple[TypedTable, ...] = ()
    duplicate_window: float = 600.0
    target_lag: float = 1.0
    merge_files_every: float = 0.0
    retention: Mapping[str, float] = field(default_factory=dict)
    iceberg: IcebergConfig = field(default_factory=IcebergConfig)
    exports: tuple[ExportConfig, ...] = ()
    log: DaemonConnection | None = None
    kafka: Mapping[str, str] | None = None
    kafka_group: str = ""
    expiry_gap: int = EXPIRY_GAP
    max_rows: int = 1_000_000
    max_bytes: int = 512 << 20
    only_backfills: bool = False

    @property
    def layout(self) -> Layout:
        return Layout.for_tables(self.tables)

    @property
    def window(self) -> int:
        """Return the duplicate window in microseconds."""
        return round(self.duplicate_window * 1_000_000)

    def rules(self, spark: SparkSession) -> Callable[[Sequence[Schema]], Rules]:
        """Return the rules for valid events, given strict tables; schemas are stored for readers without Spark.

        Raises BadSchema.
        """
        schemas = parse_schemas(spark, self.schemas)
        if self.schemas:
            save_schemas(self.layout.type_schemas, self.schemas, schemas)
        return lambda strict: Rules(EventRules(self.event_types, (*schemas, *strict)), self.keep_payload)

    def continuity(self, *, retries: bool = True) -> Continuity:
        """Return the checks that offsets still name the messages that landed at them.

        Without ``retries`` a log daemon is asked once.
        """
        patterns, marks = self.topic.split(","), self.layout.continuity
        if self.kafka is not None:
            from penstock.landing.from_kafka.continuity import KafkaContinuity  # Kafka's client is an extra

            return KafkaContinuity(self.kafka, patterns, marks)
        if self.log is None:
            return LogContinuity(partial(FolderStore, Path(self.topics)), patterns, marks)
        from penstock.landing.topics.from_flight import FlightStore  # imports Flight and gRPC

        store = FlightStore(self.log if retries else replace(self.log, retry_for=0))
        return LogContinuity(lambda: store, patterns, marks)

    def row_sources(self) -> RowSources | None:
        """Return the sources of the rows of damaged files; None for the log's topics, whose rows land again."""
        kafka = proof_records(self.kafka, self.expiry_gap, self.event_types)
        if kafka is None:
            return None

        def rules(typed: Sequence[TypedTable]) -> Rules:
            schemas = load_schemas(self.layout.type_schemas, self.schemas)
            return Rules(EventRules(self.event_types, (*schemas, *strict_tables(typed))), self.keep_payload)

        # A pipeline that was moved to Kafka has rows of the log, too.
        log = LogMessages(FolderStore(self.topics)) if self.log is None else None
        return RowSources(kafka, log, rules, self.transform, self.window)


class RunningLanding:
    """The landing query, and the commit that may still run in the background after Spark has ended its batch."""

    def __init__(
        self, query: StreamingQuery, commits: BackgroundCommit, typed: TypedTables, reader: CheckedReader
    ) -> None:
        self.query, self._commits, self._typed, self._reader = query, commits, typed, reader

    def change_typed(self, tables: Sequence[TypedTable]) -> None:
        """Write these typed tables from the next batch on. For any thread.

        Raises SchemaDiffers, TypedTableAhead; then the typed tables are as before. RuntimeError: the query has ended.
        """
        self._commits.run_between(partial(self._typed.change, tables))

    def wait(self, timeout_s: int) -> None:
        """Wait until all messages have landed. Raises the error that ended the query, or TimeoutError."""
        try:
            if not self.query.awaitTermination(timeout_s):
                raise TimeoutError(f"the landing still runs after {timeout_s} s")
        except PySparkException:
            if self._reader.refusal is not None:
                raise self._reader.refusal from None
            raise
        finally:
            self.stop()
        self._commits.settle()

    @property
    def is_committing(self) -> bool:
        """Whether a written batch is being committed to the table."""
        return self._commits.is_busy

    @property
    def is_running(self) -> bool:
        return self._commits.failure() is None and (self.query.isActive or self._commits.is_busy)

    def failure(self) -> BaseException | None:
        """Return why the query has ended; None if everything has landed."""
        return self._commits.failure() or self._reader.refusal or self.query.exception()

    def uncommitted(self) -> BaseException | None:
        """Return why the last batch is not in the table, once the query is stopped."""
        return self._commits.failure()

    def stop(self) -> None:
        """Stop the query: a batch whose tasks run is repeated by the next start, a written batch is committed."""
        try:
            self.query.stop()
        finally:  # even if the JVM is gone
            self._commits.close()


def start_landing(
    spark: SparkSession,
    landing: Landing,
    *,
    available_now: bool = False,
    stop: Event | None = None,
    under_way: CommitInProgress | None = None,
    latest_time: Callable[[], int] = lambda: NO_LIMIT,
    failures: FailurePage | None = None,
) -> RunningLanding:
    """Start the query from its checkpoint.

    ``available_now``: end when all messages have landed. ``stop``: ends the wait for an unavailable store.
    ``under_way``: kept up to date for the reader that enters commits in the journal. ``latest_time`` returns the
    plausible time in microseconds: rows with a later log time do not expire any key of duplicates.
    ``failures`` collects failed attempts to commit, and is cleared by a commit.

    Raises UnknownFormat (another version created the table), CheckpointLost, SchemaDiffers, TypedTableAhead,
    SourceDiffers (the table was landed from another source), OffsetsRestarted, BadTransform.
    """
    layout = landing.layout
    send_module(spark, landing.transform.function)
    check_source(layout, landing.kafka is not None)
    table = begin_table(layout)
    # Order: checks and repairs of the checkpoint before the query reads it; the table decides in each conflict.
    repeat_missing_batch(layout, table)
    check_batches(layout)
    reader = CheckedReader(layout, landing.continuity(), repair_positions(layout, table, landing.topic.split(",")))
    reader.check()
    typed = TypedTables(layout, table, landing.typed)
    # Order: typed tables before ``landed``: a batch is complete once ``landed`` has it.
    typed.begin()
    commit = BatchCommit(
        table,
        layout.keys,
        landing.window,
        lambda: DeletionRecord(layout).keys(),
        typed.commit,
        latest_time,
        partial(planned_ranges, layout.checkpoint),
    )
    commits = BackgroundCommit(commit, stop or Event(), under_way or CommitInProgress(), failures)
    frame, sources = _source_of_ranges(spark, landing, until_available=available_now)
    rules = landing.rules(spark)

    def land(batch: DataFrame, number: int) -> None:
        # A reload may have changed the strict tables since the previous batch.
        job = Job(
            table.folder,
            layout.keys,
            landing.window,
            rules(typed.strict),
            landing.transform,
            typed.writer(),
            landing.hashed,
        )
        # The commit runs in the background during the next micro-batch's tasks; at most one at a time.
        run = partial(run_tasks, batch, sources, job, time.time_ns() // 1000, layout.scratch)
        commits.land(number, partial(reader.read, number, run))

    writer = frame.writeStream.queryName("landed").option("checkpointLocation", str(layout.checkpoint))
    writer = writer.foreachBatch(land).outputMode("append")
    interval = 0.0 if available_now else max(landing.target_lag / 2, MIN_TRIGGER_S)
    query = writer.trigger(processingTime=f"{round(interval * 1000)} milliseconds").start()
    if available_now:
        # Workaround: with the trigger availableNow Spark before 4.2 reads all that is available in one batch.
        Thread(target=_stop_when_read, args=(query,), name="end of the landing", daemon=True).start()
    return RunningLanding(query, commits, typed, reader)


def _stop_when_read(query: StreamingQuery) -> None:
    """Stop a query once its source has nothing more; an error of the query is raised where the query is watched."""
    # An ended JVM raises errors of py4j and of the socket.
    with contextlib.suppress(PySparkException, Py4JError, OSError):
        query.processAllAvailable()
        query.stop()


def _source_of_ranges(spark: SparkSession, landing: Landing, *, until_available: bool) -> tuple[DataFrame, Sources]:
    """Return the stream of planned ranges, and the function by which tasks read them.

    ``until_available``: nothing is planned that is appended after the start.
    """
    if landing.kafka is not None:
        # Kafka's client is an extra.
        from penstock.spark.source.kafka_ranges import CLIENT_PREFIX, register_kafka_landing

        register_kafka_landing(spark)
        kafka = {f"{CLIENT_PREFIX}{name}": value for name, value in landing.kafka.items()}
        stream = spark.readStream.format("penstock_kafka_landing").options(**kafka)
        sources = kafka_messages(dict(landing.kafka), landing.expiry_gap)
    else:
        register_landing(spark)
        log = landing.log.options() if landing.log else {"path": str(Path(landing.topics).absolute())}
        stream = (
            spark.readStream.format("penstock_landing")
            .options(**log)
            .option("maxBytesPerTrigger", landing.max_bytes)
            .option("backfillsFolder", str(landing.layout.backfills))
            .option("onlyBackfills", str(landing.only_backfills).lower())
        )
        sources = log_messages(log)
    ranges = (
        stream.option("topic", landing.topic)
        .option("maxRowsPerTrigger", landing.max_rows)
        .option("holdFile", str(landing.layout.hold))
        .option("untilAvailable", str(until_available).lower())
        .load()
    )
    return ranges, sources
