"""Rows that are taken out of the table ``landed`` are taken out of typed tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from penstock.landing.event_rules import MessageKind
from penstock.landing.requests.conditions import Condition, matching_rows
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.table_file import TableFile
from penstock.landing.table_paths import Layout
from penstock.landing.typed.typed_delta import TypedDelta, existing_typed_tables
from penstock.landing.writing.written_file import copy_rows
from penstock.upkeep.compaction.compaction import kept_if_committed


def take_out(layout: Layout, conditions: Sequence[Condition], batch: int) -> None:
    """Take rows out of all typed tables, as they are as of a batch of ``landed``; under the lock of upkeep.

    Before they are taken out of that: killed in between, it is done again, for all rows that landed until then.
    """
    of_kind = [one for one in conditions if one.column == "kind"]
    if all(one.holds_for_folder(MessageKind.EVENT.value) for one in of_kind):
        for table in existing_typed_tables(layout):
            _take_out(table, [one for one in conditions if one.column != "kind"], batch)


def _take_out(table: TypedDelta, conditions: Sequence[Condition], batch: int) -> None:
    apply_vectors_where(table, partial(table.through, batch), conditions)
    gone: list[str] = []
    with kept_if_committed(table) as written:
        for name in table.through(batch):
            mask = matching_rows(table.folder, name, conditions)
            if mask.any():
                gone.append(name)
                written += [] if mask.all() else [copy_rows(table.folder, name, ~mask, form=table.form)]
        if gone:
            table.delete_rows(gone, written)


def apply_vectors_where(
    table: DeltaTable, listed: Callable[[], Sequence[TableFile]], conditions: Sequence[Condition]
) -> None:
    """Apply the deletion vectors of files that have rows to take out. Raises VectorStays."""
    marked = [file for file in listed() if file.live is not None]
    if hit := [file for file in marked if matching_rows(table.folder, file, conditions).any()]:
        table.apply_vectors(hit)
