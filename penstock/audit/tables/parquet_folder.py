"""A folder of Parquet files, or one file, without a history: each file counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.audit.tables.table import (
    BATCH_ROWS,
    AuditedTable,
    TableUnreadable,
    dotted_names,
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

    def batches(self, names: Sequence[str], dictionaries: Sequence[str] = ()) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the columns of all files."""
        for path in self._files:
            for batch in batches_of_file(path, names, dictionaries):
                yield str(path.relative_to(self._path.parent)), batch


def batches_of_file(path: Path, names: Sequence[str], dictionaries: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
    """Yield columns of one Parquet file, as far as it has them. Raises TableUnreadable."""
    with (
        translate_errors(path),
        with_dictionaries(lambda columns: pq.ParquetFile(path, read_dictionary=columns), dictionaries) as file,
    ):
        available = set(dotted_names(file.schema_arrow))
        yield from file.iter_batches(BATCH_ROWS, columns=[name for name in names if name in available])


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) and "=" not in part for part in path.parts)
