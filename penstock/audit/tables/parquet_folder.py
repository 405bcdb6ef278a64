"""A folder of Parquet files, or one file, without a history: each file counts. On this machine or in an object store.

If no column holds offsets, the files' names may: sinks of object stores put topic, partition and first offset into
them. The rows of such a file are the records from this offset on, see ``FileOffsets``.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from penstock.audit.columns import FILE_NAME, OffsetColumns, stored_columns
from penstock.audit.source import BEYOND, AuditSource
from penstock.audit.tables.address import ICEBERG_METADATA
from penstock.audit.tables.table import (
    BATCH_ROWS,
    AuditedTable,
    Missing,
    OffsetRows,
    Orphan,
    PartitionOffsets,
    Reasons,
    TableUnreadable,
    dotted_names,
    offset_rows,
    translate_errors,
    with_dictionaries,
)
from penstock.landing.offset_runs import Offsets, Runs, as_runs, count_offsets, intersection, offsets_of, runs_of
from penstock.landing.storage.object_path import TablePath, arrow_file_system

SPARK_LOG, COMPACT = "_spark_metadata", ".compact"
SUFFIX = ".parquet"
FOOTER_THREADS = 8
"""Footers read at once: in an object store each is a request of some 20 ms."""
LISTING_THREADS = 8
"""Folders listed at once: in an object store each is a request. Limit: the files of so many folders are in memory."""
SHIFTED = "shifted"
"""Reason of an offset whose row is counted at an earlier offset, which is that of a control record, for example."""
_BATCH_NAME = re.compile(r"\d+(\.compact)?")
_FILE_OFFSETS = re.compile(
    r"(?P<topic>[\w.-]+)(?:\+(?P<partition>\d+)\+(?P<offset>\d+)(?:\+\d+)?|-(?P<number>\d+)-(?P<begin>\d+))(?:\.[a-z]+)+"
)
"""Names of Confluent's sinks (``orders+0+0000000042.parquet``; HDFS adds the last offset) and Aiven's
(``orders-0-42.parquet``).
"""
_OTHER_FORMATS = {
    "an Iceberg table; name its catalog, iceberg://CATALOG/NAMESPACE.TABLE, or its metadata file": re.compile(
        rf"metadata/[^/]*{re.escape(ICEBERG_METADATA)}"
    ),
    "a Hudi table": re.compile(r"\.hoodie/.*"),
    "a Paimon table": re.compile(r"snapshot/snapshot-\d+"),
}
"""Formats whose folders hold files of earlier versions, which would count as doubled rows."""


class NamedFile(NamedTuple):
    """A file with its topic, partition and first offset by its name, and its number of rows."""

    name: str
    topic: str
    partition: int
    begin: int
    rows: int


class FileOffsets(NamedTuple):
    """Offsets that the rows of a file take: those from the first one on.

    A file has no row for offsets without a record, such as control records; then its rows reach farther, up to ``end``
    at most, where the next file begins.
    """

    file: NamedFile
    begin: int
    end: int


class StoredFile(NamedTuple):
    """A Parquet file in a table's folder: ``name`` in the report, ``path`` in ``system``, of Arrow."""

    name: str
    path: str
    system: Any


