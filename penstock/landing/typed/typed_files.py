"""Files of the table ``landed`` as files of typed tables: whole row groups, read once for all tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.landing.event_rules import MessageKind
from penstock.landing.rows.engine import pc
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.table_file import Mask, TableFile, open_rows
from penstock.landing.table_paths import kind_and_day, partition_value
from penstock.landing.table_schema import LANDED, FileForm
from penstock.landing.typed.columns import LANDED_COLUMNS, REST, TypedTable
from penstock.landing.typed.evaluation import Evaluation, evaluate_all, rests
from penstock.landing.typed.typed_delta import file_form
from penstock.landing.writing.written_file import ROW_GROUP, FileWriter, TypedFile, WrittenFile

ROW_KEY = ("topic", "partition", "offset")
"""Columns that identify a row."""
NO_KEYS: Mapping[TablePath, pa.Table] = {}


def is_of_events(name: str) -> bool:
    """Report whether a file of ``landed`` has events."""
    return partition_value(name, "kind") == MessageKind.EVENT


def _typed_rows(rows: pa.RecordBatch, table: TypedTable, evaluation: Evaluation, rest: pa.Array[Any]) -> pa.RecordBatch:
    """Return rows of ``landed``, all of the table's type, in the columns of its files."""
    typed = {**evaluation.values(), REST: rest}
    schema = file_form(table.schema).schema
    arrays = [rows[field.name] if field.name in LANDED_COLUMNS else typed[field.name] for field in schema]
    return pa.RecordBatch.from_arrays([_cast(a, f) for a, f in zip(arrays, schema, strict=True)], schema=schema)


def write_typed(
    landed: TablePath,
    name: TableFile,
    tables: Mapping[TablePath, TypedTable],
    existing: Mapping[TablePath, pa.Table] = NO_KEYS,
) -> dict[TablePath, WrittenFile]:
    """Write the events of a file of ``landed`` into one file for each table, by folder, that has rows of their type.

    ``existing``: keys of rows that a table has already.
    """
    writer = TypedFilesWriter(tables, kind_and_day(name)[1], existing)
    try:
        # Fast path: the file is read once for all tables.
        for batch in _read_batches(landed, name):
            writer.write(batch)
        written = writer.close()
    except BaseException:
        writer.discard()
        raise
    return {typed.folder: typed.file for typed in written.values() if typed is not None}


