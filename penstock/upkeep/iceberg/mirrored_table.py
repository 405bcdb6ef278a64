"""An Iceberg table over the files of a Delta table: compare the lists of files, and commit the difference.

Invariant: a snapshot has the files of one version of the Delta table, each once. The difference is computed from the
current snapshot, and committed only if that is still the current one, so a commit whose answer was lost, or a process
that was killed, is corrected by the next call.

Files have no field ids, so a name mapping assigns them; partition columns come from the names of folders.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyarrow.parquet import ColumnChunkMetaData, FileMetaData
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, ValidationError
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.partitioning import PartitionField
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from pyiceberg.types import DateType

from penstock.errors import PenstockError
from penstock.landing.mirror_lag import MAX_LAG_S
from penstock.landing.row_sums import RowSums, commit_metadata
from penstock.landing.table.delta_table import KEEP_HOURS, DeltaTable
from penstock.landing.table.table_file import TableFile, open_rows
from penstock.landing.table.table_reader import BatchFiles
from penstock.landing.table_paths import partition_value
from penstock.landing.table_schema import PARTITION_COLUMNS

EXPIRY_INTERVAL_S = 1800.0
SNAPSHOT_HOURS = KEEP_HOURS - (MAX_LAG_S + EXPIRY_INTERVAL_S) / 3600
"""Age at which a replaced snapshot expires: before the files that only it has are removed."""
MAX_SUMS_BYTES = 16 << 10
"""Limit: bytes of ranges and sums in a snapshot's summary: the table's metadata has all summaries. Beyond it, the table
``proofs`` has them.
"""
SOURCE = "penstock-source"
"""Property of a table: the URL of the Delta table that it was made from."""
FIRST_BATCH, BATCH, VERSION, SUMS = "penstock-first-batch", "penstock-batch", "penstock-delta-version", "penstock-sums"
"""Keys of a snapshot's summary."""
NAME_MAPPING = "schema.name-mapping.default"
_PROPERTIES = {
    "format-version": "2",
    # Two manifests a minute would slow readers down.
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
_RETRIES = "commit.retry.num-retries"
_NO_BATCH = -1
_DAMAGE = (
    *(ValueError, LookupError, EOFError, TypeError, AttributeError, ArithmeticError, SystemError),
    *(zlib.error, ValidationError, FileNotFoundError),
)
"""Errors of PyIceberg's parsers of JSON and Avro at damaged bytes; catalogs and stores raise others."""


class NotMirrored(PenstockError, RuntimeError):
    """The Iceberg table cannot have the content of the Delta table; the text says why."""


class ForeignFiles(NotMirrored):
    """Files with types that readers of Iceberg refuse: they are rewritten first. ``names``: relative to the table."""

    def __init__(self, table: str, names: Sequence[str]) -> None:
        super().__init__(f"{table}: {len(names)} files of another program have types that Iceberg does not know")
        self.names = names


@dataclass(frozen=True, slots=True)
class DeltaSnapshot:
    """The files of one version of a Delta table; ``batch`` is the newest in it."""

    table: DeltaTable
    files: Sequence[TableFile]
    version: int
    batch: int

    @property
    def root(self) -> str:
        """The URL of the table's folder."""
        folder = self.table.folder
        return f"file://{folder}" if isinstance(folder, Path) else str(folder)


class MirroredTable:
    """The Iceberg table ``name`` of a catalog; ``location``: folder or URL for its metadata."""

    def __init__(self, catalog: Catalog, name: str, location: str) -> None:
        self._catalog, self._name, self._location = catalog, name, location

    def update(self, source: DeltaSnapshot) -> int:
        """Commit a snapshot with the files of ``source``, unless it is current; return the number of changed files.

        Raises ForeignFiles, NotMirrored, and the errors of PyIceberg and of the catalog, which have no common base.
        """
        if with_vectors := [file for file in source.files if file.live is not None]:
            raise NotMirrored(
                f"{self._name}: {source.table.folder / with_vectors[0]} has a deletion vector that cannot be applied"
            )
        table = self._open(source)
        with self._damage_named():
            current = _data_files(table)
        wanted = {f"{source.root}/{file}": file for file in source.files}
        removed = [file for path, file in current.items() if path not in wanted]
        added = [path for path in wanted if path not in current]
        if added or removed:
            describer = _FileDescriber(table, source)
            files = [describer.describe(path, wanted[path]) for path in added]
            if describer.foreign:
                raise ForeignFiles(self._name, describer.foreign)
            _commit(table, files, removed, _summary(table, source))
        return len(added) + len(removed)

    def expire(self, now_s: float) -> None:
        """Remove snapshots that were replaced hours before ``now_s``, and the metadata files that only they have."""
        with self._damage_named():
            table = self._catalog.load_table(self._name)
            limit_ms = (now_s - SNAPSHOT_HOURS * 3600) * 1000
            history = table.history()
            replaced_at = {old.snapshot_id: new.timestamp_ms for old, new in pairwise(history)}
            referenced = {ref.snapshot_id for ref in table.metadata.refs.values()}
            expired = [
                snapshot
                for snapshot in table.snapshots()
                if snapshot.snapshot_id not in referenced and replaced_at.get(snapshot.snapshot_id, limit_ms) < limit_ms
            ]
            if expired:
                obsolete = _metadata_files(table, expired)
                table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in expired]).commit()
                # Order: after the commit. Crash: files that a crash leaves behind take space, and nothing reads them.
                for path in sorted(obsolete - _metadata_files(table.refresh(), table.snapshots())):
                    with suppress(FileNotFoundError):  # another program may have removed it
                        table.io.delete(path)

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        """Raise NotMirrored for errors of metadata that cannot be parsed, which PyIceberg raises without a name."""
        try:
            yield
        except PenstockError:
            raise
        except _DAMAGE as error:
            text = str(error).partition("\n")[0]
            raise NotMirrored(
                f"the metadata of the Iceberg table {self._name} is damaged ({type(error).__name__}: {text}): drop the "
                "table from the catalog, and it is made again, over the same files"
            ) from None

    def _open(self, source: DeltaSnapshot) -> Table:
        """Return the table, created if missing, with the columns of the Delta table. Raises NotMirrored."""
        table_schema = source.table.schema_now
        try:
            with self._damage_named():
                table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            properties = {**_PROPERTIES, SOURCE: source.root}
            table = self._catalog.create_table_if_not_exists(
                self._name, table_schema, location=self._location, properties=properties
            )
        owner = table.properties.get(SOURCE)
        if owner != source.root:
            # Otherwise the files of somebody else's table would be removed from it.
            raise NotMirrored(
                f"the Iceberg table {self._name} was not made from {source.root}, but from {owner or 'other data'}: "
                "choose another pipeline.iceberg.namespace, or drop the table"
            )
        _evolve(table, table_schema, [name for name in PARTITION_COLUMNS if name in table_schema.names])
        return table


