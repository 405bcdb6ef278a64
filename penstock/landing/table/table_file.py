"""Files of a table, and the only way in which rows of a table are read.

Invariant: a row that a deletion vector marks as deleted never leaves ``open_rows``. Deletion vectors come with the
files that a snapshot lists (``TableReader.active``), so vectors and files are always of one version of the table.
"""

from __future__ import annotations

import itertools
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.landing.storage.bloom_filters import may_contain, xxh64
from penstock.landing.storage.object_path import TablePath
from penstock.landing.storage.parquet_files import parquet_file

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
BATCH_ROWS = 128 << 10
"""Rows of a batch: one row group of our own files."""
_INT96 = "INT96"
_SYSTEM_ERROR = re.compile(r"\bos error \d+\b")
"""The number of the system in an error of delta-rs."""
_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)
_NANOSECOND_RANGE = (datetime(1677, 9, 22, tzinfo=UTC), datetime(2262, 4, 11, tzinfo=UTC))


class TableFile(str):
    """A file's name relative to its table, as one snapshot of the table lists it.

    ``live`` marks the rows that are in the table; None: all of them. ``size`` is in bytes. ``written_rows`` counts
    deleted ones, too; 0: the commit does not say it. ``hour`` (since the epoch) is of the earliest message, or None.
    ``copies`` is how often the snapshot lists the file: more than once after a faulty commit of another program.
    """

    live: Mask | None = None
    size: int = 0
    written_rows: int = 0
    hour: int | None = None
    copies: int = 1

    @classmethod
    def listed(
        cls,
        name: str,
        size: int,
        live: Mask | None = None,
        written_rows: int = 0,
        hour: int | None = None,
        copies: int = 1,
    ) -> Self:
        """Return the file as a snapshot lists it."""
        file = cls(name)
        file.size, file.live, file.written_rows, file.hour, file.copies = size, live, written_rows, hour, copies
        return file

    @property
    def is_plain(self) -> bool:
        """Whether a removal that names no deletion vector removes the file, and all of it."""
        return self.live is None and self.copies == 1

    @property
    def identity(self) -> tuple[str, int]:
        """The name, and a checksum of the deletion vector: both change with the rows."""
        return str(self), 0 if self.live is None else zlib.crc32(np.packbits(self.live).tobytes())


