"""``penstock pipeline replay``: send rows of a table to a topic of the log or of Kafka, each row once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.common import console, errors, fail
from penstock.cli.kafka.broker import Setting, parse_properties
from penstock.cli.log.connect import DaemonOptions
from penstock.cli.options import Config, Override
from penstock.cli.tables.spark_session import tables_session
from penstock.cli.tables.wait import parse_moment
from penstock.files.change_log import record_command

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.landing.table_paths import Layout
    from penstock.upkeep.quarantine.send_once import Resender

Time = Annotated[
    str | None, typer.Option(metavar="TIME", help="Time of today (14:00) or ISO date and time.", show_default=False)
]


def replay(
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="Topic to send rows to.")],
    table: Annotated[str, typer.Option(help="Table: events, syslog, messages or quarantine.")] = "events",
    where: Annotated[str | None, typer.Option(metavar="SQL", help="Condition on the rows.", show_default=False)] = None,
    since: Time = None,
    until: Time = None,
    kafka: Annotated[bool, typer.Option("--kafka", help="Send to a topic of Kafka instead of the log.")] = False,
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Address of a broker.", show_default="pipeline.kafka")
    ] = None,
    setting: Setting = None,
    config: Config = None,
    override: Override = None,
) -> None:
    """Send rows of a table to a topic.

    A row that was sent there before, by its uuid or else its offset, is not sent again.
    """
    connection = DaemonOptions.from_configuration(config, override)
    try:
        bounds = [parse_moment(text, name) if text else None for text, name in ((since, "--since"), (until, "--until"))]
    except ValueError as error:
        fail(error, 2)
    from penstock.landing.event_rules import VIEWS
    from penstock.landing.table_paths import Layout

    if table not in VIEWS:
        fail(f"--table: no table is named {table!r}; tables are {', '.join(VIEWS)}", 2)
    layout = Layout.for_tables(connection.settings.tables)
    servers = {"bootstrap.servers": bootstrap} if bootstrap else {}
    properties = {**connection.settings.pipeline.kafka, **servers, **parse_properties(setting or [])}
    opened = _open_kafka_resender(layout, properties) if kafka or bootstrap else _open_log_resender(layout, connection)
    with opened as resender:
        sent, repeated = _send_rows(connection.settings, table, where, bounds, to, resender)
    if sent:
        target = "Kafka" if kafka or bootstrap else "the log"
        change = f"send {sent} rows of {table} to topic {to} of {target}"
        record_command(connection.settings.data_dir, change, condition=where or "")
    console.print(f"{sent:,} sent to {to}, {repeated:,} were sent before")


def _send_rows(
    settings: Settings, table: str, where: str | None, bounds: list[float | None], to: str, resender: Resender
) -> tuple[int, int]:
    with errors.status("sending"), tables_session(settings) as session:
        from pyspark.errors import PySparkException

        from penstock.spark.replay import replay, select_rows

        try:
            rows = select_rows(session, table, where, *bounds)
        except PySparkException as error:
            fail(f"--where: {str(error).strip().splitlines()[0]}", 2)
        return replay(rows, to, resender)


@contextlib.contextmanager
def _open_log_resender(layout: Layout, connection: DaemonOptions) -> Iterator[Resender]:
    from penstock.upkeep.quarantine.send_once import Resender

    with connection.connect() as log:
        yield Resender(layout.checkpoint.parent / "replayed.log.jsonl", log)


@contextlib.contextmanager
def _open_kafka_resender(layout: Layout, kafka: dict[str, str]) -> Iterator[Resender]:
    from penstock.upkeep.quarantine.send_once import Resender

    if not kafka.get("bootstrap.servers"):
        fail("--kafka: no broker is named; use --bootstrap or set pipeline.kafka", 2)
    try:
        from penstock.upkeep.promote.kafka_writer import CannotSend, KafkaWriter
    except ImportError:
        fail("this needs confluent-kafka: pip install 'penstock-pipe[kafka]'")
    try:
        out = KafkaWriter(kafka, f"penstock-replay-{layout.tables}")
        try:
            yield Resender(layout.checkpoint.parent / "replayed.kafka.jsonl", out, out.has_batch)
        finally:
            out.close()
    except CannotSend as error:
        fail(error)
