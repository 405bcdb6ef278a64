"""``penstock sql``: query the tables, and messages in the log that have not landed, without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.common import console, errors
from penstock.cli.options import AsJson, ConfiguredData
from penstock.cli.progress import Progress
from penstock.files.file_system import replacing_draft
from penstock.process.terminal import visible

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.sql.query import Query


def sql(
    settings: ConfiguredData,
    query: Annotated[
        str,
        typer.Argument(
            help="SELECT statement (DuckDB) over landed, events, syslog, messages, quarantine, events_NAME of typed "
            "tables, watermarks and topics.NAME."
        ),
    ],
    limit: Annotated[int, typer.Option("-n", min=1, help="Maximum number of rows in the printed table.")] = 40,
    landed: Annotated[
        bool, typer.Option("--landed", help="Query only the tables, without messages that have not landed.")
    ] = False,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    arrow: Annotated[
        Path | None, typer.Option("--arrow", help="Arrow file to write.", show_default=False, metavar="FILE")
    ] = None,
) -> None:
    """Query the tables, and messages in the log that have not landed, with SQL and without Spark."""
    from penstock.sql.answers import csv_text, json_text, slowness

    # DuckDB is slow to import.
    from penstock.sql.configured import tables_of
    from penstock.sql.query import Query

    tables, all_rows = tables_of(settings, landed), as_json or as_csv or arrow
    progress = Progress("reading messages that have not landed")
    with progress, Query(tables, query, lambda rows: progress.update(f"{rows:,} messages")) as execution:
        rows = execution.answer(None if all_rows else limit + 1)
    if arrow:
        _write_arrow(rows, arrow)
    elif as_csv:
        print(csv_text(rows), end="")
    elif as_json:
        print(json_text(rows))
    else:
        _print_table(rows, limit, execution)
    if warning := slowness(execution):
        errors.print(warning, style="yellow")


def _print_table(rows: pa.Table, limit: int, execution: Query) -> None:
    from rich.table import Table
    from rich.text import Text

    from penstock.sql.answers import cell, is_number, rows_of, scope

    table = Table(box=None)
    for field in rows.schema:
        table.add_column(Text(visible(field.name)), justify="right" if is_number(field.type) else "left")
    for row in rows_of(rows.slice(0, limit)):
        table.add_row(*(Text(cell(value)) for value in row.values()))
    console.print(table)
    if rows.num_rows > limit:
        errors.print(f"more than {limit:,} rows: -n prints more; --json, --csv and --arrow print all")
    if note := scope(execution):
        errors.print(note)


def _write_arrow(rows: pa.Table, path: Path) -> None:
    from pyarrow import ipc

    # Order: the writer closes first, and writes the file's footer.
    with replacing_draft(path) as draft, ipc.new_file(os.fspath(draft), rows.schema) as writer:
        writer.write_table(rows)