def _evolve(table: Table, table_schema: Any, partitions: Sequence[str]) -> None:
    """Add missing columns, the name mapping and the partitions. Crash: each is done again if it is missing."""
    with table.update_schema() as schema:
        schema.union_by_name(table_schema)
    if table.schema().name_mapping.model_dump_json() != table.properties.get(NAME_MAPPING):
        with table.transaction() as transaction:
            transaction.set_properties({NAME_MAPPING: table.schema().name_mapping.model_dump_json()})
    existing = {field.name for field in table.spec().fields}
    if missing := [name for name in partitions if name not in existing]:
        with table.update_spec() as spec:
            for name in missing:
                spec.add_identity(name)


class _FileDescriber:
    """Describes files of a Delta table as Iceberg's data files, from their footers."""

    def __init__(self, table: Table, source: DeltaSnapshot) -> None:
        self._schema, self._spec, self._properties = table.schema(), table.spec(), table.properties
        self._folder = source.table.folder
        self.foreign: list[str] = []
        """Described files with other types than the table."""

    @cached_property
    def _plan(self) -> Any:
        return compute_statistics_plan(self._schema, self._properties)

    @cached_property
    def _ids(self) -> Mapping[str, int]:
        return parquet_path_to_id_mapping(self._schema)

    def describe(self, path: str, file: TableFile) -> DataFile:
        """Return the data file, with the bounds of its columns."""
        with open_rows(self._folder, file) as rows:
            footer = rows.footer
            if not rows.has_table_types:
                self.foreign.append(file)
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(*(self._partition_value(file, field) for field in self._spec.fields)),
            file_size_in_bytes=file.size,
            spec_id=self._spec.spec_id,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **self._statistics(footer),
        )

    def _statistics(self, footer: FileMetaData) -> dict[str, Any]:
        without_bounds = {"record_count": footer.num_rows}
        columns = {footer.schema.column(number).path for number in range(footer.num_columns)}
        # Files of other programs may name the items of lists otherwise: then they are read by name, without bounds.
        if not (columns <= {*self._ids} and footer.num_row_groups):
            return without_bounds
        try:
            statistics = data_file_statistics_from_parquet_metadata(footer, self._plan, dict(self._ids))
            # Workaround: PyIceberg 0.12 takes the bounds of the other row groups, and readers would miss the text.
            for path in _paths_without_bounds(footer):
                statistics.column_aggregates.pop(self._ids[path], None)
            return statistics.to_serialized_dict()
        except UnicodeEncodeError:
            # Workaround: PyIceberg 0.12 cuts texts after 16 letters, and takes U+D800 for the next one after U+D7FF
            # (apache/iceberg-python#3880): a sender could stop the mirror with one text.
            return without_bounds

    def _partition_value(self, file: TableFile, field: PartitionField) -> Any:
        text = partition_value(file, field.name)
        is_date = isinstance(self._schema.find_type(field.source_id), DateType)
        return (date.fromisoformat(text) - date(1970, 1, 1)).days if is_date else text


