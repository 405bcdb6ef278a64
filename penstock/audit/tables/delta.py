"""A Delta table at one version, with its history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError

from penstock.audit.columns import stored_columns
from penstock.audit.tables.history import (
    MAX_STORED_FILES,
    MAX_VERSIONS,
    Version,
    VersionedFile,
    VersionedTable,
    reference_text,
)
from penstock.audit.tables.parquet_folder import SUFFIX, StoredFile, file_system, names_below
from penstock.audit.tables.table import (
    BATCH_ROWS,
    TableUnreadable,
    column_of,
    dotted_names,
    translate_errors,
    with_dictionaries,
)
from penstock.errors import PenstockError
from penstock.landing.storage.object_path import ObjectPath, TablePath, delta_rs_options
from penstock.landing.table.table_file import TableFile, open_rows
from penstock.landing.table.table_reader import TableReader

PHYSICAL_NAME = b"delta.columnMapping.physicalName"


def is_delta(address: str, options: Mapping[str, str]) -> bool:
    """Report whether a Delta table is at ``address``. Raises TableUnreadable if a store does not answer."""
    with translate_errors(address, DeltaError):
        return TableReader(table_path(address, options)).exists


def open_delta(address: str, options: Mapping[str, str], version: int | None = None) -> DeltaTable:
    """Return the table at ``address``, the newest version by default. Raises TableUnreadable."""
    from penstock.audit.tables.landed import COLUMNS, LandedTable

    with translate_errors(address, DeltaError):
        reader = TableReader(table_path(address, options))
        if reader.newest() < 0:
            return DeltaTable(address, options, version)
        if not set(reader.schema_now.names) >= COLUMNS:
            # A table of one type has a part of a topic's messages.
            raise TableUnreadable(f"{address} has messages of one type; audit the table landed")
        return LandedTable(address, options, version)


def table_path(address: str, options: Mapping[str, str]) -> TablePath:
    """Return the folder of a table, on this machine or in an object store."""
    if "://" in address and not address.startswith("file://"):
        return ObjectPath(address.rstrip("/"), dict(options))
    return Path(unquote(address.removeprefix("file://")))


@dataclass(frozen=True, slots=True)
class ListedFile:
    """An entry of the log: a file with the vector of this entry.

    ``reference`` counts entries of one file in one version, from 1: a faulty commit of another program adds a file with
    a deletion vector again without it, or with another one, and readers read the rows of each entry.
    """

    file: TableFile
    reference: int = 1

    @property
    def identity(self) -> Hashable:
        """The file, and its deletion vector."""
        return self.file.identity

    def __str__(self) -> str:
        return reference_text(str(self.file), self.reference)


class _Reader(TableReader):
    """A reader that lists each entry of the log, as other readers do.

    It keeps the partition values of the files that it lists, by name of the file and column.
    """

    def __init__(self, folder: TablePath) -> None:
        super().__init__(folder)
        self.partitions: dict[str, Mapping[str, Any]] = {}

    def _list_files(self, table: deltalake.DeltaTable) -> list[TableFile]:
        if table.metadata().partition_columns:
            adds = pa.table(table.get_add_actions())
            rows: list[Any] = list(zip(adds["path"].to_pylist(), adds["partition"].to_pylist(), strict=True))
            self.partitions |= {unquote(path): partition for path, partition in rows}
        return self._list_entries(table)

    def entries_at(self, version: int) -> list[ListedFile]:
        """Return the files of a version. Raises DamagedFile if its log is removed."""
        references: Counter[str] = Counter()
        listed = []
        for file in self.active_at(version):
            references[file] += 1
            listed.append(ListedFile(file, references[file]))
        return listed


class DeltaTable(VersionedTable):
    """A version, by default the one that is newest when the object is created."""

    kind = "Delta"

    def __init__(self, address: str, options: Mapping[str, str], version: int | None = None) -> None:
        super().__init__()
        self._address, self._options = address, options
        self._folder = table_path(address, options)
        self._reader = _Reader(self._folder)
        with translate_errors(address, DeltaError):
            self._number = self._reader.version() if version is None else version
            self._files = self._reader.entries_at(self._number)
            self._schema = self._reader.schema_now
        self.version = str(self._number)

    def column_names(self) -> list[str]:
        """Return the columns of the table."""
        return dotted_names(self._schema)

    def files(self) -> Iterable[VersionedFile]:
        """Return the files of the audited version."""
        return self._files

    def without_deletes(self, file: VersionedFile) -> VersionedFile:
        """Return a file with the rows that its deletion vector marks."""
        listed = cast("ListedFile", file)
        if listed.file.live is None:
            return file
        stored = listed.file
        return replace(listed, file=TableFile.listed(stored, stored.size, None, stored.written_rows, stored.hour))

    def newest(self) -> DeltaTable:
        """Open the version that is the newest one now. Raises TableUnreadable."""
        return DeltaTable(self._address, self._options)

    def batches_of(
        self, file: VersionedFile, names: Sequence[str], dictionaries: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns of a file's rows, without rows that a deletion vector marks."""
        table_file = cast("ListedFile", file).file
        with (
            translate_errors(file, DeltaError),
            with_dictionaries(
                lambda columns: open_rows(self._folder, table_file, columns), list(map(self._stored_name, dictionaries))
            ) as reader,
        ):
            available = set(dotted_names(reader.schema))
            columns = {name: self._stored_name(name) for name in stored_columns(names)}
            for batch in reader.batches([name for name in columns.values() if name in available], BATCH_ROWS):
                yield self._as_table(table_file, batch, columns)

    def _stored_name(self, name: str) -> str:
        """Return the name that a column, or a nested field, has in the files: another one after it was renamed."""
        fields, stored = list(self._schema), []
        for part in name.split("."):
            field = next((field for field in fields if field.name == part), None)
            if field is None:
                return name
            stored.append((field.metadata or {}).get(PHYSICAL_NAME, part.encode()).decode())
            fields = list(field.type) if pa.types.is_struct(field.type) else []
        return ".".join(stored)

    def _as_table(self, file: TableFile, batch: pa.RecordBatch, columns: Mapping[str, str]) -> pa.RecordBatch:
        """Return the rows of a file with the columns of the table.

        Columns that the table is partitioned by are in the log, not in its files; a column that is younger than a file
        is null.
        """
        partition = self._reader.partitions.get(str(file), {})
        arrays: dict[str, Any] = {}
        for name, stored_name in columns.items():
            column = column_of(batch, stored_name)
            constant: Any = partition.get(name)
            arrays[name] = pa.repeat(constant, batch.num_rows) if column is None else column
        return pa.RecordBatch.from_pydict(arrays)

    def versions(self) -> Iterator[Version]:
        """Yield the versions, the newest first, as far back as the log has them."""
        after = self._files
        oldest = max(-1, self._number - MAX_VERSIONS)
        for number in range(self._number, oldest, -1):
            try:
                before = self._reader.entries_at(number - 1) if number else []
            except PenstockError:
                return
            yield Version(number, before, after)
            after = before
        if oldest >= 0:
            self.note_unsearched(f"versions up to {oldest}: the search ends after {MAX_VERSIONS:,}")

    def describe(self, number: int) -> str:
        """Return a version with its operation, engine and time."""
        entry = self._history.get(number, {})
        operation = entry.get("operation", "an unknown operation")
        engine = entry.get("engineInfo") or entry.get("clientVersion") or "an unknown engine"
        moment = entry.get("timestamp")
        when = f" at {datetime.fromtimestamp(moment / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if moment else ""
        return f"version {number}, {operation} by {engine}{when}"

    @cached_property
    def _history(self) -> dict[int, dict[str, Any]]:
        with translate_errors(self._folder, DeltaError):
            table = deltalake.DeltaTable(str(self._folder), **delta_rs_options(self._folder))
            return {int(entry["version"]): entry for entry in table.history() if "version" in entry}

    def stored_files(self) -> Iterable[StoredFile]:
        """Return the Parquet files in the table's folder."""
        with translate_errors(self._folder):
            system, root = file_system(self._folder)
            names = [name for name in names_below(system, root, SUFFIX, MAX_STORED_FILES) if not _is_hidden(name)]
        return [StoredFile(name, f"{root}/{name}", system) for name in names]


def _is_hidden(name: str) -> bool:
    """Report whether a file is of the log, of the change data feed or of an index: none of them has rows."""
    folder, separator, _ = name.partition("/")
    return bool(separator) and folder.startswith("_") and "=" not in folder
