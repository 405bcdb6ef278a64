"""A typed table as a Delta table. It has each batch before the table ``landed``, so it may be one batch ahead."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence

import pyarrow as pa
from deltalake.transaction import CommitProperties, Transaction

from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.delta_table import OWN_COMMIT_MARK, DeltaTable
from penstock.landing.table.table_file import NewFile, TableFile
from penstock.landing.table.table_reader import APPLICATION, DELTA_LOG
from penstock.landing.table_paths import TYPED_MARK, Layout
from penstock.landing.table_schema import FileForm
from penstock.landing.typed.columns import LANDED_COLUMNS, REST, TypedTable
from penstock.landing.typed.typed_starts import read_starts

FOLDERS = ("date",)
_DICTIONARIES = ("topic", "source", "type", "host")
_LOGGER = logging.getLogger(__name__)


class TypedDelta(DeltaTable):
    """The table in a folder; with the columns that it has, where ``schema`` is not given."""

    def __init__(self, folder: TablePath, schema: pa.Schema | None = None) -> None:
        super().__init__(folder, schema or pa.schema([]))
        if schema is None:
            self.schema = self.schema_now

    @classmethod
    def configured(cls, layout: Layout, wanted: TypedTable) -> TypedDelta:
        """The one that is configured."""
        return cls(layout.typed(wanted.name), wanted.schema)

    @property
    def form(self) -> FileForm:
        return file_form(self.schema_now)

    def commit(self, batch: int, files: Sequence[NewFile]) -> None:
        """Besides, of a batch that it has, but ``landed`` does not: what is right now is put in the place of that."""
        if self.newest() < batch:
            if files:
                super().commit(batch, files)
            return
        before = self._brought(batch)
        if not {*before} <= {*self.active()}:
            _LOGGER.warning("%s: another program has rewritten batch %d: it stays", self.folder, batch)
            return
        transaction = Transaction(APPLICATION, batch, time.time_ns() // 1_000_000)
        self._replace(before, files, CommitProperties(app_transactions=[transaction]), changed=True)

    def add(self, files: Sequence[NewFile]) -> None:
        """Files of no batch."""
        self._replace([], files, CommitProperties(custom_metadata=OWN_COMMIT_MARK), changed=True)

    def take_out(self, gone: Sequence[str], files: Sequence[NewFile]) -> None:
        """Put files without some rows in the place of those that have them."""
        self._replace(gone, files, CommitProperties(custom_metadata=OWN_COMMIT_MARK), changed=True)

    def through(self, batch: int) -> list[TableFile]:
        """Return the files, but for those of batches after this one."""
        later = {name for _, names in self.files(batch + 1) for name in names}
        return [file for file in self.active() if file not in later]

    def before(self, batch: int) -> list[TableFile]:
        """The files, but for those that a batch brought which is to be done again."""
        brought = {*self._brought(batch)} if self.newest() >= batch else set()
        return [name for name in self.active() if name not in brought]

    def _brought(self, batch: int) -> list[str]:
        return dict(self.files(batch)).get(batch, [])


def file_form(schema: pa.Schema) -> FileForm:
    """That of the files of a table with this schema."""
    own = [one for one in schema if one.name not in (*LANDED_COLUMNS, *FOLDERS)]
    in_file = pa.schema([one for one in schema if one.name not in FOLDERS])
    texts = [one.name for one in own if one.type.equals(pa.string())]
    return FileForm(in_file, FOLDERS, (*_DICTIONARIES, *texts))


def typed_names(layout: Layout) -> list[str]:
    """Those that there are, by the names that readers have for them, also those that are no longer configured.

    At a URL: those that the pipeline of this folder writes.
    """
    if layout.store is not None:
        return sorted(TYPED_MARK + name for name in read_starts(layout))
    try:
        found = sorted(os.listdir(layout.tables))
    except FileNotFoundError:
        return []
    return [name for name in found if name.startswith(TYPED_MARK) and (layout.tables / name / DELTA_LOG).is_dir()]


def existing_typed_tables(layout: Layout) -> list[TypedDelta]:
    """Likewise, as tables; what somebody else keeps under such a name is none of them."""
    found = [TypedDelta(layout.table(name)) for name in typed_names(layout)]
    return [
        one
        for one in found
        if {*LANDED_COLUMNS, REST, *FOLDERS} <= {*one.schema.names} and "kind" not in one.schema.names
    ]
