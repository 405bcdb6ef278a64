"""``penstock pipeline``: run the pipeline that lands topics in tables, query the tables with Spark, and report
progress.

``main`` is the entry point of the child process that ``penstock up`` starts.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import signal
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.common import aligned_lines, console, errors, fail
from penstock.cli.options import AsJson, Commands, Config, ConfiguredData, Override, load_settings
from penstock.cli.tables.spark_session import require_spark, tables_session
from penstock.errors import PenstockError
from penstock.files.change_log import record_command
from penstock.files.disk_space import is_disk_full
from penstock.process.kernel import die_with_parent
from penstock.process.process_end import end_process, exit_status
from penstock.process.reporting import configure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.config import Settings
    from penstock.proof.status import Status, StatusSource

STATUS_RETRY_S = 3.0
"""Time to wait for a log daemon that does not answer."""
pipeline = Commands(no_args_is_help=True, help="Land topics in tables with Spark, and query and maintain the tables.")


class BadQuery(PenstockError, ValueError):
    """A query that Spark refuses, with Spark's text."""


@pipeline.command()
def run(
    config: Config = None,
    override: Override = None,
    once: Annotated[bool, typer.Option("--once", help="Exit when all existing messages have landed.")] = False,
    master: Annotated[
        str | None, typer.Option(help="Spark master; same as pipeline.spark.master.", show_default=False)
    ] = None,
) -> None:
    """Land the topics' messages in the tables until Ctrl-C."""
    master_override = [f"pipeline.spark.master={json.dumps(master)}"] if master else []
    sys.exit(land(load_settings(config, [*(override or []), *master_override]), once))


