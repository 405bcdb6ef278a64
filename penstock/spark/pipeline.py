"""The pipeline as a process: session, landing query, proof worker, maintenance. ``python -m
penstock.spark.pipeline``.

Crash: killed at any moment, the next start continues where it was. Two pipelines never run at once: this process and
its JVM both hold the lock on the checkpoint, and the JVM ends with this process. Start with ``run``.
"""

from __future__ import annotations

from penstock.process.tuning import tune

# Order: before Arrow and Spark are imported, see penstock.process.tuning.
tune("pipeline")

if __name__ == "__main__":
    from penstock.spark.versions import UnknownSpark, check_version

    try:
        check_version()
    except UnknownSpark as unknown:
        raise SystemExit(str(unknown)) from None

import argparse
import errno
import logging
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock import config
from penstock.errors import PenstockError
from penstock.files.disk_space import describe_full, is_disk_full, wait_for_space
from penstock.files.errors import DamagedFile
from penstock.handover.heartbeat import publish_heartbeat
from penstock.handover.landing_failure import WORKER_CAUSE, FailurePage, read_landing_failure
from penstock.kafka.errors import KafkaAway
from penstock.landing.daemon_connection import configured_connection
from penstock.landing.journal import Journal
from penstock.landing.landing_lock import acquire_landing_lock
from penstock.landing.mirror_lag import forget_mirror
from penstock.landing.storage.object_errors import TablesAway, retry_while_away
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.features import FeatureNotWritten
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from penstock.landing.topics.continuity import Continuity, OffsetsRestarted
from penstock.landing.transform.rules import TransformRules
from penstock.landing.typed.columns import configured_tables
from penstock.process.process_end import end_process, exit_status
from penstock.process.reporting import configure
from penstock.process.tuning import FreedMemory
from penstock.proof.posts.ledger_client import LedgerClient
from penstock.spark.query.landing_query import Landing, RunningLanding, start_landing
from penstock.spark.query.proof_worker import LedgerPosts, Progress, ProofWorker
from penstock.spark.session import build_session, jvm_pid, runs_in_process
from penstock.spark.stall_watch import StallWatch, batch_state
from penstock.upkeep.believed_clock import BelievedClock
from penstock.upkeep.export.exporter import Exporters
from penstock.upkeep.iceberg.mirror import IcebergMirror
from penstock.upkeep.maintenance import Follow, Maintenance, Upkeep
from penstock.upkeep.repair.checkpoint_repair import repair_checkpoint, sweep

SHUTDOWN_TIMEOUT_S = 10.0
REPORT_INTERVAL_S = 10.0
CHECK_INTERVAL_S = 30.0
"""Interval between checks that no topic of the log begins again; batches show it only behind the landed offsets."""
QUERY_POLL_S = 0.5
"""Interval between two checks of the query; each is a call into the JVM."""
NOTE_INTERVAL_S = 5.0
"""Interval between two checks of the tasks of a batch; each makes about ten calls into the JVM."""
MEMORY_GROWTH_BYTES = 64 << 20
"""Growth of the driver between two releases of freed memory. A batch of a million events takes about as much, and the
next one uses it again.
"""
MAX_QUERY_STARTS = 20
"""Starts of the query after WORKER_CAUSE: a worker took more than ten seconds to start. Restarting the query costs less
than restarting the JVM.
"""
IDLE_MESSAGES = ("Waiting for data to arrive", "Waiting for next trigger")
"""Spark's messages between two triggers: without data that is available, all that waited has landed."""
KAFKA_AWAY = re.compile(r"^Kafka (?:at|showed) .*|(?<=\bKafkaAway: )Kafka .*", re.MULTILINE)
"""Errors of the query that pass by themselves, once the brokers answer."""
FEATURE_POLL_S = 10.0
"""Interval between checks whether a table has lost a feature that Penstock does not write; each reads its log."""


class SparkGone(PenstockError, RuntimeError):
    """Spark's Java process has ended or was killed."""


class DiskFull(PenstockError, RuntimeError):
    """A folder of the pipeline has no space; the text names it."""


class MachineTooBusy(PenstockError, RuntimeError):
    """Spark's Python workers do not start in time."""


_LOGGER = logging.getLogger(__name__)