class TypedFilesWriter:
    """Files of typed tables for the rows of one day of receipt. Owned by one thread.

    ``existing``: keys of rows that a table has already, and that are left out.
    """

    def __init__(
        self, tables: Mapping[TablePath, TypedTable], day: date, existing: Mapping[TablePath, pa.Table] = NO_KEYS
    ) -> None:
        self._tables, self._day, self._existing = tables, day, existing
        self._writers: dict[TablePath, FileWriter] = {}
        self._violations: dict[TablePath, Counter[str]] = {}

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows of ``landed``, a row group for each table."""
        by_type = split_by_type(rows, {table.type for table in self._tables.values()})
        new_rows = {
            folder: without_keys(by_type[table.type], self._existing[folder])
            if folder in self._existing
            else by_type[table.type]
            for folder, table in self._tables.items()
            if table.type in by_type
        }
        # All tables, so that the query is one that is planned already; those without rows cost nothing.
        no_rows = rows.slice(0, 0)
        data = [new_rows.get(folder, no_rows)["data"] for folder in self._tables]
        evaluations = evaluate_all(tuple(table.columns for table in self._tables.values()), data)
        written = zip(self._tables.items(), evaluations, rests(evaluations), strict=True)
        for (folder, table), evaluation, rest in written:
            if folder in new_rows and new_rows[folder].num_rows:
                if folder not in self._writers:
                    form: FileForm = file_form(table.schema)
                    self._writers[folder] = FileWriter(folder, MessageKind.EVENT, self._day, form=form)
                self._writers[folder].write(_typed_rows(new_rows[folder], table, evaluation, rest))
                self._violations.setdefault(folder, Counter()).update(evaluation.violations(table.name))

    def close(self) -> dict[str, TypedFile | None]:
        """Complete the files and return them by ``TypedTable.key``; None for a table without such rows."""
        files = {
            folder: TypedFile(folder, replace(writer.close(), violations=self._violations[folder]))
            for folder, writer in self._writers.items()
        }
        return {table.key: files.get(folder) for folder, table in self._tables.items()}

    def discard(self) -> None:
        """Remove the unfinished files of all tables."""
        # Crash: files of a killed process are removed hours later, because no commit names them.
        for writer in self._writers.values():
            writer.discard()


def _read_batches(landed: TablePath, name: TableFile) -> Iterator[pa.RecordBatch]:
    with open_rows(landed, name) as file:
        yield from file.batches([*LANDED_COLUMNS, "data"], ROW_GROUP)


def split_by_type(rows: pa.RecordBatch, types: Collection[str]) -> dict[str, pa.RecordBatch]:
    """Return the rows of events by their type, for some types; without types that no row has."""
    encoded = rows["type"].dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy()
    names: list[Any] = encoded.dictionary.to_pylist()
    split: dict[str, pa.RecordBatch] = {}
    for code in (code for code, name in enumerate(names) if name in types):
        of_type = np.flatnonzero(codes == code)
        first, count = int(of_type[0]), len(of_type)
        # Fast path: files are sorted by type, so that nothing is copied.
        is_run = int(of_type[-1]) - first + 1 == count
        split[names[code]] = rows.slice(first, count) if is_run else rows.take(pa.array(of_type, pa.int64()))
    return split


def _cast(array: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    return array if array.type.equals(field.type) else array.cast(field.type)


def read_row_keys(folder: TablePath, names: Sequence[TableFile]) -> pa.Table:
    """Return the keys of rows in files of a typed table."""
    tables = [_read_keys_of_file(folder, name) for name in names]
    return pa.concat_tables(tables) if tables else LANDED.empty_table().select([*ROW_KEY])


def _read_keys_of_file(folder: TablePath, name: TableFile) -> pa.Table:
    with open_rows(folder, name) as file:
        return file.read(ROW_KEY)


def rows_with_keys(folder: TablePath, name: TableFile, keys: pa.Table) -> Mask:
    """Return a mask of the rows of a file of a typed table whose keys are among ``keys``."""
    own_keys = _without_nulls(_read_keys_of_file(folder, name))
    mask: Mask = np.zeros(own_keys.num_rows, bool)
    own_keys = own_keys.append_column("row", pa.array(np.arange(own_keys.num_rows)))
    mask[own_keys.join(_without_nulls(keys), [*ROW_KEY], join_type="left semi")["row"].to_numpy()] = True
    return mask


def matching_rows(keys: pa.Table, other: pa.Table) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the numbers of the rows in ``keys`` and in ``other`` that have the same keys, pair by pair."""
    left, right = _without_nulls(keys), _without_nulls(other)
    left = left.append_column("row", pa.array(np.arange(left.num_rows)))
    right = right.append_column("other_row", pa.array(np.arange(right.num_rows)))
    joined = left.join(right, [*ROW_KEY], join_type="inner")
    return joined["row"].to_numpy(), joined["other_row"].to_numpy()


def without_keys(rows: pa.RecordBatch, keys: pa.Table) -> pa.RecordBatch:
    """Return the rows that have other keys."""
    if not keys.num_rows or not rows.num_rows:
        return rows
    own_keys = _without_nulls(pa.table({name: rows[name] for name in ROW_KEY}))
    own_keys = own_keys.append_column("row", pa.array(np.arange(rows.num_rows)))
    indices = own_keys.join(_without_nulls(keys), [*ROW_KEY], join_type="left anti")["row"]
    return rows.take(indices.combine_chunks().sort())


def _without_nulls(keys: pa.Table) -> pa.Table:
    """Return keys with -1 for no partition: no join matches nulls."""
    # Kafka's partitions begin at 0, so -1 is free.
    filled = pc.fill_null(keys["partition"], pa.scalar(-1, pa.int32()))
    return keys.set_column(keys.schema.get_field_index("partition"), "partition", filled)
