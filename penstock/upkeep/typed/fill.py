"""Rows that landed before a typed table began, brought into it: those that it does not have, so each of them once."""

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
from penstock.upkeep.compaction.compaction import kept_if_committed

Tell = Callable[[int, int], None]


class NotBegun(PenstockError, RuntimeError):
    """There is no such table yet, or nobody writes it now."""


def fill(layout: Layout, wanted: TypedTable, tell: Tell = lambda done, of: None) -> int:
    """How many rows were brought in. A pipeline may land meanwhile; killed, it goes on with what is not there yet.

    ``tell`` hears of days. Raises NotBegun.
    """
    if not TypedDelta.configured(layout, wanted).exists:
        raise NotBegun(f"{layout.typed(wanted.name)} is not there yet: it begins when the pipeline starts")
    with hold_upkeep_lock(layout):
        if wanted.name not in read_starts(layout):  # what lands from now on would be missing, and nobody would know
            raise NotBegun(f"the pipeline does not write {wanted.view}: start it with this configuration before")
        # In this order: what lands between the two is in the typed table already.
        landed = [name for name in table_of(layout).active() if is_of_events(name)]
        table = TypedDelta.configured(layout, wanted)
        days = [(day, list(names)) for day, names in groupby(landed, lambda name: partition_value(name, "date"))]
        rows = 0
        for done, (day, names) in enumerate(days):
            tell(done, len(days))
            rows += _fill_day(layout, wanted, table, day, names)
        write_starts(layout, {**read_starts(layout), wanted.name: BEFORE_FIRST_BATCH})
    return rows


def _fill_day(layout: Layout, wanted: TypedTable, table: TypedDelta, day: str, names: Sequence[TableFile]) -> int:
    known = read_row_keys(table.folder, [name for name in table.active() if name.startswith(f"date={day}/")])
    with kept_if_committed(table) as written:
        for name in names:
            written += write_typed(layout.landed, name, {table.folder: wanted}, {table.folder: known}).values()
        if written:
            table.add(written)
    return sum(one.rows for one in written)
