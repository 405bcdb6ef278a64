"""Another Delta table, in a folder or an object store.

A step is one commit: new files, files without the deleted rows, and the position as application transactions, which
Delta keeps in its checkpoints.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from deltalake.transaction import CommitProperties, Transaction

from penstock.config.keys.export import ExportConfig
from penstock.landing.offset_runs import Runs
from penstock.landing.storage.object_errors import TablesAway
from penstock.landing.storage.object_path import ObjectPath, TablePath
from penstock.landing.storage.parquet_files import NewParquet
from penstock.landing.table.delta_table import DeltaTable, SchemaDiffers, VectorNotApplicable
from penstock.landing.table.table_file import Mask, TableFile, open_rows
from penstock.landing.table.table_reader import RESTORES, ForeignCommit
from penstock.landing.table_paths import Layout, partition_value
from penstock.landing.table_schema import PARTITION_COLUMNS
from penstock.landing.writing.written_file import in_current_columns
from penstock.proof.deleted_rows import mask_of_topics
from penstock.upkeep.changes import Changes, Position
from penstock.upkeep.export.target import TargetAway, TargetMoved, TargetOwned, runs_by_topic, text_of_error

FILE_ROWS = 2 << 20
"""Rows of a file; a new one begins after them."""
SMALL_BYTES, MERGED_FILES = 16 << 20, 32
"""Files of a folder smaller than this are merged once there are so many of them."""
_APPLICATION = "penstock.export."
"""Prefix of the applications whose versions are the position; the numbers are stored plus one, 0 for no position."""
_PARTS = ("batch", "deletion", "start", "landed_at")
_OWNER = f"{_APPLICATION}.owner"
"""Application whose version identifies the one export that writes the table; none in tables of earlier versions."""


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
    """The Delta table of an export; ``owner``: the identity of the table ``landed``."""

    def __init__(self, folder: TablePath, config: ExportConfig, owner: str) -> None:
        super().__init__(folder, pa.schema([]))
        self._config, self._owner = config, owner
        self._step_before: tuple[Position | None] | None = None

    def read_position(self) -> Position | None:
        """Return the position of the export; None for none. Raises TargetOwned."""
        return self._position_in(self._table) if self.exists else None

    def _position_in(self, table: deltalake.DeltaTable) -> Position | None:
        if table.transaction_version(_OWNER) not in (None, self._owner_number):
            raise TargetOwned(self._config, "another export, or one of another Penstock,")
        parts = [int(table.transaction_version(self._application(part)) or 0) for part in _PARTS]
        source = table.transaction_version(self._application("source"))
        is_same_source = source in (None, _number_of(self._config.source))
        return Position(*(part - 1 for part in parts)) if parts[0] and is_same_source else None

    def pin(self) -> tuple[Position | None, list[TableFile], Sequence[deltalake.Field]]:
        """Return the position of the newest version, its files, and its columns. Raises TargetOwned."""
        if not self.exists:
            return None, [], ()
        table = self._open_at(self.version())
        return self._position_in(table), self._list_files(table), table.schema().fields

    def _application(self, part: str) -> str:
        return f"{_APPLICATION}{self._config.name}.{part}"

    @property
    def _owner_number(self) -> int:
        return _number_of(f"{self._config.name} {self._owner}")

    def has_other_rows(self) -> bool:
        """Report whether the table has rows, and never had a position of the export, also not a forgotten one."""
        if not self.exists:
            return False
        return self._table.transaction_version(self._application("batch")) is None and bool(self.active())

    def check_folders(self) -> None:
        """Raise TargetAway if the table has other partition columns than the source. Delta cannot change them."""
        if self.exists and self._table.metadata().partition_columns != self._partitions():
            text = f"has folders of another source: give export {self._config.name} an address of its own"
            raise TargetAway(f"{self._config.to} {text}")

    def _check_version(self, table: deltalake.DeltaTable) -> None:
        # Invariant: a step is committed to a version with the position that it began at. After a conflict this is not
        # the version that ``apply`` looked at.
        if self._step_before is not None and self._position_in(table) != self._step_before[0]:
            raise TargetMoved(f"{self._config.to}: another process moved the position")
        super()._check_version(table)

    def commit_step(
        self,
        before: Position | None,
        removed: Sequence[str],
        files: Sequence[CopiedFile],
        position: Position,
        *,
        overwrite: bool = False,
    ) -> None:
        """Commit files and position at once; ``overwrite``: replace all files, and the columns. Raises TargetMoved."""
        self._step_before = (before,)
        try:
            self._commit(removed, files, position, overwrite=overwrite)
        finally:
            self._step_before = None

    def find_step_back(self, runs: Callable[[], Mapping[str, Runs]]) -> ForeignCommit | None:
        """Return a commit since the last step by which another program restored the table, or brought rows back.

        ``runs`` returns the offsets of the rows that earlier steps deleted, by topic.
        """
        for commit in self.examine_changed_rows(self._application("batch")):
            added = [file for file in self.active() if file in commit.added]
            if commit.operation in RESTORES or any(mask_of_topics(self.folder, file, runs()).any() for file in added):
                return commit
        return None

    def forget_position(self) -> None:
        """Commit that the export has no position, and that the table belongs to it."""
        self._commit([], [], None)

    def _commit(
        self,
        removed: Sequence[str],
        files: Sequence[CopiedFile],
        position: Position | None,
        *,
        overwrite: bool = False,
    ) -> None:
        numbers = (
            (0, 0, 0, 0)
            if position is None
            else (position.batch + 1, (position.deletion or 0) + 1, (position.start or 0) + 1, position.landed_at + 1)
        )
        now_ms = time.time_ns() // 1_000_000
        versions = {self._application(part): number for part, number in zip(_PARTS, numbers, strict=True)}
        versions |= {self._application("source"): _number_of(self._config.source), _OWNER: self._owner_number}
        transactions = [Transaction(application, number, now_ms) for application, number in versions.items()]
        before = self.version()
        properties = CommitProperties(app_transactions=transactions)
        if overwrite:
            self._overwrite(files, properties)
        else:
            self._replace(removed, files, properties, changed=True)
        self._checkpoint(before, self.version())


class DeltaTarget:
    """Another Delta table, with the types of the source and folders by day."""

    def __init__(self, config: ExportConfig, layout: Layout, owner: str) -> None:
        self._config = config
        folder: TablePath = Path(config.path)
        if config.scheme != "delta":
            folder = ObjectPath(config.to, config.options, layout.tables)
        self._table = CopiedTable(folder, config, owner)
        self._pinned: list[TableFile] = []
        self._pinned_columns: Sequence[deltalake.Field] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace

    def position(self) -> Position | None:
        with self._translated():
            return self._table.read_position()

    def has_other_rows(self) -> bool:
        with self._translated():
            return self._table.has_other_rows()

    def find_step_back(self, runs: Callable[[], Mapping[str, Runs]]) -> ForeignCommit | None:
        """See ``CopiedTable``."""
        with self._translated():
            return self._table.find_step_back(runs)

    def apply(self, changes: Changes, deleted: pa.Table, before: Position | None) -> int:
        table = self._table
        table.schema = changes.schema
        with self._translated():
            has_other_types = self._begin(changes)
            if table.read_position() != before:
                raise TargetMoved(f"{self._config.to}: another process moved the position")
            removed, remaining = table.active(), list[CopiedFile]()
            # A complete step replaces all entries of files, also of files that are listed several times.
            is_overwritten = has_other_types or (changes.is_complete and any(not file.is_plain for file in removed))
            if not changes.is_complete:
                self._apply_vectors(removed)
                removed, remaining = self._without(deleted)
            added = write_files(table.folder, changes.added(), changes.schema)
            # Crash: files that no commit names are removed by the vacuum.
            table.commit_step(before, removed, [*added, *remaining], changes.next, overwrite=is_overwritten)
            return sum(file.rows for file in added)

    def _begin(self, changes: Changes) -> bool:
        """Create or repair the table; return whether all of it is replaced by columns of other types."""
        self._table.check_folders()
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
        folder, schema, runs = self._table.folder, self._table.schema_now, runs_by_topic(deleted)
        for file in self._table.active() if deleted.num_rows else ():
            mask = mask_of_topics(folder, file, runs)
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

    def pin(self) -> Position | None:
        with self._translated():
            position, self._pinned, self._pinned_columns = self._table.pin()
        return position

    def has_newer_step(self) -> bool:
        return False  # replaced files stay for hours

    def match_columns(self, schema: pa.Schema) -> tuple[list[str], list[str]]:
        self._table.schema = schema
        with self._translated():
            self._table.check_folders()
        # Delta compares names of columns without case.
        existing = {field.name.lower(): (field.name, field.type) for field in self._pinned_columns}
        written = {field.name.lower(): (field.name, field.type) for field in deltalake.Schema.from_arrow(schema).fields}
        matching = [name for key, (name, kind) in written.items() if existing.get(key, (name, kind)) == (name, kind)]
        return matching, [name for key, (name, _) in existing.items() if key not in written]

    def read(self, schema: pa.Schema, runs: pa.Table | None = None) -> Iterator[pa.RecordBatch]:
        folder, offsets = self._table.folder, None if runs is None else runs_by_topic(runs)
        with self._translated():
            for file in self._pinned:
                mask = None if offsets is None else mask_of_topics(folder, file, offsets)
                if mask is None or mask.any():
                    for rows in _rows_of(folder, file, schema, mask):
                        yield rows.select(schema.names)

    def stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows

    def forget(self) -> None:
        with self._translated():
            if self._table.exists:
                self._table.schema = self._table.schema_now
                self._table.forget_position()

    @contextmanager
    def _translated(self) -> Any:
        try:
            yield
        except (DeltaError, TablesAway) as error:
            raise TargetAway(f"{self._config.to}: {text_of_error(error)}") from None


def _number_of(text: str) -> int:
    """Return a number of 60 bits, since Delta's application transactions have no texts."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:15], 16)


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
) -> Iterator[pa.RecordBatch]:
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
