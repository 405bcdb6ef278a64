"""``penstock pipeline replay``: a table's rows into a topic of the log or of Kafka, each once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.common import console, errors, fail
from penstock.cli.kafka.broker import Setting, parse_properties
from penstock.cli.log.connect import Where
from penstock.cli.options import Config, Override
from penstock.cli.tables.spark_session import tables_session
from penstock.cli.tables.wait import moment

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.landing.table_paths import Layout
    from penstock.upkeep.quarantine.send_once import Resender

Time = Annotated[str | None, typer.Option(metavar="TIME", help="14:00, or an ISO date and time.", show_default=False)]


def replay(
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="The topic they go into.")],
    table: Annotated[str, typer.Option(help="events, syslog, messages or quarantine.")] = "events",
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Only rows that meet this condition.", show_default=False)
    ] = None,
    since: Time = None,
    until: Time = None,
    kafka: Annotated[bool, typer.Option("--kafka", help="A topic of Kafka, not of the log.")] = False,
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A broker.", show_default="pipeline.kafka")
    ] = None,
    setting: Setting = None,
    config: Config = None,
    override: Override = None,
) -> None:
    """Send rows of a table into a topic. What was sent there before is not sent again (by its uuid, else its place)."""
    connection = Where.of(config, override)
    try:
        bounds = [moment(text, name) if text else None for text, name in ((since, "--since"), (until, "--until"))]
    except ValueError as error:
        fail(error, 2)
    from penstock.landing.event_rules import VIEWS
    from penstock.landing.table_paths import Layout

    if table not in VIEWS:
        fail(f"--table: there is no table {table!r} (known are {', '.join(VIEWS)})", 2)
    layout = Layout.of(connection.settings.tables)
    servers = {"bootstrap.servers": bootstrap} if bootstrap else {}
    more = {**connection.settings.pipeline.kafka, **servers, **parse_properties(setting or [])}
    opened = _to_kafka(layout, more) if kafka or bootstrap else _to_log(layout, connection)
    with opened as resender:
        sent, before = _replay(connection.settings, table, where, bounds, to, resender)
    console.print(f"{sent:,} sent to {to}, {before:,} had been sent before")


def _replay(
    settings: Settings, table: str, where: str | None, bounds: list[float | None], to: str, resender: Resender
) -> tuple[int, int]:
    with errors.status("sending"), tables_session(settings) as session:
        from pyspark.errors import PySparkException

        from penstock.spark.replay import chosen, replay

        try:
            rows = chosen(session, table, where, *bounds)
        except PySparkException as error:
            fail(f"--where: {str(error).strip().splitlines()[0]}", 2)
        return replay(rows, to, resender)


@contextlib.contextmanager
def _to_log(layout: Layout, connection: Where) -> Iterator[Resender]:
    from penstock.upkeep.quarantine.send_once import Resender

    with connection.opened() as log:
        yield Resender(layout.checkpoint.parent / "replayed.log.jsonl", log)


@contextlib.contextmanager
def _to_kafka(layout: Layout, kafka: dict[str, str]) -> Iterator[Resender]:
    from penstock.upkeep.quarantine.send_once import Resender

    if not kafka.get("bootstrap.servers"):
        fail("--kafka: say where, by --bootstrap or pipeline.kafka", 2)
    try:
        from penstock.upkeep.promote.kafka_writer import CannotSend, KafkaOut
    except ImportError:
        fail("this needs confluent-kafka: pip install 'penstock-pipe[kafka]'")
    try:
        out = KafkaOut(kafka, f"penstock-replay-{layout.tables}")
        try:
            yield Resender(layout.checkpoint.parent / "replayed.kafka.jsonl", out, out.has)
        finally:
            out.close()
    except CannotSend as error:
        fail(error)