class ParquetFolder(AuditedTable):
    """All ``*.parquet`` files below a folder, hidden ones and ``_temporary`` folders left out as in Spark.

    In a folder of Spark's streaming file sink, the committed files only.
    """

    kind = "Parquet"

    def __init__(self, path: TablePath) -> None:
        super().__init__()
        self._system, self._root = file_system(path)
        self._name = _last_part(str(path).rstrip("/"))
        with translate_errors(path):
            info = self._system.get_file_info(self._root)
            is_file = info.is_file
            if isinstance(path, Path) and info.type == fs.FileType.NotFound:
                raise TableUnreadable(f"{path} does not exist")
            names = [""] if is_file else names_below(self._system, self._root)
        for kind, pattern in _OTHER_FORMATS.items():
            if any(pattern.fullmatch(name) for name in names):
                raise TableUnreadable(f"{path} is {kind}: its folder also holds files of earlier versions")
        self._uncommitted: list[str] = []
        self._files = [name for name in names if is_file or (name.endswith(SUFFIX) and not _is_hidden(name))]
        committed = _committed_by_spark(self._system, self._root, names)
        if committed is not None:
            self._uncommitted = [name for name in self._files if _last_part(name) not in committed]
            self._files = [name for name in self._files if _last_part(name) in committed]
            self.lost_files = sorted(committed - {_last_part(name) for name in self._files})
        if not self._files:
            raise TableUnreadable(f"{path} has no Parquet files")

    def column_names(self) -> list[str]:
        """Return the columns of all files, those in the folders' names, and offsets in all files' names."""
        names = dict.fromkeys(name for schema, _ in self._footers for name in dotted_names(schema))
        parts = dict.fromkeys(
            part.partition("=")[0] for name in self._files for part in name.split("/")[:-1] if "=" in part
        )
        in_names = FILE_NAME.names if all(_named_offsets(self._display_name(name)) for name in self._files) else []
        return [*names, *(part for part in parts if part not in names), *in_names]

    @cached_property
    def _footers(self) -> list[tuple[pa.Schema, int]]:
        """The schema and the number of rows of each file."""
        with ThreadPoolExecutor(FOOTER_THREADS) as threads:
            return list(threads.map(self._footer, self._files))

    def _footer(self, name: str) -> tuple[pa.Schema, int]:
        path = self._path(name)
        with translate_errors(path), pq.ParquetFile(path, filesystem=self._system) as file:
            return file.schema_arrow, file.metadata.num_rows

    def batches(self, names: Sequence[str], dictionaries: Sequence[str] = ()) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the columns of all files."""
        for name in self._files:
            for batch in batches_of_file(self._path(name), names, dictionaries, self._system):
                yield self._display_name(name), batch

    def rows(self, columns: OffsetColumns, topic: str) -> Iterator[OffsetRows]:
        """Yield the offsets of all rows."""
        if columns != FILE_NAME:
            yield from super().rows(columns, topic)
            return
        if not any(file.topic == topic for file in self._named_files):
            topics = ", ".join(sorted({file.topic for file in self._named_files})[:5])
            raise TableUnreadable(f"{self._root} has files of {topics}, by their names, and none of {topic}")
        for file, begin, _ in self._file_offsets:
            offsets = np.arange(begin, begin + file.rows, dtype=np.int64)
            partition = np.full(file.rows, file.partition, np.int64)
            yield OffsetRows(file.name, offsets, partition, np.full(file.rows, file.topic == topic), 0)

    def explain(self, source: AuditSource, columns: OffsetColumns, missing: Missing) -> Reasons:
        """Return missing offsets that have a row, which was counted at an earlier offset without a record.

        Reads the records of the files that missing offsets follow, and of no others.
        """
        shifted: dict[int, Mapping[str, Runs]] = {}
        if columns != FILE_NAME:
            return shifted
        for partition, ranges in missing.items():
            explained = []
            for file, begin, end in self._file_offsets:
                if file.partition != partition or file.topic != source.topic:
                    continue
                missing_after = offsets_of(intersection(ranges, as_runs([(begin + file.rows, end)])))
                if len(missing_after):
                    recorded = _offsets_with_value(source, partition, begin, int(missing_after[-1]) + 1)
                    explained.append(np.intersect1d(missing_after, recorded[: file.rows]))
            if explained:
                shifted[partition] = {SHIFTED: runs_of(np.unique(np.concatenate(explained)))}
        return shifted

    @cached_property
    def _named_files(self) -> list[NamedFile]:
        """The files by partition and first offset."""
        files = []
        for name, (_, rows) in zip(self._files, self._footers, strict=True):
            topic, partition, begin = _named_offsets(self._display_name(name)) or ("", 0, 0)
            files.append(NamedFile(self._display_name(name), topic, partition, begin, rows))
        return sorted(files, key=lambda file: (file.topic, file.partition, file.begin))

    @cached_property
    def _file_offsets(self) -> list[FileOffsets]:
        """The offsets of each file, by topic and partition."""
        spans: list[FileOffsets] = []
        for file in self._named_files:
            begin = file.begin
            if spans and _partition_of(spans[-1].file) == _partition_of(file):
                previous = spans[-1]
                if _folder(previous.file) != _folder(file):
                    # A sink that sorts records into folders by time writes files whose offsets alternate: the rows of
                    # both together take the offsets of both.
                    begin = max(begin, previous.begin + previous.file.rows)
                spans[-1] = previous._replace(end=max(previous.begin, begin))
            spans.append(FileOffsets(file, begin, BEYOND))
        return spans

    def orphans(self, columns: OffsetColumns, topic: str, missing: Missing) -> list[Orphan]:
        """Return files that Spark wrote and did not commit, and that hold missing rows."""
        files = [StoredFile(self._display_name(name), self._path(name), self._system) for name in self._uncommitted]
        return [orphan for file in files for orphan in orphans_in(file, columns, topic, missing)]

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self._root, name) if part)

    def _display_name(self, name: str) -> str:
        """Return the name of a file in the report: below the folder's own name."""
        return f"{self._name}/{name}".rstrip("/")


def file_system(path: TablePath) -> tuple[Any, str]:
    """Return the file system of a folder, and the folder's name in it."""
    if isinstance(path, Path):
        return fs.LocalFileSystem(), str(path.absolute())
    system, prefix = arrow_file_system(path)
    return system, f"{prefix}{path.name}".rstrip("/")


