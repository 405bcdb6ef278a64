"""Commands on typed tables: ``penstock schema`` compares them, ``penstock tables fill`` and ``refill`` complete one."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import console, errors, fail
from penstock.cli.options import AsJson, Commands, ConfiguredData
from penstock.cli.progress import Progress
from penstock.files.change_log import record_command
from penstock.process.terminal import visible

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.landing.table_paths import Layout
    from penstock.landing.typed.columns import TypedTable
    from penstock.upkeep.typed.changed_rows import ChangedColumn

schema = Commands(
    no_args_is_help=True, help="Propose typed tables from events, and compare configuration, table and events."
)
MAX_SHOWN_VALUE = 200
"""Limit for the characters of a value that an example shows."""
COMPARED_ROWS, SHOWN_CHANGES = 100_000, 3
"""Newest rows whose changes a refill reports, and examples of each column."""
Rows = Annotated[int, typer.Option("--rows", min=1, help="Number of newest events to read.")]


@schema.command()
def infer(
    settings: ConfiguredData,
    event_type: Annotated[str, typer.Argument(metavar="TYPE", help="Event type of landed events.")],
    rows: Rows = 100_000,
    as_json: AsJson = False,
) -> None:
    """Propose the configuration of a typed table from landed events of a type."""
    from penstock.landing.table_paths import Layout
    from penstock.upkeep.typed.found_fields import find_fields, recent_data
    from penstock.upkeep.typed.proposal import propose

    with errors.status("reading"):
        data = recent_data(Layout.for_tables(settings.tables), event_type, rows)
        fields = find_fields(data)
    if not len(data):
        fail(f"no event of type {event_type!r} has landed")
    if as_json:
        field_documents = [{"field": field.name, "type": field.proposed, "events": field.present} for field in fields]
        print(json.dumps({"type": event_type, "events": len(data), "fields": field_documents}, indent=2))
    else:
        print(propose(event_type, fields, len(data)), end="")


@schema.command()
def diff(
    settings: ConfiguredData,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="Name of a configured typed table.")],
    rows: Rows = 100_000,
    sample: Annotated[
        int, typer.Option("--sample", min=0, help="Examples to show of each field that does not fit.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare the configuration of a typed table with the table and the newest landed events.

    Exits with status 1 if they differ, or if the table's rows cannot be read.
    """
    from penstock.landing.table_paths import Layout
    from penstock.landing.typed.typed_delta import BEFORE_FIRST_BATCH, describe_start, read_starts
    from penstock.upkeep.typed.differences import differences, find_misfits
    from penstock.upkeep.typed.found_fields import find_fields, recent_data

    layout, typed_table = Layout.for_tables(settings.tables), find_typed_table(settings, name)
    with errors.status("reading"):
        data = recent_data(layout, typed_table.type, rows)
        nested = [column.path for column in typed_table.columns if len(column.path) > 1]
        fields = find_fields(data, nested, [column.type for column in typed_table.columns])
        violations, changed = typed_table.violations(data), _find_changed(layout, typed_table, rows, sample)
        columns = differences(layout, typed_table, fields, len(data), violations, changed or ())
        misfits = find_misfits(layout, typed_table, rows, sample) if sample else []
    complete_after = max(BEFORE_FIRST_BATCH, read_starts(layout).get(name, BEFORE_FIRST_BATCH))
    if as_json:
        print(
            json.dumps(
                {
                    "events": len(data),
                    "after": complete_after,
                    "columns": [column.document() for column in columns],
                    **({"misfits": [asdict(misfit) for misfit in misfits]} if sample else {}),
                    **({"changed": _changed_document(changed)} if sample else {}),
                },
                indent=2,
            )
        )
    else:
        table = Table("column", "configured", "table", "landed", "difference", box=None)
        table.columns[0].overflow = "fold"
        for column in columns:
            table.add_row(*(Text(visible(text)) for text in column.document().values()))
        console.print(table)
        _show_changed(changed or ())
        for misfit in misfits:
            console.print(Text(visible(f"{misfit.field}: {misfit.events:,} of {len(data):,} are not {misfit.needs}")))
            for example in misfit.examples:
                value = (example["value"] or "missing")[:MAX_SHOWN_VALUE]
                line = f"  offset {example['offset']} of {example['topic']}, uuid {example['uuid']}: {value}"
                console.print(Text(visible(line)))
        if complete_after > BEFORE_FIRST_BATCH:
            errors.print(f"{describe_start(name, complete_after)}; `penstock tables fill {name}` adds the rows before")
    sys.exit(1 if changed is None or any(column.difference for column in columns) else 0)


