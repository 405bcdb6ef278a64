"""``penstock audit``: check that every record of a topic is in a table, once; ``audit verify`` repeats a check."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from urllib.parse import unquote, urlsplit

import typer
from rich.text import Text

from penstock.cli.balance import parse_moment_or_age
from penstock.cli.common import console, errors, fail
from penstock.cli.kafka.broker import Setting, parse_properties
from penstock.cli.options import AsJson, load_settings
from penstock.cli.progress import Progress
from penstock.config import parse_time
from penstock.config.keys.secrets import check_kafka_secrets
from penstock.config.units import check_address, split_address
from penstock.errors import PenstockError
from penstock.files.errors import UnsafeFile
from penstock.process.terminal import visible

if TYPE_CHECKING:
    from penstock.audit.outcome import Report, Request
    from penstock.audit.reports.check_history import CheckHistory

MIN_SECRET_CHARS = 3
"""Shorter values are in too many words."""
UNDECIDED = 2
"""Exit status of an audit that could not be decided."""


def audit(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Topic as kafka://HOST:PORT/TOPIC, grpc://HOST:PORT/TOPIC or its folder; another table; a file of "
            "ids; `verify` repeats a receipt.",
        ),
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
    ids: Annotated[
        str,
        typer.Option(
            "--id",
            metavar="COLUMN[=FIELD]",
            help="Column of a unique id, instead of offsets. FIELD: key, value, header:NAME or $.json.path.",
        ),
    ] = "",
    times: Annotated[
        str,
        typer.Option(
            "--count-by",
            metavar="COLUMN[=FIELD]",
            help="Column of a time, instead of offsets: rows are counted by hour. FIELD is `timestamp` by default.",
        ),
    ] = "",
    compare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN[=FIELD]",
            help="Compare the content of a column; may be repeated. With --count-by, its checksum per hour.",
            show_default="columns named like fields",
        ),
    ] = None,
    decoder: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FUNCTION", help="Function that turns values into JSON texts, for Avro or Protobuf."
        ),
    ] = "",
    sample: Annotated[int, typer.Option(metavar="N", min=0, help="Compare the content of N records.")] = 0,
    compare_all: Annotated[bool, typer.Option("--all", help="Compare the content of all records.")] = False,
    since: Annotated[str, typer.Option(help="Check records from this time or age on, such as 24h.")] = "",
    until: Annotated[str, typer.Option(help="Check records up to this time or age.")] = "",
    grace: Annotated[str, typer.Option(help="Age from which on a record must be in the table.")] = "15m",
    group: Annotated[
        str, typer.Option(help="Consumer group of the sink: records after its commit are not required.")
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
    by: Annotated[str, typer.Option(metavar="minute|hour|day", help="Print the records of each interval.")] = "",
    receipt: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as HTML, with a picture.")] = None,
    every: Annotated[str, typer.Option(metavar="AGE", help="Repeat the check at this interval, such as 5m.")] = "",
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="With --every, serve the report at http://HOST:PORT/ and metrics at /metrics."
        ),
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Configuration of the Penstock whose console and alarms show the checks.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that every record of a topic is in a table, once, without changing either.

    Works for tables of any pipeline that keeps Kafka's offsets or a unique id. Exits with status 0 if the table is
    complete, 1 if records are missing, doubled, unexplained or different, and 2 if that could not be decided.
    """
    try:
        from penstock.audit.reports.receipt import document, read_receipt, request_to_repeat
    except ModuleNotFoundError as error:
        fail(f"this needs {error.name}: pip install 'penstock-pipe[sql,kafka]'", UNDECIDED)
    kafka = {**_read_properties(properties), **parse_properties(setting or [])}
    repeated = None
    if source == "verify":
        with _decided(_Run(source, kafka, table, {}, "", None, "")):
            repeated = read_receipt(Path(table))
            request = replace(request_to_repeat(repeated), decoder=_repeated_decoder(repeated, decoder))
        source, table = repeated["source"], repeated["table"]
    else:
        request = _request(
            offset=offset,
            partition=partition,
            topic_column=topic_column,
            grace=grace,
            since=since,
            until=until,
            group=group,
            counts_tombstones=with_tombstones,
            dead_letter=dead_letter,
            ids=ids,
            times=times,
            compare=compare or [],
            decoder=decoder,
            sample=-1 if compare_all else sample,
        )
    _check_addresses(source, table)
    run = _Run(source, kafka, table, parse_properties(store or []), redeliver_to, html, by)
    folder = load_settings(config).audits if config is not None else None
    if every:
        _repeat(run, request, every, listen, folder)
    history = _History(folder, run, request)
    with _decided(run, history.record_undecided):
        report = run(request, repeated["version"] if repeated else "")
        history.record(report)
        text = json.dumps(document(report), indent=2)
        if receipt is not None:
            receipt.write_text(f"{text}\n")
    if as_json:
        print(text)
        for line in report.intervals:
            errors.print(line)
    else:
        _print(report)
    if repeated is not None:
        _print_differences(repeated, report)
    sys.exit(report.status)


