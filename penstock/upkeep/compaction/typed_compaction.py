"""Merge and remove files of typed tables, as is done for the table ``landed``."""

from __future__ import annotations

import logging
from functools import partial

from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.mirror_lag import is_behind
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout
from penstock.landing.typed.typed_delta import existing_typed_tables
from penstock.upkeep.compaction.compaction import compact_table, merge, remove_old_files, sweep_table

_LOGGER = logging.getLogger(__name__)


def compact_all(layout: Layout) -> tuple[int, int]:
    """Merge the small files of all tables; return the numbers of old and new files."""
    removed, added = map(sum, zip(compact_table(layout.landed), compact_typed(layout), strict=True))
    return removed, added


def remove_old(layout: Layout) -> None:
    """Remove files that have not been in any table for hours; none while Iceberg tables may still have them."""
    if is_behind(layout):
        _LOGGER.warning("%s: replaced files stay until the Iceberg tables are up to date", layout.tables)
        return
    remove_old_files(layout.landed)
    if DeltaTable(layout.proof_table).exists:
        remove_old_files(layout.proof_table)
    remove_old_typed(layout)


def compact_typed(layout: Layout) -> tuple[int, int]:
    """Merge the small files of all typed tables; return the numbers of old and new files."""
    removed = added = 0
    with hold_upkeep_lock(layout):
        newest = table_of(layout).newest()
        for table in existing_typed_tables(layout):
            # Only batches that ``landed`` has: a repeated batch has to find its own files to replace them.
            counts = merge(table, partial(table.through, newest))
            removed, added = removed + counts[0], added + counts[1]
    return removed, added


def remove_old_typed(layout: Layout) -> None:
    """Remove files that have not been in a typed table for hours."""
    with hold_upkeep_lock(layout):
        for table in existing_typed_tables(layout):
            sweep_table(table)