class NewFile(Protocol):
    """A file to commit: ``name`` relative to the table's folder, ``statistics`` in Delta's JSON."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def date(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def statistics(self) -> str: ...


def as_written(names: Iterable[str]) -> list[TableFile]:
    """Return files with all rows that were written into them, including rows that were deleted since.

    For a batch's own rows (its proof, its uuids). Every other reader uses the files that a snapshot lists.
    """
    return [TableFile(name) for name in names]


def _check_rows(read: int, expected: int) -> None:
    # Headers of pages have no checksum: a flipped bit in one may leave a column with fewer rows, which Arrow returns.
    if read != expected:
        raise pa.ArrowInvalid(f"{read:,} of {expected:,} rows can be read")


class RowReader:
    """The rows of one open file, without deleted ones. Close it, or use it in a ``with``."""

    def __init__(self, file: pq.ParquetFile, live: Mask | None, path: Path | None = None) -> None:
        """``path``: of a file in a folder, whose Bloom filters are used."""
        self._file, self._live, self._path = file, live, path
        int96 = {leaf.path for leaf in self._leaves() if leaf.physical_type == _INT96}
        types = {field.name: _table_type(field.type, field.name in int96) for field in file.schema_arrow}
        self._casts = {field.name: types[field.name] for field in file.schema_arrow if types[field.name] != field.type}
        if live is not None and len(live) != file.metadata.num_rows:
            # Delta allows a mask that ends early: rows behind it are live.
            self._live = np.ones(file.metadata.num_rows, bool)
            self._live[: len(live)] = live[: file.metadata.num_rows]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._file.metadata.num_rows if self._live is None else int(self._live.sum())

    @property
    def schema(self) -> pa.Schema:
        """The columns with their types."""
        return pa.schema([(field.name, self._casts.get(field.name, field.type)) for field in self._file.schema_arrow])

    @property
    def footer(self) -> pq.FileMetaData:
        """The file's own metadata."""
        return self._file.metadata

    @property
    def has_table_types(self) -> bool:
        """Whether the file has the table's types: engines that write INT96 times or views of texts change them."""
        return not self._casts

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self._file.schema_arrow.names

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows. Raises ArrowInvalid and OSError for a damaged file, as all readers do."""
        rows = self._file.read(columns=None if columns is None else list(columns))
        _check_rows(rows.num_rows, self._file.metadata.num_rows)
        return self._cast_rows(rows if self._live is None else rows.filter(pa.array(self._live)))

    def batches(self, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, at most ``batch_rows`` at once."""
        start = 0
        for batch in self._file.iter_batches(batch_rows, columns=None if columns is None else list(columns)):
            live = self._live
            yield self._cast_rows(
                batch if live is None else batch.filter(pa.array(live[start : start + batch.num_rows]))
            )
            start += batch.num_rows
        _check_rows(start, self._file.metadata.num_rows)

    def groups(self, column: str = "", values: Sequence[Any] = ()) -> list[int]:
        """Return the numbers of the row groups; with ``column``, of row groups that may have one of the values."""
        numbers = range(self._file.num_row_groups)
        if not column:
            return list(numbers)
        in_bounds = [n for n in numbers if _may_contain(self._file.metadata.row_group(n), column, values)]
        return self._groups_by_bloom_filter(in_bounds, column, values)

    def _groups_by_bloom_filter(self, numbers: Sequence[int], column: str, values: Sequence[Any]) -> list[int]:
        """Return the row groups whose Bloom filter does not exclude all values."""
        index = self._leaf_index(column)
        if self._path is None or index is None or not all(isinstance(value, str) for value in values):
            return list(numbers)
        hashes = [xxh64(value.encode()) for value in values]
        handle = os.open(self._path, os.O_RDONLY)
        try:
            # Fast path: 48 bytes of the file instead of the column of a row group.
            return [number for number in numbers if self._bloom_allows(handle, number, index, hashes)]
        finally:
            os.close(handle)

    def _bloom_allows(self, handle: int, number: int, index: int, hashes: Sequence[int]) -> bool:
        chunk: Any = self._file.metadata.row_group(number).column(index)
        offset, length = chunk.bloom_filter_offset, chunk.bloom_filter_length
        if offset is None or length is None:
            return True
        return any(may_contain(handle, offset, length, hashed) for hashed in hashes)

    def group_spans(self) -> list[tuple[int, int]]:
        """Return for each row group the first index of its rows and the one after its last, among all rows."""
        counts = [self._file.metadata.row_group(number).num_rows for number in range(self._file.num_row_groups)]
        ends = np.cumsum([0, *counts]).tolist()
        if self._live is not None:
            live_before = np.concatenate([[0], np.cumsum(self._live)])
            ends = live_before[ends].tolist()
        return list(itertools.pairwise(ends))

    def read_group(self, number: int, columns: Sequence[str]) -> pa.Table:
        """Return the rows of a row group."""
        rows = self._file.read_row_group(number, columns=list(columns))
        _check_rows(rows.num_rows, self._file.metadata.row_group(number).num_rows)
        if self._live is not None:
            start = sum(self._file.metadata.row_group(before).num_rows for before in range(number))
            rows = rows.filter(pa.array(self._live[start : start + rows.num_rows]))
        return self._cast_rows(rows)

    def bounds(self, column: str) -> tuple[Any, Any] | None:
        """Return the smallest and largest value of a column; None if the file has no rows or only nulls.

        Deleted rows may widen the bounds. A file without statistics, as Spark may write it, is read.
        """
        index = self._leaf_index(column)
        groups = [self._file.metadata.row_group(number) for number in range(self._file.num_row_groups)]
        statistics: list[Any] = [group.column(index).statistics for group in groups] if index is not None else []
        if statistics and all(stats is not None and stats.has_min_max for stats in statistics):
            return min(stats.min for stats in statistics), max(stats.max for stats in statistics)
        extremes: Any = pc.min_max(self.read([column])[column]).as_py()
        return None if extremes["min"] is None else (extremes["min"], extremes["max"])

    def has_values(self, column: str) -> bool:
        """Report by the file's statistics whether a column may have a value other than null."""
        index = self._leaf_index(column)
        for number in range(self._file.num_row_groups if index is not None else 0):
            group = self._file.metadata.row_group(number)
            statistics = group.column(index).statistics  # type: ignore[arg-type]
            if statistics is None or statistics.null_count != group.num_rows:
                return True
        return False

    def _leaf_index(self, column: str) -> int | None:
        """Return the index of a plain column among the leaves of the schema; None for nested columns."""
        return next((index for index, leaf in enumerate(self._leaves()) if leaf.path == column), None)

    def fits_nanoseconds(self) -> bool:
        """Report whether delta-rs can rewrite the file."""
        # Workaround: delta-rs reads INT96 times as nanoseconds; times outside that range would wrap.
        paths = [leaf.path for leaf in self._leaves() if leaf.physical_type == _INT96]
        if not set(paths) <= set(self.columns):
            return False
        for path in paths:
            extremes = self.bounds(path)
            low, high = _NANOSECOND_RANGE
            if extremes is not None and not all(low < moment < high for moment in extremes):
                return False
        return True

    def _leaves(self) -> list[Any]:
        return [self._file.schema.column(index) for index in range(len(self._file.schema))]

    def _cast_rows(self, rows: _Rows) -> _Rows:
        """Return rows with the types of the table: engines write different ones."""
        for name in rows.schema.names if self._casts else ():
            if name in self._casts and not pa.types.is_dictionary(rows.schema.field(name).type):
                index = rows.schema.get_field_index(name)
                rows = rows.set_column(index, name, rows[name].cast(self._casts[name]))
        return rows


