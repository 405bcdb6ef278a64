"""An Iceberg table at one snapshot, with its history: of a catalog, or of a metadata file.

Position deletes and deletion vectors are applied by PyIceberg's scan. Equality deletes, which it cannot apply, make
the table unreadable here: rows that are deleted would otherwise count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import FileScanTask, StaticTable, Table

from penstock.audit.columns import stored_columns
from penstock.audit.tables.history import MAX_VERSIONS, Version, VersionedFile, VersionedTable
from penstock.audit.tables.table import (
    ICEBERG_METADATA,
    TableUnreadable,
    dotted_names,
    iceberg_metadata,
    translate_errors,
)

_ERRORS = (Exception,)
"""Workaround: PyIceberg's errors have no base class, and a damaged metadata file or manifest raises errors of any type.
Equality deletes raise ValueError.
"""
_METADATA_NUMBER = re.compile(r"v?(\d+)")


@dataclass(frozen=True, slots=True)
class ReferencedFile:
    """A data file as a snapshot lists it; ``reference`` counts repetitions of a file in one snapshot, from 1."""

    name: str
    reference: int
    task: FileScanTask

    @property
    def identity(self) -> Hashable:
        """The reference, and its delete files."""
        return self.name, self.reference, frozenset(file.file_path for file in self.task.delete_files)

    def __str__(self) -> str:
        return self.name if self.reference == 1 else f"{self.name} (reference {self.reference} to this file)"


class IcebergTable(VersionedTable):
    """A snapshot, by default the current one. ``options``: PyIceberg's properties."""

    kind = "Iceberg"

    def __init__(self, address: str, options: Mapping[str, str], version: int | None = None) -> None:
        super().__init__()
        self._address, self._options = address, options
        with translate_errors(address, *_ERRORS):
            self._table = _load(address, options)
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
        references: Counter[str] = Counter()
        files = []
        for task in self._table.scan(snapshot_id=snapshot_id).plan_files():
            references[task.file.file_path] += 1
            files.append(ReferencedFile(task.file.file_path, references[task.file.file_path], task))
        return files

    def newest(self) -> IcebergTable:
        """Open the snapshot that is the current one now; of a metadata file, its own. Raises TableUnreadable."""
        return IcebergTable(self._address, self._options)

    def batches_of(
        self, file: VersionedFile, names: Sequence[str], dictionaries: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns of a file's rows, without deleted ones."""
        referenced = cast("ReferencedFile", file)
        schema = self._table.schema().select(*stored_columns(names))
        with translate_errors(referenced, *_ERRORS):
            scan = ArrowScan(self._table.metadata, self._table.io, schema, AlwaysTrue())
            yield from scan.to_record_batches([referenced.task])

    def versions(self) -> Iterator[Version]:
        """Yield the snapshots from the current one to its ancestors, until one has expired."""
        after, snapshot_id = self._files, self._snapshot_id
        for _ in range(MAX_VERSIONS):
            snapshot = None if snapshot_id is None else self._table.metadata.snapshot_by_id(snapshot_id)
            if snapshot is None:
                return
            parent_id = snapshot.parent_snapshot_id
            if parent_id is not None and self._table.metadata.snapshot_by_id(parent_id) is None:
                return
            with translate_errors(f"snapshot {parent_id}", *_ERRORS):
                before = self._files_of(parent_id)
            yield Version(snapshot.snapshot_id, before, after)
            after, snapshot_id = before, parent_id

    def abandoned_versions(self) -> Iterator[Version]:
        """Yield the snapshots that lead neither to the audited nor to the current one."""
        history = self._history | self._ancestors(self._table.metadata.current_snapshot_id)
        snapshots = [each for each in self._table.metadata.snapshots if each.snapshot_id not in history]
        snapshots.sort(key=lambda snapshot: snapshot.timestamp_ms, reverse=True)
        for snapshot in snapshots[:MAX_VERSIONS]:
            parent_id = snapshot.parent_snapshot_id
            try:
                with translate_errors(f"snapshot {snapshot.snapshot_id}", *_ERRORS):
                    after = self._files_of(snapshot.snapshot_id)
                    # What a snapshot added is not known once its parent has expired; its files are no orphans.
                    is_known = parent_id is None or parent_id in self._parents
                    before = self._files_of(parent_id) if is_known else after
            except TableUnreadable:
                # It decides nothing about the audited snapshot: PyIceberg plans no equality deletes, for example.
                continue
            yield Version(snapshot.snapshot_id, before, after)

    @cached_property
    def _parents(self) -> dict[int, int | None]:
        """The parent of each snapshot that has not expired."""
        return {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in self._table.metadata.snapshots}

    @cached_property
    def _history(self) -> set[int]:
        """The audited snapshot and those before it."""
        return self._ancestors(self._snapshot_id)

    def _ancestors(self, snapshot_id: int | None) -> set[int]:
        """Return a snapshot and those before it; empty if it has expired."""
        ancestors: set[int] = set()
        # Limit: a snapshot is visited once, also if damaged metadata name it as its own ancestor.
        while snapshot_id is not None and snapshot_id in self._parents and snapshot_id not in ancestors:
            ancestors.add(snapshot_id)
            snapshot_id = self._parents[snapshot_id]
        return ancestors

    def describe(self, number: int) -> str:
        """Return a snapshot with its operation, engine and time, and why the audited one does not follow it."""
        if number in self._history:
            return self._describe(number)
        if any(entry.snapshot_id == number for entry in self._table.metadata.snapshot_log):
            return f"the rollback of {self._describe(number)}"
        branches = [
            name for name, ref in self._table.metadata.refs.items() if number in self._ancestors(ref.snapshot_id)
        ]
        return f"the missing publication of {self._describe(number)}" + "".join(f", of {name}" for name in branches)

    def _describe(self, number: int) -> str:
        snapshot: Any = self._table.metadata.snapshot_by_id(number)
        properties = snapshot.summary.additional_properties if snapshot.summary else {}
        operation = snapshot.summary.operation.value if snapshot.summary else "an unknown operation"
        engine = " ".join(filter(None, (properties.get("engine-name"), properties.get("engine-version"))))
        engine = engine or properties.get("iceberg-version") or "an unknown engine"
        moment = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
        return f"snapshot {number}, {operation} by {engine} at {moment:%Y-%m-%d %H:%M:%S} UTC"

    def stored_files(self) -> Iterable[tuple[str, Path]]:
        """Return the Parquet files below the table's location, by name; none of an object store."""
        location = self._table.location()
        if "://" in location.removeprefix("file://"):
            return []
        prefix = "file://" if location.startswith("file://") else ""
        folder = Path(location.removeprefix("file://"))
        return [(f"{prefix}{path}", path) for path in sorted(folder.rglob("*.parquet"))]


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
    numbered: dict[int, list[Path]] = {}
    for path in iceberg_metadata(address):
        if match := _METADATA_NUMBER.match(path.name):
            numbered.setdefault(int(match[1]), []).append(path)
    newest = numbered[max(numbered)] if numbered else []
    if len(newest) != 1:
        # Two writers commit the same number; the catalog knows which of them won.
        raise TableUnreadable(
            f"{address} has {len(newest)} newest metadata files; name the catalog, iceberg://CATALOG/NAMESPACE.TABLE, "
            "or the metadata file"
        )
    return newest[0]
