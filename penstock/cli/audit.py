"""``penstock audit``: check that every record of a topic is in a table, once; ``audit verify`` repeats a check."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from urllib.parse import urlsplit

import typer
from rich.text import Text

from penstock.cli.balance import parse_moment_or_age
from penstock.cli.common import console, errors, fail
from penstock.cli.kafka.broker import Setting, parse_properties
from penstock.cli.options import AsJson
from penstock.cli.progress import Progress
from penstock.config import parse_time
from penstock.config.keys.secrets import check_kafka_secrets
from penstock.config.units import check_address, split_address
from penstock.errors import PenstockError
from penstock.files.errors import UnsafeFile
from penstock.process.terminal import visible

if TYPE_CHECKING:
    from penstock.audit.audit import Report, Request

UNDECIDED = 2
"""Exit status of an audit that could not be decided."""


def audit(
    topic: Annotated[
        str, typer.Argument(metavar="kafka://HOST:PORT/TOPIC", help="Topic of Kafka; `verify` repeats a receipt.")
    ],
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="Delta or Iceberg table, folder of Parquet files, or URL of a database; a receipt to verify.",
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
    dead_letter: Annotated[
        str, typer.Option("--dead-letter", metavar="TOPIC", help="Topic with records that the sink could not write.")
    ] = "",
    redeliver_to: Annotated[
        str, typer.Option("--redeliver-to", metavar="TOPIC", help="Produce the missing records again, to this topic.")
    ] = "",
    receipt: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as HTML, with a picture.")] = None,
    every: Annotated[str, typer.Option(metavar="AGE", help="Repeat the check at this interval, such as 5m.")] = "",
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="With --every, serve metrics at http://HOST:PORT/metrics.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Check that every record of a Kafka topic is in a table, once, without changing either.

    Works for tables of any pipeline that keeps Kafka's offsets. Exits with status 0 if the table is complete, 1 if
    records are missing, doubled or unexplained, and 2 if that could not be decided.
    """
    try:
        from penstock.audit.receipt import document, read_receipt, repeated_request
    except ModuleNotFoundError as error:
        fail(f"this needs {error.name}: pip install 'penstock-pipe[sql,kafka]'", UNDECIDED)
    kafka = {**_read_properties(properties), **parse_properties(setting or [])}
    repeated = None
    if topic == "verify":
        with _decided(table):
            repeated = read_receipt(Path(table))
            request = repeated_request(repeated)
        topic, table = f"kafka://{repeated['brokers']}/{repeated['topic']}", repeated["table"]
    else:
        request = _request(offset, partition, topic_column, since, until, grace, group, with_tombstones, dead_letter)
    run = _Run(_source_address(topic, kafka), table, parse_properties(store or []), redeliver_to, html)
    if every:
        _repeat(run, request, every, listen)
    with _decided(table):
        report = run(request, repeated["version"] if repeated else "")
        text = json.dumps(document(report), indent=2)
        if receipt is not None:
            receipt.write_text(f"{text}\n")
    if as_json:
        print(text)
    else:
        _print(report)
    if repeated is not None:
        _print_differences(repeated, report)
    sys.exit(report.status)


@dataclass(frozen=True, slots=True)
class _Run:
    """A check, and uses of its outcome while Kafka is connected."""

    kafka: tuple[str, dict[str, str]]
    """The topic, and the properties of the client."""
    table: str
    store: dict[str, str]
    redeliver_to: str
    html: Path | None

    def __call__(self, request: Request, version: str = "") -> Report:
        from penstock.audit.audit import audit as run_audit
        from penstock.audit.html_report import bars, render
        from penstock.audit.kafka_source import KafkaSource
        from penstock.audit.redelivery import redeliver
        from penstock.audit.tables.table import open_table

        with contextlib.closing(KafkaSource(*self.kafka)) as source, Progress("auditing") as progress:
            table = open_table(self.table, self.store, version)
            report = run_audit(source, table, self.table, request, progress.update)
            if self.html is not None:
                self.html.write_text(render(report, bars(source, report)))
            if self.redeliver_to and report.missing:
                count = redeliver(source, report, self.redeliver_to, progress.update)
                errors.print(f"{count:,} records delivered again to {self.redeliver_to}")
        return report


@contextlib.contextmanager
def _decided(table: str) -> Iterator[None]:
    """End the command with status 2 if the block fails, without credentials in the text."""
    from penstock.audit.tables.table import without_credentials

    try:
        yield
    except (PenstockError, OSError) as error:
        fail(f"not decided: {str(error).replace(table, without_credentials(table))}", UNDECIDED)
    except Exception:  # noqa: BLE001 - a fault of a driver must not end with the status of missing records
        traceback.print_exc()
        fail("not decided: the audit failed unexpectedly", UNDECIDED)


def _repeat(run: _Run, request: Request, every: str, listen: str) -> NoReturn:
    from penstock.audit.report import verdict
    from penstock.audit.tables.table import without_credentials
    from penstock.audit.watch import MetricsServer

    try:
        interval_s = float(str(parse_time(every)))
        address = split_address(check_address(listen)) if listen else None
        metrics = MetricsServer(*address) if address else None
    except (ValueError, OSError) as error:
        fail(error, UNDECIDED)
    while True:
        began_s = time.monotonic()
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        try:
            with _decided(run.table):
                report = run(request)
            errors.print(Text(visible(f"{now} {verdict(report)}")), soft_wrap=True)
            if metrics is not None:
                metrics.publish(report)
        except SystemExit:
            if metrics is not None:
                metrics.publish_undecided(run.kafka[0], without_credentials(run.table))
        time.sleep(max(0.0, interval_s - (time.monotonic() - began_s)))


def _print(report: Report) -> None:
    from penstock.audit.report import lines

    for line in lines(report):
        console.print(Text(visible(line)), soft_wrap=True)


def _print_differences(receipt: Mapping[str, Any], report: Report) -> None:
    from penstock.audit.receipt import differences

    changes = list(differences(receipt, report))
    for line in changes or ["the check agrees with the receipt"]:
        errors.print(Text(visible(line)), soft_wrap=True)


def _source_address(topic: str, kafka: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the topic's name and the properties of the client."""
    address = urlsplit(topic)
    name = address.path.strip("/")
    if address.scheme != "kafka" or not address.netloc or not name:
        fail(f"{topic}: write the topic as kafka://HOST:PORT/TOPIC", UNDECIDED)
    return name, {"bootstrap.servers": address.netloc, **kafka}


def _request(
    offset: str,
    partition: str,
    topic_column: str,
    since: str,
    until: str,
    grace: str,
    group: str,
    counts_tombstones: bool,
    dead_letter: str,
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
            dead_letter,
        )
    except ValueError as error:
        fail(error, UNDECIDED)


def _read_properties(path: Path | None) -> dict[str, str]:
    """Return the properties of a file with lines KEY=VALUE, as Kafka's own commands read them.

    Ends the command if the file, or a file that it names, holds secrets and others have access to it.
    """
    if path is None:
        return {}
    try:
        written = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path}: {error}", UNDECIDED)
    pairs = [line.partition("=") for line in written if line.strip() and not line.lstrip().startswith(("#", "!"))]
    properties = {key.strip(): value.strip() for key, _, value in pairs}
    try:
        check_kafka_secrets(properties, path)
    except UnsafeFile as error:
        fail(error, UNDECIDED)
    return properties
