"""``penstock audit``: check that every record of a Kafka topic is in a table, once."""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer
from rich.text import Text

from penstock.cli.balance import parse_moment_or_age
from penstock.cli.common import console, fail
from penstock.cli.kafka.broker import Setting, parse_properties
from penstock.cli.options import AsJson
from penstock.cli.progress import Progress
from penstock.config import parse_time
from penstock.process.terminal import visible

if TYPE_CHECKING:
    from penstock.audit.audit import Report, Request

UNDECIDED = 2
"""Exit status of an audit that could not be decided."""


def audit(
    topic: Annotated[str, typer.Argument(metavar="kafka://HOST:PORT/TOPIC", help="Topic of Kafka.")],
    table: Annotated[
        str,
        typer.Argument(
            help="Delta or Iceberg table, folder of Parquet files, or sqlite:///FILE?table=NAME; see docs/audit.md."
        ),
    ],
    offset: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the Kafka offset.", show_default="by its name")
    ] = "",
    partition: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the Kafka partition.", show_default="by its name")
    ] = "",
    topic_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the topic.", show_default="by its name")
    ] = "",
    since: Annotated[str, typer.Option(help="Check records from this time or age on, such as 24h.")] = "",
    until: Annotated[str, typer.Option(help="Check records up to this time or age.")] = "",
    grace: Annotated[str, typer.Option(help="Age from which on a record must be in the table.")] = "15m",
    group: Annotated[
        str, typer.Option(help="Consumer group of the sink: records behind its commit are not required.")
    ] = "",
    with_tombstones: Annotated[
        bool, typer.Option("--with-tombstones", help="Require a row for records without a value, too.")
    ] = False,
    properties: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Properties of the Kafka client, as KEY=VALUE lines.", show_default=False),
    ] = None,
    setting: Setting = None,
    store: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="Option of the object store, such as AWS_REGION=eu-west-1; may be repeated."),
    ] = None,
    receipt: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check that every record of a Kafka topic is in a table, once, without changing either.

    Works for tables of any pipeline that keeps Kafka's offsets. Exits with status 0 if the table is complete, 1 if
    records are missing, doubled or unexplained, and 2 if that could not be decided.
    """
    try:
        from penstock.audit.columns import NoOffsets
        from penstock.audit.kafka_source import SourceUnavailable
        from penstock.audit.report import document, lines
        from penstock.audit.tables.table import TableUnreadable
    except ModuleNotFoundError as error:
        fail(f"this needs {error.name}: pip install 'penstock-pipe[sql,kafka]'", UNDECIDED)
    kafka = {**_read_properties(properties), **parse_properties(setting or [])}
    try:
        request = _request(offset, partition, topic_column, since, until, grace, group, with_tombstones)
        report = _run(topic, table, kafka, parse_properties(store or []), request)
    except (SourceUnavailable, TableUnreadable, NoOffsets) as error:
        fail(f"not decided: {error}", UNDECIDED)
    except Exception:  # noqa: BLE001 - see below
        # A fault of a driver must not end with the status of missing records.
        traceback.print_exc()
        fail("not decided: the audit failed unexpectedly", UNDECIDED)
    text = json.dumps(document(report), indent=2)
    if receipt is not None:
        receipt.write_text(f"{text}\n")
    if as_json:
        print(text)
    else:
        for line in lines(report):
            console.print(Text(visible(line)), soft_wrap=True)
    sys.exit(report.status)


def _run(topic: str, table: str, kafka: dict[str, str], store: dict[str, str], request: Request) -> Report:
    from penstock.audit.audit import audit as run_audit
    from penstock.audit.kafka_source import KafkaSource
    from penstock.audit.tables.table import open_table

    address = urlsplit(topic)
    name = address.path.strip("/")
    if address.scheme != "kafka" or not address.netloc or not name:
        fail(f"{topic}: write the topic as kafka://HOST:PORT/TOPIC", UNDECIDED)
    source = KafkaSource(name, {"bootstrap.servers": address.netloc, **kafka})
    try:
        with Progress("auditing") as progress:
            return run_audit(source, open_table(table, store), table, request, progress.update)
    finally:
        source.close()


def _request(
    offset: str,
    partition: str,
    topic_column: str,
    since: str,
    until: str,
    grace: str,
    group: str,
    counts_tombstones: bool,
) -> Request:
    from penstock.audit.audit import Request

    now = time.time()
    try:
        return Request(
            offset,
            partition,
            topic_column,
            float(str(parse_time(grace))),
            parse_moment_or_age(since, now, "--since") if since else None,
            parse_moment_or_age(until, now, "--until") if until else None,
            group,
            counts_tombstones,
        )
    except ValueError as error:
        fail(error, UNDECIDED)


def _read_properties(path: Path | None) -> dict[str, str]:
    """Return the properties of a file with lines KEY=VALUE, as Kafka's own commands read them."""
    if path is None:
        return {}
    try:
        written = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path}: {error}", UNDECIDED)
    pairs = [line.partition("=") for line in written if line.strip() and not line.lstrip().startswith(("#", "!"))]
    return {key.strip(): value.strip() for key, _, value in pairs}
