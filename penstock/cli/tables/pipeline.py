"""``penstock pipeline``: topics to tables on Spark."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import sys
import threading
from dataclasses import replace
from typing import Annotated

import typer
from rich.table import Table

from penstock.cli.common import console, errors, fail
from penstock.cli.options import AsJson, Commands, Config, Configured, Override, settings_of
from penstock.cli.tables.backfill import backfill
from penstock.cli.tables.quarantine import quarantine
from penstock.cli.tables.replay import replay
from penstock.cli.tables.spark_session import need_spark, tables_session
from penstock.cli.tables.wait import wait
from penstock.config import Settings
from penstock.errors import PenstockError
from penstock.process.kernel import die_with_parent
from penstock.process.process_end import end_process, exit_status
from penstock.process.reporting import configure

STATUS_PATIENCE = 3.0
"""Seconds for which a log daemon that is away is waited for."""
pipeline = Commands(no_args_is_help=True, help="Topics to tables on Spark.")
pipeline.command()(wait)
pipeline.command()(backfill)
pipeline.command()(replay)
pipeline.add_typer(quarantine, name="quarantine")


class BadQuery(PenstockError, ValueError):
    """Spark does not take a query; the text is its own."""


@pipeline.command()
def run(
    config: Config = None,
    override: Override = None,
    once: Annotated[bool, typer.Option("--once", help="End when everything there is has landed.")] = False,
    master: Annotated[str | None, typer.Option(help="As pipeline.spark.master.", show_default=False)] = None,
) -> None:
    """Land the topics' messages in the tables, until Ctrl-C."""
    given = [f"pipeline.spark.master={json.dumps(master)}"] if master else []
    sys.exit(land(settings_of(config, [*(override or []), *given]), once))


@pipeline.command()
def query(
    settings: Configured,
    sql: Annotated[str, typer.Argument(help="A query over landed, events, syslog, messages, quarantine, watermarks.")],
    limit: Annotated[int, typer.Option("-n", help="Most rows shown.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Ask the tables with Spark SQL."""
    with errors.status("starting Spark"):
        found = _asked(settings, sql, limit, as_json)
    print("\n".join(found))


def _asked(settings: Settings, sql: str, limit: int, as_json: bool) -> list[str]:
    """The lines of the answer: rows as JSON, or a table. Raises BadQuery."""
    with tables_session(settings) as session:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            rows = session.sql(sql).limit(limit)
            if as_json:
                return list(rows.toJSON().collect())  # type: ignore[arg-type]  # an RDD of texts
            with contextlib.redirect_stdout(io.StringIO()) as shown:
                rows.show(limit, truncate=80)
            return shown.getvalue().splitlines()
        except (PySparkException, Py4JError) as error:
            raise BadQuery(str(error).strip().splitlines()[0]) from None


@pipeline.command()
def status(settings: Configured, as_json: AsJson = False) -> None:
    """How far the tables are behind the topics, how fast it goes, and what was proved."""
    from penstock.client import ClientError
    from penstock.landing.daemon_connection import connection_of
    from penstock.landing.table_paths import Layout
    from penstock.landing.topics.from_flight import FlightStore
    from penstock.proof.status import status as pipeline_status

    connection = connection_of(settings)
    topics = FlightStore(replace(connection, retry_for=STATUS_PATIENCE)) if connection else settings.topics
    try:
        found = pipeline_status(topics, Layout.of(settings.tables), settings.pipeline.topics)
    except ClientError as error:
        fail(error)
    if as_json:
        print(json.dumps(found.document(), indent=2))
        return
    running = "running" if found.running else "not running"
    age = "" if found.last_batch_age is None else f", last batch {found.last_batch} {found.last_batch_age:.0f} s ago"
    console.print(f"{running}{age}, {found.rate:,} rows/s", markup=False)
    console.print(
        f"proved: {found.rows:,} rows, {found.quarantined:,} quarantined, {found.duplicates:,} duplicates, "
        f"{found.unaccounted:,} unaccounted"
    )
    shown = Table("topic", "end", "landed", "proved", "rows behind", "seconds behind", box=None)
    for one in found.topics:
        numbers = (one.end, one.landed, one.proved, one.lag_rows)
        shown.add_row(one.topic, *(f"{number:,}" for number in numbers), f"{one.lag:.1f}")
    console.print(shown)


@pipeline.command()
def compact(settings: Configured) -> None:
    """Merge the table's small files into large ones."""
    from penstock.landing.table.begun_table import is_begun
    from penstock.landing.table_paths import Layout
    from penstock.proof.ledger_posts import LedgerClient
    from penstock.upkeep.believed_clock import BelievedClock
    from penstock.upkeep.compaction.typed_compaction import compact_all, remove_old

    layout = Layout.of(settings.tables)
    if not is_begun(layout):
        fail(f"there are no tables in {layout.tables} yet")
    with errors.status("merging small files"):
        removed, added = compact_all(layout)
        believed = BelievedClock(layout, LedgerClient.of(settings)).now() is not None
        if believed:
            remove_old(layout)
    console.print(f"{removed:,} files became {added:,}")
    if not believed:
        console.print("replaced files stay: the clock is not believed, or the log daemon does not answer")


def land(settings: Settings, once: bool = False) -> int:
    """Run the landing pipeline until SIGTERM or SIGINT; the exit status."""
    need_spark()
    from penstock.proof.ledger_posts import LedgerClient
    from penstock.spark.pipeline import landing_of
    from penstock.spark.pipeline import run as run_landing

    configure("pipeline")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    ledger = LedgerClient.of(settings)
    try:
        return run_landing(landing_of(settings), spark=settings.pipeline.spark, ledger=ledger, once=once, stop=stop)
    except (RuntimeError, ValueError) as error:
        fail(error)


def main() -> None:
    """As a child: the settings stand on standard input."""
    die_with_parent()
    sys.exit(land(Settings.model_validate(json.load(sys.stdin))))


if __name__ == "__main__":
    end_process(exit_status(main))