@pipeline.command()
def query(
    settings: ConfiguredData,
    sql: Annotated[str, typer.Argument(help="Query over landed, events, syslog, messages, quarantine, watermarks.")],
    limit: Annotated[int, typer.Option("-n", help="Maximum number of rows to print.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Query the tables with Spark SQL."""
    with errors.status("starting Spark"):
        lines = _query_lines(settings, sql, limit, as_json)
    print("\n".join(lines))


def _query_lines(settings: Settings, sql: str, limit: int, as_json: bool) -> list[str]:
    """Return the answer as lines: rows as JSON, or a table. Raises BadQuery."""
    with tables_session(settings) as session:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql.functions import struct, to_json

        try:
            rows = session.sql(sql).limit(limit)
            if as_json:
                return [text for (text,) in rows.select(to_json(struct("*"))).collect()]
            with contextlib.redirect_stdout(io.StringIO()) as output:
                rows.show(limit, truncate=80)
            return output.getvalue().splitlines()
        except (PySparkException, Py4JError) as error:
            raise BadQuery(str(error).strip().splitlines()[0]) from None


@pipeline.command()
def status(settings: ConfiguredData, as_json: AsJson = False) -> None:
    """Report lag, rate and proof of the pipeline.

    Status 1 if Kafka does not answer, shows none of the topics, or no broker leads a partition.
    """
    from penstock.landing.table_paths import Layout
    from penstock.ledger.receipt import not_started_in
    from penstock.proof.status import status as pipeline_status
    from penstock.upkeep.repair.unreadable_files import unreadable_files

    report = pipeline_status(status_source(settings), Layout.for_tables(settings.tables), settings.pipeline.topics)
    unreadable: list[str] = []
    # A store that is away hides them.
    with contextlib.suppress(PenstockError, OSError):
        unreadable = unreadable_files(Layout.for_tables(settings.tables))
    balance = _balance_of_daemon(settings)
    silent, missing = balance.get("silent", {}), not_started_in(balance)
    if as_json:
        others = {"silent": silent, "not_started": missing, "unreadable": unreadable}
        print(json.dumps(report.document() | others, indent=2))
    else:
        _show(report, silent, missing, unreadable)
    if report.leaderless or (report.problem and not report.topics):
        # Without an answer of Kafka the lag is unknown: a script must not take it for zero.
        sys.exit(1)


def status_source(settings: Settings) -> Path | StatusSource:
    """Return the topics that the pipeline lands: of Kafka, of a daemon, or of the folder on this machine."""
    from penstock.landing.daemon_connection import configured_connection
    from penstock.proof.kafka_records import kafka_partitions

    topics: Path | StatusSource = settings.topics
    if connection := configured_connection(settings):
        # Imports gRPC, which a report on topics in a folder does without.
        from penstock.landing.topics.from_flight import FlightStore

        # A report must not wait for a daemon as long as the pipeline does.
        topics = FlightStore(replace(connection, retry_for=STATUS_RETRY_S))
    return kafka_partitions(settings) or topics


def _show(
    report: Status, silent: Mapping[str, float], missing: Sequence[Mapping[str, str]], unreadable: Sequence[str]
) -> None:
    from penstock.landing.damaged_files import PUT_BACK

    running = ("failing" if report.failure else "running") if report.running else "not running"
    if report.stopped_pid:
        running = f"stopped (continue it: kill -CONT {report.stopped_pid})"
    batch = f", last batch {report.last_batch}" if report.last_batch >= 0 else ""
    age = "" if report.last_batch_age is None else f" ({report.last_batch_age:.0f} s ago)"
    console.print(f"{running}{batch}{age}, {report.rate:,} rows/s", markup=False)
    for process, silent_s in silent.items():
        console.print(f"{process} stopped for {silent_s:.0f} s: its messages wait", markup=False)
    for entry in missing:
        console.print(entry["text"], markup=False, soft_wrap=True)
    if report.failure:
        console.print(report.failure["text"], markup=False, soft_wrap=True)
        console.print(f"next: {report.failure['advice']}", markup=False, soft_wrap=True)
    if report.problem:
        console.print(report.problem, markup=False, soft_wrap=True)
    console.print(
        f"proved: {report.rows:,} rows, {report.quarantined:,} quarantined, {report.duplicates:,} duplicates, "
        f"{report.unaccounted:,} unaccounted"
    )
    if report.damaged_files:
        console.print(f"{report.damaged_files:,} damaged files of the tables were found, see the pipeline's log")
    for line in unreadable:
        console.print(line, markup=False, soft_wrap=True)
    if unreadable:
        console.print(f"next: {PUT_BACK}", markup=False, soft_wrap=True)
    rows = [["topic", "end", "landed", "proved", "rows behind", "seconds behind"]]
    for topic in report.topics:
        numbers = (topic.end, topic.landed, topic.proved, topic.lag_rows)
        rows.append([topic.topic, *(f"{number:,}" for number in numbers), f"{topic.lag:.1f}"])
    print("\n".join(aligned_lines(rows)))


def _balance_of_daemon(settings: Settings) -> dict[str, Any]:
    """Return the daemon's balance of no minute, for the states of processes; empty if the daemon does not answer."""
    from penstock.config.daemon_access import Access
    from penstock.files.json_values import parse_object

    with contextlib.suppress(OSError, ValueError):
        code, body = Access(settings).request("/balance", parameters={"bucket": "0"}, timeout=STATUS_RETRY_S)
        return parse_object(body) if code < 400 else {}
    return {}


@pipeline.command()
def compact(settings: ConfiguredData) -> None:
    """Merge small files of the tables into large ones."""
    from penstock.landing.table.landed_table import has_landed_table
    from penstock.landing.table_paths import Layout
    from penstock.proof.posts.ledger_client import LedgerClient
    from penstock.upkeep.believed_clock import BelievedClock
    from penstock.upkeep.compaction.typed_compaction import compact_all, remove_old

    layout = Layout.for_tables(settings.tables)
    if not has_landed_table(layout):
        fail(f"{layout.tables} has no tables yet; `penstock pipeline run` creates them")
    with errors.status("merging small files"):
        removed, added = compact_all(layout)
        # Replaced files are removed by age: with a wrong clock, files that a reader still has open could go.
        believed = BelievedClock(layout, LedgerClient.from_settings(settings)).now() is not None
        if believed:
            remove_old(layout)
    if removed:
        record_command(settings.data_dir, f"merge {removed} files of the tables into {added}")
    console.print(f"{removed:,} files became {added:,}")
    if not believed:
        console.print("replaced files are kept: the clock is not plausible, or the log daemon does not answer")


def land(settings: Settings, once: bool = False, is_child: bool = False) -> int:
    """Run the pipeline until SIGTERM or SIGINT; return the exit status. ``is_child``: of ``penstock up``."""
    require_spark()
    from penstock.handover.paths import pipeline_state_files
    from penstock.kafka.errors import KafkaAway
    from penstock.proof.posts.ledger_client import LedgerClient
    from penstock.spark.pipeline import DiskFull, landing_of, wait_until_useful
    from penstock.spark.pipeline import run as run_landing
    from penstock.upkeep.maintenance import Follow

    configure("pipeline")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    ledger = LedgerClient.from_settings(settings)
    follow = Follow(ledger.followed_settings, is_binding=is_child)
    spark = settings.pipeline.spark
    pages = list(pipeline_state_files(settings.data_dir).values())
    try:
        return run_landing(
            landing_of(settings), spark=spark, ledger=ledger, once=once, stop=stop, follow=follow, heartbeats=pages
        )
    except (RuntimeError, ValueError, OSError) as error:
        if isinstance(error, OSError) and not is_disk_full(error):
            raise
        if not is_child and (once or not isinstance(error, DiskFull | KafkaAway)):
            fail(error)
        logging.getLogger(__name__).critical("%s", error)
        wait_until_useful(error, settings, stop)
        if not is_child and not stop.is_set():
            # As the supervisor does: a new process, as Spark and its Java process start once in each.
            os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - this command itself
        return 0 if stop.is_set() and not is_child else 1


def main() -> None:
    """Run as a child process: read the settings from standard input."""
    # Order: before the settings are read, as the parent may die in between.
    die_with_parent()
    # Ctrl-C in a terminal concerns the parent, which stops this process. PySpark's own handler would break off a call
    # into the JVM; it cannot be replaced while the session starts, so the signal is blocked.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    from penstock.config import Settings

    sys.exit(land(Settings.model_validate(json.load(sys.stdin)), is_child=True))


if __name__ == "__main__":
    end_process(exit_status(main))