def is_about_content(error: Exception) -> bool:
    """Report whether an error of a file is about its content, and not about the disk or the store.

    Workaround: pyarrow raises OSError without a number for content that it cannot read; delta-rs 1.6 raises it for
    errors of the disk, such as a full one, too, with the number in the text.
    """
    return not isinstance(error, OSError) or (error.errno is None and not _SYSTEM_ERROR.search(str(error)))


def is_missing_or_damaged(error: Exception) -> bool:
    """Report whether an error of reading a file is about the file, and not about the disk or the store."""
    return isinstance(error, FileNotFoundError) or is_about_content(error)


def open_rows(table: TablePath, file: TableFile, dictionaries: Sequence[str] = ()) -> RowReader:
    """Open a file of a table; the columns ``dictionaries`` are read as dictionaries.

    Raises FileNotFoundError, ArrowInvalid, OSError; of an object store TablesAway and TablesRefused. Reading raises
    OSError without a number for a page that differs from its checksum.
    """
    # Workaround: Spark writes INT96 times by default, which Arrow reads as nanoseconds: years beyond 2262 do not fit.
    # Pages without a checksum, such as other engines write, are read unverified.
    options: dict[str, Any] = {"coerce_int96_timestamp_unit": "us", "page_checksum_verification": True}
    if dictionaries:
        options["read_dictionary"] = list(dictionaries)
    path = table / file
    return RowReader(parquet_file(path, **options), file.live, path if isinstance(path, Path) else None)


def copy_live_rows(table: TablePath, file: TableFile, folder: Path) -> Path:
    """Return a copy of a file without its deleted rows, below ``folder``; made once for each state of the file.

    For engines that read whole files and know nothing of deletion vectors.
    """
    state = zlib.crc32(repr((str(table), file.identity)).encode())
    copy = folder / f"{state:08x}" / file
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        draft = copy.with_name(f"{copy.name}.{uuid4().hex}")
        with open_rows(table, file) as rows, pq.ParquetWriter(draft, rows.schema, write_page_checksum=True) as writer:
            for batch in rows.batches():
                writer.write_batch(batch)
        # Order: complete before it has its name; two processes may make the same copy.
        draft.rename(copy)
    return copy


def count_rows(table: TablePath, file: TableFile) -> int:
    """Return the number of rows of a file, from its footer."""
    with open_rows(table, file) as rows:
        return rows.rows


def _may_contain(group: pq.RowGroupMetaData, column: str, values: Sequence[Any]) -> bool:
    """Report whether a row group's statistics allow one of the values."""
    for number in range(group.num_columns):
        leaf = group.column(number)
        if leaf.path_in_schema == column:
            statistics = leaf.statistics
            if statistics is None or not statistics.has_min_max:
                return True
            return any(statistics.min <= value <= statistics.max for value in values)
    return True


def _table_type(kind: pa.DataType, is_int96: bool = False) -> pa.DataType:
    """Return the table's type for a column: delta-rs writes views, and Spark times without a zone, which are UTC."""
    if is_int96:
        return pa.timestamp("us", "UTC")
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_binary_view(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    if isinstance(kind, pa.MapType):
        return pa.map_(_table_type(kind.key_type), _table_type(kind.item_type))
    if isinstance(kind, pa.StructType):
        return pa.struct([(field.name, _table_type(field.type)) for field in kind])
    if isinstance(kind, pa.ListType):
        return pa.list_(_table_type(kind.value_type))
    return kind
