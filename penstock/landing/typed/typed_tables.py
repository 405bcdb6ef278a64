"""The typed tables of a pipeline: each batch once into all of them, just before it is in ``landed``.

A pipeline that is killed in between does the batch again; its new rows then replace the rows of the first attempt.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from functools import partial

import pyarrow as pa

from penstock.config import Settings
from penstock.errors import PenstockError
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.delta_table import DeltaTable, SchemaDiffers
from penstock.landing.table.table_file import TableFile
from penstock.landing.table_paths import Layout
from penstock.landing.typed.columns import TypedTable, configured_tables, strict_tables
from penstock.landing.typed.typed_delta import BEFORE_FIRST_BATCH, TypedDelta, describe_start, read_starts, write_starts
from penstock.landing.typed.typed_files import (
    NO_KEYS,
    TypedFilesWriter,
    is_of_events,
    read_row_keys,
    write_typed,
)
from penstock.landing.writing.written_file import FileRole, WrittenFile

THREADS = 4
"""Limit: files of a batch that are converted at once; each one holds a row group in memory."""
_LOGGER = logging.getLogger(__name__)


class TypedTableAhead(PenstockError, RuntimeError):
    """A typed table has batches that the table ``landed`` does not know."""


class TypedTables:
    """The configured typed tables, written by the one process that lands into ``landed``.

    ``strict``: the tables whose events must fit.
    """

    def __init__(self, layout: Layout, landed: DeltaTable, configured: Sequence[TypedTable]) -> None:
        self._layout, self._landed = layout, landed
        self.strict = strict_tables(configured)
        self._configured = {layout.typed(table.name): table for table in configured}
        self._tables = {folder: TypedDelta(folder, table.schema) for folder, table in self._configured.items()}

    def begin(self) -> None:
        """Create missing typed tables; add columns. Raises SchemaDiffers, TypedTableAhead."""
        newest = self._landed.newest()
        existing = {self._configured[folder].name for folder in self._tables if self._tables[folder].exists}
        for folder, table in self._tables.items():
            with _refill_suggested(self._configured[folder].name):
                table.begin()
            if table.newest() > newest + 1:
                raise TypedTableAhead(
                    f"{folder} has batches up to {table.newest()}, {self._landed.folder} up to {newest}: move it away"
                )
        with hold_upkeep_lock(self._layout):
            # A table that was removed, or not configured for a while, starts again.
            known_starts = {name: batch for name, batch in read_starts(self._layout).items() if name in existing}
            starts = {table.name: known_starts.get(table.name, newest) for table in self._configured.values()}
            if starts != read_starts(self._layout):
                write_starts(self._layout, starts)
        for name, batch in starts.items():
            if batch > BEFORE_FIRST_BATCH and name not in known_starts:
                _LOGGER.warning(
                    "%s; `penstock tables fill %s` brings in what landed before", describe_start(name, batch), name
                )

    def change(self, configured: Sequence[TypedTable]) -> None:
        """Write these tables from the next batch on; call it between commits. An error changes nothing.

        Raises SchemaDiffers, TypedTableAhead.
        """
        changed = TypedTables(self._layout, self._landed, configured)
        changed.begin()
        self.strict, self._configured, self._tables = changed.strict, changed._configured, changed._tables

    def writer(self) -> Callable[[date], TypedFilesWriter] | None:
        """Return the factory that opens files of the tables in a task; None without tables."""
        return partial(TypedFilesWriter, self._configured) if self._configured else None

    def commit(self, batch: int, files: Sequence[WrittenFile]) -> Counter[str]:
        """Commit the rows of files that are about to be committed to ``landed``.

        Return how many of the rows violate each rule of contracts, for the commit to ``landed``.
        """
        violations: Counter[str] = Counter()
        if not self._tables:
            return violations
        events = [file for file in files if is_of_events(file.name)]
        with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as threads:
            parts = list(threads.map(partial(self._typed_files, batch), events))
            typed = {folder: [part[folder] for part in parts if folder in part] for folder in self._tables}
            # Each table has one thread. All are done, or have failed, before ``landed`` is committed.
            list(threads.map(lambda folder: self._tables[folder].commit(batch, typed[folder]), self._tables))
        for written in (file for of_table in typed.values() for file in of_table):
            violations.update(written.violations)
        return violations

    def _typed_files(self, batch: int, file: WrittenFile) -> dict[TablePath, WrittenFile]:
        """Return the files of the tables for a file of ``landed``, by folder."""
        written = {
            typed.folder: typed.file for table in self._configured.values() if (typed := file.typed.get(table.key))
        }
        # The driver converts files that no task has: rows that land again, files without late duplicates, and those of
        # tables that were configured during the batch.
        missing = {folder: table for folder, table in self._configured.items() if table.key not in file.typed}
        if not missing:
            return written
        keys: Mapping[TablePath, pa.Table] = NO_KEYS
        if file.role == FileRole.RELANDED:
            keys = {folder: self._keys_of_day(self._tables[folder], batch, file.date) for folder in missing}
        return {**written, **write_typed(self._landed.folder, TableFile(file.name), missing, keys)}

    def _keys_of_day(self, table: TypedDelta, batch: int, day: str) -> pa.Table:
        """Return the keys of a table's rows of a day: rows that land again may still be in it."""
        names = [name for name in table.before(batch) if name.startswith(f"date={day}/")]
        return read_row_keys(table.folder, names)


def check_columns(layout: Layout, configured: Sequence[TypedTable]) -> None:
    """Check that existing tables can have the configured columns; changes nothing. Raises SchemaDiffers."""
    for table in configured:
        typed = TypedDelta.configured(layout, table)
        if typed.exists:
            with _refill_suggested(table.name):
                typed.missing_columns()


@contextmanager
def _refill_suggested(name: str) -> Iterator[None]:
    """Name the remedy in SchemaDiffers."""
    try:
        yield
    except SchemaDiffers as error:
        raise SchemaDiffers(
            f"{error}. To change it, stop the pipeline and run `penstock tables refill {name}`"
        ) from None


def main() -> None:
    """Run as a child process: check the columns of the settings in standard input; end with a reason if they differ."""
    settings = Settings.model_validate(json.load(sys.stdin)["settings"])
    try:
        check_columns(Layout.for_tables(settings.tables), configured_tables(settings.pipeline))
    except SchemaDiffers as error:
        sys.exit(f"pipeline.typed: {error}")
    except (PenstockError, OSError) as error:
        # A table that cannot be read says nothing about its columns: the landing checks them again.
        _LOGGER.warning("the columns of typed tables are not checked: %s", error)


if __name__ == "__main__":
    main()
