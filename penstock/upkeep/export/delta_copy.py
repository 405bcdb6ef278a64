"""Another Delta table, in a folder or an object store.

A step is one commit: new files, files without the deleted rows, and the position as application transactions, which
Delta keeps in its checkpoints.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from deltalake.transaction import CommitProperties, Transaction

from penstock.config.keys.export import ExportConfig
from penstock.landing.offset_runs import is_inside
from penstock.landing.rows.engine import pc
from penstock.landing.storage.object_errors import TablesAway
from penstock.landing.storage.object_path import ObjectPath, TablePath
from penstock.landing.storage.parquet_files import NewParquet
from penstock.landing.table.delta_table import DeltaTable, SchemaDiffers, VectorNotApplicable
from penstock.landing.table.table_file import Mask, TableFile, open_rows
from penstock.landing.table_paths import Layout, partition_value
from penstock.landing.table_schema import PARTITION_COLUMNS
from penstock.landing.writing.written_file import in_current_columns
from penstock.upkeep.changes import Changes, Position
from penstock.upkeep.export.target import KEY, Sums, TargetAway, TargetMoved, text_of_error

FILE_ROWS = 2 << 20
"""Rows of a file; a new one begins after them."""
SMALL_BYTES, MERGED_FILES = 16 << 20, 32
"""Files of a folder smaller than this are merged once there are so many of them."""
_APPLICATION = "penstock.export."
"""Prefix of the applications whose versions are the position; the numbers are stored plus one, 0 for no position."""
_PARTS = ("batch", "deletion", "start", "landed_at")


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A complete file; ``name`` is relative to the table's folder."""

    name: str
    kind: str
    date: str
    rows: int
    size: int

    @property
    def statistics(self) -> str:
        """The number of rows, in Delta's JSON."""
        return f'{{"numRecords":{self.rows}}}'


class CopiedTable(DeltaTable):
    """The Delta table of an export."""

    def read_position(self, name: str) -> Position | None:
        """Return the position of an export; None for none."""
        if not self.exists:
            return None
        table = self._table
        parts = [int(table.transaction_version(f"{_APPLICATION}{name}.{part}") or 0) for part in _PARTS]
        return Position(*(part - 1 for part in parts)) if parts[0] else None

    def has_other_rows(self, name: str) -> bool:
        """Report whether the table has rows, and never had a position of an export, also not a forgotten one."""
        if not self.exists:
            return False
        return self._table.transaction_version(f"{_APPLICATION}{name}.batch") is None and bool(self.active())

    def commit_step(
        self,
        name: str,
        removed: Sequence[str],
        files: Sequence[CopiedFile],
        position: Position | None,
        *,
        overwrite: bool = False,
    ) -> None:
        """Commit files and position at once; ``overwrite``: replace all files, and the columns."""
        numbers = (
            (0, 0, 0, 0)
            if position is None
            else (position.batch + 1, (position.deletion or 0) + 1, (position.start or 0) + 1, position.landed_at + 1)
        )
        now_ms = time.time_ns() // 1_000_000
        transactions = [
            Transaction(f"{_APPLICATION}{name}.{part}", number, now_ms)
            for part, number in zip(_PARTS, numbers, strict=True)
        ]
        before = self.version()
        properties = CommitProperties(app_transactions=transactions)
        if overwrite:
            self._overwrite(files, properties)
        else:
            self._replace(removed, files, properties, changed=True)
        self._checkpoint(before, self.version())


