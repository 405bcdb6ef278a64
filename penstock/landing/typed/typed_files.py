"""Files of the table ``landed`` as files of typed tables: whole row groups, read once for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.landing.event_rules import MessageKind
from penstock.landing.rows.engine import pc
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.table_file import TableFile, open_rows
from penstock.landing.table_paths import kind_and_day, partition_value
from penstock.landing.table_schema import LANDED, FileForm
from penstock.landing.typed.columns import LANDED_COLUMNS, TypedTable, compute_columns
from penstock.landing.typed.typed_delta import file_form
from penstock.landing.writing.written_file import ROW_GROUP, FileWriter, WrittenFile

ROW_KEY = ("topic", "partition", "offset")
"""What a row is known by."""
NO_KEYS: Mapping[TablePath, pa.Table] = {}


def is_of_events(name: str) -> bool:
    """Whether a file of ``landed`` has events."""
    return partition_value(name, "kind") == MessageKind.EVENT


def typed_rows(rows: pa.RecordBatch, table: TypedTable) -> pa.RecordBatch:
    """Rows of ``landed`` that are of the table's type, as its files have them."""
    own = compute_columns(table, rows["data"])
    schema = file_form(table.schema).schema
    arrays = [rows[one.name] if one.name in LANDED_COLUMNS else own[one.name] for one in schema]
    return pa.RecordBatch.from_arrays([_cast(a, f) for a, f in zip(arrays, schema, strict=True)], schema=schema)


def write_typed(
    landed: TablePath,
    name: TableFile,
    tables: Mapping[TablePath, TypedTable],
    known: Mapping[TablePath, pa.Table] = NO_KEYS,
) -> dict[TablePath, WrittenFile]:
    """The files, one for each table (by its folder) that has rows of the type in a file of ``landed``; ``known``: the
    places whose rows it has already.
    """
    writers: dict[TablePath, FileWriter] = {}
    with ExitStack() as opened:
        for batch in _read(landed, name):
            for folder, table in tables.items():
                mine = _of_type(batch, table.type)
                if folder in known:
                    mine = without_keys(mine, known[folder])
                if mine.num_rows:
                    if folder not in writers:
                        form: FileForm = file_form(table.schema)
                        writers[folder] = opened.enter_context(FileWriter(folder, *kind_and_day(name), form=form))
                    writers[folder].write(typed_rows(mine, table))
        return {folder: writer.close() for folder, writer in writers.items()}


def _read(landed: TablePath, name: TableFile) -> Iterator[pa.RecordBatch]:
    with open_rows(landed, name) as file:
        yield from file.batches([*LANDED_COLUMNS, "data"], ROW_GROUP)


def _of_type(rows: pa.RecordBatch, named: str) -> pa.RecordBatch:
    mask = pc.equal(rows["type"], pa.scalar(named))
    count = int(pc.sum(mask).as_py() or 0)
    return rows if count == rows.num_rows else rows.filter(mask) if count else rows.slice(0, 0)


def _cast(array: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    return array if array.type.equals(field.type) else array.cast(field.type)


def read_row_keys(folder: TablePath, names: Sequence[TableFile]) -> pa.Table:
    """Where the rows of files of a typed table are from."""
    tables = [_places(folder, name) for name in names]
    return pa.concat_tables(tables) if tables else LANDED.empty_table().select([*ROW_KEY])


def _places(folder: TablePath, name: TableFile) -> pa.Table:
    with open_rows(folder, name) as file:
        return file.read(ROW_KEY)


def without_keys(rows: pa.RecordBatch, known: pa.Table) -> pa.RecordBatch:
    """The rows that are from other places."""
    if not known.num_rows or not rows.num_rows:
        return rows
    mine = _keys(pa.table({name: rows[name] for name in ROW_KEY}))
    mine = mine.append_column("row", pa.array(np.arange(rows.num_rows)))
    left = mine.join(_keys(known), [*ROW_KEY], join_type="left anti")["row"]
    return rows.take(left.combine_chunks().sort())


def _keys(places: pa.Table) -> pa.Table:
    """With no nulls, which no join finds."""
    filled = pc.fill_null(places["partition"], pa.scalar(-1, pa.int32()))
    return places.set_column(places.schema.get_field_index("partition"), "partition", filled)
