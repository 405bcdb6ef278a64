"""Commits of our own to a Delta table: batches, deletions, merged files, and columns.

Invariant: each batch is in the table once. delta-rs accepts a batch's number twice, so the number is compared here,
under the lock of the one process that lands. The protocol stays at reader version 1 and writer version 2, without
deletion vectors or column mapping of our own, so that every reader can read the table.

In an object store a commit is a file that is created only if it does not exist, in one request: nothing can be torn,
and there is no disk to sync.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, CommitProperties, PostCommitHookProperties, RemoveAction, Transaction

from penstock.errors import PenstockError
from penstock.files.errors import DamagedFile
from penstock.landing.storage.object_path import ObjectPath, TablePath, delta_rs_options, translate_errors_at
from penstock.landing.table.features import FeatureNotWritten, Features
from penstock.landing.table.file_entries import (
    LAST_CHECKPOINT,
    create_commit,
    parse_actions,
    read_entries,
    replacement,
)
from penstock.landing.table.one_writer import PROPERTY, check_writer, own_name
from penstock.landing.table.synced_files import sync_files, write_again, write_unsynced
from penstock.landing.table.table_file import NewFile, TableFile, is_about_content, open_rows
from penstock.landing.table.table_reader import (
    APPLICATION,
    DELETIONS_APPLICATION,
    DESCRIPTION_KEY,
    ForeignCommit,
    TableReader,
    list_commits,
    newest_batch,
)
from penstock.landing.table_paths import partition_value
from penstock.landing.table_schema import FILE_SCHEMA, PARTITION_COLUMNS, STATISTICS, FileForm

KEEP_HOURS = 6
"""Age at which replaced files are removed: a query that began earlier may still read them."""
DEFAULT_PROPERTIES = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": f"interval {KEEP_HOURS + 1} hours",
    "delta.enableExpiredLogCleanup": "true",
    "delta.dataSkippingStatsColumns": ",".join(STATISTICS),
}
"""Properties of a new table; afterwards they belong to its users and are never set again.