def _paths_without_bounds(footer: FileMetaData) -> set[str]:
    """Return the columns that have values without bounds: Parquet has none for a text of more than 4,096 bytes."""
    groups = map(footer.row_group, range(footer.num_row_groups))
    chunks = [group.column(number) for group in groups for number in range(footer.num_columns)]
    return {chunk.path_in_schema for chunk in chunks if not _has_bounds(chunk)}


def _has_bounds(chunk: ColumnChunkMetaData) -> bool:
    statistics: Any = chunk.statistics
    if statistics is None:
        return False
    return bool(statistics.has_min_max or (statistics.has_null_count and statistics.null_count == chunk.num_values))


def _data_files(table: Table) -> dict[str, DataFile]:
    """Return the files of the current snapshot by path."""
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    return {
        entry.data_file.file_path: entry.data_file
        for manifest in manifests
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    }


def _commit(table: Table, added: Sequence[DataFile], removed: Sequence[DataFile], summary: dict[str, str]) -> None:
    # Invariant: a file is never added twice. A repeated attempt would append to whatever snapshot is current then,
    # which may be the delayed commit of a process that was killed; the next call compares again instead.
    table.metadata.properties[_RETRIES] = "0"
    with table.transaction() as transaction:
        update = transaction.update_snapshot(snapshot_properties=summary)
        producer = update.overwrite() if removed else update.merge_append()
        for file in added:
            producer.append_data_file(file)
        for file in removed:
            producer.delete_data_file(file)
        producer.commit()


def _summary(table: Table, source: DeltaSnapshot) -> dict[str, str]:
    """Return the summary of the new snapshot: Delta's version, and the batches that it adds with ranges and sums.

    Crash: the summary is part of the snapshot, so the next one begins at the batch after it.
    """
    snapshot = table.current_snapshot()
    previous = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    through = int(previous.get(BATCH, _NO_BATCH))
    summary = {VERSION: str(source.version), BATCH: str(source.batch)}
    if through < source.batch:
        summary[FIRST_BATCH] = str(through + 1)
        batches = [batch for batch in source.table.batches(through + 1) if batch.batch <= source.batch]
        if sums := _sums(batches):
            summary[SUMS] = sums
    return summary


def _sums(batches: Iterable[BatchFiles]) -> str:
    """Return ranges and sums of batches together, as JSON; "" if a commit has none, or if it is too long."""
    sums, ranges, batch, landed_at = RowSums(), dict[str, list[int]](), _NO_BATCH, 0
    for committed in batches:
        described = committed.description
        if "sums" not in described:
            return ""
        sums.absorb(RowSums.from_document(described["sums"]))
        batch, landed_at = committed.batch, max(landed_at, int(described["landed_at"]))
        for topic, (begin, end) in described["ranges"].items():
            span = ranges.setdefault(topic, [begin, end])
            span[:] = [min(span[0], begin), max(span[1], end)]
    text = json.dumps(commit_metadata(batch, landed_at, ranges, sums), separators=(",", ":")) if batch >= 0 else ""
    return text if len(text) <= MAX_SUMS_BYTES else ""


def _metadata_files(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """Return the manifests and lists of manifests of snapshots."""
    paths = set[str]()
    for snapshot in snapshots:
        paths |= {snapshot.manifest_list, *(manifest.manifest_path for manifest in snapshot.manifests(table.io))}
    return paths
