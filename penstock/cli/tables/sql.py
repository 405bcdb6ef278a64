"""``penstock sql``: the tables and what waits in the log, asked with SQL, without Spark."""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import console, errors
from penstock.cli.options import AsJson, Configured
from penstock.cli.progress import Progress
from penstock.process.terminal import visible

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.config import Settings
    from penstock.sql.query import Query, Tables

CELL = 60
"""Characters of a value that are shown."""


def sql(
    settings: Configured,
    query: Annotated[
        str,
        typer.Argument(
            help="A SELECT over landed, events, syslog, messages, quarantine, watermarks and topics.NAME (of DuckDB)."
        ),
    ],
    limit: Annotated[int, typer.Option("-n", min=1, help="Most rows shown as a table.")] = 40,
    landed: Annotated[bool, typer.Option("--landed", help="Only what is in the tables, nothing newer.")] = False,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    arrow: Annotated[
        Path | None, typer.Option("--arrow", help="Write an Arrow file.", show_default=False, metavar="FILE")
    ] = None,
) -> None:
    """Ask the tables, and what of the log is not in them yet, with SQL and without Spark."""
    from penstock.sql.query import Query  # DuckDB takes a moment to import

    tables, all_rows = tables_of(settings, landed), as_json or as_csv or arrow
    progress = Progress("reading what has not landed yet")
    with progress, Query(tables, query, lambda rows: progress.tell(f"{rows:,} messages")) as asked:
        rows = asked.answer(None if all_rows else limit + 1)
    if arrow:
        _write_arrow(rows, arrow)
    elif as_csv:
        _print_csv(rows)
    elif as_json:
        print(json.dumps(_plain(rows), default=_text))
    else:
        _show(rows, limit, asked)


def tables_of(settings: Settings, landed_only: bool = False) -> Tables:
    """What can be asked with a configuration. Raises SchemasUnknown, OSError, ConfigError."""
    from penstock.landing.daemon_connection import connection_of
    from penstock.landing.rows.json_events import EventRules
    from penstock.landing.rows.table_rows import Rules
    from penstock.landing.rows.type_schemas import kept_schemas
    from penstock.landing.table_paths import Layout
    from penstock.landing.topics.from_folder import FolderStore
    from penstock.sql.query import Tables

    layout, pipeline = Layout.of(settings.tables), settings.pipeline
    window = round(pipeline.duplicate_window * 1_000_000)
    if landed_only or pipeline.source == "kafka":
        return Tables(layout, None, window=window)
    schemas = kept_schemas(layout.type_schemas, pipeline.schemas)
    rules = Rules(EventRules(pipeline.event_types, schemas), pipeline.keep_payload)
    connection = connection_of(settings)
    if connection is None:
        return Tables(layout, FolderStore(settings.topics), pipeline.topics, rules, window)
    from penstock.landing.topics.from_flight import FlightStore

    return Tables(layout, FlightStore(connection), pipeline.topics, rules, window)


def _show(rows: pa.Table, limit: int, asked: Query) -> None:
    shown = Table(box=None)
    for field in rows.schema:
        shown.add_column(Text(visible(field.name)), justify="right" if _is_number(field.type) else "left")
    for row in rows.slice(0, limit).to_pylist():
        shown.add_row(*(Text(_cell(value)) for value in row.values()))
    console.print(shown)
    if rows.num_rows > limit:
        errors.print(f"more than {limit:,} rows: -n shows more, --json, --csv and --arrow give all")
    if asked.batch is not None:
        newer = f", and {asked.newer:,} newer messages of the log" if asked.newer else ""
        errors.print(f"the table through batch {asked.batch:,}{newer}" if asked.batch >= 0 else f"no table yet{newer}")


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow.types as of

    return of.is_integer(kind) or of.is_floating(kind) or of.is_decimal(kind)


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else _text(value)
    return visible(text if len(text) <= CELL else f"{text[: CELL - 1]}…")


def _text(value: Any) -> str:
    """A value that JSON does not have."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat(*[" "] if isinstance(value, dt.datetime) else [])
    if isinstance(value, list | dict):
        return json.dumps(value, default=_text)
    return str(value)


def _plain(rows: pa.Table) -> list[dict[str, Any]]:
    return rows.to_pylist(maps_as_pydicts="lossy")


def _print_csv(rows: pa.Table) -> None:
    import csv

    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(rows.column_names)
    for row in _plain(rows):
        out.writerow([value if isinstance(value, int | float) else _text(value) for value in row.values()])


def _write_arrow(rows: pa.Table, path: Path) -> None:
    from pyarrow import ipc

    with ipc.new_file(os.fspath(path), rows.schema) as writer:
        writer.write_table(rows)
