"""Parquet files of the table that a task has written, with what the commit needs of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.event_rules import WITH_UUID, MessageKind
from penstock.landing.row_hashes import row_hashes
from penstock.landing.row_sums import RowSums, with_partitions
from penstock.landing.rows.engine import pc
from penstock.landing.rows.unique_annotations import with_unique_annotations
from penstock.landing.storage.object_path import TablePath
from penstock.landing.storage.parquet_files import NewParquet
from penstock.landing.table.table_file import TableFile, open_rows
from penstock.landing.table_paths import kind_and_day
from penstock.landing.table_schema import FILE_SCHEMA, LANDED, LANDED_FORM, PARTITION_COLUMNS, STATISTICS, FileForm

ROW_GROUP = 128 << 10
"""Rows of a row group; GROUP_BYTES of ``part_writer`` ends one earlier."""
BLOOM_COLUMNS = ("uuid",)
BLOOM_ERRORS = 0.05
"""Share of row groups that are read in vain: a fifth of it would double the filter."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FileRole(StrEnum):
    """The rule by which the driver decides on duplicates among the rows of a file."""

    NORMAL = "normal"
    """Rows that stay, unless they repeat rows of another task or of a batch that the task did not know."""
    RELANDED = "relanded"
    """Lost rows that land again: they stay, even if they repeat landed rows."""
    SEPARATE = "separate"
    """Duplicates of rows of the same task: not committed, unless the rows that they repeat are duplicates."""


_Bounds = dict[str, tuple[Any, Any, int]]
"""Smallest and largest value, and number of nulls, by column."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A complete file; ``name`` is relative to the table's folder, ``seen`` are its events in the order of its rows.

    ``sums`` are of its rows, if the writer was asked for them. ``typed``: its rows in files of typed tables, by
    ``TypedTable.key``; None for a table without such rows, and no entry for a table that is not written yet.
    ``violations``: rows of a typed table whose values are in its column ``rest`` because of a contract, by rule.
    """

    name: str
    kind: str
    date: str
    rows: int
    size: int
    statistics: str
    seen: EventsSeen | None = None
    role: FileRole = FileRole.NORMAL
    sums: RowSums = field(default_factory=RowSums)
    typed: Mapping[str, TypedFile | None] = field(default_factory=dict)
    violations: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TypedFile:
    """A complete file of the typed table in ``folder``."""

    folder: TablePath
    file: WrittenFile

    def remove(self) -> None:
        """Remove the file, which is in no commit."""
        (self.folder / self.file.name).unlink(missing_ok=True)


class FileWriter:
    """The writer of one file, of rows of one kind and day of receipt. Owned by one thread.

    ``summed``: compute the sums of the rows, which a batch's commit carries; rewritten files need none. ``hashed``:
    with the hashes of whole rows.
    """

    def __init__(
        self,
        table: TablePath,
        kind: MessageKind,
        day: date,
        role: FileRole = FileRole.NORMAL,
        form: FileForm = LANDED_FORM,
        *,
        summed: bool = False,
        hashed: bool = False,
    ) -> None:
        self.kind, self.day, self.role, self._form, self._hashed = kind, day, role, form, hashed
        self._sums = RowSums() if summed else None
        partitions = {"kind": kind.value, "date": day.isoformat()}
        self.name = "/".join([*(f"{column}={partitions[column]}" for column in form.folders), f"{uuid4().hex}.parquet"])
        self._file = NewParquet(table / self.name)
        self._opened: pq.ParquetWriter | None = None
        self._seen: list[EventsSeen] = []
        self._bounds: _Bounds = {}
        self._rows = 0

    def _writer(self, first_rows: int) -> pq.ParquetWriter:
        """Return Arrow's writer, opened with the first row group: it is the largest one."""
        if self._opened is not None:
            return self._opened
        form = self._form
        blooms: Any = {name: {"ndv": max(first_rows, 1), "fpp": BLOOM_ERRORS} for name in BLOOM_COLUMNS}
        self._opened = pq.ParquetWriter(
            self._file.sink,
            form.schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=list(form.dictionaries),  # type: ignore[arg-type]  # the stub knows all or none
            store_schema=False,
            # Readers of this package verify them; a flipped bit in a page is otherwise read as other content.
            write_page_checksum=True,
            # One byte per row: readers find a uuid in the row groups that may have it.
            bloom_filter_options=blooms if self.kind in WITH_UUID else None,
        )
        return self._opened

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Crash: a failed task leaves no file; a killed one leaves a file that no commit names, which vacuum removes.
        if kind is not None:
            self.discard()

    def discard(self) -> None:
        """Remove the unfinished file."""
        self._file.discard()
        if self._opened is not None:
            # Workaround: when Arrow's writer is collected, it would write the file's end to the closed sink.
            self._opened.is_open = False

    def write(self, rows: pa.RecordBatch, seen: EventsSeen | None = None) -> pa.RecordBatch:
        """Add a row group, sorted by type, and return its rows as written; ``seen``: its events."""
        if self._sums is not None:
            uuids = rows["uuid"] if self.kind in WITH_UUID else None
            topics = with_partitions(rows["topic"], rows["partition"])
            # Order: before sorting, while the rows of a topic lie together.
            hashes = row_hashes(rows, self.kind.value, self.day.isoformat()) if self._hashed else None
            self._sums.add_rows(topics, rows["offset"].to_numpy(), uuids, self.kind.value, hashes)
        if self.kind is MessageKind.EVENT:
            # Rows of one type lie together: their texts are alike, and compress better.
            types: Any = rows["type"].dictionary_encode().indices
            # Fast path: rows of merged files are sorted already, and are not copied.
            if (np.diff(types.to_numpy(zero_copy_only=False)) < 0).any():
                order = pc.sort_indices(types)
                rows = rows.take(order)
                seen = seen.select_rows(order.to_numpy()) if seen is not None else None
        self._writer(min(rows.num_rows, ROW_GROUP)).write_batch(rows, row_group_size=ROW_GROUP)
        self._bounds = _widen(self._bounds, rows)
        self._rows += rows.num_rows
        self._seen += [seen] if seen is not None else []
        return rows

    def close(self) -> WrittenFile:
        """Complete the file, on the disk or in the store; return its description."""
        self._writer(0).close()
        size = self._file.finish()
        seen = EventsSeen.concat(self._seen) if self._seen else None
        delta_statistics = statistics(self._bounds, self._rows)
        description = self.name, self.kind.value, self.day.isoformat(), self._rows, size, delta_statistics
        return WrittenFile(*description, seen, self.role, RowSums() if self._sums is None else self._sums)