def _check_addresses(*addresses: str) -> None:
    from penstock.audit.tables.address import without_credentials

    for address in addresses:
        try:
            urlsplit(address)
        except ValueError:  # its text may quote the password
            fail(f"not decided: {without_credentials(address)} is not a valid address", UNDECIDED)


@dataclass(frozen=True, slots=True)
class _Run:
    """A check, and uses of its outcome while Kafka is connected."""

    source: str
    kafka: dict[str, str]
    """Properties of the client."""
    table: str
    store: dict[str, str]
    redeliver_to: str
    html: Path | None
    by: str
    publish: Callable[[Report, str], None] | None = None
    """Shows the report and its page."""

    def redact(self, text: str) -> str:
        """Return a text without the credentials of this check."""
        from penstock.audit.tables.address import without_credentials

        for address in (self.source, self.table):
            text = text.replace(address, without_credentials(address))
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _secrets(self) -> set[str]:
        from penstock.audit.tables.address import SECRET_KEY, password_in

        options = {**self.kafka, **self.store}
        passwords = [password_in(address) for address in (self.source, self.table, *options.values())]
        secrets = [text for key, text in options.items() if SECRET_KEY.search(key)]
        # A driver may take a part of a password for the port, and quote it.
        secrets += [
            *passwords,
            *map(unquote, passwords),
            *(part for text in passwords for part in re.split("[/?#@:]", text)),
        ]
        return {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS}

    def __call__(self, request: Request, version: str = "") -> Report:
        from penstock.audit.audit import audit as run_audit
        from penstock.audit.redelivery import redeliver
        from penstock.audit.reports.html_report import INTERVALS, bars, interval_lines, render
        from penstock.audit.source import SourceUnavailable
        from penstock.audit.sources.kafka_source import KafkaSource
        from penstock.audit.sources.open_source import open_source
        from penstock.audit.tables.table import open_table

        if self.by and self.by not in INTERVALS:
            raise SourceUnavailable(f"--by: {self.by!r} is not {', '.join(INTERVALS)}")
        with (
            Progress("auditing") as progress,
            contextlib.closing(open_source(self.source, self.kafka, self.store, request)) as source,
        ):
            if self.redeliver_to and not isinstance(source, KafkaSource):
                raise SourceUnavailable("--redeliver-to: records are delivered again from a topic of Kafka only")
            table = open_table(self.table, self.store, version)
            report = run_audit(source, table, self.table, request, progress.update)
            # A driver's error may quote a credential, and the report goes into bug reports.
            report.unsearched = [self.redact(cause) for cause in report.unsearched]
            if self.html is not None:
                self.html.write_text(render(report, bars(source, report)))
            if self.publish is not None:
                self.publish(report, render(report, bars(source, report), with_payloads=False))
            if self.by:
                report.intervals = list(interval_lines(bars(source, report, INTERVALS[self.by])))
            if self.redeliver_to and report.missing and isinstance(source, KafkaSource):
                count = redeliver(source, report, self.redeliver_to, progress.update)
                errors.print(f"{count:,} records delivered again to {self.redeliver_to}")
        return report