Streams, time travel and change feeds of other engines read the log of the last week. If a column could have statistics
but is not named for them, delta-rs assumes that no row has the value that a query looks for.
"""
CHECKPOINT_INTERVAL = 100
"""Commits between two checkpoints; the number of Delta's default."""
MAX_COMMIT_ATTEMPTS = 100
"""Limit: versions that a replacement is tried against; the landing commits a few each second."""
ROW_KEY = ("topic", "partition", "offset")
OWN_COMMIT_MARK = {DESCRIPTION_KEY: "upkeep"}
"""Metadata of own commits without a transaction; without it they would count as another program's."""
NO_DESCRIPTION: Mapping[str, Any] = MappingProxyType({})
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Workaround: delta-rs would remove commits before the checkpoint that replaces them is on the disk."""
_LOGGER = logging.getLogger(__name__)


class TableChanged(PenstockError, RuntimeError):
    """Files that should be replaced have left the table: the caller reads it again."""


class VectorNotApplicable(PenstockError, RuntimeError):
    """A deletion vector that cannot be applied: the file stays, and its deleted rows stay deleted."""


class SchemaDiffers(PenstockError, ValueError):
    """The table has a column with another type than expected."""


class DeltaTable(TableReader):
    """The table in a folder, or in an object store, that this pipeline writes.

    Only the pipeline with the ``state`` of the path may write. The table has the columns of ``schema``, and perhaps
    columns of earlier versions or other programs.
    """

    properties: Mapping[str, str] = DEFAULT_PROPERTIES
    _examined: int | None = None
    """Version up to which ``examine_changed_rows`` looked; None if other programs may change rows at any time."""

    def begin(self) -> None:
        """Create the table, or repair it after a crash; add missing columns. Raises SchemaDiffers, AnotherWriter."""
        if isinstance(self._log, Path):
            _remove_torn_files(self._log)
            self._log.parent.mkdir(parents=True, exist_ok=True)
        with translate_errors_at(self.folder):
            if not deltalake.DeltaTable.is_deltatable(str(self.folder), **delta_rs_options(self.folder)):
                self._create()
        self.check_features()
        self._claim()
        # Crash: the last writer may have been killed between its commit and the sync of it, or that failed.
        if isinstance(newest := self.commit_path(self._table.version()), Path):
            write_again(newest)
        self._add_columns()

    @property
    def form(self) -> FileForm:
        """The form of rewritten files: they keep the columns that other programs added. Raises FeatureNotWritten."""
        # Order: before the first rewritten row. Arrow fails at columns of types that it does not write (VARIANT).
        Features.read(self._table).check(self.folder)
        own = {*FILE_SCHEMA.names, *PARTITION_COLUMNS}
        return FileForm(pa.schema([*FILE_SCHEMA, *(field for field in self.schema_now if field.name not in own)]))

    @property
    def has_change_feed(self) -> bool:
        """Whether readers get the table's changes as Delta's change data feed."""
        return Features.read(self._table).has_change_feed

    def check_features(self, *, deletes: bool = False) -> None:
        """Raise FeatureNotWritten if another program gave the table a feature that is not written here."""
        Features.read(self._table).check(self.folder, deletes=deletes)
        self._check_partitions(self._table)

    def _check_partitions(self, table: deltalake.DeltaTable) -> None:
        """Raise FeatureNotWritten if another program gave the table other folders: delta-rs would mix both."""
        existing, wanted = table.metadata().partition_columns, self._partitions()
        if self.schema.names and existing != wanted:
            before, after = (", ".join(names) or "no column" for names in (wanted, existing))
            raise FeatureNotWritten(
                f"{self.folder} was replaced by a table that is partitioned by {after} instead of {before}: nothing "
                "lands until it is restored, and messages stay in the log. In Spark: RESTORE TABLE "
                f"delta.`{self.folder}` TO VERSION AS OF the version before"
            )

    def _partitions(self) -> list[str]:
        return [name for name in PARTITION_COLUMNS if name in self.schema.names]

    def _add_columns(self) -> None:
        """Add missing columns, which are null in existing rows. Raises SchemaDiffers."""
        before = self._table.version()
        if missing := self.missing_columns():
            with translate_errors_at(self.folder):
                self._table.alter.add_columns(missing)
            self._sync_since(before)

    def missing_columns(self) -> list[deltalake.Field]:
        """Return the columns that the table does not have yet. Raises SchemaDiffers if one has another type."""
        # Delta compares names of columns without case.
        existing = {field.name.lower(): field for field in self._table.schema().fields}
        missing = []
        for field in deltalake.Schema.from_arrow(self.schema).fields:
            column = existing.get(field.name.lower())
            if column is None:
                missing.append(field)
            elif (column.name, column.type) != (field.name, field.type):
                raise SchemaDiffers(
                    f"{self.folder} has the column {column.name} of type {_type_name(column)}: it cannot become "
                    f"{field.name} of type {_type_name(field)}, but another column can be added"
                )
        return missing

    def _create(self) -> None:
        writer = {PROPERTY: own_name(self.folder)} if isinstance(self.folder, ObjectPath) else {}
        try:
            deltalake.DeltaTable.create(
                str(self.folder),
                self.schema,
                partition_by=self._partitions(),
                configuration={**self.properties, **writer},
                raise_if_key_not_exists=False,
                **delta_rs_options(self.folder),
            )
        except DeltaError:
            # Another pipeline may have created it first: then _claim names that pipeline.
            if not self.exists:
                raise
        self._sync([self.commit_path(0)])

    def _claim(self) -> None:
        """Enter this pipeline as the writer of a table at a URL that has none."""
        table = self._table
        self._check_writer()
        if isinstance(self.folder, Path) or PROPERTY in table.metadata().configuration:
            return
        before = table.version()
        try:
            with translate_errors_at(self.folder):
                table.alter.set_table_properties({PROPERTY: own_name(self.folder)}, raise_if_not_exists=False)
        except CommitFailedError:
            # Another pipeline claimed it first: its name is in the version that won.
            table.update_incremental()
            self._check_writer()
            raise
        self._sync_since(before)

    def _check_writer(self) -> None:
        """Raise AnotherWriter if the version that was read last belongs to another pipeline."""
        if isinstance(self.folder, ObjectPath) and self._opened is not None:
            check_writer(self._opened.metadata().configuration, self.folder)

    def through(self, batch: int) -> list[TableFile]:
        """Return the files, without files of later batches."""
        # Order: the files first. A batch that lands in between is then a later one without files.
        files = self.active()
        later = {name for _, names in self.files(batch + 1) for name in names}
        return [file for file in files if file not in later]

    def commit(self, batch: int, files: Sequence[NewFile], description: Mapping[str, Any] = NO_DESCRIPTION) -> None:
        """Commit a batch, unless the table has it already; ``description`` is stored as JSON in the commit.

        Raises TableChanged, AnotherWriter, FeatureNotWritten.
        """
        table = self._table
        if newest_batch(table) < batch:
            self._append(table, batch, files, description)

    def _append(
        self, table: deltalake.DeltaTable, batch: int, files: Sequence[NewFile], description: Mapping[str, Any]
    ) -> None:
        """Commit a batch that the newest version, ``table``, does not have."""
        self._check_files_exist(files)
        before, now_ms = table.version(), time.time_ns() // 1_000_000
        metadata = {DESCRIPTION_KEY: json.dumps(description)} if description else None
        properties = CommitProperties(
            app_transactions=[Transaction(APPLICATION, batch, now_ms)], custom_metadata=metadata
        )
        tried, is_committed = before, False
        while not is_committed:
            # Only here: merges open typed tables and proofs with the columns of ``landed``.
            self._check_partitions(table)
            try:
                self._write(table, _add_actions(files, now_ms), properties)
                is_committed = True
            except CommitFailedError:
                is_committed, newest = self._is_committed(batch), self._table.version()
                # Another program replaced files at the same time, for which delta-rs refuses the commit of an older
                # version; new rows do not depend on them.
                if not is_committed and newest == tried:
                    raise
                tried = newest
        # Order: files are synced when they are closed, so only the commit is left to sync.
        self._checkpoint(before, self._sync_since(before, added=False))

    def _checkpoint(self, before: int, after: int) -> None:
        """Write a checkpoint of the newest version, if one is due between these versions."""
        # Fast path: the newest version is not read if none is due.
        if after // CHECKPOINT_INTERVAL == before // CHECKPOINT_INTERVAL:
            return
        table = self._table
        with translate_errors_at(self.folder):
            table.create_checkpoint()
            # Order: on the disk before vacuum removes the commits that the checkpoint replaces.
            self._sync([self._log / f"{table.version():020}.checkpoint.parquet", self._log / LAST_CHECKPOINT])

    def _write(
        self,
        table: deltalake.DeltaTable,
        actions: list[AddAction | RemoveAction],
        properties: CommitProperties,
        *,
        overwrite: bool = False,
    ) -> None:
        """Write one commit; ``overwrite``: replace all files, and the columns.

        Raises CommitFailedError for a conflicting commit, FeatureNotWritten, and the errors of ``_check_version``.
        """
        self._check_version(table)
        self.write_unsynced()
        deletes = overwrite or any(isinstance(action, RemoveAction) and action.data_change for action in actions)
        # Another program may enable a feature at any time, so it is checked before each commit.
        Features.read(table).check(self.folder, deletes=deletes)
        with translate_errors_at(self.folder):
            table.create_write_transaction(
                actions,
                "overwrite" if overwrite else "append",
                self.schema,
                partition_by=self._partitions(),
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )

    def _check_version(self, table: deltalake.DeltaTable) -> None:
        """Raise an error if the next commit must not follow this version. Raises AnotherWriter, TableChanged."""
        self._check_writer()
        if self._examined is not None and self._foreign_changes(range(self._examined + 1, table.version() + 1)):
            raise TableChanged(f"{self.folder}: another program changed rows at the same time")

    def _is_committed(self, batch: int) -> bool:
        """Report whether the conflicting commit is our own. Raises AnotherWriter."""
        # A store's answer may be lost or late, and the request is sent again: then it conflicts with itself.
        newest = newest_batch(self._table)
        self._check_writer()
        return newest >= batch

    def delete(
        self,
        number: int,
        removed: Sequence[str],
        files: Sequence[NewFile],
        evidence: Mapping[str, Any] = NO_DESCRIPTION,
    ) -> None:
        """Replace files by files without the deleted rows, as the deletion of this number.

        ``evidence`` is stored as JSON in the commit.
        """
        transaction = Transaction(DELETIONS_APPLICATION, number, time.time_ns() // 1_000_000)
        metadata = {DESCRIPTION_KEY: json.dumps(evidence)} if evidence else None
        properties = CommitProperties(app_transactions=[transaction], custom_metadata=metadata)
        self._replace(removed, files, properties, changed=True)

    def examine_changed_rows(self, application: str) -> list[ForeignCommit]:
        """Return the commits with which other programs changed rows after our newest one of an application.

        Later commits of this object raise TableChanged if another program changed rows since.
        """
        commits = list[ForeignCommit]()
        version = self._examined = self.version()
        while (actions := self._actions(version)) is not None:
            if any(action.get("txn", {}).get("appId") == application for action in actions):
                break
            commits += self._foreign_changes(range(version, version + 1))
            version -= 1
        return commits

    def _foreign_changes(self, versions: Iterable[int]) -> list[ForeignCommit]:
        commits = (self.foreign_commit(version) for version in versions)
        return [commit for commit in commits if commit is not None and commit.names]

    def delete_rows(self, removed: Sequence[str], files: Sequence[NewFile]) -> None:
        """Replace files by files without some of their rows."""
        self._replace(removed, files, CommitProperties(custom_metadata=OWN_COMMIT_MARK), changed=True)

    def replace(self, removed: Sequence[str], files: Sequence[NewFile]) -> None:
        """Replace files by others that have the same rows."""
        self._replace(removed, files, CommitProperties(custom_metadata=OWN_COMMIT_MARK), changed=False)

    def _replace(
        self, removed: Sequence[str], files: Sequence[NewFile], properties: CommitProperties, *, changed: bool
    ) -> None:
        """Replace files durably; the caller holds the lock of upkeep. Raises TableChanged."""
        now_ms = time.time_ns() // 1_000_000
        additions = _add_actions(files, now_ms, changed=changed)
        table = self._table
        before = table.version()
        # Invariant: a file is replaced in the version that was read. On a retry delta-rs would remove a file that
        # another program has replaced, and keep a file whose vector it does not name, so that rows are there twice.
        # Therefore it may commit only to the version that was checked, and each newer version is checked again.
        properties.max_commit_retries = 0
        is_new = not _has_transactions(table, properties)
        for _ in range(MAX_COMMIT_ATTEMPTS):
            active: dict[str, TableFile] = {file: file for file in self.active()}
            is_replaced = {file.name for file in files} <= {*active} and not {*removed} & {*active}
            if _has_transactions(table, properties) and (is_new or ((files or removed) and is_replaced)):
                # A store's answer was lost: this is our own commit. Another program may have changed its files since.
                break
            if any(name not in active or not active[name].is_plain for name in removed):
                raise TableChanged(f"{self.folder}: another program changed files that were to be replaced")
            removals = [_remove_action(active[name], now_ms, changed=changed) for name in removed]
            with suppress(CommitFailedError):
                self._write(table, [*additions, *removals], properties)
                break
        else:
            raise TableChanged(f"{self.folder}: other programs commit all the time")
        self._sync_since(before)

    def _overwrite(self, files: Sequence[NewFile], properties: CommitProperties) -> None:
        """Replace all files, and the columns, in one durable commit. Raises TableChanged."""
        self._check_files_exist(files)
        table = self._table
        before = table.version()
        # Invariant: all files of the version that was read are replaced, so it may commit only to this version.
        properties.max_commit_retries = 0
        try:
            self._write(table, _add_actions(files, time.time_ns() // 1_000_000), properties, overwrite=True)
        except CommitFailedError:
            if not {file.name for file in files} <= {*self.active()}:
                raise TableChanged(f"{self.folder}: another program commits at the same time") from None
        self._sync_since(before)

    def apply_vectors(self, files: Sequence[TableFile]) -> None:
        """Rewrite files with deletion vectors without their deleted rows; the caller holds the lock of upkeep.

        Files without rows stay: they have no row that could come back. Raises VectorNotApplicable.
        """
        # Workaround: only delta-rs itself writes the removal of a file with a vector as Delta demands it. An update
        # that changes nothing, of one row of the file, makes it rewrite the file.
        for file in files:
            if (condition := self._first_row_condition(file)) is not None:
                before = self._table.version()
                properties = CommitProperties(custom_metadata=OWN_COMMIT_MARK)
                self.write_unsynced()
                with translate_errors_at(self.folder):
                    self._table.update(
                        {"source": "source"},
                        predicate=condition,
                        commit_properties=properties,
                        post_commithook_properties=NO_HOOKS,
                    )
                self._sync_since(before)

    def replace_entries(self, file: TableFile, files: Sequence[NewFile]) -> None:
        """Replace a file by files with its rows in one durable commit that removes all of its entries.

        The caller holds the lock of upkeep. Raises TableChanged, VectorNotApplicable, FeatureNotWritten.
        """
        if not isinstance(self._log, Path):
            # Limit: no client of ours creates an object only if it does not exist, except delta-rs for its own commits.
            raise VectorNotApplicable(_listed_repeatedly(self.folder, file))
        self._check_files_exist(files)
        # Readers of a file that is listed repeatedly see rows vanish; a vector alone has hidden them before.
        changed = file.copies > 1 or not self.has_change_feed
        now_ms = time.time_ns() // 1_000_000
        self.write_unsynced()
        added = [
            {
                "path": new.name,
                "partitionValues": _partition_values(new.name),
                "size": new.size,
                "modificationTime": now_ms,
                "dataChange": changed,
                "stats": new.statistics,
            }
            for new in files
        ]
        for _ in range(MAX_COMMIT_ATTEMPTS):
            table = self._table
            version = table.version()
            listed = next((entry for entry in self._list_files(table) if entry == file), None)
            if listed is None or (listed.identity, listed.copies) != (file.identity, file.copies):
                raise TableChanged(f"{self.folder}: another program changed files that were to be replaced")
            Features.read(table).check(self.folder, deletes=True)
            entries = self._entries(file, version)
            path = self._log / f"{version + 1:020}.json"
            # Invariant: the entries are replaced in the version that was read, see ``_replace``.
            if create_commit(path, replacement(entries, added, now_ms, OWN_COMMIT_MARK, changed=changed)):
                return
        raise TableChanged(f"{self.folder}: other programs commit all the time")

    def remove_bare_entry(self, file: TableFile) -> None:
        """Remove the entry without a vector of a file that has one with a vector, too.

        The caller holds the lock of upkeep. Raises TableChanged, VectorNotApplicable, FeatureNotWritten.
        """
        table = self._table
        before = table.version()
        vectors = [entry.get("deletionVector") for entry in self._entries(file, before)]
        if vectors.count(None) != 1 or len(vectors) != 2:
            raise VectorNotApplicable(_listed_repeatedly(self.folder, file))
        removal = _remove_action(file, time.time_ns() // 1_000_000)
        properties = CommitProperties(custom_metadata=OWN_COMMIT_MARK)
        properties.max_commit_retries = 0
        try:
            self._write(table, [removal], properties)
        except CommitFailedError:
            raise TableChanged(f"{self.folder}: another program commits at the same time") from None
        self._sync_since(before)

    def _entries(self, file: TableFile, version: int) -> list[dict[str, Any]]:
        """Return the entries of a file in the newest version. Raises VectorNotApplicable."""
        try:
            entries = read_entries(self._log, version, [file])[file]
        except DamagedFile as error:
            raise VectorNotApplicable(f"{_listed_repeatedly(self.folder, file)}: {error}") from None
        if len(entries) != file.copies:
            raise VectorNotApplicable(_listed_repeatedly(self.folder, file))
        return entries

    def _first_row_condition(self, file: TableFile) -> str | None:
        """Return an SQL condition that holds for the first row of a file; None for a file without rows."""
        if file.copies > 1:
            # delta-rs would read an entry without its vector: deleted rows would be there again.
            raise VectorNotApplicable(_listed_repeatedly(self.folder, file))
        with open_rows(self.folder, file) as rows:
            if not rows.fits_nanoseconds():
                raise VectorNotApplicable(
                    f"{self.folder / file}: rows were deleted by a deletion vector, and times are beyond what can be "
                    f"rewritten here: run REORG TABLE delta.`{self.folder}` APPLY (PURGE) in Spark"
                )
            first: Mapping[str, Any] | None = None
            try:
                # Workaround: delta-rs does not compare pages with their checksums, and would copy damaged ones.
                for part in rows.batches():
                    if first is None and part.num_rows:
                        (first,) = part.slice(0, 1).select(ROW_KEY).to_pylist()
            except (pa.ArrowInvalid, OSError) as error:
                if not is_about_content(error):
                    raise
                raise VectorNotApplicable(
                    f"{self.folder / file} is damaged, and rows of it were deleted by a deletion vector: {error}"
                ) from None
        if first is None:
            return None
        folder = [f"{column} = '{value}'" for column, value in _partition_values(file).items()]
        topic = str(first["topic"]).replace("'", "''")
        partition = "partition is null" if first["partition"] is None else f"partition = {first['partition']}"
        return " and ".join([*folder, f"topic = '{topic}'", partition, f'"offset" = {first["offset"]}'])

    def vacuum(self, keep_hours: int) -> bool:
        """Remove files that left the table more than ``keep_hours`` ago, and commits that a checkpoint replaces.

        Both go by age: call it only if the clock is plausible. Return whether the files are removed.
        """
        table = self._table
        # Workaround: delta-rs 1.6.6 removes the files of deletion vectors that are in use.
        if not all(file.is_plain for file in self.active()):
            _LOGGER.warning("%s: old files stay until deletion vectors are applied", self.folder)
            return False
        self._check_writer()
        with translate_errors_at(self.folder):
            table.cleanup_metadata()
            # Full: also files that checkpoints no longer list.
            table.vacuum(keep_hours, dry_run=False, enforce_retention_duration=False, full=True)
        return True

    def _check_files_exist(self, files: Sequence[NewFile]) -> None:
        """Raise TableChanged if a file is missing."""
        # A process that was suspended for hours may have lost its files to vacuum.
        on_disk = isinstance(self.folder, Path)
        if on_disk and (missing := [file.name for file in files if not (self.folder / file.name).exists()]):
            raise TableChanged(f"{self.folder / missing[0]} was removed before it was committed")

    def _sync_since(self, before: int, *, added: bool = True) -> int:
        """Sync the commits after version ``before``, and first their files if ``added``; return the newest version."""
        if not isinstance(self.folder, Path):
            return self._table.version()
        # delta-rs syncs nothing. Order: files before the commit that names them, else a power cut leaves a commit
        # whose files are empty.
        version, paths = before, list[TablePath]()
        # Fast path: to look for the next commit costs less than to let delta-rs read it (0.5 ms for each typed table).
        while (path := self.commit_path(version + 1)).exists():
            version += 1
            actions = (self._actions(version) or []) if added else []
            names = [str(action["add"]["path"]) for action in actions if "add" in action]
            paths += [*(self.folder / unquote(name) for name in names), path]
        # At once: a failed sync is remembered for the later versions, too, which nothing else would sync.
        self._sync(paths)
        return version

    def _sync(self, paths: Iterable[TablePath]) -> None:
        sync_files([path for path in paths if isinstance(path, Path)])

    def write_unsynced(self) -> None:
        """Bring earlier commits to the disk whose sync failed. Raises OSError."""
        if isinstance(self.folder, Path):
            write_unsynced(self.folder)


def _remove_torn_files(log: Path) -> None:
    """Remove the newest checkpoint and commits if a power cut left them without their content."""
    for path in sorted(log.glob("*.checkpoint.parquet"), reverse=True)[:1]:
        try:
            pq.read_metadata(path)
        except (pa.ArrowInvalid, OSError):
            # Crash: the commits before the checkpoint still exist, because they are removed only after its sync.
            path.unlink()
            (log / LAST_CHECKPOINT).unlink(missing_ok=True)
            _LOGGER.warning("removed %s, which was torn", path)
    for path in reversed(list_commits(log)):
        try:
            if parse_actions(path.read_text()):
                return
        except ValueError:
            pass
        # Crash: Spark does the batch of a torn commit again (upkeep.repair.checkpoint_repair).
        path.unlink()
        _LOGGER.warning("removed %s, which was torn", path)


def _has_transactions(table: deltalake.DeltaTable, properties: CommitProperties) -> bool:
    """Report whether the table has the transactions of a commit, also if it has none."""
    return all(
        table.transaction_version(wanted.app_id) == wanted.version for wanted in properties.app_transactions or []
    )


def _add_actions(files: Sequence[NewFile], now_ms: int, *, changed: bool = True) -> list[AddAction | RemoveAction]:
    return [
        AddAction(file.name, file.size, _partition_values(file.name), now_ms, changed, file.statistics)
        for file in files
    ]


def _remove_action(file: TableFile, now_ms: int, *, changed: bool = True) -> RemoveAction:
    # Readers of a change data feed read the rows of removed files, and refuse a removal without the size.
    return RemoveAction(file, changed, now_ms, file.size, _partition_values(file))


def _partition_values(name: str) -> dict[str, str | None]:
    """Return the values of the partition columns, from the folders of a file."""
    return {column: value for column in PARTITION_COLUMNS if (value := partition_value(name, column))}


def _listed_repeatedly(folder: TablePath, file: TableFile) -> str:
    return (
        f"{folder / file} is in the table {file.copies} times: another program removed or added it without its "
        "deletion vector; deletions of its rows wait until that is undone: in Spark, run RESTORE TABLE "
        f"delta.`{folder}` TO VERSION AS OF the version before it (docs/tables.md)"
    )


def _type_name(field: Any) -> str:
    return str(getattr(field.type, "type", field.type))
