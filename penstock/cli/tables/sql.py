"""``penstock sql``: the tables and what waits in the log, asked with SQL, without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.common import console, errors
from penstock.cli.options import AsJson, Configured
from penstock.cli.progress import Progress
from penstock.process.terminal import visible

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.sql.query import Query


def sql(
    settings: Configured,
    query: Annotated[
        str,
        typer.Argument(
            help="A SELECT (of DuckDB) over landed, events, syslog, messages, quarantine, events_NAME of typed tables, "
            "watermarks and topics.NAME."
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
    from penstock.sql.answers import csv_text, json_text, slowness
    from penstock.sql.configured import tables_of  # DuckDB takes a moment to import
    from penstock.sql.query import Query

    tables, all_rows = tables_of(settings, landed), as_json or as_csv or arrow
    progress = Progress("reading what has not landed yet")
    with progress, Query(tables, query, lambda rows: progress.tell(f"{rows:,} messages")) as asked:
        rows = asked.answer(None if all_rows else limit + 1)
    if arrow:
        _write_arrow(rows, arrow)
    elif as_csv:
        print(csv_text(rows), end="")
    elif as_json:
        print(json_text(rows))
    else:
        _show(rows, limit, asked)
    if told := slowness(asked):
        errors.print(told, style="yellow")


def _show(rows: pa.Table, limit: int, asked: Query) -> None:
    from rich.table import Table
    from rich.text import Text

    from penstock.sql.answers import cell, is_number, rows_of, scope

    shown = Table(box=None)
    for field in rows.schema:
        shown.add_column(Text(visible(field.name)), justify="right" if is_number(field.type) else "left")
    for row in rows_of(rows.slice(0, limit)):
        shown.add_row(*(Text(cell(value)) for value in row.values()))
    console.print(shown)
    if rows.num_rows > limit:
        errors.print(f"more than {limit:,} rows: -n shows more, --json, --csv and --arrow give all")
    if told := scope(asked):
        errors.print(told)


def _write_arrow(rows: pa.Table, path: Path) -> None:
    from pyarrow import ipc

    with ipc.new_file(os.fspath(path), rows.schema) as writer:
        writer.write_table(rows)
