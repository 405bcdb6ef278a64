"""``penstock tables changes``: rows that were added to and deleted from a table since a batch."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.common import console, fail
from penstock.cli.options import AsJson, ConfiguredData
from penstock.files.file_system import replacing_draft

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.upkeep.changes import Changes

FORMATS = ("summary", "jsonl")


def changes(
    settings: ConfiguredData,
    since: Annotated[
        str, typer.Option(metavar="POSITION", help="Batch number, or the `next` of an earlier answer; -1 = all rows.")
    ],
    view: Annotated[str, typer.Option(help="View or typed table.")] = "landed",
    output_format: Annotated[
        str, typer.Option("--format", help="summary, or jsonl for a JSON object per row, deletion and `next`.")
    ] = "summary",
    arrow: Annotated[
        Path | None, typer.Option("--arrow", help="Arrow file for the added rows.", show_default=False, metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report the rows added and deleted since a batch, and the position from which to continue.

    Merged files are not changes.
    """
    # The engines of tables are slow to import.
    from penstock.landing.table_paths import Layout
    from penstock.upkeep.changes import BadPosition, NoSuchSource, Position, read_changes

    if output_format not in FORMATS:
        fail(f"--format: {output_format!r} is not one of {', '.join(FORMATS)}", 2)
    try:
        read = read_changes(Layout.for_tables(settings.tables), view, Position.parse(since))
    except (BadPosition, NoSuchSource) as error:
        fail(error, 2)
    if output_format == "jsonl" and not as_json:
        _print_lines(read)
        return
    rows = _count_rows(read, arrow)
    if as_json:
        deleted = read.deleted.to_pylist()
        summary = {"view": view, "since": since, "complete": read.is_complete, "added": rows, "deleted": deleted}
        print(json.dumps({**summary, "next": str(read.next)}))
    else:
        _print_summary(read, rows)


def _count_rows(read: Changes, arrow: Path | None) -> dict[str, int]:
    """Count the added rows by batch, "" for rows whose batch is no longer named, and write them to a file."""
    from pyarrow import ipc

    counts: Counter[int | None] = Counter()
    batches = _counted(read.added_with_batch(), counts)
    if arrow is None:
        for _ in batches:
            pass
    else:
        # Order: the writer closes first, and writes the file's footer.
        with replacing_draft(arrow) as draft, ipc.new_file(os.fspath(draft), read.schema_with_batch) as writer:
            for batch in batches:
                writer.write_batch(batch)
    ordered = sorted(counts.items(), key=lambda entry: -1 if entry[0] is None else entry[0])
    return {"" if batch is None else str(batch): rows for batch, rows in ordered}


def _counted(batches: Iterable[pa.RecordBatch], counts: Counter[int | None]) -> Iterable[pa.RecordBatch]:
    from penstock.landing.rows.engine import pc
    from penstock.upkeep.changes import BATCH_COLUMN

    for rows in batches:
        for entry in pc.value_counts(rows[BATCH_COLUMN]).to_pylist():
            counts[entry["values"]] += entry["counts"]
        yield rows


def _print_summary(read: Changes, rows: Mapping[str, int]) -> None:
    from rich.table import Table

    from penstock.upkeep.changes import RELANDED

    table = Table("batch", "added", box=None)
    for batch, count in rows.items():
        table.add_row(batch or "earlier", f"{count:,}")
    if rows:
        console.print(table)
    for deletion in _deletions(read):
        name = "landed again" if deletion["why"] == RELANDED else f"deletion {deletion['deletion']} ({deletion['why']})"
        console.print(f"{name}: {deletion['offsets']:,} offsets")
    if read.is_complete:
        console.print("these are all rows: they replace what was read before")
    console.print(f"next: {read.next}")


def _deletions(read: Changes) -> list[dict[str, Any]]:
    """Return the number of deleted offsets by deletion."""
    offsets: dict[tuple[int, str], int] = {}
    for run in read.deleted.to_pylist():
        key = (run["deletion"], run["why"])
        offsets[key] = offsets.get(key, 0) + run["end"] - run["begin"]
    return [{"deletion": number, "why": why, "offsets": count} for (number, why), count in offsets.items()]


def _print_lines(read: Changes) -> None:
    from penstock.sql.answers import value_text

    def write(change: str, document: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps({"change": change, **document}, default=value_text) + "\n")

    if read.is_complete:
        write("reset", {})
    for run in read.deleted.to_pylist():
        write("delete", run)
    for rows in read.added_with_batch():
        for row in rows.to_pylist(maps_as_pydicts="lossy"):
            write("add", row)
    # Order: last, so that a reader which sees it has everything before it.
    write("next", {"position": str(read.next)})