def run(
    landing: Landing,
    *,
    spark: Mapping[str, object] | None = None,
    ledger: LedgerPosts | None = None,
    once: bool = False,
    stop: threading.Event | None = None,
    follow: Follow | None = None,
    heartbeats: Sequence[Path] = (),
) -> int:
    """Land until ``stop`` is set (with ``once``: until all messages have landed); return the exit code.

    ``spark``: settings of the session. ``ledger``: receiver of proofs; None posts none. ``follow``: settings that a
    reload changes. ``heartbeats``: pages, in one of which the process shows that it runs. Raises PipelineRunning,
    NoJava, CannotFetch, UnknownFormat, BadTransform, TablesRefused, AnotherWriter, OffsetsRestarted, SparkGone,
    DiskFull, KafkaAway.
    """
    landing.transform.check()
    stop = stop or threading.Event()
    # Lock: the JVM inherits the handle and holds the lock as long as it lives.
    handle = acquire_landing_lock(landing.layout, stop)
    lock = ExitStack()
    lock.callback(os.close, handle)
    failures = FailurePage(landing.layout.failure)
    lock.callback(failures.close)
    try:
        if heartbeats:
            try:
                lock.enter_context(publish_heartbeat(heartbeats))
            except OSError as error:
                _LOGGER.warning("the console cannot see whether the pipeline is stopped: %s", error)
        if landing.layout.store is not None:
            retry_while_away(lambda: begin_table(landing.layout), stop, failures.record)
        clock = BelievedClock(landing.layout, ledger)
        with _background_work(landing, ledger, clock, lock, follow) as (proof_worker, maintenance):
            session = build_session(spark or {}, inherit=[handle], scratch=landing.layout.scratch)
            try:
                return _land(_Run(session, landing, proof_worker, maintenance, clock, failures, once, stop))
            finally:
                session.stop()
    except TablesAway:
        if stop.is_set():
            return 0
        raise
    except Exception as error:
        cause = _named(error, landing, spark or {})
        if not stop.is_set():
            failures.record(cause)
        if cause is error:
            raise
        raise cause from None
    finally:
        lock.close()


def _named(error: Exception, landing: Landing, spark: Mapping[str, object]) -> Exception:
    """Return the error to raise: a full disk and an end of Spark get errors of their own."""
    if isinstance(error, OSError | Py4JError) and is_disk_full(error):
        return DiskFull(describe_full(_written_folders(landing, spark)))
    if isinstance(error, Py4JJavaError):
        return SparkGone(f"Spark failed: {error}")
    if isinstance(error, Py4JError | ConnectionError):
        return SparkGone(f"Spark's Java process has ended: {error}")
    return error


@contextmanager
def _background_work(
    landing: Landing, ledger: LedgerPosts | None, clock: BelievedClock, lock: ExitStack, follow: Follow | None = None
) -> Iterator[tuple[ProofWorker, Maintenance]]:
    """Clean up after the previous pipeline, then run the workers that need no Spark during the block."""
    # Order: repair of checkpoint and journal first; the proof worker then enters what was committed, and only what the
    # journal does not name may be removed.
    for name in repair_checkpoint(landing.layout):
        _LOGGER.info("removed %s: it was torn, or its batch is not in the table, and is repeated", name)
    proof_worker = ProofWorker(landing, ledger, clock)
    proof_worker.enter()
    if removed := sweep(landing.layout):
        _LOGGER.info("removed %d files of a batch that was never committed", removed)
    # Crash: the hold file and the scratch folder of a killed pipeline are of no use.
    landing.layout.hold.unlink(missing_ok=True)
    shutil.rmtree(landing.layout.scratch, ignore_errors=True)
    landing.layout.scratch.mkdir()
    upkeep = Upkeep(landing.merge_files_every, landing.window, landing.retention, landing.typed)
    maintenance = Maintenance(
        landing.layout,
        upkeep,
        clock,
        lambda: proof_worker.all_proved,
        _local_topics(landing),
        follow,
        landing.row_sources(),
    )
    iceberg = landing.iceberg
    mirror = IcebergMirror(landing.layout, iceberg, clock.now_if_steady) if iceberg.catalog else None
    exporters = Exporters(landing.layout, landing.exports, clock.now_if_steady)
    proof_worker.start()
    maintenance.start()
    exporters.start()
    if mirror is not None:
        mirror.start()
    else:
        forget_mirror(landing.layout)
    try:
        yield proof_worker, maintenance
    finally:
        stopped = [maintenance.stop(SHUTDOWN_TIMEOUT_S), proof_worker.break_off(SHUTDOWN_TIMEOUT_S)]
        # Order: last, so that exports and Iceberg tables have everything that landed.
        stopped.append(exporters.stop(SHUTDOWN_TIMEOUT_S))
        if mirror is not None:
            stopped.append(mirror.stop(SHUTDOWN_TIMEOUT_S))
        if not all(stopped):
            # Lock: a thread that has not ended may still write, so nobody else may start.
            lock.pop_all()  # the lock is held until this process ends