class DeltaTarget:
    """Another Delta table, with the types of the source and folders by day."""

    def __init__(self, config: ExportConfig, layout: Layout) -> None:
        self._config = config
        folder: TablePath = Path(config.path)
        if config.scheme != "delta":
            folder = ObjectPath(config.to, config.options, layout.tables)
        self._table = CopiedTable(folder, pa.schema([]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace

    def position(self) -> Position | None:
        with self._translated():
            return self._table.read_position(self._config.name)

    def has_other_rows(self) -> bool:
        with self._translated():
            return self._table.has_other_rows(self._config.name)

    def apply(self, changes: Changes, deleted: pa.Table, before: Position | None) -> int:
        table = self._table
        table.schema = changes.schema
        with self._translated():
            has_other_types = self._begin(changes)
            if table.read_position(self._config.name) != before:
                raise TargetMoved(f"{self._config.to}: another process moved the position")
            removed, remaining = table.active(), list[CopiedFile]()
            # A complete step replaces all entries of files, also of files that are listed several times.
            is_overwritten = has_other_types or (changes.is_complete and any(not file.is_plain for file in removed))
            if not changes.is_complete:
                self._apply_vectors(removed)
                removed, remaining = self._without(deleted)
            added = write_files(table.folder, changes.added(), changes.schema)
            # Crash: files that no commit names are removed by the vacuum.
            table.commit_step(self._config.name, removed, [*added, *remaining], changes.next, overwrite=is_overwritten)
            return sum(file.rows for file in added)

    def _begin(self, changes: Changes) -> bool:
        """Create or repair the table; return whether all of it is replaced by columns of other types."""
        try:
            self._table.begin()
        except SchemaDiffers:
            # A refill of the source changed types, and the step brings all rows.
            if not changes.is_complete:
                raise
            return True
        return False

    def _apply_vectors(self, files: Sequence[TableFile]) -> None:
        """Rewrite files with deletion vectors of other programs. Raises VectorNotApplicable."""
        try:
            self._table.apply_vectors([file for file in files if not file.is_plain])
        except VectorNotApplicable as error:
            command = f"`penstock export rebuild {self._config.name} --yes` copies all rows again"
            raise VectorNotApplicable(f"{error}; {command}") from None

    def _without(self, deleted: pa.Table) -> tuple[list[TableFile], list[CopiedFile]]:
        """Return files with deleted rows, and the files that replace them."""
        replaced, files = list[TableFile](), list[CopiedFile]()
        folder, schema = self._table.folder, self._table.schema_now
        for file in self._table.active() if deleted.num_rows else ():
            mask = mask_of_runs(folder, file, deleted)
            if mask.any():
                replaced.append(file)
                files += write_files(folder, _rows_of(folder, file, schema, ~mask), schema)
        return replaced, files

    def merge(self) -> int:
        """Merge the small files of each folder; return their number."""
        merged, by_folder = 0, dict[str, list[TableFile]]()
        with self._translated():
            for file in self._table.active() if self._table.exists else ():
                if file.size < SMALL_BYTES and file.is_plain:
                    by_folder.setdefault(file.rpartition("/")[0], []).append(file)
            for files in by_folder.values():
                if len(files) >= MERGED_FILES:
                    folder, schema = self._table.folder, self._table.schema_now
                    rows = (part for file in files for part in _rows_of(folder, file, schema))
                    self._table.replace(files, write_files(folder, rows, schema))
                    merged += len(files)
        return merged

    def vacuum(self, keep_hours: int) -> bool:
        """Remove files that left the table long ago and return whether they are; only if the clock is plausible."""
        with self._translated():
            return self._table.exists and self._table.vacuum(keep_hours)

    def sums(self, without: pa.Table) -> Sums:
        sums = Sums()
        with self._translated():
            columns = [name for name in ("offset", "uuid") if name in self._table.schema_now.names]
            for file in self._table.active():
                mask = mask_of_runs(self._table.folder, file, without)
                start = 0
                with open_rows(self._table.folder, file) as rows:
                    for batch in rows.batches(columns):
                        sums = sums.plus(batch.filter(pa.array(~mask[start : start + batch.num_rows])))
                        start += batch.num_rows
        return sums

    def stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows

    def forget(self) -> None:
        with self._translated():
            if self._table.exists:
                self._table.schema = self._table.schema_now
                self._table.commit_step(self._config.name, [], [], None)

    @contextmanager
    def _translated(self) -> Any:
        try:
            yield
        except (DeltaError, TablesAway) as error:
            raise TargetAway(f"{self._config.to}: {text_of_error(error)}") from None


def write_files(table: TablePath, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[CopiedFile]:
    """Write rows into files of the table; rows of a batch have one day, and one kind if that is a column."""
    files, opened = list[CopiedFile](), dict[str, _OpenFile]()
    try:
        for rows in batches:
            folder = _folder_of(rows, schema)
            file = opened.get(folder) or opened.setdefault(folder, _OpenFile(table, folder, schema))
            file.write(rows)
            if file.rows >= FILE_ROWS:
                files.append(opened.pop(folder).close())
        return [*files, *(file.close() for file in opened.values())]
    except BaseException:
        for file in opened.values():
            file.discard()
        raise


class _OpenFile:
    """A file that is being written."""

    def __init__(self, table: TablePath, folder: str, schema: pa.Schema) -> None:
        self.rows = 0
        self._name = f"{folder}{uuid4().hex}.parquet"
        self._schema = pa.schema([field for field in schema if field.name not in PARTITION_COLUMNS])
        self._file = NewParquet(table / self._name)
        self._writer = pq.ParquetWriter(
            self._file.sink, self._schema, compression="zstd", store_schema=False, write_page_checksum=True
        )

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows.select(self._schema.names))
        self.rows += rows.num_rows

    def close(self) -> CopiedFile:
        self._writer.close()
        kind, day = (partition_value(self._name, column) for column in ("kind", "date"))
        return CopiedFile(self._name, kind, day, self.rows, self._file.finish())

    def discard(self) -> None:
        self._file.discard()
        # Workaround: when Arrow's writer is collected, it would write the file's end to the closed sink.
        self._writer.is_open = False


def _folder_of(rows: pa.RecordBatch, schema: pa.Schema) -> str:
    columns = [name for name in PARTITION_COLUMNS if name in schema.names]
    return "".join(f"{name}={rows[name][0].as_py()}/" for name in columns)


def _rows_of(
    table: TablePath, file: TableFile, schema: pa.Schema, mask: Mask | None = None
) -> Iterable[pa.RecordBatch]:
    """Yield rows of a file with all columns; ``mask``: only these."""
    plain = pa.schema([field for field in schema if field.name not in PARTITION_COLUMNS])
    folders = [schema.field(name) for name in PARTITION_COLUMNS if name in schema.names]
    start = 0
    with open_rows(table, file) as rows:
        for batch in rows.batches():
            wanted = batch if mask is None else batch.filter(pa.array(mask[start : start + batch.num_rows]))
            start += batch.num_rows
            if wanted.num_rows:
                complete = in_current_columns(wanted, plain)
                for field in folders:
                    value = pa.scalar(partition_value(file, field.name)).cast(field.type)
                    complete = complete.append_column(field, pa.repeat(value, wanted.num_rows))
                yield complete


def mask_of_runs(table: TablePath, file: TableFile, runs: pa.Table) -> Mask:
    """Return a mask of the rows of a file that are in runs of offsets."""
    with open_rows(table, file) as rows:
        mask: Mask = np.zeros(rows.rows, bool)
        keys = rows.read(KEY) if runs.num_rows else None
    if keys is None:
        return mask
    topics, partitions = keys["topic"].cast(pa.string()), keys["partition"]
    offsets = keys["offset"].to_numpy()
    for topic, partition in {(run["topic"], run["partition"]) for run in runs.to_pylist()}:
        same = runs.filter(_is_key(runs["topic"], runs["partition"], topic, partition))
        pairs = np.stack([same["begin"].to_numpy(), same["end"].to_numpy()], axis=1)
        is_of_key = _is_key(topics, partitions, topic, partition).to_numpy(zero_copy_only=False).astype(bool)
        mask |= is_of_key & is_inside(offsets, pairs)
    return mask


def _is_key(topics: Any, partitions: Any, topic: str, partition: int | None) -> Any:
    is_partition = (
        pc.is_null(partitions)
        if partition is None
        else pc.fill_null(pc.equal(partitions, pa.scalar(partition, pa.int32())), pa.scalar(False))
    )
    return pc.and_(pc.equal(topics, pa.scalar(topic)), is_partition)