@schema.command()
def violations(
    settings: ConfiguredData,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="Typed table; default: all.", show_default=False)] = "",
    as_json: AsJson = False,
) -> None:
    """Print how many events violated each rule of the contracts of typed tables, and where they went.

    Counts of the column rest are of all events that have landed; counts of the quarantine are of those in it now.
    """
    from penstock.landing.journal import violations_by_rule
    from penstock.landing.rows.type_schemas import parse_contract_reason
    from penstock.landing.table_paths import Layout
    from penstock.sql.configured import tables_of
    from penstock.sql.quarantined import contract_violations

    counted = {"rest": violations_by_rule(Layout.for_tables(settings.tables))}
    with errors.status("reading"):
        counted["quarantine"] = contract_violations(tables_of(settings))
    rows = [
        (*parse_contract_reason(reason), destination, events)
        for destination, counts in counted.items()
        for reason, events in sorted(counts.items())
    ]
    rows = [row for row in rows if name in ("", row[0])]
    keys = ("table", "column", "rule", "destination", "events")
    if as_json:
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
        return
    table = Table(*keys, box=None)
    for *words, events in rows:
        table.add_row(*map(str, words), f"{events:,}")
    console.print(table if rows else "no event has violated a contract")


def fill(
    settings: ConfiguredData,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="Name of a configured typed table.")],
    as_json: AsJson = False,
) -> None:
    """Add rows to a typed table that landed before it was configured, each row once.

    A pipeline may run at the same time.
    """
    from penstock.landing.table_paths import Layout
    from penstock.upkeep.typed.fill import fill as fill_table

    table = find_typed_table(settings, name)
    with Progress("filling") as progress:
        report = lambda day, days: progress.update(f"day {day + 1:,} of {days:,}")  # noqa: E731
        rows = fill_table(Layout.for_tables(settings.tables), table, report)
    if rows:
        record_command(settings.data_dir, f"add {rows} rows to {table.view}")
    if as_json:
        print(json.dumps({"rows": rows}))
    else:
        console.print(
            f"{rows:,} rows added to {table.view}" if rows else f"{table.view} is complete: no row is missing"
        )


def refill(
    settings: ConfiguredData,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="Name of a configured typed table.")],
    drop_columns: Annotated[
        bool, typer.Option("--drop-columns", help="Also remove columns that are not configured.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild a typed table from the landed rows, after its columns or their rules have changed.

    Readers see the old table until the new one is complete. A killed command is continued by the next one.
    """
    from penstock.landing.table_paths import Layout
    from penstock.upkeep.typed.refill import refill as refill_table

    table, layout = find_typed_table(settings, name), Layout.for_tables(settings.tables)
    with errors.status("comparing"):
        changed = _find_changed(layout, table, COMPARED_ROWS, SHOWN_CHANGES)
    with Progress("refilling") as progress:
        report = lambda day, days: progress.update(f"day {day + 1:,} of {days:,}")  # noqa: E731
        rows = refill_table(layout, table, drop=drop_columns, report=report)
    record_command(settings.data_dir, f"rebuild {table.view} with {rows} rows")
    if as_json:
        print(json.dumps({"rows": rows, "changed": _changed_document(changed)}))
    else:
        console.print(f"{table.view} is rebuilt: {rows:,} rows")
        _show_changed(changed or ())


def _find_changed(layout: Layout, table: TypedTable, rows: int, examples: int) -> list[ChangedColumn] | None:
    """Return the columns in which a refill changes rows; None, and a message, if the table's rows cannot be read."""
    import pyarrow as pa

    from penstock.errors import PenstockError
    from penstock.upkeep.typed.changed_rows import find_changed_rows

    try:
        return find_changed_rows(layout, table, rows, examples)
    except (PenstockError, pa.ArrowInvalid, OSError) as error:
        # A refill needs no old rows, and it is how a damaged table is repaired.
        reason = visible(str(error).partition("\n")[0])
        errors.print(Text(f"rows of {table.view} were not compared, because they cannot be read: {reason}"))
        return None


def _changed_document(changed: Sequence[ChangedColumn] | None) -> list[dict[str, object]] | None:
    return None if changed is None else [asdict(column) for column in changed]


def _show_changed(changed: Sequence[ChangedColumn]) -> None:
    """Print the columns in which a refill changes rows, with examples."""
    for column in changed:
        if column.examples:
            console.print(Text(f"{column.column}: a refill changes {column.rows:,} of the newest rows"))
        for example in column.examples:
            stored, configured = example["stored"][:MAX_SHOWN_VALUE], example["configured"][:MAX_SHOWN_VALUE]
            row = f"offset {example['offset']} of {example['topic']}, uuid {example['uuid']}"
            console.print(Text(visible(f"  {row}: {stored} -> {configured}")))


def find_typed_table(settings: Settings, name: str) -> TypedTable:
    """Return the configured typed table of this name, or end the command with the names that exist."""
    from penstock.landing.typed.columns import configured_tables

    tables = {table.name: table for table in configured_tables(settings.pipeline)}
    if name not in tables:
        fail(f"[pipeline.typed.{name}] is not configured; configured are: {', '.join(tables) or 'none'}", 2)
    return tables[name]
