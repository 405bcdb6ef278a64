"""Delete rows from typed tables that are deleted from the table ``landed``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from penstock.landing.event_rules import MessageKind
from penstock.landing.requests.conditions import matching_rows
from penstock.landing.requests.deletions import Deletion
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.delta_table import ROW_KEY, DeltaTable
from penstock.landing.table.table_file import Mask, TableFile, is_missing_or_damaged, open_rows
from penstock.landing.table_paths import Layout, partition_value
from penstock.landing.table_schema import LANDED
from penstock.landing.typed.typed_delta import TypedDelta, existing_typed_tables
from penstock.landing.typed.typed_files import rows_with_keys
from penstock.landing.writing.written_file import copy_rows
from penstock.upkeep.compaction.compaction import apply_vector, removed_on_failure

MaskOf = Callable[[TablePath, TableFile], Mask]
"""A mask of the rows of a file that are deleted; empty if there are none."""


class TypedRemoval(NamedTuple):
    """The number of rows that a deletion removed from a typed table, and the files that had them."""

    rows: int
    replaced: list[str]


def delete_typed_rows(
    layout: Layout, deletion: Deletion, batch: int, masks: Sequence[tuple[TableFile, Mask]] = ()
) -> dict[str, TypedRemoval]:
    """Delete rows from all typed tables, as of a batch of ``landed``; return what was removed by table.

    ``masks``: the rows that are deleted from the files of ``landed``. Requires the lock of upkeep.

    Order: before the deletion from ``landed``. Crash: in between, it is repeated for all rows landed until then, and
    each table's commit says what was removed before.
    """
    conditions = deletion.conditions
    kind_conditions = [condition for condition in conditions if condition.column == "kind"]
    if not all(condition.holds_for_folder(MessageKind.EVENT.value) for condition in kind_conditions):
        return {}
    row_conditions = [condition for condition in conditions if condition.column != "kind"]
    mask_of: MaskOf = partial(matching_rows, conditions=row_conditions)
    if any(condition.is_field for condition in conditions):
        # Typed tables lack ``data``, so that their rows are found by the keys of the rows of ``landed``.
        mask_of = partial(rows_with_keys, keys=_keys_of_rows(layout, masks))
    return {
        str(table.folder.name): _delete_from(table, deletion.number, mask_of, batch)
        for table in existing_typed_tables(layout)
    }


def _keys_of_rows(layout: Layout, masks: Sequence[tuple[TableFile, Mask]]) -> pa.Table:
    parts = [LANDED.empty_table().select([*ROW_KEY])]
    for name, mask in masks:
        if partition_value(name, "kind") == MessageKind.EVENT.value:
            with open_rows(layout.landed, name) as rows:
                parts.append(rows.read(ROW_KEY).filter(pa.array(mask)))
    return pa.concat_tables(parts)


def _delete_from(table: TypedDelta, number: int, mask_of: MaskOf, batch: int) -> TypedRemoval:
    prepare_files(table, partial(table.through, batch), mask_of)
    earlier = table.deletion_evidence(number)
    rows, earlier_files = int(earlier.get("rows", 0)), [str(name) for name in earlier.get("replaced", ())]
    replaced: list[str] = []
    with removed_on_failure(table) as written:
        for name in table.through(batch):
            mask = mask_of(table.folder, name)
            if mask.any():
                rows += int(mask.sum())
                replaced.append(name)
                written += [] if mask.all() else [copy_rows(table.folder, name, ~mask, form=table.form)]
        if replaced:
            evidence = {"rows": rows, "replaced": [*earlier_files, *replaced]}
            table.delete(number, replaced, written, evidence)
    return TypedRemoval(rows, [*earlier_files, *replaced])


def prepare_files(table: DeltaTable, listed: Callable[[], Sequence[TableFile]], mask_of: MaskOf) -> None:
    """Rewrite the files with rows to delete as the deletion needs them.

    Deletion vectors are applied. For a change data feed, the rows are moved to files of their own. Raises
    VectorNotApplicable, TableChanged.
    """
    with_vectors = [file for file in listed() if not file.is_plain]
    for file in [file for file in with_vectors if mask_of(table.folder, file).any()]:
        apply_vector(table, file)
    if table.has_change_feed:
        _isolate_rows(table, listed(), mask_of)


def _isolate_rows(table: DeltaTable, files: Sequence[TableFile], mask_of: MaskOf) -> None:
    """Divide each file with rows to delete and others into a file with the first and a file with the others.

    Order: before the deletion, in a commit that changes no row. The deletion then removes whole files, which a change
    data feed shows as exactly their rows; a file that replaces another one is shown with all of its rows.
    Crash: files that were divided and whose rows are not deleted yet are divided already for the next attempt.
    """
    divided = list[TableFile]()
    with removed_on_failure(table) as written:
        for file in files:
            mask = mask_of(table.folder, file)
            if mask.any() and not mask.all():
                try:
                    with removed_on_failure(table) as parts:
                        for part in (mask, ~mask):
                            parts.append(copy_rows(table.folder, file, part, form=table.form))
                except (pa.ArrowInvalid, OSError) as error:
                    # The deletion itself decides what happens to a damaged file.
                    if not is_missing_or_damaged(error):
                        raise
                    continue
                written += parts
                divided.append(file)
        # One commit for all: each costs time in proportion to the files of the table.
        if divided:
            table.replace(divided, written)
