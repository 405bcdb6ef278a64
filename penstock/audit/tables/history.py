"""Tables whose history is a list of files per version: which commit lost or doubled rows, and files of no version."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa

from penstock.audit.columns import OffsetColumns
from penstock.audit.tables.parquet_folder import StoredFile, orphans_in
from penstock.audit.tables.table import (
    AuditedTable,
    FileIsGone,
    Loss,
    Missing,
    OffsetRows,
    Orphan,
    PartitionOffsets,
    TableUnreadable,
    offset_rows,
    remove_offsets,
)

MAX_VERSIONS = 1000
"""Limit: earlier versions that are searched for lost rows; opening one takes some milliseconds."""
MAX_STORED_FILES = 200_000
"""Limit: files of a folder among which files of no version are searched; about 100 MB of names."""

Part = TypeVar("Part")


class VersionedFile(Protocol):
    """A file of a version; ``identity`` changes if its deleted rows do, and ``str`` is its name in the report."""

    @property
    def identity(self) -> Hashable: ...


def reference_text(name: str, reference: int) -> str:
    """Return the name of a file in the report; ``reference`` counts repetitions of it in one version, from 1."""
    return name if reference == 1 else f"{name} (reference {reference} to this file)"


class Version(NamedTuple):
    """A commit, by its number or id, and the files before and after it."""

    number: int
    before: Iterable[VersionedFile]
    after: Iterable[VersionedFile]


class VersionedTable(AuditedTable):
    """A table whose versions are lists of files. A kind of table has the methods below, and ``column_names``."""

    @abstractmethod
    def files(self) -> Iterable[VersionedFile]:
        """Return the files of the audited version."""

    @abstractmethod
    def batches_of(
        self, file: VersionedFile, names: Sequence[str], dictionaries: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns of a file's rows, without deleted ones. Raises TableUnreadable."""

    def without_deletes(self, file: VersionedFile) -> VersionedFile:
        """Return a file with its deleted rows, for kinds of tables that mark such rows; itself if it has none."""
        return file

    @abstractmethod
    def versions(self) -> Iterator[Version]:
        """Yield the versions, the newest first, as far back as the table has them."""

    def abandoned_versions(self) -> Iterator[Version]:
        """Yield versions outside the history of the audited one, the newest first: rolled back, or of a branch."""
        return iter(())

    @abstractmethod
    def describe(self, number: int) -> str:
        """Return a version with its operation, engine and time."""

    @abstractmethod
    def stored_files(self) -> Iterable[StoredFile]:
        """Return the Parquet files in the table's folder, also in an object store."""

    def note_unsearched(self, cause: str) -> None:
        """Add a cause that was not searched to the report, once."""
        if cause not in self.unsearched:
            self.unsearched.append(cause)

    @abstractmethod
    def newest(self) -> VersionedTable:
        """Open the version that is the newest one now. Raises TableUnreadable."""

    def rows(self, columns: OffsetColumns, topic: str) -> Iterator[OffsetRows]:
        """Yield the offsets of all rows of the version, without deleted ones."""
        yield from (rows for _, rows in self._read_files(lambda file: self.rows_of(file, columns, topic)))

    def _read_files(self, read: Callable[[VersionedFile], Iterator[Part]]) -> Iterator[tuple[VersionedFile, Part]]:
        """Yield what ``read`` yields of each file. A file that does not exist is lost, if the table still has it."""
        for file in self.files():
            try:
                for part in read(file):
                    yield file, part
            except FileIsGone:
                # A file that a newer version has replaced may have been vacuumed during the audit.
                if str(file) not in {str(current) for current in self.newest().files()}:
                    raise
                if str(file) not in self.lost_files:
                    self.lost_files.append(str(file))

    def rows_of(self, file: VersionedFile, columns: OffsetColumns, topic: str) -> Iterator[OffsetRows]:
        """Yield the offsets of a file's rows, without deleted ones."""
        for batch in self.batches_of(file, columns.names, columns.dictionaries):
            yield offset_rows(str(file), batch, columns, topic)

    def batches(self, names: Sequence[str], dictionaries: Sequence[str] = ()) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield columns of all rows of the version, without deleted ones."""
        for file, batch in self._read_files(lambda file: self.batches_of(file, names, dictionaries)):
            yield str(file), batch

    def commits_of(self, files: set[str]) -> dict[str, str]:
        """Return the commit that added each file, as far as the history goes back."""
        commits: dict[str, str] = {}
        for version in self.versions():
            added = {str(file) for file in version.after} - {str(file) for file in version.before}
            if found := files & added:
                commits |= dict.fromkeys(found, self.describe(version.number))
            if files <= commits.keys():
                break
        return commits

    def losses(self, columns: OffsetColumns, topic: str, missing: Missing) -> list[Loss]:
        """Return the commits that removed rows with these offsets, the newest first."""
        losses = []
        for version, lost in self.lost_rows(columns, topic, missing):
            commit = self.describe(version.number)
            losses += [Loss(commit, partition, ranges) for partition, ranges in lost.items()]
        return losses

    def lost_rows(self, columns: OffsetColumns, topic: str, missing: Missing) -> Iterator[tuple[Version, Missing]]:
        """Yield the versions that removed rows with these offsets, the newest first, and the offsets.

        Versions that added rows together with their deletion come after them, and have no files; abandoned versions
        that added rows come last.
        """
        rows = _MissingRows(self, columns, topic, missing)
        candidates: list[tuple[Version, Missing]] = []
        for version in self.versions():
            lost = rows.lost_by(version, missing)
            if lost:
                yield version, lost
                missing = remove_offsets(missing, lost)
                candidates = _without_offsets(candidates, lost)
            # A version that restores an earlier one adds deleted rows again: an older version has deleted them.
            if deleted := rows.added_deleted(version, missing):
                # Limit: without its files, as each commit of a stream of upserts is such a version.
                candidates = [*_without_offsets(candidates, deleted), (Version(version.number, (), ()), deleted)]
            if not missing:
                return
        for version, deleted in candidates:
            yield version, deleted
            missing = remove_offsets(missing, deleted)
        if missing:
            yield from self._abandoned_rows(rows, missing)

    def _abandoned_rows(self, rows: _MissingRows, missing: Missing) -> Iterator[tuple[Version, Missing]]:
        """Yield abandoned versions that added rows with these offsets."""
        for version in self.abandoned_versions():
            held = rows.held_by(_without(version.after, version.before), missing)
            if held:
                yield version, held
                missing = remove_offsets(missing, held)
            if not missing:
                return

    def orphans(self, columns: OffsetColumns, topic: str, missing: Missing) -> list[Orphan]:
        """Return files of the folder that no searched version has, and that hold missing rows."""
        orphans: list[Orphan] = []
        try:
            # Order: list the folder first; all files that are in it by a commit are then in a version.
            stored = list(self.stored_files())
            referenced = self.referenced_files() if stored else set()
        except TableUnreadable as error:
            # Reading a table needs no right to list its folder.
            self.unsearched.append(f"files of no version: {error}")
            return []
        for file in stored:
            if file.name not in referenced:
                orphans += orphans_in(file, columns, topic, missing)
        return orphans

    def referenced_files(self) -> set[str]:
        """Return the files of all searched versions and of those committed during the audit. Raises TableUnreadable."""
        return self._listed | self._newer_files()

    def _newer_files(self) -> set[str]:
        """Return the files of versions that were committed after the audited one. Raises TableUnreadable."""
        newer: set[str] = set()
        newest = self.newest()
        if newest.version == self.version:
            return newer
        for version in newest.versions():
            if str(version.number) == self.version:
                return newer
            newer.update(str(file) for file in version.after)
        # Files of the versions in between would be taken for files of no version.
        raise TableUnreadable(f"the versions after {self.version} cannot all be searched")

    @cached_property
    def _listed(self) -> set[str]:
        """The files of all searched versions: computed once, as each version is opened for it."""
        versions = (*self.versions(), *self.abandoned_versions())
        listed = {str(file) for version in versions for file in (*version.before, *version.after)}
        return listed | {str(file) for file in self.files()}


class _MissingRows:
    """The rows of files that have missing offsets."""

    def __init__(self, table: VersionedTable, columns: OffsetColumns, topic: str, missing: Missing) -> None:
        """``missing``: all offsets that are searched for."""
        self._table, self._columns, self._topic, self._missing = table, columns, topic, missing
        self._holding: dict[str, bool] = {}
        """Whether a file has such rows, deleted or not."""

    def lost_by(self, version: Version, missing: Missing) -> Missing:
        """Return the missing offsets whose rows a version removed."""
        added = _without(version.after, version.before)
        lost = self.held_by(_without(version.before, version.after), missing)
        if lost:
            # A rewrite keeps rows in other files, which this commit adds: older files lack them, or they would not be
            # missing.
            lost = remove_offsets(lost, self.held_by(added, lost))
        return lost

    def added_deleted(self, version: Version, missing: Missing) -> Missing:
        """Return the missing offsets whose rows a version added as deleted ones.

        A stream of upserts adds a row and deletes it in one commit, if a later row with its key is in it, too.
        """
        added = _without(version.after, version.before)
        earlier = {str(file) for file in version.before}
        stored = [(file, self._table.without_deletes(file)) for file in added if str(file) not in earlier]
        return self.held_by([whole for file, whole in stored if whole is not file], missing)

    def held_by(self, files: Iterable[VersionedFile], missing: Missing) -> Missing:
        """Return the missing offsets that rows of ``files`` have; files that are vacuumed have none."""
        held = PartitionOffsets(missing)
        for file in files:
            if self._may_hold(file):
                self._add(file, held)
        return held.among(missing)

    def _may_hold(self, file: VersionedFile) -> bool:
        stored = self._table.without_deletes(file)
        if stored is file:
            return True
        # Fast path: each commit of a stream of upserts deletes rows of any file; most files are read once nevertheless.
        if str(file) not in self._holding:
            held = PartitionOffsets(self._missing)
            self._add(stored, held)
            self._holding[str(file)] = bool(held.among(self._missing))
        return self._holding[str(file)]

    def _add(self, file: VersionedFile, held: PartitionOffsets) -> None:
        with contextlib.suppress(TableUnreadable):
            for rows in self._table.rows_of(file, self._columns, self._topic):
                held.add(rows)


def _without_offsets(candidates: Iterable[tuple[Version, Missing]], offsets: Missing) -> list[tuple[Version, Missing]]:
    remaining = [(version, remove_offsets(missing, offsets)) for version, missing in candidates]
    return [(version, missing) for version, missing in remaining if missing]


def _without(files: Iterable[VersionedFile], excluded: Iterable[VersionedFile]) -> list[VersionedFile]:
    identities = {file.identity for file in excluded}
    return [file for file in files if file.identity not in identities]
