"""The pipeline as a process: session, landing query, proof worker. ``python -m penstock.spark.pipeline``.

Killed at any moment it goes on where it was when it is started again. Two never run at once: the lock on the
checkpoint is held by this process and by its JVM, which ends when this process does.
"""

from __future__ import annotations

from penstock.process.tuning import tune

tune("pipeline")  # first, see penstock.process.tuning

import argparse
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock import config
from penstock.errors import PenstockError
from penstock.files.errors import DamagedFile
from penstock.landing.daemon_connection import configured_connection
from penstock.landing.journal import Journal
from penstock.landing.landing_lock import acquire_landing_lock
from penstock.landing.storage.object_errors import TablesAway, retry_while_away
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.features import FeatureNotWritten
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from penstock.landing.transform.rules import TransformRules
from penstock.landing.typed.columns import configured_tables
from penstock.process.process_end import end_process, exit_status
from penstock.process.reporting import configure
from penstock.proof.ledger_posts import LedgerClient
from penstock.spark.extensions import package_settings
from penstock.spark.query.landing_query import Landing, RunningLanding, start_landing
from penstock.spark.query.proof_worker import LedgerPosts, ProofWorker
from penstock.spark.session import build_session
from penstock.upkeep.believed_clock import BelievedClock
from penstock.upkeep.checkpoint_repair import mend, sweep
from penstock.upkeep.maintenance import Maintenance, Upkeep

SHUTDOWN_PATIENCE = 10.0
REPORT_EVERY = 10.0
LOOK = 0.5
"""Seconds between two looks at the query: each asks the JVM."""
SLOW_WORKER = "failed to connect back"
"""What Spark says of a Python worker that took more than ten seconds to start: another try costs less than a JVM."""
TRIES = 20
FEATURE_POLL_S = 10.0
"""Interval between looks whether a table has lost a feature that Penstock does not write: one look at its log."""


class SparkGone(PenstockError, RuntimeError):
    """Spark's Java process has ended by itself, or was killed."""


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
) -> int:
    """Land until ``stop`` is set (or, ``once``, until everything there is has landed); the exit code.

    ``spark``: settings of the session. ``ledger``: where proofs go, None for nowhere.
    Raises PipelineRunning, NoJava, CannotFetch, UnknownFormat, BadTransform, TablesRefused, AnotherWriter, SparkGone.
    """
    landing.transform.check()
    stop = stop or threading.Event()
    handle = acquire_landing_lock(landing.layout, stop)
    lock = ExitStack()
    lock.callback(os.close, handle)
    try:
        if landing.layout.store is not None:
            retry_while_away(lambda: begin_table(landing.layout), stop)
        clock = BelievedClock(landing.layout, ledger)
        with _at_work(landing, ledger, clock, lock) as (proof_worker, maintenance):
            packages = package_settings(landing.packages)
            session = build_session({**packages, **(spark or {})}, inherit=[handle], scratch=landing.layout.scratch)
            try:
                return _land(session, landing, proof_worker, maintenance, clock, once, stop)
            finally:
                session.stop()
    except TablesAway:
        if stop.is_set():
            return 0
        raise
    except (Py4JError, ConnectionError) as error:
        raise SparkGone(f"Spark's Java process has ended: {error}") from None
    finally:
        lock.close()


@contextmanager
def _at_work(
    landing: Landing, ledger: LedgerPosts | None, clock: BelievedClock, lock: ExitStack
) -> Iterator[tuple[ProofWorker, Maintenance]]:
    """Put in order what the pipeline before left behind, and have those at work that need no Spark."""
    for name in mend(landing.layout):
        _LOGGER.info("removed %s: it was torn, or its batch is not in the table, and is done again", name)
    proof_worker = ProofWorker(landing, ledger, clock)
    proof_worker.enter()
    if removed := sweep(landing.layout):
        _LOGGER.info("removed %d files of a batch that was never committed", removed)
    landing.layout.hold.unlink(missing_ok=True)
    shutil.rmtree(landing.layout.scratch, ignore_errors=True)
    landing.layout.scratch.mkdir()
    upkeep = Upkeep(landing.merge_files_every, landing.window, landing.retention)
    maintenance = Maintenance(landing.layout, upkeep, clock, lambda: proof_worker.settled)
    proof_worker.start()
    maintenance.start()
    try:
        yield proof_worker, maintenance
    finally:
        ended = [maintenance.stop(SHUTDOWN_PATIENCE), proof_worker.break_off(SHUTDOWN_PATIENCE)]
        if not all(ended):
            lock.pop_all()  # the lock is held until this process ends


def _land(
    session: SparkSession,
    landing: Landing,
    proof_worker: ProofWorker,
    maintenance: Maintenance,
    clock: BelievedClock,
    once: bool,
    stop: threading.Event,
) -> int:
    running, error = _query_ended(session, landing, proof_worker, clock, once, stop)
    maintenance.stop(SHUTDOWN_PATIENCE)
    _end(running, landing.layout)
    if not proof_worker.stop(SHUTDOWN_PATIENCE):
        _LOGGER.warning("not everything could be proved and posted; the next start does it")
    _LOGGER.info("%s", _report(proof_worker, running.query))
    return 1 if error else 0


