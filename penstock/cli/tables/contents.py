"""A look into the tables without Spark: only files that were committed."""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import islice
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import console, fail
from penstock.cli.options import AsJson, Commands, Configured
from penstock.cli.progress import Progress
from penstock.cli.tables.delete import delete
from penstock.cli.tables.fill import fill
from penstock.config.tables_url import TablesPlace
from penstock.landing.event_rules import VIEWS
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.begun_table import table_of
from penstock.landing.table.table_file import TableFile, count_rows, open_rows
from penstock.landing.table_paths import Layout, partition_value
from penstock.landing.typed.typed_delta import TypedDelta, all_typed, typed_names
from penstock.process.terminal import visible

tables = Commands(no_args_is_help=True, help="The tables, looked at without Spark.")
tables.command()(delete)
tables.command()(fill)
COLUMNS = ("offset", "payload")
PAYLOAD_SHOWN = 48


@tables.command()
def files(
    settings: Configured,
    view: Annotated[str | None, typer.Option(help="Of this view alone.", show_default=False)] = None,
    type_: Annotated[
        str | None, typer.Option("--type", help="That have rows of this event type.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The committed files of the table, for tools that read Parquet: one a line."""
    layout = Layout.of(settings.tables)
    typed = {table.folder.name: table for table in all_typed(layout)}
    if view is not None and view not in (*VIEWS, *typed):
        fail(f"--view: there is no view {view!r} (known are {', '.join([*VIEWS, *typed])})", 2)
    if view in typed:
        folder, listed = typed[view].folder, typed[view].active()
    else:
        folder, listed = layout.landed, [name for name in _files(layout) if view in (None, *_views(name))]
    paths = [str(folder / name) for name in listed if type_ is None or _has_type(folder, name, type_)]
    if as_json:
        print(json.dumps(paths))
    else:
        sys.stdout.writelines(f"{path}\n" for path in paths)


@tables.command()
def rows(settings: Configured, as_json: AsJson = False) -> None:
    """How many rows each view has, and each typed table."""
    counted = rows_by_view(settings.tables)
    if as_json:
        print(json.dumps(counted))
        return
    shown = Table("view", "rows", box=None)
    for name, count in counted.items():
        shown.add_row(name, f"{count:,}")
    console.print(shown)


@tables.command()
def spark_config(settings: Configured, as_json: AsJson = False) -> None:
    """What a Spark session without Penstock needs to read the tables."""
    from penstock.landing.table.plain_session import session_settings, statements

    layout = Layout.of(settings.tables)
    given, lines = session_settings(layout), statements(layout, typed_names(layout))
    if as_json:
        print(json.dumps({"settings": given, "statements": lines}, indent=2))
        return
    sys.stdout.writelines(f"{name} {value}\n" for name, value in given.items())
    sys.stdout.writelines(f"{line};\n" for line in ("", *lines) if line)


@tables.command()
def repair(settings: Configured) -> None:
    """Rewrite files in which a row has an annotation's name twice: DuckDB, Spark and Ibis cannot read those."""
    from penstock.upkeep.compaction.annotation_repair import repair_annotations

    with Progress("looking for repeated names"):
        repaired = repair_annotations(Layout.of(settings.tables))
    console.print(f"{repaired:,} files rewritten" if repaired else "nothing to do: every name is unique within its row")


def rows_by_view(tables: TablesPlace) -> dict[str, int]:
    """The number of rows of each view."""
    layout = Layout.of(tables)
    rows: Counter[str] = Counter()
    for name in _files(layout):
        rows[partition_value(name, "kind")] += count_rows(layout.landed, name)
    typed = {table.folder.name: _rows(table) for table in all_typed(layout)}
    return {**{view: rows[kind] for view, kind in VIEWS.items()}, **typed}


def _rows(table: TypedDelta) -> int:
    return sum(count_rows(table.folder, name) for name in table.active())


def _views(name: str) -> list[str]:
    """The view that a file of the table is for."""
    return [view for view, kind in VIEWS.items() if kind == partition_value(name, "kind")]


def some_rows(tables: TablesPlace, count: int) -> Table:
    """A row of each of a few types, as a table for people; what has no type stands by its kind."""
    layout = Layout.of(tables)
    shown = Table("type", *COLUMNS, box=None)
    for column in shown.columns:
        column.no_wrap = True
    for named, row in islice(sorted(_first_of_each_type(layout).items()), count):
        payload = visible((row["payload"] or b"").decode(errors="replace")[:PAYLOAD_SHOWN])
        shown.add_row(Text(visible(named)), str(row["offset"]), Text(payload))
    return shown


def _files(layout: Layout) -> list[TableFile]:
    return table_of(layout).active()


def _has_type(folder: TablePath, name: TableFile, wanted: str) -> bool:
    return bool(pc.any(pc.equal(_columns(folder, name, "type")["type"], pa.scalar(wanted))).as_py())


def _first_of_each_type(layout: Layout) -> dict[str, dict[str, Any]]:
    """By type, or kind where there is none: its first row in the newest file of a day."""
    found: dict[str, dict[str, Any]] = {}
    newest = {name.rpartition("/")[0]: name for name in _files(layout)}
    for name in newest.values():
        rows = _columns(layout.landed, name, "type", *COLUMNS)
        for named in rows["type"].unique().to_pylist():
            of_it = pc.is_null(rows["type"]) if named is None else pc.equal(rows["type"], pa.scalar(named))
            (row,) = rows.filter(of_it).slice(0, 1).to_pylist()
            found.setdefault(named or partition_value(name, "kind"), row)
    return found


def _columns(folder: TablePath, name: TableFile, *columns: str) -> pa.Table:
    with open_rows(folder, name) as file:
        return file.read(columns)