@dataclass(frozen=True, slots=True)
class _Run:
    """A session of Spark that lands, with the workers next to it. ``stop`` ends it, ``once`` when all has landed."""

    session: SparkSession
    landing: Landing
    proof_worker: ProofWorker
    maintenance: Maintenance
    clock: BelievedClock
    failures: FailurePage
    once: bool
    stop: threading.Event


def _land(run: _Run) -> int:
    running, error = _run_query(run)
    run.maintenance.stop(SHUTDOWN_TIMEOUT_S)
    # Order: maintenance, query, then the last proofs: nothing is committed after the proof worker has stopped.
    _stop_query(running, run.landing.layout)
    if not run.proof_worker.stop(SHUTDOWN_TIMEOUT_S):
        _LOGGER.warning("some batches are not proved or posted yet; the next start does it")
    _LOGGER.info("%s", _report(run.proof_worker.progress))
    if is_disk_full(RuntimeError(error)):
        raise OSError(errno.ENOSPC, error)
    if run.landing.kafka is not None and (away := KAFKA_AWAY.search(error)):
        raise KafkaAway(away[0])
    if error:
        run.failures.record(error)
    elif run.once and not run.stop.is_set():
        run.failures.clear()
    return 1 if error else 0


def _run_query(run: _Run) -> tuple[RunningLanding, str]:
    """Run the query until it ends or ``run.stop`` is set; return it, and why it failed ("" if it did not)."""
    landing, halt = run.landing, threading.Event()
    for _ in range(MAX_QUERY_STARTS):
        run.maintenance.attach(None)
        try:
            running = start_landing(
                run.session,
                replace(landing, typed=run.maintenance.typed),
                available_now=run.once,
                stop=halt,
                under_way=run.proof_worker.under_way,
                latest_time=run.clock.expected_micros,
                failures=run.failures,
            )
            run.maintenance.attach(running.change_typed)
            _LOGGER.info("landing %s from %s into %s", landing.topic, _source(landing), landing.layout.landed)
            continuity = None if landing.kafka is not None else landing.continuity(retries=False)
            error = _watch_closely(run, running, halt, continuity)
            if WORKER_CAUSE not in error:
                return running, error
            running.stop()
        except PySparkException as failure:
            if WORKER_CAUSE not in str(failure):
                raise
        run.failures.record(WORKER_CAUSE)
        _LOGGER.warning("no Python worker started within 10 s because the machine is overloaded; restarting the query")
    raise MachineTooBusy(f"no Python worker started in {MAX_QUERY_STARTS} attempts")


def _local_topics(landing: Landing) -> Path | None:
    """Return the folder of the log; None if the pipeline reads it from another machine, or reads Kafka."""
    return Path(landing.topics) if landing.log is None and landing.kafka is None else None


def _source(landing: Landing) -> str:
    if landing.kafka is not None:
        return "Kafka"
    return landing.log.address if landing.log else str(landing.topics)


def _watch_closely(run: _Run, running: RunningLanding, halt: threading.Event, continuity: Continuity | None) -> str:
    """Watch the query, and stop it before an error is raised: nothing may be committed after the error is reported.

    ``halt`` ends the wait of a commit for an unavailable store. It is not ``run.stop``, which says that the pipeline
    is to end: an error is recorded and waited for.
    """
    try:
        with StallWatch(jvm_pid()) as stall_watch:
            return _watch(run, running, stall_watch, continuity)
    except BaseException:
        halt.set()
        running.stop()
        raise
    finally:
        if run.stop.is_set():
            halt.set()