def _query_ended(
    session: SparkSession,
    landing: Landing,
    proof_worker: ProofWorker,
    clock: BelievedClock,
    once: bool,
    stop: threading.Event,
) -> tuple[RunningLanding, str]:
    """Run the query until it ends or ``stop`` is set, again where only a worker was slow; and why it failed, or ""."""
    for _ in range(TRIES):
        try:
            running = start_landing(
                session,
                landing,
                available_now=once,
                stop=stop,
                under_way=proof_worker.under_way,
                latest_time=clock.expected_micros,
            )
            _LOGGER.info("landing %s from %s into %s", landing.topic, _source(landing), landing.layout.landed)
            error = _watch_closely(running, proof_worker, stop)
            if SLOW_WORKER not in error:
                return running, error
            running.stop()
        except PySparkException as failure:
            if SLOW_WORKER not in str(failure):
                raise
        _LOGGER.warning("a Python worker did not start within Spark's ten seconds: the machine is busy; trying again")
    raise MachineTooBusy(f"no Python worker started in {TRIES} tries")


def _source(landing: Landing) -> str:
    if landing.kafka is not None:
        return "Kafka"
    return landing.log.address if landing.log else str(landing.topics)


def _watch_closely(running: RunningLanding, proof_worker: ProofWorker, stop: threading.Event) -> str:
    """Watch the query, and stop it before an error is raised: nothing may be committed after the error is reported."""
    try:
        return _watch(running, proof_worker, stop)
    except BaseException:
        stop.set()
        running.stop()
        raise


def _watch(running: RunningLanding, proof_worker: ProofWorker, stop: threading.Event) -> str:
    """Wait until the query ends or ``stop`` is set, and report progress; return why it failed, "" if it did not."""
    reported_batch, reported_at = proof_worker.progress.batch, time.monotonic()
    while running.goes_on and not stop.wait(LOOK):
        has_progress = proof_worker.progress.batch != reported_batch or proof_worker.progress.away
        if has_progress and time.monotonic() - reported_at >= REPORT_EVERY:
            reported_batch, reported_at = proof_worker.progress.batch, time.monotonic()
            _LOGGER.info("%s", _report(proof_worker, running.query))
    error = running.failure()
    if error is None or stop.is_set():
        return ""
    _LOGGER.error("the landing query failed: %s", str(error)[:2000])
    return str(error) or type(error).__name__


def _end(running: RunningLanding, layout: Layout) -> None:
    """Stop the query, at the end of its current batch if that does not take long."""
    layout.hold.touch()
    query, deadline = running.query, time.monotonic() + SHUTDOWN_PATIENCE
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(0.05)
    running.stop()
    if (error := running.uncommitted()) is not None:
        _LOGGER.warning("the last batch is not in the table, the next start does it again: %s", error)


def _report(proof_worker: ProofWorker, query: StreamingQuery) -> str:
    progress = proof_worker.progress
    last = query.lastProgress
    rate = f", {last['processedRowsPerSecond']:,.0f} rows/s" if last and last["numInputRows"] else ""
    lost = f"{progress.unaccounted:,} UNACCOUNTED" if progress.unaccounted else "0 unaccounted"
    return (
        f"proved to batch {progress.batch}: {progress.rows:,} rows, {progress.quarantined:,} quarantined, "
        f"{progress.duplicates:,} duplicates, {lost}{rate}"
        + (f"; proofs wait: {progress.away}" if progress.away else "")
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
        mend(landing.layout)
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
        transform=TransformRules.from_config(pipeline),
        schemas=pipeline.schemas,
        typed=configured_tables(pipeline),
        duplicate_window=pipeline.duplicate_window,
        target_lag=pipeline.target_lag,
        merge_files_every=pipeline.merge_files_every,
        max_rows=pipeline.batch_rows,
        max_bytes=pipeline.batch_bytes,
        retention=pipeline.retention,
        log=configured_connection(settings),
        kafka=pipeline.kafka if pipeline.source == "kafka" else None,
        kafka_group=pipeline.kafka_group,
        expiry_gap=pipeline.expiry_gap,
    )


def main(arguments: list[str] | None = None) -> int:
    """The command; SIGTERM and SIGINT end it cleanly."""
    parser = argparse.ArgumentParser(prog="python -m penstock.spark.pipeline", description="topics to tables")
    parser.add_argument("--config", type=Path, help="configuration file")
    parser.add_argument("-o", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help="one setting")
    parser.add_argument("--once", action="store_true", help="end when everything there is has landed")
    parser.add_argument("--no-ledger", action="store_true", help="write proofs down, but post them nowhere")
    given = parser.parse_args(arguments)
    configure("pipeline")
    try:
        settings = config.load(given.config, given.overrides)
    except config.ConfigError as error:
        _LOGGER.critical("%s", error)
        return 2
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    ledger = None if given.no_ledger else LedgerClient.of(settings)
    try:
        return run(landing_of(settings), spark=settings.pipeline.spark, ledger=ledger, once=given.once, stop=stop)
    except (PenstockError, RuntimeError, ValueError) as error:
        _LOGGER.critical("%s", error)
        if isinstance(error, FeatureNotWritten) and not given.once:
            _wait_for_features(Layout.for_tables(settings.tables), stop)
        return 1


def _wait_for_features(layout: Layout, stop: threading.Event) -> None:
    """Wait until the table can be written again, so that the supervisor does not restart the pipeline in vain."""
    while not stop.wait(FEATURE_POLL_S):
        try:
            DeltaTable(layout.landed).check_features()
            _LOGGER.info("%s can be written again: the pipeline starts anew", layout.landed)
            return
        except (FeatureNotWritten, DamagedFile, TablesAway):
            continue


if __name__ == "__main__":
    end_process(exit_status(main))
