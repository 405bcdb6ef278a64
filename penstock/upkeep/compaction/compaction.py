"""Merge small files of a Delta table into large ones, sorted by type, while readers and the pipeline run.

Invariant: the rows stay the same. Order: new files are synced before the commit that names them. Old files stay for
open readers until no reader can need them any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.files.errors import DamagedFile
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.delta_table import KEEP_HOURS, DeltaTable, VectorNotApplicable
from penstock.landing.table.table_file import TableFile, count_rows, open_rows
from penstock.landing.table_paths import Layout, kind_and_day
from penstock.landing.table_schema import FileForm
from penstock.landing.writing.written_file import (
    ROW_GROUP,
    FileWriter,
    WrittenFile,
    in_current_columns,
)

TARGET_FILE_BYTES = 128 << 20
SORT_BUFFER_BYTES = 128 << 20
"""Limit: bytes of rows that are sorted in memory at once."""
MAX_SIZE_RATIO = 2
"""A file this many times larger than all smaller ones waits for more, so that its rows are not copied often."""
_REPORTED_TABLES: set[str] = set()
"""Tables whose unmergeable files were logged."""
_LOGGER = logging.getLogger(__name__)


def compact_table(folder: TablePath) -> tuple[int, int]:
    """Merge the small files of a table; return the numbers of old and new files."""
    with hold_upkeep_lock(Layout.around(folder)):
        table = DeltaTable(folder)
        return merge(table, table.active)


def merge(table: DeltaTable, listed: Callable[[], Sequence[TableFile]]) -> tuple[int, int]:
    """Merge small files of the listed ones; return the numbers of old and new files.

    Requires the lock of upkeep.
    """
    if with_vectors := [file for group in group_files(listed()) for file in group if file.live is not None]:
        apply_vectors(table, with_vectors)
    removed = added = 0
    for names in group_files([file for file in listed() if file.live is None]):
        with removed_on_failure(table) as written:
            written.append(_merge_files(table.folder, names, table.form))
            table.replace(names, written)
        removed, added = removed + len(names), added + 1
    return removed, added


def remove_old_files(folder: TablePath) -> None:
    """Remove files that have not been in the table for hours: merged, replaced, or never committed."""
    with hold_upkeep_lock(Layout.around(folder)):
        sweep_table(DeltaTable(folder))


def sweep_table(table: DeltaTable) -> None:
    """Apply deletion vectors, then remove files that have not been in the table for hours. Under the lock of upkeep."""
    apply_vectors(table, [file for file in table.active() if file.live is not None])
    table.vacuum(KEEP_HOURS)


def apply_vectors(table: DeltaTable, files: Sequence[TableFile]) -> None:
    """Apply deletion vectors where possible; log once per table which files have to keep theirs."""
    for file in files:
        try:
            table.apply_vectors([file])
        except VectorNotApplicable as error:
            if (folder := str(table.folder)) not in _REPORTED_TABLES:
                _REPORTED_TABLES.add(folder)
                _LOGGER.warning("some files are not merged: %s", error)


def group_files(files: Sequence[TableFile], target: int = TARGET_FILE_BYTES) -> list[list[TableFile]]:
    """Group files of one kind and day that become one file: at most ``target`` bytes, of similar sizes."""
    by_folder: dict[str, list[tuple[int, TableFile]]] = {}
    for file in files:
        by_folder.setdefault(file.rpartition("/")[0], []).append((file.size, file))
    groups = [group for sized in by_folder.values() for group in _groups(sorted(sized), target)]
    return [group for group in groups if len(group) > 1]


def _groups(sized: Sequence[tuple[int, TableFile]], target: int) -> Iterator[list[TableFile]]:
    group, total = list[TableFile](), 0
    for size, name in sized:
        if group and (total + size > target or size > total * MAX_SIZE_RATIO):
            yield group
            group, total = [], 0
        group.append(name)
        total += size
    yield group


def _merge_files(folder: TablePath, names: Sequence[TableFile], form: FileForm) -> WrittenFile:
    """Write the rows of several files into one. Raises DamagedFile if a row is missing."""
    rows = sum(count_rows(folder, name) for name in names)
    with FileWriter(folder, *kind_and_day(names[0]), form=form) as writer:
        for batch in _read_sorted_runs(folder, names, form.schema):
            writer.write(batch)
        written = writer.close()
        # Invariant: a merge that loses a row is never committed; the old files stay.
        if written.rows != rows:
            raise DamagedFile(f"{folder / written.name} has {written.rows:,} rows, and not {rows:,}")
    return written


def _read_sorted_runs(folder: TablePath, names: Sequence[TableFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files in runs that fit the sort buffer."""
    batches, size = list[pa.RecordBatch](), 0
    for name in names:
        with open_rows(folder, name) as file:
            for batch in file.batches(batch_rows=ROW_GROUP):
                batches.append(in_current_columns(batch, schema))
                size += batch.nbytes
                if size >= SORT_BUFFER_BYTES:
                    yield from _concatenate(batches)
                    batches, size = [], 0
    yield from _concatenate(batches)


def _concatenate(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if batches:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


@contextmanager
def removed_on_failure(table: DeltaTable) -> Iterator[list[WrittenFile]]:
    """Yield a list for files written for a commit; if the commit fails, remove them."""
    written: list[WrittenFile] = []
    try:
        yield written
    except BaseException:
        # Crash: in doubt the files stay, since the commit may exist and only its sync failed.
        with suppress(PenstockError, OSError):
            # An object store may apply a commit after the request failed: there the vacuum removes them.
            if isinstance(table.folder, Path):
                _remove_unlisted(table.active(), written, table.folder)
        raise


def _remove_unlisted(active: Sequence[str], written: Sequence[WrittenFile], folder: Path) -> None:
    for name in {file.name for file in written} - {*active}:
        (folder / name).unlink(missing_ok=True)