def _watch(run: _Run, running: RunningLanding, stall_watch: StallWatch, continuity: Continuity | None) -> str:
    """Wait until the query ends or ``run.stop`` is set, and log progress; return why it failed ("" if it did not).

    Raises OffsetsRestarted.
    """
    spark_context, proof_worker, failures = run.session.sparkContext, run.proof_worker, run.failures
    reported_batch, reported_rows, reported_at = proof_worker.progress.batch, 0, time.monotonic()
    memory = FreedMemory(MEMORY_GROWTH_BYTES)
    is_remote, next_note = not runs_in_process(str(spark_context.master)), 0.0
    next_check = time.monotonic() + CHECK_INTERVAL_S
    while running.is_running and not run.stop.wait(QUERY_POLL_S):
        if time.monotonic() >= next_note:
            next_note = time.monotonic() + NOTE_INTERVAL_S
            memory.release_growth()
            # A commit waits for an unreachable store without a limit, so it is not a stall of Spark.
            is_committing = running.is_committing
            stall_watch.note(None if is_committing else batch_state(spark_context, running.query, is_remote=is_remote))
            if failures.failure and not is_committing and _is_idle(running.query.status):
                failures.clear()
        if continuity is not None and time.monotonic() >= next_check:
            next_check = time.monotonic() + CHECK_INTERVAL_S
            continuity.check()
        # The proof worker itself logs that proofs are delayed, once for each reason.
        if proof_worker.progress.batch != reported_batch and time.monotonic() - reported_at >= REPORT_INTERVAL_S:
            progress, now = proof_worker.progress, time.monotonic()
            # Spark's own rate counts planned ranges of offsets, of which a batch has one or a few per topic.
            rate = f", {(progress.rows - reported_rows) / (now - reported_at):,.0f} rows/s"
            reported_batch, reported_rows, reported_at = progress.batch, progress.rows, now
            _LOGGER.info("%s%s", _report(progress), rate)
    error = running.failure()
    if error is None or run.stop.is_set():
        return ""
    if not is_disk_full(error):
        # Spark's error holds the traceback of the process that plans; its one line on Kafka says all.
        away = KAFKA_AWAY.search(str(error))
        _LOGGER.error("the landing query failed: %s", away[0] if away else str(error)[:2000])
    return str(error) or type(error).__name__


def _is_idle(status: Mapping[str, Any]) -> bool:
    return status["message"] in IDLE_MESSAGES and not status["isDataAvailable"]


def _written_folders(landing: Landing, spark: Mapping[str, object]) -> dict[str, Path]:
    """Return the folders that the pipeline writes, by their purpose."""
    layout = landing.layout
    scratch = str(spark.get("local.dir") or spark.get("spark.local.dir") or layout.scratch)
    folders = {"Spark's scratch": Path(scratch.partition(",")[0]), "Spark's checkpoint": layout.checkpoint}
    return folders if layout.store is not None else {**folders, "the table": layout.tables}


def _stop_query(running: RunningLanding, layout: Layout) -> None:
    """Stop the query, at the end of its current batch if that does not take long."""
    # Order: the hold file first: the query takes nothing new, and the batch that runs can end.
    layout.hold.touch()
    query, deadline = running.query, time.monotonic() + SHUTDOWN_TIMEOUT_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(0.05)
    running.stop()
    if (error := running.uncommitted()) is not None:
        _LOGGER.warning("the last batch is not in the table; the next start repeats it: %s", error)


def _report(progress: Progress) -> str:
    lost = f"{progress.unaccounted:,} UNACCOUNTED" if progress.unaccounted else "0 unaccounted"
    return (
        f"proved to batch {progress.batch}: {progress.rows:,} rows, {progress.quarantined:,} quarantined, "
        f"{progress.duplicates:,} duplicates, {lost}"
        + (f"; proofs are delayed: {progress.away}" if progress.away else "")
    )


@contextmanager
def tidied(landing: Landing, running: bool = False) -> Iterator[None]:
    """Hold the landing's lock with the journal up to date; with ``running``, another process has it: change nothing.

    Raises PipelineRunning.
    """
    if running:
        yield
        return
    handle = acquire_landing_lock(landing.layout, threading.Event())
    try:
        repair_checkpoint(landing.layout)
        Journal(landing.layout).update()
        yield
    finally:
        os.close(handle)


