"""A Parquet file of the table that a task has written, and what the commit needs to know of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.event_rules import MessageKind
from penstock.landing.rows.engine import pc
from penstock.landing.rows.unique_annotations import with_unique_annotations
from penstock.landing.storage.object_path import TablePath
from penstock.landing.storage.parquet_files import NewParquet
from penstock.landing.table.table_file import TableFile, open_rows
from penstock.landing.table_paths import kind_and_day
from penstock.landing.table_schema import FILE_SCHEMA, LANDED, LANDED_FORM, PARTITION_COLUMNS, STATISTICS, FileForm

ROW_GROUP = 128 << 10
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEPT, AGAIN, ASIDE = "kept", "again", "aside"
"""Roles of a file: rows that stay unless the driver knows better, rows that stay whatever landed before, and duplicates
of rows of the same task, which are not committed unless the driver drops what they repeat.
"""
Bounds = dict[str, tuple[Any, Any, int]]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """``name`` is relative to the table's folder; ``seen``: the events in it, in the order of its rows; ``role``:
    KEPT, AGAIN or ASIDE.
    """

    name: str
    kind: str
    date: str
    rows: int
    size: int
    statistics: str
    seen: EventsSeen | None = None
    role: str = KEPT


class FileWriter:
    """Writes one file of the rows of a kind and day of receipt."""

    def __init__(
        self, table: TablePath, kind: MessageKind, day: date, role: str = KEPT, form: FileForm = LANDED_FORM
    ) -> None:
        self.kind, self.day, self.role, self._form = kind, day, role, form
        said = {"kind": kind.value, "date": day.isoformat()}
        self.name = "/".join([*(f"{one}={said[one]}" for one in form.folders), f"{uuid4().hex}.parquet"])
        self._file = NewParquet(table / self.name)
        self._writer = pq.ParquetWriter(
            self._file.sink,
            form.schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=list(form.dictionaries),  # type: ignore[arg-type]  # the stub knows all or none
            store_schema=False,
        )
        self._seen: list[EventsSeen] = []
        self._bounds: Bounds = {}
        self._rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What fails half-way leaves no file."""
        if kind is not None:
            self._file.discard()

    def write(self, rows: pa.RecordBatch, seen: EventsSeen | None = None) -> None:
        """Add a row group, sorted by type. ``seen``: its events."""
        if self.kind is MessageKind.EVENT:
            order = pc.sort_indices(rows["type"].dictionary_encode().indices)
            rows = rows.take(order)
            seen = seen.take(order.to_numpy()) if seen is not None else None
        self._writer.write_batch(rows, row_group_size=ROW_GROUP)
        self._bounds = _widened(self._bounds, rows)
        self._rows += rows.num_rows
        self._seen += [seen] if seen is not None else []

    def close(self) -> WrittenFile:
        """The file, on the disk or in the store."""
        self._writer.close()
        size = self._file.finish()
        seen = EventsSeen.concat(self._seen) if self._seen else None
        told = statistics(self._bounds, self._rows)
        return WrittenFile(self.name, self.kind.value, self.day.isoformat(), self._rows, size, told, seen, self.role)


def _widened(bounds: Bounds, rows: pa.RecordBatch) -> Bounds:
    found: Bounds = {}
    for name in STATISTICS:
        both = pc.min_max(rows[name]).as_py()
        known = bounds.get(name, (None, None, 0))
        least = [v for v in (known[0], both["min"]) if v is not None]
        most = [v for v in (known[1], both["max"]) if v is not None]
        nulls = known[2] + rows[name].null_count
        found[name] = (min(least, default=None), max(most, default=None), nulls)
    return found


def statistics(bounds: Mapping[str, tuple[Any, Any, int]], rows: int) -> str:
    """As Delta has them: times to the millisecond, so that the bounds lie outside."""
    least = {name: _shown(low, up=False) for name, (low, _, _) in bounds.items() if low is not None}
    most = {name: _shown(high, up=True) for name, (_, high, _) in bounds.items() if high is not None}
    nulls = {name: count for name, (_, _, count) in bounds.items()}
    return json.dumps({"numRecords": rows, "minValues": least, "maxValues": most, "nullCount": nulls})


def _shown(value: Any, *, up: bool) -> Any:
    if not isinstance(value, datetime):
        return value
    micros = (value - EPOCH) // timedelta(microseconds=1)
    millis = -(-micros // 1000) if up else micros // 1000
    shown = EPOCH + timedelta(milliseconds=min(millis, 253_402_300_799_999))
    return shown.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def copy_without_rows(table: TablePath, file: WrittenFile, dropped: Any) -> WrittenFile | None:
    """The file without some of its rows (a mask), as another one; None where nothing is left. The old one stays."""
    return copy_rows(table, TableFile(file.name), ~dropped, file.seen) if not dropped.all() else None


def copy_rows(
    table: TablePath, name: TableFile, kept: Any = None, seen: EventsSeen | None = None, form: FileForm = LANDED_FORM
) -> WrittenFile:
    """Some rows of a file (a mask; None for all), as another one; ``seen``: the events of all of them."""
    at = 0
    with FileWriter(table, *kind_and_day(name), form=form) as writer, open_rows(table, name) as old:
        for batch in old.batches(batch_rows=ROW_GROUP):
            here = np.arange(batch.num_rows) if kept is None else np.flatnonzero(kept[at : at + batch.num_rows])
            if len(here):
                rows = in_current_columns(batch, form.schema).take(here)
                writer.write(rows, seen.take(at + here) if seen is not None else None)
            at += batch.num_rows
        return writer.close()


def with_partition_columns(rows: pa.RecordBatch, name: str, schema: pa.Schema = LANDED) -> pa.RecordBatch:
    """Rows of a file with the columns that its folders stand for."""
    kind, day = kind_and_day(name)
    said: dict[str, Any] = {"kind": kind.value, "date": day}
    folders = [one for one in PARTITION_COLUMNS if one in schema.names]
    of_folder: list[pa.Array[Any]] = [pa.repeat(said[one], rows.num_rows) for one in folders]
    return pa.RecordBatch.from_arrays([*rows.columns, *of_folder], schema=schema)


def in_current_columns(batch: pa.RecordBatch, schema: pa.Schema = FILE_SCHEMA) -> pa.RecordBatch:
    """Rows of a file with the columns that a file has now."""
    known = set(batch.schema.names)
    arrays = [batch[f.name] if f.name in known else pa.nulls(batch.num_rows, f.type) for f in schema]
    cast = [c if c.type.equals(f.type) else c.cast(f.type) for c, f in zip(arrays, schema, strict=True)]
    # Files may be older than the rule for repeated names of annotations, or a foreign writer's.
    return with_unique_annotations(pa.RecordBatch.from_arrays(cast, schema=schema))