@contextlib.contextmanager
def _decided(run: _Run, note: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """End the command with status 2 if the block fails, without credentials in the text; ``note`` gets the reason."""
    try:
        yield
    except (PenstockError, OSError) as error:
        reason = run.redact(str(error))
    except Exception:  # noqa: BLE001 - a fault of a driver must not end with the status of missing records
        # A driver's error may quote the address with its password.
        print(run.redact(traceback.format_exc()), file=sys.stderr)
        reason = "the audit failed unexpectedly"
    else:
        return
    note(reason)
    fail(f"not decided: {reason}", UNDECIDED)


class _History:
    """The record of the checks for a console, if one is named. A failure to write it does not change the outcome."""

    def __init__(self, folder: Path | None, run: _Run, request: Request, every_s: float = 0.0) -> None:
        self._history: CheckHistory | None = None
        if folder is None:
            return
        from penstock.audit.reports.check_history import CheckHistory
        from penstock.audit.sources.open_source import topic_name
        from penstock.audit.tables.address import SECRET_KEY, identity_of, without_credentials

        self._topic = topic_name(run.source)
        self._addresses = without_credentials(run.source), without_credentials(run.table)
        # Invariant: checks that prove something else have another record, so that none erases a finding.
        columns = (request.offset, request.partition, request.topic_column, request.ids, request.times)
        store = [f"{key}={identity_of(text)}" for key, text in sorted(run.store.items()) if not SECRET_KEY.search(key)]
        content = f"{request.compared} {bool(request.sample)}"
        identity = (identity_of(run.source), identity_of(run.table), *map(str, columns), content, *store)
        self._history = CheckHistory(folder, identity, every_s)

    def record(self, report: Report) -> None:
        self._write(lambda history: history.record(report))

    def record_undecided(self, reason: str) -> None:
        self._write(lambda history: history.record_undecided(self._topic, *self._addresses, reason))

    def _write(self, write: Callable[[CheckHistory], None]) -> None:
        try:
            if self._history is not None:
                write(self._history)
        except OSError as error:
            errors.print(f"the check is not recorded: {error}")


def _repeat(run: _Run, request: Request, every: str, listen: str, folder: Path | None) -> NoReturn:
    from penstock.audit.reports.report import verdict
    from penstock.audit.reports.watch import MetricsServer
    from penstock.audit.sources.open_source import topic_name
    from penstock.audit.tables.address import without_credentials

    try:
        interval_s = float(str(parse_time(every)))
        address = split_address(check_address(listen)) if listen else None
        metrics = MetricsServer(*address) if address else None
    except (ValueError, OSError) as error:
        fail(error, UNDECIDED)
    if metrics is not None:
        run = replace(run, publish=metrics.publish)
    history = _History(folder, run, request, interval_s)
    while True:
        began_s = time.monotonic()
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        try:
            with _decided(run, history.record_undecided):
                report = run(request)
            history.record(report)
            for line in (f"{now} {verdict(report)}", *report.intervals):
                errors.print(Text(visible(line)), soft_wrap=True)
        except SystemExit:
            if metrics is not None:
                metrics.publish_undecided(topic_name(run.source), without_credentials(run.table))
        time.sleep(max(0.0, interval_s - (time.monotonic() - began_s)))


def _repeated_decoder(receipt: Mapping[str, Any], decoder: str) -> str:
    """Return the decoder of the command line: a receipt of somebody else must not choose the code that runs here."""
    needed = receipt["options"].get("decoder")
    if needed and not decoder:
        fail(f"the receipt is of values decoded by {needed!r}; name your copy by --decoder MODULE:FUNCTION", UNDECIDED)
    return decoder


def _print(report: Report) -> None:
    from penstock.audit.reports.report import lines

    for line in lines(report):
        console.print(Text(visible(line)), soft_wrap=True)


def _print_differences(receipt: Mapping[str, Any], report: Report) -> None:
    from penstock.audit.reports.receipt import differences

    changes = list(differences(receipt, report))
    for line in changes or ["the check agrees with the receipt"]:
        errors.print(Text(visible(line)), soft_wrap=True)


def _request(
    *, grace: str, since: str, until: str, ids: str, times: str, compare: list[str], **options: Any
) -> Request:
    from penstock.audit.fields import parse_pair
    from penstock.audit.outcome import Request

    now = time.time()
    if ids and times:
        fail("--id and --count-by exclude each other", UNDECIDED)
    try:
        return Request(
            grace_s=float(str(parse_time(grace))),
            since_s=parse_moment_or_age(since, now, "--since") if since else None,
            until_s=parse_moment_or_age(until, now, "--until") if until else None,
            ids=parse_pair(ids) if ids else None,
            times=parse_pair(times, "timestamp") if times else None,
            compared=tuple(parse_pair(pair) for pair in compare),
            **options,
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
