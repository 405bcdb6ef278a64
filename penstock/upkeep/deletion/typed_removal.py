"""Delete rows from typed tables that are deleted from the table ``landed``."""

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
from penstock.upkeep.compaction.compaction import removed_on_failure


def delete_typed_rows(layout: Layout, conditions: Sequence[Condition], batch: int) -> None:
    """Delete rows from all typed tables, as of a batch of ``landed``. Requires the lock of upkeep.

    Order: before the deletion from ``landed``. Crash: in between, it is repeated for all rows landed until then.
    """
    kind_conditions = [condition for condition in conditions if condition.column == "kind"]
    if all(condition.holds_for_folder(MessageKind.EVENT.value) for condition in kind_conditions):
        for table in existing_typed_tables(layout):
            _delete_from(table, [condition for condition in conditions if condition.column != "kind"], batch)


def _delete_from(table: TypedDelta, conditions: Sequence[Condition], batch: int) -> None:
    apply_vectors_where(table, partial(table.through, batch), conditions)
    replaced: list[str] = []
    with removed_on_failure(table) as written:
        for name in table.through(batch):
            mask = matching_rows(table.folder, name, conditions)
            if mask.any():
                replaced.append(name)
                written += [] if mask.all() else [copy_rows(table.folder, name, ~mask, form=table.form)]
        if replaced:
            table.delete_rows(replaced, written)


def apply_vectors_where(
    table: DeltaTable, listed: Callable[[], Sequence[TableFile]], conditions: Sequence[Condition]
) -> None:
    """Apply the deletion vectors of files with rows to delete. Raises VectorNotApplicable."""
    with_vectors = [file for file in listed() if file.live is not None]
    if affected := [file for file in with_vectors if matching_rows(table.folder, file, conditions).any()]:
        table.apply_vectors(affected)
