"""A folder of Parquet files, or one file, without a history: each file counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from penstock.audit.columns import OffsetColumns
from penstock.audit.tables.table import (
    BATCH_ROWS,
    AuditedTable,
    OffsetRows,
    TableUnreadable,
    dotted_names,
    offset_rows,
    translate_errors,
    with_dictionaries,
)


class ParquetFolder(AuditedTable):
    """All ``*.parquet`` files below a folder, hidden ones and ``_temporary`` folders left out as in Spark."""

    kind = "Parquet"

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
        with translate_errors(self._files[0]), pq.ParquetFile(self._files[0]) as file:
            names = dotted_names(file.schema_arrow)
        parents = self._files[0].relative_to(self._path).parts[:-1] if self._path.is_dir() else ()
        return names + [part.partition("=")[0] for part in parents if "=" in part]

    def rows(self, columns: OffsetColumns, topic: str) -> Iterator[OffsetRows]:
        """Yield the offsets of all files."""
        for path in self._files:
            yield from rows_of_file(path, str(path.relative_to(self._path.parent)), columns, topic)


def rows_of_file(path: Path, name: str, columns: OffsetColumns, topic: str) -> Iterator[OffsetRows]:
    """Yield the offsets of one Parquet file, named ``name`` in the report. Raises TableUnreadable."""
    with (
        translate_errors(path),
        with_dictionaries(lambda names: pq.ParquetFile(path, read_dictionary=names), columns) as file,
    ):
        available = set(dotted_names(file.schema_arrow))
        columns_of_file = [column for column in columns.names if column in available]
        for batch in file.iter_batches(BATCH_ROWS, columns=columns_of_file):
            yield offset_rows(name, batch, columns, topic)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) and "=" not in part for part in path.parts)
