"""Small files of a Delta table merged into large ones, their rows by type, while readers and the pipeline go on.

It changes no data: the rows stay, under other files, which are on the disk before the commit that names them. The old
ones stay for readers that are at them, until they are removed as nobody can need them any more.
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

TARGET_BYTES = 128 << 20
SORTED_BYTES = 128 << 20
"""Rows in memory that are sorted at once."""
MUCH_LARGER = 2
"""Times all that is smaller: such a file is left alone until there is more, so that its rows are not copied often."""
_REPORTED: set[str] = set()
"""Tables whose files that stay as they are were named."""
_LOGGER = logging.getLogger(__name__)


def compact_table(folder: TablePath) -> tuple[int, int]:
    """Merge the small files of a table; return how many files became how many."""
    with hold_upkeep_lock(Layout.around(folder)):
        table = DeltaTable(folder)
        return merge(table, table.active)


def merge(table: DeltaTable, listed: Callable[[], Sequence[TableFile]]) -> tuple[int, int]:
    """Merge small files among those that ``listed`` returns; return how many files became how many.

    Under the lock of upkeep.
    """
    if marked := [file for group in to_merge(listed()) for file in group if file.live is not None]:
        apply_vectors(table, marked)
    removed = added = 0
    for names in to_merge([file for file in listed() if file.live is None]):
        with kept_if_committed(table) as written:
            written.append(_merged(table.folder, names, table.form))
            table.replace(names, written)
        removed, added = removed + len(names), added + 1
    return removed, added


def remove_old_files(folder: TablePath) -> None:
    """Remove what has not been in the table for hours: merged, without rows that were deleted, or never committed."""
    with hold_upkeep_lock(Layout.around(folder)):
        sweep_table(DeltaTable(folder))


def sweep_table(table: DeltaTable) -> None:
    """Apply deletion vectors, then remove files that have not been in the table for hours. Under the lock of upkeep."""
    apply_vectors(table, [file for file in table.active() if file.live is not None])
    table.vacuum(KEEP_HOURS)


def apply_vectors(table: DeltaTable, files: Sequence[TableFile]) -> None:
    """Apply deletion vectors, but for those of files that have to stay as they are; those are named once."""
    for file in files:
        try:
            table.apply_vectors([file])
        except VectorNotApplicable as error:
            if (folder := str(table.folder)) not in _REPORTED:
                _REPORTED.add(folder)
                _LOGGER.warning("some files are not merged: %s", error)


def to_merge(files: Sequence[TableFile], target: int = TARGET_BYTES) -> list[list[TableFile]]:
    """The files that become one each, of one kind and day: at most ``target`` bytes, and of sizes that go together."""
    by_folder: dict[str, list[tuple[int, TableFile]]] = {}
    for file in files:
        by_folder.setdefault(file.rpartition("/")[0], []).append((file.size, file))
    found = [group for sized in by_folder.values() for group in _groups(sorted(sized), target)]
    return [group for group in found if len(group) > 1]


def _groups(sized: Sequence[tuple[int, TableFile]], target: int) -> Iterator[list[TableFile]]:
    group, total = list[TableFile](), 0
    for size, name in sized:
        if group and (total + size > target or size > total * MUCH_LARGER):
            yield group
            group, total = [], 0
        group.append(name)
        total += size
    yield group


def _merged(folder: TablePath, names: Sequence[TableFile], form: FileForm) -> WrittenFile:
    """One file of the rows of several. Raises DamagedFile where it is not all of them."""
    rows = sum(count_rows(folder, name) for name in names)
    with FileWriter(folder, *kind_and_day(names[0]), form=form) as writer:
        for batch in _together(folder, names, form.schema):
            writer.write(batch)
        written = writer.close()
        if written.rows != rows:
            raise DamagedFile(f"{folder / written.name} has {written.rows:,} rows, and not {rows:,}")
    return written


def _together(folder: TablePath, names: Sequence[TableFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of files, so many together as are sorted at once."""
    waiting, size = list[pa.RecordBatch](), 0
    for name in names:
        with open_rows(folder, name) as file:
            for batch in file.batches(batch_rows=ROW_GROUP):
                waiting.append(in_current_columns(batch, schema))
                size += batch.nbytes
                if size >= SORTED_BYTES:
                    yield from _joined(waiting)
                    waiting, size = [], 0
    yield from _joined(waiting)


def _joined(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of several batches; as one, where no column is too large for that."""
    if batches:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


@contextmanager
def kept_if_committed(table: DeltaTable) -> Iterator[list[WrittenFile]]:
    """A list of files that are written for a commit: where that fails, they go."""
    written: list[WrittenFile] = []
    try:
        yield written
    except BaseException:
        with suppress(PenstockError, OSError):  # in doubt they stay: the commit may be there, and only not synced
            if isinstance(table.folder, Path):  # a commit that a store was sent may come late
                _remove_but(table.active(), written, table.folder)
        raise


def _remove_but(active: Sequence[str], written: Sequence[WrittenFile], folder: Path) -> None:
    for name in {file.name for file in written} - {*active}:
        (folder / name).unlink(missing_ok=True)
