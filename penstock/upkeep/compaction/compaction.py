"""Merge small files of a Delta table into large ones, clustered by type and host, while readers and the pipeline run.

Invariant: the rows stay the same. Order: new files are synced before the commit that names them. Old files stay for
open readers until no reader can need them any more.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.files.errors import DamagedFile
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.storage.object_path import ObjectPath, TablePath
from penstock.landing.table.delta_table import KEEP_HOURS, DeltaTable, TableChanged, VectorNotApplicable
from penstock.landing.table.features import FeatureNotWritten
from penstock.landing.table.table_file import TableFile, count_rows, is_about_content, open_rows
from penstock.landing.table_paths import Layout, kind_and_day
from penstock.landing.table_schema import FileForm
from penstock.landing.typed.typed_delta import existing_typed_tables
from penstock.landing.writing.written_file import (
    ROW_GROUP,
    FileWriter,
    WrittenFile,
    copy_rows,
    in_current_columns,
)

TARGET_FILE_BYTES = 128 << 20
MAX_FILE_ROWS = 16 * ROW_GROUP
"""Limit: a deletion of one row copies its file, which takes 1.7 us of a core for each row."""
SORT_BUFFER_BYTES = 128 << 20
"""Limit: bytes of rows that are sorted in memory at once."""
HOURS_PER_DAY = 24
"""Files of the target's size from which a day is large: then each hour fills a file of its own."""
CLUSTER_COLUMNS = ("type", "host")
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
    if with_vectors := [file for group in group_files(listed()) for file in group if not file.is_plain]:
        apply_vectors(table, with_vectors)
    removed = added = 0
    for names in group_files([file for file in listed() if file.is_plain]):
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
    apply_vectors(table, [file for file in table.active() if not file.is_plain])
    table.vacuum(KEEP_HOURS)


def apply_vectors(table: DeltaTable, files: Sequence[TableFile]) -> None:
    """Apply deletion vectors where possible; log once per table which files have to keep theirs."""
    for file in files:
        try:
            apply_vector(table, file)
        except (VectorNotApplicable, FeatureNotWritten) as error:
            if (folder := str(table.folder)) not in _REPORTED_TABLES:
                _REPORTED_TABLES.add(folder)
                _LOGGER.warning("some files are not merged: %s", error)


def apply_vector(table: DeltaTable, file: TableFile) -> None:
    """Rewrite a file that has a deletion vector, or is listed several times, with its live rows.

    Requires the lock of upkeep. Raises VectorNotApplicable, FeatureNotWritten, TableChanged.
    """
    if file.copies > 1 and isinstance(table.folder, ObjectPath):
        table.remove_bare_entry(file)
        listed = next((listed for listed in table.active() if listed == file), None)
        if listed is None:
            raise TableChanged(f"{table.folder}: another program removed {file}")
        file = listed
    # delta-rs applies a vector by an update that changes nothing, which a change data feed would show.
    is_at_url = isinstance(table.folder, ObjectPath)
    is_updatable = is_at_url or (not table.has_change_feed and _fits_nanoseconds(table.folder, file))
    if file.copies == 1 and is_updatable:
        table.apply_vectors([file])
        return
    # delta-rs would read an entry without its vector: deleted rows would be there again for everybody.
    with removed_on_failure(table) as written:
        try:
            if count_rows(table.folder, file):
                written.append(copy_rows(table.folder, file, form=table.form))
        except (pa.ArrowInvalid, OSError, ValueError) as error:
            if isinstance(error, OSError) and not is_about_content(error):
                raise
            raise VectorNotApplicable(f"{table.folder / file} cannot be rewritten: {error}") from None
        table.replace_entries(file, written)
    if file.copies > 1:
        _LOGGER.warning(
            "%s was in the table %d times, because another program removed or added it without its deletion vector: "
            "it is rewritten with its remaining rows",
            table.folder / file,
            file.copies,
        )


def repair_entries(layout: Layout) -> int:
    """Rewrite the files that a table lists several times; return their number. The pipeline and readers may run."""
    repaired = 0
    with hold_upkeep_lock(layout):
        for table in [DeltaTable(layout.landed), *existing_typed_tables(layout)]:
            repeated = [file for file in table.active() if file.copies > 1]
            apply_vectors(table, repeated)
            repaired += len({*repeated} - {file for file in table.active() if file.copies > 1})
    return repaired


def _fits_nanoseconds(folder: TablePath, file: TableFile) -> bool:
    with open_rows(folder, file) as rows:
        return rows.fits_nanoseconds()


def group_files(files: Sequence[TableFile], target: int = TARGET_FILE_BYTES) -> list[list[TableFile]]:
    """Group files of one kind and day that become one file of limited bytes and rows, of similar sizes.

    On a large day, files of different hours stay apart, so that a reader of an hour skips the others by their times.
    """
    day_bytes = Counter[str]()
    for file in files:
        day_bytes[_folder(file)] += file.size
    parts: dict[tuple[str, int | None], list[TableFile]] = {}
    for file in files:
        is_large = day_bytes[_folder(file)] > HOURS_PER_DAY * target
        parts.setdefault((_folder(file), file.hour if is_large else None), []).append(file)
    groups = [group for part in parts.values() for group in _groups(sorted(part, key=_by_size), target)]
    return [group for group in groups if len(group) > 1]


def _folder(file: TableFile) -> str:
    return file.rpartition("/")[0]


def _by_size(file: TableFile) -> tuple[int, str]:
    return file.size, file


def _groups(sized: Sequence[TableFile], target: int) -> Iterator[list[TableFile]]:
    group, size, rows = list[TableFile](), 0, 0
    for file in sized:
        is_full = size + file.size > target or rows + file.written_rows > MAX_FILE_ROWS
        if group and (is_full or file.size > size * MAX_SIZE_RATIO):
            yield group
            group, size, rows = [], 0, 0
        group.append(file)
        size, rows = size + file.size, rows + file.written_rows
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
        yield from map(_clustered, pa.Table.from_batches(batches).combine_chunks().to_batches())


def _clustered(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows by type, host and then as before: a search reads few row groups, and like texts compress well."""
    key = np.zeros(rows.num_rows, np.int64)
    for name in CLUSTER_COLUMNS:
        texts: Any = rows[name].dictionary_encode()
        # Order: null last, as in a sort.
        ranks = np.append(pc.rank(texts.dictionary).to_numpy(), len(texts.dictionary) + 1).astype(np.int64)
        codes = pc.fill_null(texts.indices, pa.scalar(len(texts.dictionary), texts.indices.type)).to_numpy()
        key = key * len(ranks) + ranks[codes] - 1
    if (np.diff(key) >= 0).all():
        return rows
    return rows.take(pa.array(np.argsort(key, kind="stable"), pa.int64()))


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