def _widen(bounds: _Bounds, rows: pa.RecordBatch) -> _Bounds:
    widened: _Bounds = {}
    for name in STATISTICS:
        extremes = pc.min_max(rows[name]).as_py()
        old = bounds.get(name, (None, None, 0))
        low = [value for value in (old[0], extremes["min"]) if value is not None]
        high = [value for value in (old[1], extremes["max"]) if value is not None]
        nulls = old[2] + rows[name].null_count
        widened[name] = (min(low, default=None), max(high, default=None), nulls)
    return widened


def statistics(bounds: Mapping[str, tuple[Any, Any, int]], rows: int) -> str:
    """Return statistics in Delta's JSON."""
    smallest = {name: _json_bound(low, up=False) for name, (low, _, _) in bounds.items() if low is not None}
    largest = {name: _json_bound(high, up=True) for name, (_, high, _) in bounds.items() if high is not None}
    nulls = {name: count for name, (_, _, count) in bounds.items()}
    return json.dumps({"numRecords": rows, "minValues": smallest, "maxValues": largest, "nullCount": nulls})


def _json_bound(value: Any, *, up: bool) -> Any:
    if not isinstance(value, datetime):
        return value
    return round_to_millis(value, up=up).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def round_to_millis(moment: datetime, *, up: bool) -> datetime:
    """Return a time as Delta's statistics have it."""
    micros = (moment - _EPOCH) // timedelta(microseconds=1)
    # Delta's times have milliseconds: rounded outwards, so that the bounds hold for every row.
    millis = -(-micros // 1000) if up else micros // 1000
    return _EPOCH + timedelta(milliseconds=min(millis, 253_402_300_799_999))


def copy_without_rows(table: TablePath, file: WrittenFile, dropped: Any) -> WrittenFile | None:
    """Write a copy without the dropped rows (a mask); None if no row remains. The old file stays."""
    if dropped.all():
        return None
    return copy_rows(table, TableFile(file.name), ~dropped, file.seen, summed=True, hashed=file.sums.are_hashed)


def copy_rows(
    table: TablePath,
    name: TableFile,
    mask: Any = None,
    seen: EventsSeen | None = None,
    form: FileForm = LANDED_FORM,
    *,
    summed: bool = False,
    hashed: bool = False,
) -> WrittenFile:
    """Write a copy with the rows of a mask (None for all); ``seen``: the events of all rows."""
    start = 0
    new = FileWriter(table, *kind_and_day(name), form=form, summed=summed, hashed=hashed)
    with new as writer, open_rows(table, name) as old:
        for batch in old.batches(batch_rows=ROW_GROUP):
            indices = (
                np.arange(batch.num_rows) if mask is None else np.flatnonzero(mask[start : start + batch.num_rows])
            )
            if len(indices):
                rows = in_current_columns(batch, form.schema)
                # Fast path: most row groups lose no row.
                rows = rows if len(indices) == rows.num_rows else rows.take(indices)
                writer.write(rows, seen.select_rows(start + indices) if seen is not None else None)
            start += batch.num_rows
        return writer.close()


def with_partition_columns(rows: pa.RecordBatch, name: str, schema: pa.Schema = LANDED) -> pa.RecordBatch:
    """Return rows of a file with the partition columns, whose values are in the names of its folders."""
    kind, day = kind_and_day(name)
    partition_values: dict[str, Any] = {"kind": kind.value, "date": day}
    folders = [column for column in PARTITION_COLUMNS if column in schema.names]
    added: list[pa.Array[Any]] = [pa.repeat(partition_values[column], rows.num_rows) for column in folders]
    return pa.RecordBatch.from_arrays([*rows.columns, *added], schema=schema)


def in_current_columns(batch: pa.RecordBatch, schema: pa.Schema = FILE_SCHEMA) -> pa.RecordBatch:
    """Return rows of a file with the columns of today's files: files may be older."""
    existing = set(batch.schema.names)
    columns = [
        batch[field.name] if field.name in existing else pa.nulls(batch.num_rows, field.type) for field in schema
    ]
    cast = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    # A file may be older than the rule for repeated names of annotations, or another program's.
    return with_unique_annotations(pa.RecordBatch.from_arrays(cast, schema=schema))
