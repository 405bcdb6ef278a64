"""Fill a typed table with rows that landed before it was created, each row once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from penstock.errors import PenstockError
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import TableFile
from penstock.landing.table_paths import Layout, partition_value
from penstock.landing.typed.columns import TypedTable
from penstock.landing.typed.typed_delta import BEFORE_FIRST_BATCH, TypedDelta, read_starts, write_starts
from penstock.landing.typed.typed_files import is_of_events, read_row_keys, write_typed
from penstock.upkeep.compaction.compaction import removed_on_failure

Tell = Callable[[int, int], None]


class NotBegun(PenstockError, RuntimeError):
    """The table does not exist yet, or no pipeline writes it."""


def fill(layout: Layout, configured: TypedTable, report: Tell = lambda finished, total: None) -> int:
    """Add missing rows and return their number. A pipeline may land at the same time. Raises NotBegun.

    Crash: rows that are already in the table are skipped, so a killed run is continued by the next one. ``report`` is
    called per day.
    """
    if not TypedDelta.configured(layout, configured).exists:
        raise NotBegun(f"{layout.typed(configured.name)} does not exist yet: start the pipeline, which creates it")
    with hold_upkeep_lock(layout):
        # Without a start the pipeline does not write the table: rows that land from now on would be missing unnoticed.
        if configured.name not in read_starts(layout):
            raise NotBegun(f"the pipeline does not write {configured.view}: start it with this configuration first")
        # Order: rows that land between the two reads are already in the typed table.
        landed = [name for name in table_of(layout).active() if is_of_events(name)]
        table = TypedDelta.configured(layout, configured)
        days = [(day, list(names)) for day, names in groupby(landed, lambda name: partition_value(name, "date"))]
        rows = 0
        for finished, (day, names) in enumerate(days):
            report(finished, len(days))
            rows += _fill_day(layout, configured, table, day, names)
        write_starts(layout, {**read_starts(layout), configured.name: BEFORE_FIRST_BATCH})
    return rows


def _fill_day(layout: Layout, configured: TypedTable, table: TypedDelta, day: str, names: Sequence[TableFile]) -> int:
    existing_keys = read_row_keys(table.folder, [name for name in table.active() if name.startswith(f"date={day}/")])
    with removed_on_failure(table) as written:
        for name in names:
            written += write_typed(
                layout.landed, name, {table.folder: configured}, {table.folder: existing_keys}
            ).values()
        if written:
            table.add(written)
    return sum(file.rows for file in written)
