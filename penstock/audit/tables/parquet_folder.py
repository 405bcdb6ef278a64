"""A folder of Parquet files, or one file, without a history: each file counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.audit.columns import OffsetColumns
from penstock.audit.offset_ranges import Range
from penstock.audit.tables.table import BATCH_ROWS, Loss, OffsetRows, TableUnreadable, dotted_names, offset_rows


class ParquetFolder:
    """All ``*.parquet`` files below a folder, hidden ones and ``_temporary`` folders left out as in Spark."""

    kind = "Parquet"
    version = ""

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.is_file():
            self._files = [path]
        else:
            files = sorted(path.rglob("*.parquet")) if path.is_dir() else []
            self._files = [file for file in files if not _is_hidden(file.relative_to(path))]
        if not self._files:
            raise TableUnreadable(f"{path} has no Parquet files")

    def column_names(self) -> list[str]:
        """Return the columns of the first file, and those in the folders' names."""
        with _open(self._files[0]) as file:
            names = dotted_names(file.schema_arrow)
        parents = self._files[0].relative_to(self._path).parts[:-1] if self._path.is_dir() else ()
        return names + [part.partition("=")[0] for part in parents if "=" in part]

    def rows(self, columns: OffsetColumns, topic: str) -> Iterator[OffsetRows]:
        """Yield the offsets of all files."""
        for path in self._files:
            yield from rows_of_file(path, str(path.relative_to(self._path.parent)), columns, topic)

    def commits_of(self, files: set[str]) -> dict[str, str]:
        """Return nothing: a folder has no commits."""
        return {}

    def losses(self, columns: OffsetColumns, topic: str, partition: int, missing: list[Range]) -> list[Loss]:
        """Return nothing: a folder has no earlier versions."""
        return []

    def orphans(self, columns: OffsetColumns, topic: str, partition: int, missing: list[Range]) -> dict[str, int]:
        """Return nothing: every file belongs to the table."""
        return {}


def rows_of_file(path: Path, name: str, columns: OffsetColumns, topic: str) -> Iterator[OffsetRows]:
    """Yield the offsets of one Parquet file, named ``name`` in the report. Raises TableUnreadable."""
    with _open(path) as file:
        available = set(dotted_names(file.schema_arrow))
        columns_of_file = [column for column in columns.names if column in available]
        try:
            for batch in file.iter_batches(BATCH_ROWS, columns=columns_of_file):
                yield offset_rows(name, batch, columns, topic)
        except (pa.ArrowException, OSError) as error:
            raise TableUnreadable(f"{path} cannot be read: {error}") from None


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise TableUnreadable(f"{path} cannot be read: {error}") from None


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) and "=" not in part for part in path.parts)