def names_below(system: Any, root: str, suffix: str = "", limit: int | None = None) -> list[str]:
    """Return the names of the files below a folder, relative to it, sorted; none if there is no folder.

    Parquet files without any bytes are left out, as in Spark: a writer that was killed leaves them. Raises
    TableUnreadable for more than ``limit`` files.
    """
    names: list[str] = []
    for info in _infos_below(system, root, limit is None):
        if info.is_file and info.path.endswith(suffix) and (info.size or not info.path.endswith(SUFFIX)):
            names.append(info.path.removeprefix(root).lstrip("/"))
            if limit is not None and len(names) > limit:
                raise TableUnreadable(f"more than {limit:,} files in {root}")
    return sorted(names)


def _infos_below(system: Any, root: str, at_once: bool) -> Iterator[fs.FileInfo]:
    """Yield the files and folders below a folder.

    ``at_once``: few requests, but the whole listing in memory; otherwise LISTING_THREADS folders at a time.
    """
    if at_once:
        yield from system.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
        return
    folders = deque([root])
    with ThreadPoolExecutor(LISTING_THREADS) as threads:
        while folders:
            listed = [folders.popleft() for _ in range(min(LISTING_THREADS, len(folders)))]
            for infos in threads.map(
                lambda folder: system.get_file_info(fs.FileSelector(folder, allow_not_found=True)), listed
            ):
                folders.extend(info.path for info in infos if info.type == fs.FileType.Directory)
                yield from infos


def _offsets_with_value(source: AuditSource, partition: int, begin: int, end: int) -> Offsets:
    """Return the offsets of records that have a value: a sink writes no row for the others."""
    offsets = [np.empty(0, np.int64)]
    for batch in source.read(partition, as_runs([(begin, end)])):
        has_value = batch.column("value").is_valid().to_numpy(zero_copy_only=False)
        offsets.append(batch.column("offset").to_numpy()[has_value])
    return np.concatenate(offsets)


def _last_part(name: str) -> str:
    return name.rpartition("/")[2]


def _folder(file: NamedFile) -> str:
    return file.name.rpartition("/")[0]


def _partition_of(file: NamedFile) -> tuple[str, int]:
    return file.topic, file.partition


def _named_offsets(name: str) -> tuple[str, int, int] | None:
    """Return topic, partition and first offset in the name of a file; None for other names."""
    match = _FILE_OFFSETS.fullmatch(_last_part(name))
    if match is None:
        return None
    partition, offset = match["partition"] or match["number"], match["offset"] or match["begin"]
    # Limit: an int64; a longer number is not an offset.
    return (match["topic"], int(partition), int(offset)) if max(len(partition), len(offset)) <= 18 else None


def _committed_by_spark(system: Any, root: str, names: Sequence[str]) -> set[str] | None:
    """Return the names of the files that Spark's file sink has committed; None without its log.

    Files of an attempt that ended before its commit stay in the folder; Spark does not read them.
    """
    logged = [name.removeprefix(f"{SPARK_LOG}/") for name in names if name.startswith(f"{SPARK_LOG}/")]
    if not logged:
        return None
    numbered = {name: int(name.removesuffix(COMPACT)) for name in logged if _BATCH_NAME.fullmatch(name)}
    # A compacted file has the entries of all batches before it.
    begin = max((number for name, number in numbered.items() if name.endswith(COMPACT)), default=-1)
    committed: set[str] = set()
    for name in sorted(numbered, key=lambda name: (numbered[name], name)):
        if numbered[name] < begin or (numbered[name] == begin and not name.endswith(COMPACT)):
            continue
        path = f"{root}/{SPARK_LOG}/{name}"
        with translate_errors(path, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            with system.open_input_stream(path) as file:
                _, *entries = file.read().decode().splitlines()
            for entry in map(json.loads, entries):
                file_name = unquote(urlsplit(entry["path"]).path.rpartition("/")[2])
                if entry["action"] == "add":
                    committed.add(file_name)
                else:
                    committed.discard(file_name)
    return committed


def batches_of_file(
    path: str | Path, names: Sequence[str], dictionaries: Sequence[str] = (), system: Any = None
) -> Iterator[pa.RecordBatch]:
    """Yield columns of one Parquet file, as far as it has them. Raises TableUnreadable."""
    with (
        translate_errors(path),
        with_dictionaries(
            lambda columns: pq.ParquetFile(path, read_dictionary=columns, filesystem=system), dictionaries
        ) as file,
    ):
        available = set(dotted_names(file.schema_arrow))
        yield from file.iter_batches(BATCH_ROWS, columns=[name for name in stored_columns(names) if name in available])


def orphans_in(file: StoredFile, columns: OffsetColumns, topic: str, missing: Missing) -> list[Orphan]:
    """Return the missing rows of a file that is not in the table, by partition."""
    held = PartitionOffsets(missing)
    # A writer that was killed leaves torn files.
    with contextlib.suppress(TableUnreadable):
        for batch in batches_of_file(file.path, columns.names, columns.dictionaries, file.system):
            held.add(offset_rows(file.name, batch, columns, topic))
    return [Orphan(file.name, number, count_offsets(ranges)) for number, ranges in held.among(missing).items()]


def _is_hidden(name: str) -> bool:
    return any(part.startswith(("_", ".")) and "=" not in part for part in name.split("/"))
