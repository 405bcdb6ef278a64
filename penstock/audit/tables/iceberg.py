"""An Iceberg table at one snapshot, with its history: of a catalog, or of a metadata file.

``iceberg_scan`` lists and reads the files of a snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import StaticTable, Table

from penstock.audit.columns import stored_columns
from penstock.audit.tables.history import (
    MAX_STORED_FILES,
    MAX_VERSIONS,
    Version,
    VersionedFile,
    VersionedTable,
)
from penstock.audit.tables.iceberg_scan import IcebergScan, ReferencedFile
from penstock.audit.tables.parquet_folder import SUFFIX, StoredFile, names_below
from penstock.audit.tables.snapshot_graph import SnapshotGraph
from penstock.audit.tables.table import (
    ICEBERG_METADATA,
    TableUnreadable,
    dotted_names,
    iceberg_metadata,
    translate_errors,
)

_ERRORS = (Exception,)
"""Workaround: PyIceberg's errors have no base class, and a damaged metadata file or manifest raises errors of any type.
"""
_METADATA_NUMBER = re.compile(r"v?(\d+)")
PathType = TypeVar("PathType", bound=PurePath)


class IcebergTable(VersionedTable):
    """A snapshot, by default the current one. ``options``: PyIceberg's properties."""

    kind = "Iceberg"

    def __init__(self, address: str, options: Mapping[str, str], version: int | None = None) -> None:
        super().__init__()
        self._address, self._options = address, options
        with translate_errors(address, *_ERRORS):
            self._table = _load(address, options)
            self._scan = IcebergScan(self._table)
            snapshot = self._table.current_snapshot()
            self._snapshot_id = version or (snapshot.snapshot_id if snapshot else None)
            self._files = self._files_of(self._snapshot_id)
        self.version = str(self._snapshot_id or "")

    def column_names(self) -> list[str]:
        """Return the columns of the table."""
        return dotted_names(schema_to_pyarrow(self._table.schema()))

    def files(self) -> Iterable[VersionedFile]:
        """Return the files of the audited snapshot."""
        return self._files

    def _files_of(self, snapshot_id: int | None) -> list[ReferencedFile]:
        if snapshot_id is None:
            return []
        snapshot = self._table.snapshot_by_id(snapshot_id)
        if snapshot is None:
            raise TableUnreadable(f"snapshot {snapshot_id} does not exist")
        return self._scan.files_of(snapshot)

    def newest(self) -> IcebergTable:
        """Open the snapshot that is the current one now; of a metadata file, its own. Raises TableUnreadable."""
        return IcebergTable(self._address, self._options)

    def batches_of(
        self, file: VersionedFile, names: Sequence[str], dictionaries: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns of a file's rows, without deleted ones."""
        referenced = cast("ReferencedFile", file)
        with translate_errors(referenced, *_ERRORS):
            yield from self._scan.batches_of(referenced, stored_columns(names))

    def without_deletes(self, file: VersionedFile) -> VersionedFile:
        """Return a file with its deleted rows."""
        return cast("ReferencedFile", file).without_deletes()

    def versions(self) -> Iterator[Version]:
        """Yield the snapshots from the current one to its ancestors, until one has expired or cannot be planned."""
        after = self._files
        for snapshot_id in self._graph.history[:MAX_VERSIONS]:
            parent_id = self._graph.snapshots[snapshot_id].parent_snapshot_id
            if parent_id is not None and parent_id not in self._graph.snapshots:
                return
            try:
                with translate_errors(f"snapshot {parent_id}", *_ERRORS):
                    before = self._files_of(parent_id)
            except TableUnreadable as error:
                self._miss(error)
                return
            yield Version(snapshot_id, before, after)
            after = before

    def abandoned_versions(self) -> Iterator[Version]:
        """Yield the snapshots that lead neither to the audited nor to the current one."""
        for snapshot in self._graph.abandoned()[:MAX_VERSIONS]:
            parent_id = snapshot.parent_snapshot_id
            try:
                with translate_errors(f"snapshot {snapshot.snapshot_id}", *_ERRORS):
                    after = self._files_of(snapshot.snapshot_id)
                    # What a snapshot added is not known once its parent has expired.
                    is_known = parent_id is None or parent_id in self._graph.snapshots
                    before = self._files_of(parent_id) if is_known else after
            except TableUnreadable as error:
                # It decides nothing about the audited snapshot.
                self._miss(error)
                continue
            yield Version(snapshot.snapshot_id, before, after)

    def _miss(self, error: TableUnreadable) -> None:
        if str(error) not in self.unsearched:
            self.unsearched.append(str(error))

    @cached_property
    def _graph(self) -> SnapshotGraph:
        return SnapshotGraph(self._table.metadata, self._snapshot_id)

    def describe(self, number: int) -> str:
        """Return a snapshot with its operation, engine and time, and why the audited one does not follow it."""
        return self._graph.describe(number)

    def stored_files(self) -> Iterable[StoredFile]:
        """Return the Parquet files below the table's location."""
        location = self._table.location().rstrip("/")
        with translate_errors(location, *_ERRORS):
            system, root = self._folder_of(location)
            return [
                StoredFile(self._stored_name(f"{root}/{name}"), f"{root}/{name}", system)
                for name in names_below(system, root, SUFFIX, MAX_STORED_FILES)
            ]

    def referenced_files(self) -> set[str]:
        """Return the files of all snapshots that have not expired, and of those committed since the audited one.

        The manifests name them, also where PyIceberg plans no scan. Raises TableUnreadable.
        """
        referenced: set[str] = set()
        manifests: set[str] = set()
        newest = self._newest_table()
        # Fast path: both tables have most snapshots, and snapshots share manifests.
        snapshots = {
            snapshot.snapshot_id: snapshot for table in (self._table, newest) for snapshot in table.metadata.snapshots
        }
        if len(snapshots) > MAX_VERSIONS:
            # Limit: the list of a snapshot has the manifests of all before it, so the time is quadratic.
            raise TableUnreadable(f"more than {MAX_VERSIONS:,} snapshots")
        with translate_errors(self._address, *_ERRORS):
            for snapshot in snapshots.values():
                for manifest in snapshot.manifests(newest.io):
                    if manifest.manifest_path not in manifests:
                        manifests.add(manifest.manifest_path)
                        entries = manifest.fetch_manifest_entry(newest.io)
                        referenced.update(self._stored_name(self._path(entry.data_file)) for entry in entries)
        return referenced

    def _newest_table(self) -> Table:
        """Load the newest metadata, also if a metadata file was named that others follow. Raises TableUnreadable.

        Unlike ``newest`` it plans no snapshot.
        """
        with translate_errors(self._address, *_ERRORS):
            newest = _load(self._address, self._options)
            if not self._address.endswith(ICEBERG_METADATA):
                return newest
            folder, _, name = newest.metadata_location.rpartition("/")
            system, root = self._folder_of(folder)
            latest = _latest(PurePath(path) for path in names_below(system, root, ICEBERG_METADATA, MAX_STORED_FILES))
            # Two writers may have written the same number, a lost attempt and a commit: only a catalog knows which.
            if len(latest) == 1 and latest[0].name != name:
                newest = StaticTable.from_metadata(f"{folder}/{latest[0]}", dict(self._options))
            if len(latest) != 1 or newest.metadata.table_uuid != self._table.metadata.table_uuid:
                raise TableUnreadable(f"the newest metadata file in {folder} is not certain; name the catalog")
            return newest

    def _folder_of(self, location: str) -> tuple[Any, str]:
        """Return the file system of a location, and its path there. Raises TableUnreadable."""
        io = self._table.io
        if not isinstance(io, PyArrowFileIO):
            raise TableUnreadable(f"{location} cannot be listed with {type(io).__name__}; set py-io-impl to PyArrow's")
        scheme, host, root = io.parse_location(location, io.properties)
        return io.fs_by_scheme(scheme, host), root

    def _path(self, file: DataFile) -> str:
        """Return a file's path in its file system: writers name one folder by several schemes, as s3 and s3a."""
        return PyArrowFileIO.parse_location(file.file_path, self._table.io.properties)[2]

    def _stored_name(self, path: str) -> str:
        """Return the name in the report of a path in the table's file system."""
        location = self._table.location().rstrip("/")
        return location.removesuffix(PyArrowFileIO.parse_location(location, self._table.io.properties)[2]) + path


def _load(address: str, options: Mapping[str, str]) -> Table:
    if address.startswith("iceberg://"):
        parts = urlsplit(address)
        # Properties of the catalog that are not options come from PyIceberg's configuration file and environment.
        return load_catalog(unquote(parts.netloc), **options).load_table(unquote(parts.path.strip("/")))
    if not address.endswith(ICEBERG_METADATA):
        address = str(_newest_metadata(address))
    return cast("Table", StaticTable.from_metadata(address, dict(options)))


def _newest_metadata(address: str) -> Path:
    """Return the newest metadata file of a local folder. Raises TableUnreadable."""
    newest = _latest(iceberg_metadata(address))
    if len(newest) != 1:
        # Two writers commit the same number; the catalog knows which of them won.
        raise TableUnreadable(
            f"{address} has {len(newest)} newest metadata files; name the catalog, iceberg://CATALOG/NAMESPACE.TABLE, "
            "or the metadata file"
        )
    return newest[0]


def _latest(paths: Iterable[PathType]) -> list[PathType]:
    """Return the metadata files with the highest number."""
    numbered: dict[int, list[PathType]] = {}
    for path in paths:
        if match := _METADATA_NUMBER.match(path.name):
            numbered.setdefault(int(match[1]), []).append(path)
    return numbered[max(numbered)] if numbered else []
