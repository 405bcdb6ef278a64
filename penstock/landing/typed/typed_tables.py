"""The typed tables beside the table ``landed``: each batch once into all of them, just before it is in that.

A pipeline that is killed in between does the batch again, and what it comes to then takes the place of what is there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.table_file import TableFile
from penstock.landing.table_paths import Layout
from penstock.landing.typed.columns import TypedTable
from penstock.landing.typed.typed_delta import TypedDelta
from penstock.landing.typed.typed_files import is_of_events, read_row_keys, write_typed
from penstock.landing.typed.typed_starts import BEFORE_FIRST_BATCH, describe_start, read_starts, write_starts
from penstock.landing.writing.written_file import FileRole, WrittenFile

THREADS = 4
_LOGGER = logging.getLogger(__name__)


class TypedTableAhead(PenstockError, RuntimeError):
    """A typed table has batches that the table ``landed`` knows nothing of."""


class TypedTables:
    """Those that are ``wanted``, to be written by the one process that lands into ``landed``."""

    def __init__(self, layout: Layout, landed: DeltaTable, wanted: Sequence[TypedTable]) -> None:
        self._layout, self._landed = layout, landed
        self._wanted = {layout.typed(one.name): one for one in wanted}
        self._tables = {folder: TypedDelta(folder, one.schema) for folder, one in self._wanted.items()}

    def begin(self) -> None:
        """Make those that there are not; add columns. Raises SchemaDiffers, TypedTableAhead."""
        newest = self._landed.newest()
        there = {self._wanted[folder].name for folder in self._tables if self._tables[folder].exists}
        for folder, table in self._tables.items():
            table.begin()
            if table.newest() > newest + 1:
                raise TypedTableAhead(
                    f"{folder} has batches up to {table.newest()}, {self._landed.folder} up to {newest}: move it away"
                )
        with hold_upkeep_lock(self._layout):
            known = {name: batch for name, batch in read_starts(self._layout).items() if name in there}
            now = {one.name: known.get(one.name, newest) for one in self._wanted.values()}
            if now != read_starts(self._layout):
                write_starts(self._layout, now)
        for name, batch in now.items():
            if batch > BEFORE_FIRST_BATCH and name not in known:
                _LOGGER.warning(
                    "%s; `penstock tables fill %s` brings in what landed before", describe_start(name, batch), name
                )

    def commit(self, batch: int, files: Sequence[WrittenFile]) -> None:
        """Have all of them have the rows that are about to be committed."""
        events = [one for one in files if is_of_events(one.name)]
        if self._tables:
            for folder, mine in self._written(batch, events).items():
                self._tables[folder].commit(batch, mine)

    def _written(self, batch: int, files: Sequence[WrittenFile]) -> dict[TablePath, list[WrittenFile]]:
        with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1, len(files) or 1)) as threads:
            parts = list(threads.map(partial(self._of_file, batch), files))
        return {folder: [part[folder] for part in parts if folder in part] for folder in self._tables}

    def _of_file(self, batch: int, file: WrittenFile) -> dict[TablePath, WrittenFile]:
        if file.role != FileRole.RELANDED:
            return write_typed(self._landed.folder, TableFile(file.name), self._wanted)
        known = {folder: self._places(table, batch, file.date) for folder, table in self._tables.items()}
        return write_typed(self._landed.folder, TableFile(file.name), self._wanted, known)

    def _places(self, table: TypedDelta, batch: int, day: str) -> pa.Table:
        """Of the rows of a day that a table has: some that land again may be there still."""
        names = [name for name in table.before(batch) if name.startswith(f"date={day}/")]
        return read_row_keys(table.folder, names)
