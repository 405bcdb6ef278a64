"""Repair landed rows with a repeated annotation name, which DuckDB, Spark and Ibis cannot read.

Rows get unique names as they land (``landing.rows.unique_annotations``); files from before that rule, or of a foreign
writer, are rewritten here: the same rows, in other files.
"""

from __future__ import annotations

import os

from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.rows.unique_annotations import COLUMN, unique_annotations
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import TableFile, open_rows
from penstock.landing.table_paths import Layout, kind_and_day
from penstock.landing.writing.written_file import ROW_GROUP, FileWriter, copy_rows, in_current_columns
from penstock.upkeep.compaction.compaction import apply_vector, removed_on_failure


def repair_annotations(layout: Layout) -> int:
    """Rewrite files with repeated names and return their number. The pipeline and readers may run."""
    with hold_upkeep_lock(layout):
        table = table_of(layout)
        names = _repeating(layout, table)
        if isinstance(table, DeltaTable) and (with_vectors := [name for name in names if not name.is_plain]):
            for name in with_vectors:
                apply_vector(table, name)
            names = _repeating(layout, table)
        for name in names:
            if isinstance(table, DeltaTable):
                with removed_on_failure(table) as written:
                    written.append(copy_rows(table.folder, name, form=table.form))
                    table.replace([name], written)
            else:
                _replace_in_folder(layout, table.folder, name)
    return len(names)


def _repeating(layout: Layout, table: DeltaTable) -> list[TableFile]:
    return [name for name in table.active() if has_repeated_names(layout.landed, name)]


def has_repeated_names(table: TablePath, name: TableFile) -> bool:
    """Return whether a row of a file has two annotations with one name."""
    with open_rows(table, name) as file:
        columns = (batch.column(0) for batch in file.batches([COLUMN], ROW_GROUP))
        return any(unique_annotations(column) is not column for column in columns)


def _replace_in_folder(layout: Layout, target: TablePath, name: TableFile) -> None:
    # Crash: the new file is complete and synced before it takes the old one's name.
    with FileWriter(target, *kind_and_day(name)) as writer, open_rows(layout.landed, name) as old:
        for batch in old.batches(batch_rows=ROW_GROUP):
            writer.write(in_current_columns(batch))
        written = writer.close()
    os.replace(str(target / written.name), str(layout.landed / name))
