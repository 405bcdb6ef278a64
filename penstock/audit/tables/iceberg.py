"""An Iceberg table at one snapshot, with its history: of a catalog, or of a metadata file.

``iceberg_scan`` lists and reads the files of a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import cast

import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.manifest import DataFile

from penstock.audit.columns import stored_columns
from penstock.audit.tables.history import (
    MAX_STORED_FILES,
    MAX_VERSIONS,
    Version,
    VersionedFile,
    VersionedTable,
)
from penstock.audit.tables.iceberg_location import PYICEBERG_ERRORS, folder_of, load_newest, load_table
from penstock.audit.tables.iceberg_scan import IcebergScan, ReferencedFile
from penstock.audit.tables.parquet_folder import SUFFIX, StoredFile, names_below
from penstock.audit.tables.snapshot_graph import SnapshotGraph
from penstock.audit.tables.table import TableUnreadable, dotted_names, translate_errors


class IcebergTable(VersionedTable):
    """A snapshot, by default the current one. ``options``: PyIceberg's properties."""

    kind = "Iceberg"

    def __init__(self, address: str, options: Mapping[str, str], version: int | None = None) -> None:
        super().__init__()
        self._address, self._options = address, options
        with translate_errors(address, *PYICEBERG_ERRORS):
            self._table = load_table(address, options)
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
        with translate_errors(referenced, *PYICEBERG_ERRORS):
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
                with translate_errors(f"snapshot {parent_id}", *PYICEBERG_ERRORS):
                    before = self._files_of(parent_id)
            except TableUnreadable as error:
                self.note_unsearched(str(error))
                return
            yield Version(snapshot_id, before, after)
            after = before
        if len(self._graph.history) > MAX_VERSIONS:
            self.note_unsearched(f"snapshots before {snapshot_id}: the search ends after {MAX_VERSIONS:,}")

    def abandoned_versions(self) -> Iterator[Version]:
        """Yield the snapshots that lead neither to the audited nor to the current one."""
        for snapshot in self._graph.abandoned()[:MAX_VERSIONS]:
            parent_id = snapshot.parent_snapshot_id
            try:
                with translate_errors(f"snapshot {snapshot.snapshot_id}", *PYICEBERG_ERRORS):
                    after = self._files_of(snapshot.snapshot_id)
                    # What a snapshot added is not known once its parent has expired.
                    is_known = parent_id is None or parent_id in self._graph.snapshots
                    before = self._files_of(parent_id) if is_known else after
            except TableUnreadable as error:
                # It decides nothing about the audited snapshot.
                self.note_unsearched(str(error))
                continue
            yield Version(snapshot.snapshot_id, before, after)

    @cached_property
    def _graph(self) -> SnapshotGraph:
        return SnapshotGraph(self._table.metadata, self._snapshot_id)

    def describe(self, number: int) -> str:
        """Return a snapshot with its operation, engine and time, and why the audited one does not follow it."""
        return self._graph.describe(number)

    def stored_files(self) -> Iterable[StoredFile]:
        """Return the Parquet files below the table's location."""
        location = self._table.location().rstrip("/")
        with translate_errors(location, *PYICEBERG_ERRORS):
            system, root = folder_of(self._table.io, location)
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
        newest = load_newest(self._address, self._options, self._table)
        # Fast path: both tables have most snapshots, and snapshots share manifests.
        snapshots = {
            snapshot.snapshot_id: snapshot for table in (self._table, newest) for snapshot in table.metadata.snapshots
        }
        if len(snapshots) > MAX_VERSIONS:
            # Limit: the list of a snapshot has the manifests of all before it, so the time is quadratic.
            raise TableUnreadable(f"more than {MAX_VERSIONS:,} snapshots")
        with translate_errors(self._address, *PYICEBERG_ERRORS):
            for snapshot in snapshots.values():
                for manifest in snapshot.manifests(newest.io):
                    if manifest.manifest_path not in manifests:
                        manifests.add(manifest.manifest_path)
                        entries = manifest.fetch_manifest_entry(newest.io)
                        referenced.update(self._stored_name(self._path(entry.data_file)) for entry in entries)
        return referenced

    def _path(self, file: DataFile) -> str:
        """Return a file's path in its file system: writers name one folder by several schemes, as s3 and s3a."""
        return PyArrowFileIO.parse_location(file.file_path, self._table.io.properties)[2]

    def _stored_name(self, path: str) -> str:
        """Return the name in the report of a path in the table's file system."""
        location = self._table.location().rstrip("/")
        return location.removesuffix(PyArrowFileIO.parse_location(location, self._table.io.properties)[2]) + path
