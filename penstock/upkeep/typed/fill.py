"""Fill a typed table with rows of ``landed`` that it lacks, each row once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from penstock.errors import PenstockError
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import TableFile, open_rows
from penstock.landing.table_paths import Layout, partition_value
from penstock.landing.typed.columns import TypedTable
from penstock.landing.typed.typed_delta import BEFORE_FIRST_BATCH, TypedDelta, read_starts, write_starts
from penstock.landing.typed.typed_files import is_of_events, read_row_keys, write_typed
from penstock.landing.writing.written_file import WrittenFile
from penstock.upkeep.compaction.compaction import removed_on_failure

ReportProgress = Callable[[int, int], None]


class CannotRestore(PenstockError, RuntimeError):
    """A damaged file cannot be replaced; the text names the reason."""


class NotBegun(PenstockError, RuntimeError):
    """The table does not exist yet, or no pipeline writes it."""


def fill(layout: Layout, configured: TypedTable, report: ReportProgress = lambda finished, total: None) -> int:
    """Add missing rows and return their number. A pipeline may land at the same time. Raises NotBegun.

    Crash: rows that are already in the table are skipped, so the next run continues a killed one. ``report`` is called
    before each day, with the number of finished days and of all days.
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
        starts = read_starts(layout)
        # Invariant: the start does not rise. Each refill lowers it below BEFORE_FIRST_BATCH, and readers of changes
        # recognize a refill by the lower start.
        start = min(BEFORE_FIRST_BATCH, starts.get(configured.name, BEFORE_FIRST_BATCH))
        write_starts(layout, {**starts, configured.name: start})
    return rows


def restore_file(layout: Layout, configured: TypedTable, damaged: TableFile) -> int:
    """Replace a damaged file by its rows of ``landed``, and return their number.

    Raises CannotRestore, and for further damaged files ArrowInvalid and OSError; then nothing has changed.
    """
    table = TypedDelta.configured(layout, configured)
    with hold_upkeep_lock(layout):
        with open_rows(table.folder, damaged) as file:
            rows, removed_columns = file.rows, {*file.columns} - {*configured.schema.names}
        if removed_columns:
            raise CannotRestore(f"its columns {', '.join(sorted(removed_columns))} are no longer configured")
        day = partition_value(damaged, "date")
        others = [name for name in table.active() if partition_value(name, "date") == day and name != damaged]
        landed = [name for name in table_of(layout).active() if is_of_events(name)]
        with removed_on_failure(table) as written:
            names = [name for name in landed if partition_value(name, "date") == day]
            written += _write_missing(layout, configured, table, names, others)
            missing = sum(file.rows for file in written)
            # The table may lack rows of the day that landed before it was created: they are not the file's.
            if missing != rows:
                raise CannotRestore(f"landed has {missing:,} rows of that day that the table's other files lack")
            # Crash: one commit removes the file and adds the new ones.
            table.delete_rows([damaged], written)
    return rows


def _fill_day(layout: Layout, configured: TypedTable, table: TypedDelta, day: str, names: Sequence[TableFile]) -> int:
    existing = [name for name in table.active() if name.startswith(f"date={day}/")]
    with removed_on_failure(table) as written:
        written += _write_missing(layout, configured, table, names, existing)
        if written:
            table.add(written)
    return sum(file.rows for file in written)


def _write_missing(
    layout: Layout,
    configured: TypedTable,
    table: TypedDelta,
    names: Sequence[TableFile],
    existing: Sequence[TableFile],
) -> Iterator[WrittenFile]:
    """Write the rows of files of ``landed`` that are not in the ``existing`` files of the table."""
    keys = {table.folder: read_row_keys(table.folder, existing)}
    for name in names:
        yield from write_typed(layout.landed, name, {table.folder: configured}, keys).values()
