"""Small files of a Delta table merged into large ones, their rows by type, while readers and the pipeline go on.

It changes no data: the rows stay, under other files, which are on the disk before the commit that names them. The old
ones stay for readers that are at them, until they are removed as nobody can need them any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.files.errors import DamagedFile
from penstock.landing.landing_lock import alone_at_upkeep
from penstock.landing.storage.object_path import TablePath
from penstock.landing.storage.parquet_files import parquet_file, read_metadata
from penstock.landing.table.delta_table import KEEP_HOURS, DeltaTable
from penstock.landing.table_paths import Layout, place_of
from penstock.landing.writing.written_file import (
    OF_LANDED,
    ROW_GROUP,
    FileForm,
    FileWriter,
    WrittenFile,
    in_columns_of_today,
)

TARGET_BYTES = 128 << 20
SORTED_BYTES = 128 << 20
"""Rows in memory that are sorted at once."""
MUCH_LARGER = 2
"""Times all that is smaller: such a file is left alone until there is more, so that its rows are not copied often."""


def compact_table(folder: TablePath) -> tuple[int, int]:
    """Merge the small files of a table; return how many files became how many."""
    with alone_at_upkeep(Layout.around(folder)):
        table = DeltaTable(folder)
        return merge(table, table.sizes())


def merge(table: DeltaTable, sizes: Mapping[str, int], form: FileForm = OF_LANDED) -> tuple[int, int]:
    """Merge what is small among the files of a table; how many files became how many. Under the lock of upkeep."""
    removed = added = 0
    for names in to_merge(sizes):
        with kept_if_committed(table) as written:
            written.append(_merged(table.folder, names, form))
            table.replace(names, written)
        removed, added = removed + len(names), added + 1
    return removed, added


def remove_old_files(folder: TablePath) -> None:
    """Remove what has not been in the table for hours: merged, without rows that were deleted, or never committed."""
    with alone_at_upkeep(Layout.around(folder)):
        DeltaTable(folder).vacuum(KEEP_HOURS)


def to_merge(sizes: Mapping[str, int], target: int = TARGET_BYTES) -> list[list[str]]:
    """The files that become one each, of one kind and day: at most ``target`` bytes, and of sizes that go together."""
    by_folder: dict[str, list[tuple[int, str]]] = {}
    for name, size in sizes.items():
        by_folder.setdefault(name.rpartition("/")[0], []).append((size, name))
    found = [group for files in by_folder.values() for group in _groups(sorted(files), target)]
    return [group for group in found if len(group) > 1]


def _groups(files: Sequence[tuple[int, str]], target: int) -> Iterator[list[str]]:
    group, total = list[str](), 0
    for size, name in files:
        if group and (total + size > target or size > total * MUCH_LARGER):
            yield group
            group, total = [], 0
        group.append(name)
        total += size
    yield group


def _merged(folder: TablePath, names: Sequence[str], form: FileForm) -> WrittenFile:
    """One file of the rows of several. Raises DamagedFile where it is not all of them."""
    rows = sum(read_metadata(folder / name).num_rows for name in names)
    with FileWriter(folder, *place_of(names[0]), form=form) as writer:
        for batch in _together(folder, names, form.schema):
            writer.write(batch)
        written = writer.close()
        if written.rows != rows:
            raise DamagedFile(f"{folder / written.name} has {written.rows:,} rows, and not {rows:,}")
    return written


def _together(folder: TablePath, names: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of files, so many together as are sorted at once."""
    waiting, size = list[pa.RecordBatch](), 0
    for name in names:
        with parquet_file(folder / name) as file:
            for batch in file.iter_batches(ROW_GROUP):
                waiting.append(in_columns_of_today(batch, schema))
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
