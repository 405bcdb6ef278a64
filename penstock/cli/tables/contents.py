"""``penstock tables``: files, rows and columns of the tables, read without Spark.

Only committed files are read: a file of an unfinished commit is not listed in the table. Arrow and delta-rs are
imported where rows or commits are read, so that lists of commands and their help do without them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import console, fail
from penstock.cli.options import AsJson, Commands, ConfiguredData
from penstock.cli.progress import Progress
from penstock.files.change_log import record_command
from penstock.landing.event_rules import VIEWS
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout, partition_value
from penstock.process.terminal import visible

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.config.syntax.tables_url import TablesPlace
    from penstock.landing.storage.object_path import TablePath
    from penstock.landing.table.table_file import TableFile

tables = Commands(no_args_is_help=True, help="List, count, delete and repair rows of the tables without Spark.")
COLUMNS = ("offset", "payload")
MAX_PAYLOAD_LENGTH = 48


@tables.command()
def files(
    settings: ConfiguredData,
    view: Annotated[str | None, typer.Option(help="List only files of this view.", show_default=False)] = None,
    type_: Annotated[
        str | None, typer.Option("--type", help="List only files with rows of this event type.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the committed files of the table, for tools that read Parquet."""
    from penstock.landing.typed.typed_delta import existing_typed_tables

    layout = Layout.for_tables(settings.tables)
    typed = {table.folder.name: table for table in existing_typed_tables(layout)}
    if view is not None and view not in (*VIEWS, *typed):
        fail(f"--view: no view is named {view!r}; views are {', '.join([*VIEWS, *typed])}", 2)
    if view in typed:
        folder, listed = typed[view].folder, typed[view].active()
    else:
        folder, listed = (
            layout.landed,
            [name for name in _committed_files(layout) if view in (None, *_views_of_file(name))],
        )
    paths = [str(folder / name) for name in listed if type_ is None or _has_type(folder, name, type_)]
    if as_json:
        print(json.dumps(paths))
    else:
        sys.stdout.writelines(f"{path}\n" for path in paths)


@tables.command()
def rows(settings: ConfiguredData, as_json: AsJson = False) -> None:
    """Count the rows of each view and of each typed table."""
    counted = rows_by_view(settings.tables)
    if as_json:
        print(json.dumps(counted))
        return
    table = Table("view", "rows", box=None)
    for name, count in counted.items():
        table.add_row(name, f"{count:,}")
    console.print(table)


