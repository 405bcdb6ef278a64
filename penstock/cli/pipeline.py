"""``penstock pipeline``: topics to tables on Spark."""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import Annotated

import typer

from penstock.cli.common import AsJson, Config, Override, console, errors, fail, settings_of
from penstock.config import Settings
from penstock.ingest.process import die_with_parent

pipeline = typer.Typer(no_args_is_help=True, help="Topics to tables on Spark.")


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
    sql: Annotated[str, typer.Argument(help="A query over landed, events, syslog, messages, quarantine.")],
    config: Config = None,
    override: Override = None,
    limit: Annotated[int, typer.Option("-n", help="Most rows shown.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Ask the tables with Spark SQL."""
    settings = settings_of(config, override)
    _need_spark()
    from penstock.spark.session import build_session
    from penstock.spark.tables import register_views

    with console.status("starting Spark") if not as_json else errors.status("starting Spark"):
        session = build_session(settings.pipeline.spark)
        register_views(session, settings.tables)
        try:
            rows = session.sql(sql).limit(limit)
            found = rows.toJSON().collect() if as_json else []
            if not as_json:
                rows.show(limit, truncate=80)
        except Exception as error:
            fail(str(error).splitlines()[0])
        finally:
            session.stop()
    for row in found:
        print(row)


def land(settings: Settings, once: bool = False) -> int:
    """Run the landing pipeline until SIGTERM or SIGINT; the exit status."""
    _need_spark()
    from penstock.spark.pipeline import landing_of
    from penstock.spark.pipeline import run as run_landing
    from penstock.spark.posts import LedgerClient

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    ledger = LedgerClient(settings.log.http)
    try:
        return run_landing(landing_of(settings), spark=settings.pipeline.spark, ledger=ledger, once=once, stop=stop)
    except (RuntimeError, ValueError) as error:
        fail(error)


def _need_spark() -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        fail("this needs Spark: pip install 'penstock[spark]'")


def main() -> None:
    """As a child: the settings stand on standard input."""
    die_with_parent()
    sys.exit(land(Settings.model_validate(json.load(sys.stdin))))


if __name__ == "__main__":
    main()
