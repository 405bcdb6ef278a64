"""A folder of Parquet files, or one file, without a history: each file counts."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.audit.columns import OffsetColumns
from penstock.audit.tables.table import (
    BATCH_ROWS,
    AuditedTable,
    Missing,
    Orphan,
    PartitionOffsets,
    TableUnreadable,
    dotted_names,
    offset_rows,
    translate_errors,
    with_dictionaries,
)
from penstock.landing.offset_runs import count_offsets

SPARK_LOG, COMPACT = "_spark_metadata", ".compact"
_BATCH_NAME = re.compile(r"\d+(\.compact)?")


class ParquetFolder(AuditedTable):
    """All ``*.parquet`` files below a folder, hidden ones and ``_temporary`` folders left out as in Spark.

    In a folder of Spark's streaming file sink, the committed files only.
    """

    kind = "Parquet"

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._uncommitted: list[Path] = []
        if path.is_file():
            self._files = [path]
        else:
            files = sorted(path.rglob("*.parquet")) if path.is_dir() else []
            self._files = [file for file in files if not _is_hidden(file.relative_to(path))]
            committed = _committed_by_spark(path)
            if committed is not None:
                self._uncommitted = [file for file in self._files if file.name not in committed]
                self.lost_files = sorted(committed - {file.name for file in self._files})
                self._files = [file for file in self._files if file.name in committed]
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

    def orphans(self, columns: OffsetColumns, topic: str, missing: Missing) -> list[Orphan]:
        """Return files that Spark wrote and did not commit, and that hold missing rows."""
        orphans = []
        for path in self._uncommitted:
            held = PartitionOffsets(missing)
            name = str(path.relative_to(self._path.parent))
            # A writer that was killed leaves torn files.
            with contextlib.suppress(TableUnreadable):
                for batch in batches_of_file(path, columns.names, columns.dictionaries):
                    held.add(offset_rows(name, batch, columns, topic))
            orphans += [Orphan(name, number, count_offsets(ranges)) for number, ranges in held.among(missing).items()]
        return orphans


def _committed_by_spark(folder: Path) -> set[str] | None:
    """Return the names of the files that Spark's file sink has committed; None without its log.

    Files of an attempt that ended before its commit stay in the folder; Spark does not read them.
    """
    log = folder / SPARK_LOG
    if not log.is_dir():
        return None
    numbered = {
        path: int(path.name.removesuffix(COMPACT)) for path in log.iterdir() if _BATCH_NAME.fullmatch(path.name)
    }
    # A compacted file has the entries of all batches before it.
    begin = max((number for path, number in numbered.items() if path.name.endswith(COMPACT)), default=-1)
    names: set[str] = set()
    for path in sorted(numbered, key=lambda path: (numbered[path], path.name)):
        if numbered[path] < begin or (numbered[path] == begin and not path.name.endswith(COMPACT)):
            continue
        with translate_errors(path, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            _, *entries = path.read_text().splitlines()
            for entry in map(json.loads, entries):
                name = unquote(urlsplit(entry["path"]).path.rpartition("/")[2])
                if entry["action"] == "add":
                    names.add(name)
                else:
                    names.discard(name)
    return names


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