@tables.command()
def register(
    settings: ConfiguredData,
    catalog: Annotated[
        str,
        typer.Argument(help="glue, thrift://HOST:PORT of Hive, or https://HOST:PORT of Unity Catalog."),
    ],
    namespace: Annotated[
        str, typer.Option(help="Database, or CATALOG.SCHEMA of a Unity Catalog; created if it is missing.")
    ] = "penstock",
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File containing the bearer token for a Unity Catalog.")
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca", help="File containing the CA certificates (PEM) of a Unity Catalog.", show_default="the system's"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Enter landed, proofs and the typed tables in a catalog as external Delta tables, or correct their columns."""
    from penstock.config.daemon_access import read_token
    from penstock.files.errors import FileError
    from penstock.upkeep.catalog_entries import UNCHANGED, CatalogFailed, open_catalog, read_entries
    from penstock.upkeep.catalog_entries import register as register_entries

    done = dict[str, str]()
    try:
        # Order: a database is made only if there are tables for it.
        entries = read_entries(Layout.for_tables(settings.tables))
        token = read_token(token_file) if token_file else None
        with open_catalog(catalog, namespace, token=token, ca=ca) as opened:
            for name, change in register_entries(entries, opened):
                done[name] = change
    except (CatalogFailed, FileError, OSError) as error:
        fail(error)
    finally:
        if changes := ", ".join(f"{change} {name}" for name, change in done.items() if change != UNCHANGED):
            record_command(settings.data_dir, f"enter tables in the catalog {catalog}: {changes}", namespace=namespace)
    if as_json:
        print(json.dumps(done))
        return
    for name, change in done.items():
        print(f"{namespace}.{name}: {change}")


@tables.command()
def spark_config(
    settings: ConfiguredData,
    as_json: AsJson = False,
    spark: Annotated[str, typer.Option(help="Version of that Spark: 4.0, 4.1 or 4.2.")] = "4.2",
) -> None:
    """Print the settings and statements with which any Spark session reads the tables."""
    from penstock.landing.table.plain_session import HADOOP_VERSIONS, session_settings, statements
    from penstock.landing.typed.typed_delta import typed_names

    if spark not in HADOOP_VERSIONS:
        fail(f"--spark: there is no Delta for Spark {spark!r}, only for {', '.join(HADOOP_VERSIONS)}")
    layout = Layout.for_tables(settings.tables)
    session_keys, lines = session_settings(layout, spark), statements(layout, typed_names(layout))
    if as_json:
        print(json.dumps({"settings": session_keys, "statements": lines}, indent=2))
        return
    sys.stdout.writelines(f"{name} {value}\n" for name, value in session_keys.items())
    sys.stdout.writelines(f"{line};\n" for line in ("", *lines) if line)


@tables.command()
def repair(settings: ConfiguredData) -> None:
    """Rewrite files that other programs left in a state in which some engines misread them.

    These are files with rows that have an annotation name twice, which DuckDB, Spark and Ibis cannot read, and files
    that are listed several times, with and without their deletion vector. The pipeline may run.
    """
    from penstock.upkeep.compaction.annotation_repair import repair_annotations
    from penstock.upkeep.compaction.compaction import repair_entries

    layout = Layout.for_tables(settings.tables)
    with Progress("looking for files that are listed several times"):
        repeated = repair_entries(layout)
    with Progress("looking for repeated names"):
        repaired = repair_annotations(layout)
    if repaired:
        record_command(settings.data_dir, f"rewrite {repaired} files of the tables with repeated annotation names")
    if repeated:
        record_command(settings.data_dir, f"rewrite {repeated} files that the tables listed several times")
    console.print(
        f"{repaired + repeated:,} files rewritten"
        if repaired or repeated
        else "nothing to repair: every annotation name is unique within its row, and every file is listed once"
    )


def rows_by_view(tables: TablesPlace) -> dict[str, int]:
    """Return the number of rows of each view and typed table."""
    from penstock.landing.table.table_file import count_rows
    from penstock.landing.typed.typed_delta import existing_typed_tables

    layout = Layout.for_tables(tables)
    rows: Counter[str] = Counter()
    for name in _committed_files(layout):
        rows[partition_value(name, "kind")] += count_rows(layout.landed, name)
    typed = {
        table.folder.name: sum(count_rows(table.folder, name) for name in table.active())
        for table in existing_typed_tables(layout)
    }
    return {**{view: rows[kind] for view, kind in VIEWS.items()}, **typed}


def _views_of_file(name: str) -> list[str]:
    return [view for view, kind in VIEWS.items() if kind == partition_value(name, "kind")]


def sample_rows(tables: TablesPlace, count: int) -> Table:
    """Return a row of each of up to ``count`` types, or of kinds for rows without a type, as a table for people."""
    layout = Layout.for_tables(tables)
    table = Table("type", *COLUMNS, box=None)
    for column in table.columns:
        column.no_wrap = True
    for type_or_kind, row in islice(sorted(_first_of_each_type(layout).items()), count):
        # A payload comes from the network and must not control the terminal.
        payload = visible((row["payload"] or b"").decode(errors="replace")[:MAX_PAYLOAD_LENGTH])
        table.add_row(Text(visible(type_or_kind)), str(row["offset"]), Text(payload))
    return table


def _committed_files(layout: Layout) -> list[TableFile]:
    return table_of(layout).active()


def _has_type(folder: TablePath, name: TableFile, event_type: str) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    return bool(pc.any(pc.equal(_columns(folder, name, "type")["type"], pa.scalar(event_type))).as_py())


def _first_of_each_type(layout: Layout) -> dict[str, dict[str, Any]]:
    """Return the first row of each type, or kind for rows without a type, of the newest file of each day."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first_rows: dict[str, dict[str, Any]] = {}
    # Limit: one file per day is read, because a sample of rows needs no scan of the table.
    newest = {name.rpartition("/")[0]: name for name in _committed_files(layout)}
    for name in newest.values():
        rows = _columns(layout.landed, name, "type", *COLUMNS)
        for event_type in rows["type"].unique().to_pylist():
            matches = pc.is_null(rows["type"]) if event_type is None else pc.equal(rows["type"], pa.scalar(event_type))
            (row,) = rows.filter(matches).slice(0, 1).to_pylist()
            first_rows.setdefault(event_type or partition_value(name, "kind"), row)
    return first_rows


def _columns(folder: TablePath, name: TableFile, *columns: str) -> pa.Table:
    from penstock.landing.table.table_file import open_rows

    with open_rows(folder, name) as file:
        return file.read(columns)
