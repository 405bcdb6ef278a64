"""Repair landed rows with a repeated annotation name, which DuckDB, Spark and Ibis cannot read.

Rows get unique names as they land (``landing.rows.unique_annotations``); files from before that rule, or of a foreign
writer, are rewritten here: the same rows, in other files.
"""

from __future__ import annotations

from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.rows.unique_annotations import COLUMN, unique_annotations
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import TableFile, open_rows
from penstock.landing.table_paths import Layout
from penstock.landing.writing.written_file import ROW_GROUP, copy_rows
from penstock.upkeep.compaction.compaction import apply_vector, removed_on_failure


def repair_annotations(layout: Layout) -> int:
    """Rewrite files with repeated names and return their number. The pipeline and readers may run."""
    with hold_upkeep_lock(layout):
        table = table_of(layout)
        names = _repeating(layout, table)
        if with_vectors := [name for name in names if not name.is_plain]:
            for name in with_vectors:
                apply_vector(table, name)
            names = _repeating(layout, table)
        for name in names:
            with removed_on_failure(table) as written:
                written.append(copy_rows(table.folder, name, form=table.form))
                table.replace([name], written)
    return len(names)


def _repeating(layout: Layout, table: DeltaTable) -> list[TableFile]:
    return [name for name in table.active() if has_repeated_names(layout.landed, name)]


def has_repeated_names(table: TablePath, name: TableFile) -> bool:
    """Return whether a row of a file has two annotations with one name."""
    with open_rows(table, name) as file:
        columns = (batch.column(0) for batch in file.batches([COLUMN], ROW_GROUP))
        return any(unique_annotations(column) is not column for column in columns)