def landing_of(settings: config.Settings) -> Landing:
    """Return the landing that the configuration describes. Raises BadTransform."""
    pipeline = settings.pipeline
    return Landing(
        topics=settings.topics,
        tables=settings.tables,
        topic=",".join(pipeline.topics),
        event_types=pipeline.event_types,
        keep_payload=pipeline.keep_payload,
        hashed=pipeline.proof == "rows",
        transform=TransformRules.from_config(pipeline),
        schemas=pipeline.schemas,
        typed=configured_tables(pipeline),
        duplicate_window=pipeline.duplicate_window,
        target_lag=pipeline.target_lag,
        merge_files_every=pipeline.merge_files_every,
        max_rows=pipeline.batch_rows,
        max_bytes=pipeline.batch_bytes,
        retention=pipeline.retention,
        iceberg=pipeline.iceberg,
        exports=settings.export,
        log=configured_connection(settings),
        kafka=pipeline.kafka if pipeline.source == "kafka" else None,
        kafka_group=pipeline.kafka_group,
        expiry_gap=pipeline.expiry_gap,
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; SIGTERM and SIGINT end it cleanly."""
    parser = argparse.ArgumentParser(prog="python -m penstock.spark.pipeline", description="topics to tables")
    parser.add_argument("--config", type=Path, help="configuration file")
    parser.add_argument("-o", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help="one setting")
    parser.add_argument("--once", action="store_true", help="end when all messages have landed")
    parser.add_argument("--no-ledger", action="store_true", help="store proofs without posting them")
    parsed = parser.parse_args(arguments)
    configure("pipeline")
    try:
        settings = config.load(parsed.config, parsed.overrides)
    except config.ConfigError as error:
        _LOGGER.critical("%s", error)
        return 2
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    ledger = None if parsed.no_ledger else LedgerClient.from_settings(settings)
    try:
        return run(landing_of(settings), spark=settings.pipeline.spark, ledger=ledger, once=parsed.once, stop=stop)
    except (PenstockError, RuntimeError, ValueError) as error:
        _LOGGER.critical("%s", error)
        if not parsed.once:
            wait_until_useful(error, settings, stop)
        return 1


def wait_until_useful(error: Exception, settings: config.Settings, stop: threading.Event) -> None:
    """Wait until a restart after ``error`` can help: a supervisor would start a JVM each time, in vain."""
    if is_disk_full(error) or isinstance(error, DiskFull):
        _LOGGER.warning("the pipeline waits for space on the disk, and starts again then; nothing is lost")
        failure = read_landing_failure(Layout.for_tables(settings.tables).failure)
        # A disk may be full in another way than its free bytes show: inodes, or a quota.
        is_repeated = failure is not None and failure.times > 1
        folders = _written_folders(landing_of(settings), settings.pipeline.spark)
        wait_for_space(folders, stop, ample_is_enough=not is_repeated)
    if isinstance(error, FeatureNotWritten):
        table = Layout.for_tables(settings.tables).landed
        errors = FeatureNotWritten, DamagedFile, TablesAway
        _wait_until_passes(lambda: DeltaTable(table).check_features(), errors, f"{table} can be written again", stop)
    if isinstance(error, KafkaAway):
        _LOGGER.warning("the pipeline waits for Kafka, and starts again then; nothing is lost")
        kafka = landing_of(settings).continuity()
        _wait_until_passes(kafka.check_answers, (KafkaAway,), "Kafka answers", stop)
    if isinstance(error, OffsetsRestarted):
        continuity = landing_of(settings).continuity(retries=False)
        passed = "no topic is known to have begun again now"
        _wait_until_passes(continuity.check, (OffsetsRestarted,), passed, stop)


def _wait_until_passes(
    check: Callable[[], object], errors: tuple[type[Exception], ...], passed: str, stop: threading.Event
) -> None:
    """Wait until a check raises none of ``errors``, so that the supervisor does not restart the pipeline in vain."""
    causes = set[str]()
    while not stop.wait(FEATURE_POLL_S):
        try:
            check()
            _LOGGER.info("%s: restarting the pipeline", passed)
            return
        except errors as error:
            # Once for each cause: it may change while the pipeline waits, as from a stopped broker to a password, and
            # alternates between the brokers of a cluster.
            if (text := str(error)) not in causes:
                _LOGGER.warning("the pipeline still waits: %s", text)
            causes.add(text)


if __name__ == "__main__":
    end_process(exit_status(main))
