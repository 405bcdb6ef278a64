"""A typed table as a Delta table, and the batches from which on typed tables are written.

Order: a batch is in the typed tables before it is in ``landed``, so a typed table may be one batch ahead.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake.transaction import CommitProperties, Transaction

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.delta_table import NO_DESCRIPTION, OWN_COMMIT_MARK, DeltaTable
from penstock.landing.table.table_file import NewFile, TableFile
from penstock.landing.table.table_reader import APPLICATION, DELTA_LOG, newest_batch
from penstock.landing.table_paths import TYPED_MARK, Layout
from penstock.landing.table_schema import FileForm
from penstock.landing.typed.columns import LANDED_COLUMNS, REST, TypedTable

FOLDERS = ("date",)
REFILL_APPLICATION = "penstock-refill"
"""Name of the transaction whose version is the number of batches in ``landed`` when the table was rebuilt."""
BEFORE_FIRST_BATCH = -1
"""Start of a table that has all batches."""
_DICTIONARIES = ("topic", "source", "type", "host")
_LOGGER = logging.getLogger(__name__)


class TypedDelta(DeltaTable):
    """A typed table in a folder; without ``schema``, with the columns that it has."""

    def __init__(self, folder: TablePath, schema: pa.Schema | None = None) -> None:
        super().__init__(folder, schema or pa.schema([]))
        if schema is None:
            self.schema = self.schema_now

    @classmethod
    def configured(cls, layout: Layout, table: TypedTable) -> TypedDelta:
        """Return a configured typed table."""
        return cls(layout.typed(table.name), table.schema)

    @property
    def form(self) -> FileForm:
        return file_form(self.schema_now)

    def commit(self, batch: int, files: Sequence[NewFile], description: Mapping[str, Any] = NO_DESCRIPTION) -> None:
        """Commit a batch; a batch that the table has is replaced, because ``landed`` does not have it yet."""
        table = self._table
        if newest_batch(table) < batch:
            if files:
                self._append(table, batch, files, description)
            return
        # Crash: a pipeline that was killed before its commit to ``landed`` does the batch again, perhaps with other
        # rows.
        previous = self._files_of_batch(batch)
        if int(table.transaction_version(REFILL_APPLICATION) or 0) == batch:
            # A refill removed the batch that ``landed`` did not have.
            active = {*self.active()}
            previous = [name for name in previous if name in active]
        if not {*previous} <= {*self.active()}:
            _LOGGER.warning("%s: another program has rewritten batch %d: it stays", self.folder, batch)
            return
        # A batch whose commit to ``landed`` failed is repeated with the files that its tasks wrote.
        names = {file.name for file in files}
        removed, added = [name for name in previous if name not in names], [f for f in files if f.name not in previous]
        if removed or added:
            transaction = Transaction(APPLICATION, batch, time.time_ns() // 1_000_000)
            self._replace(removed, added, CommitProperties(app_transactions=[transaction]), changed=True)

    def rebuild(self, batch: int, files: Sequence[NewFile]) -> None:
        """Replace the whole table, also its columns, by files with all rows through a batch. Raises TableChanged."""
        transaction = Transaction(REFILL_APPLICATION, batch + 1, time.time_ns() // 1_000_000)
        self._overwrite(files, CommitProperties(app_transactions=[transaction], custom_metadata=OWN_COMMIT_MARK))

    def add(self, files: Sequence[NewFile]) -> None:
        """Commit files that belong to no batch."""
        self._replace([], files, CommitProperties(custom_metadata=OWN_COMMIT_MARK), changed=True)

    def before(self, batch: int) -> list[TableFile]:
        """Return the files, without files of a batch that is done again."""
        files_of_batch = {*self._files_of_batch(batch)} if self.newest() >= batch else set()
        return [name for name in self.active() if name not in files_of_batch]

    def _files_of_batch(self, batch: int) -> list[str]:
        return dict(self.files(batch)).get(batch, [])


def file_form(schema: pa.Schema) -> FileForm:
    """Return the form of the files of a table with this schema."""
    typed = [field for field in schema if field.name not in (*LANDED_COLUMNS, *FOLDERS)]
    in_file = pa.schema([field for field in schema if field.name not in FOLDERS])
    texts = [field.name for field in typed if field.type.equals(pa.string())]
    return FileForm(in_file, FOLDERS, (*_DICTIONARIES, *texts))


def typed_names(layout: Layout) -> list[str]:
    """Return the names of existing typed tables, as readers name them, also of tables that are no longer configured.

    At a URL: the tables that the pipeline of this folder writes.
    """
    if layout.store is not None:
        return sorted(TYPED_MARK + name for name in read_starts(layout))
    try:
        names = sorted(os.listdir(layout.tables))
    except FileNotFoundError:
        return []
    return [name for name in names if name.startswith(TYPED_MARK) and (layout.tables / name / DELTA_LOG).is_dir()]


def existing_typed_tables(layout: Layout) -> list[TypedDelta]:
    """Return existing typed tables. Other programs' tables with such a name have other columns, and are left out."""
    tables = [TypedDelta(layout.table(name)) for name in typed_names(layout)]
    required = {*LANDED_COLUMNS, REST, *FOLDERS}
    return [table for table in tables if required <= {*table.schema.names} and "kind" not in table.schema.names]


def read_starts(layout: Layout) -> Mapping[str, int]:
    """Return the batch after which each table was first written, by table; none if the file is damaged.

    Below BEFORE_FIRST_BATCH: the table has all batches, and was refilled since.
    """
    try:
        return {str(name): int(batch) for name, batch in read_document(layout.typed_since)["since"].items()}
    except FileNotFoundError:
        return {}
    except (DamagedFile, KeyError, TypeError, ValueError, AttributeError):
        # Crash: without starts, `penstock tables fill` checks which rows the tables lack.
        _LOGGER.warning("%s is damaged", layout.typed_since)
        return {}


def write_starts(layout: Layout, starts: Mapping[str, int]) -> None:
    """Write the starts durably; the caller holds the lock of upkeep."""
    layout.typed_since.parent.mkdir(parents=True, exist_ok=True)
    write_document(layout.typed_since, {"since": dict(starts)})


def describe_start(name: str, batch: int) -> str:
    """Return a sentence about the batches that a table has."""
    return f"{TYPED_MARK}{name} has what landed after batch {batch}"
