"""The files of an Iceberg snapshot and their rows, without deleted ones.

PyIceberg plans the files and applies position deletes and deletion vectors. Equality deletes, which it refuses, are
kept out of its plan and applied here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, ManifestGroupPlanner, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import NestedField

from penstock.audit.tables.equality_deletes import Columns, DeleteFile, EqualityDeletes, KeysInMemory
from penstock.audit.tables.history import reference_text
from penstock.audit.tables.iceberg_location import PYICEBERG_ERRORS
from penstock.audit.tables.table import FileIsGone, TableUnreadable, column_of, translate_errors

_Scope = tuple[int, Any] | None
"""The id of a partition spec and the contents of a partition; None for deletes in all partitions."""


@dataclass(frozen=True, slots=True)
class ReferencedFile:
    """A data file as a snapshot lists it; ``reference`` counts repetitions of a file in one snapshot, from 1."""

    name: str
    reference: int
    task: FileScanTask
    sequence_number: int
    equality_deletes: tuple[EqualityDeletes, ...] = ()

    @property
    def identity(self) -> Hashable:
        """The reference, and its delete files."""
        deletes = tuple(deletes.identity_for(self.sequence_number) for deletes in self.equality_deletes)
        return self.name, self.reference, frozenset(file.file_path for file in self.task.delete_files), deletes

    def __str__(self) -> str:
        return reference_text(self.name, self.reference)

    def without_deletes(self) -> ReferencedFile:
        """Return the file with its deleted rows."""
        if not self.task.delete_files and not self.equality_deletes:
            return self
        task = FileScanTask(self.task.file, delete_files=set(), residual=self.task.residual)
        return replace(self, task=task, equality_deletes=())


class IcebergScan:
    """The files of a table's snapshots. Methods raise errors of PyIceberg of any type."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._keys = KeysInMemory()

    def files_of(self, snapshot: Snapshot) -> list[ReferencedFile]:
        """Return the data files of a snapshot with their deletes."""
        sequence_numbers: list[int] = []
        deletes: defaultdict[tuple[_Scope, tuple[int, ...]], list[DeleteFile]] = defaultdict(list)

        def is_planned(entry: ManifestEntry) -> bool:
            file, number = entry.data_file, entry.sequence_number or 0
            if file.content == DataFileContent.EQUALITY_DELETES:
                deletes[self._scope(file), tuple(file.equality_ids or ())].append(DeleteFile(number, file))
                return False
            if file.content == DataFileContent.DATA:
                sequence_numbers.append(number)
            return True

        # Order: the planner calls is_planned for one entry after the other, and returns the data files in this order.
        planner = ManifestGroupPlanner(self._table.metadata, self._table.io)
        tasks = list(planner.plan_files(snapshot.manifests(self._table.io), is_planned))
        scopes: defaultdict[_Scope, list[EqualityDeletes]] = defaultdict(list)
        for (scope, field_ids), files in deletes.items():
            if not field_ids:
                raise TableUnreadable(f"{files[0].file.file_path} does not name the columns of its equality deletes")
            scopes[scope].append(EqualityDeletes(field_ids, files, self._keys_of))
        references: Counter[str] = Counter()
        referenced = []
        for task, number in zip(tasks, sequence_numbers, strict=True):
            references[task.file.file_path] += 1
            candidates = [*scopes.get(None, ()), *scopes.get(self._partition(task.file), ())]
            applied = tuple(each for each in candidates if each.identity_for(number))
            referenced.append(
                ReferencedFile(task.file.file_path, references[task.file.file_path], task, number, applied)
            )
        # Fast path: the keys of deletes are read once, if all files that they apply to are read one after the other.
        order: dict[tuple[EqualityDeletes, ...], int] = {}
        return sorted(referenced, key=lambda file: order.setdefault(file.equality_deletes, len(order)))

    def batches_of(self, file: ReferencedFile, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield columns of a file's rows, without deleted ones."""
        selected = self._table.schema().select(*names)
        field_ids = {field_id for deletes in file.equality_deletes for field_id in deletes.field_ids}
        schema = self._schema_with(names, field_ids)
        for batch in self._read_data(file.task, schema):
            rows = batch
            for deletes, keys in zip(file.equality_deletes, self._keys.load_keys(file.equality_deletes), strict=True):
                columns = _columns(rows, schema, deletes.field_ids)
                rows = rows.filter(keys.keep_mask(columns, file.sequence_number))
            yield rows.select([field.name for field in selected.fields])

    def _partition(self, file: DataFile) -> _Scope:
        return file.spec_id or 0, file.partition

    def _scope(self, file: DataFile) -> _Scope:
        """Return the partition in which a delete file deletes rows."""
        fields = self._table.specs()[file.spec_id or 0].fields
        is_global = all(isinstance(field.transform, VoidTransform) for field in fields)
        return None if is_global else self._partition(file)

    def _keys_of(self, file: DataFile, field_ids: tuple[int, ...]) -> Iterator[Columns]:
        schema = self._schema_with((), set(field_ids))
        try:
            with translate_errors(f"the delete file {file.file_path}", *PYICEBERG_ERRORS):
                for batch in self._read(FileScanTask(file, delete_files=set()), schema):
                    yield _columns(batch, schema, field_ids)
        except FileIsGone as error:
            # The file whose rows it deletes is not lost.
            raise TableUnreadable(str(error)) from None

    def _read_data(self, task: FileScanTask, schema: Schema) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._read(task, schema)
        except FileNotFoundError:
            # PyIceberg reads the position deletes first.
            gone = [deletes for deletes in task.delete_files if not self._exists(deletes)]
            if gone and self._exists(task.file):
                raise TableUnreadable(f"the delete file {gone[0].file_path} does not exist") from None
            raise

    def _exists(self, file: DataFile) -> bool:
        return self._table.io.new_input(file.file_path).exists()

    def _read(self, task: FileScanTask, schema: Schema) -> Iterator[pa.RecordBatch]:
        scan = ArrowScan(self._table.metadata, self._table.io, schema, AlwaysTrue())
        return scan.to_record_batches([task])

    def _schema_with(self, names: Sequence[str], field_ids: set[int]) -> Schema:
        """Return the columns ``names`` and the columns of equality deletes, which may have been dropped since."""
        current = self._table.schema()
        present = {field_id: current.find_column_name(field_id) for field_id in sorted(field_ids)}
        selected = current.select(*{*names, *(name for name in present.values() if name)})
        dropped = [self._dropped_field(field_id) for field_id, name in present.items() if not name]
        return Schema(*selected.fields, *dropped)

    def _dropped_field(self, field_id: int) -> NestedField:
        # The newest schema that has it: the type may have been promoted before.
        for schema in sorted(self._table.metadata.schemas, key=lambda schema: schema.schema_id, reverse=True):
            for field in schema.fields:
                if field.field_id == field_id:
                    # Another column may have taken over the name.
                    return NestedField(field_id, f"{field.name} (dropped {field_id})", field.field_type, required=False)
        raise TableUnreadable(f"the column {field_id} of equality deletes is in no schema, or was a field of a struct")


def _columns(batch: pa.RecordBatch, schema: Schema, field_ids: Sequence[int]) -> Columns:
    columns = [column_of(batch, schema.find_column_name(field_id) or "") for field_id in field_ids]
    # Arrow compares no extension types, such as UUIDs.
    return [column.storage if isinstance(column, pa.ExtensionArray) else column for column in columns]
