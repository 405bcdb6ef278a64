"""The table as a Delta table: protocol 1 and 2, no deletion vectors, no column mapping, so that every reader takes it.

Committed by delta-rs, which is asked nothing that it does not promise: it takes a batch's number twice, so the number
is compared here, under the lock of the one process that lands. In an object store a commit is a file that is made if it
is not there yet, in one request; nothing there can be torn, and there is no disk to wait for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, CommitProperties, PostCommitHookProperties, RemoveAction, Transaction

from penstock.errors import PenstockError
from penstock.files.errors import DamagedFile
from penstock.files.file_system import sync_written
from penstock.files.json_values import parse_object
from penstock.landing.storage.object_path import ObjectPath, TablePath, delta_rs_options, translate_errors_at
from penstock.landing.table.features import Features
from penstock.landing.table.one_writer import PROPERTY, check_writer, own_name
from penstock.landing.table.table_file import Mask, NewFile, TableFile, open_rows
from penstock.landing.table_paths import partition_value
from penstock.landing.table_schema import FILE_SCHEMA, LANDED, PARTITION_COLUMNS, STATISTICS, FileForm

DELTA_LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
DELETION_VECTORS = "deletionVectors"
APPLICATION = "penstock"
DELETIONS_APPLICATION = "penstock.deletions"
KEEP_HOURS = 6
"""A reader that began so long ago still finds its files, though they were merged since."""
DEFAULT_PROPERTIES = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": f"interval {KEEP_HOURS + 1} hours",
    "delta.enableExpiredLogCleanup": "true",
    "delta.dataSkippingStatsColumns": ",".join(STATISTICS),
}
"""Defaults of a new table; from then on they are its users', and never set again. Streams, time travel and change
feeds of other engines read the log of the last week. Of columns that are not named for statistics, but could be,
delta-rs takes for granted that no row has a value that is looked for.
"""
CHECKPOINT_EVERY = 100
COMMIT_ATTEMPTS = 100
"""Versions that are looked at until a replacement fits: the landing commits a few each second."""
UPDATED_ROWS = ("numUpdatedRows", "numTargetRowsUpdated", "num_updated_rows", "num_target_rows_updated")
"""What engines call the number of rows that a commit changed."""
ROW_PLACE = ("topic", "partition", "offset")
OWN_COMMIT_MARK = {"penstock": "upkeep"}
"""In the commits of this module that no transaction names: they are not another program's."""
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""delta-rs would remove commits before the checkpoint that stands for them is on the disk."""
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """A commit of another program; ``updated``: how many rows it says it changed, None where it does not say."""

    version: int
    engine: str
    operation: str
    names: frozenset[str]
    updated: int | None


class TableChanged(PenstockError, RuntimeError):
    """Files that were to be replaced are not in the table any more: it is to be looked at again."""


class VectorNotApplicable(PenstockError, RuntimeError):
    """A file whose deletion vector cannot be applied: its rows stay as they are, the deleted ones deleted."""


class SchemaDiffers(PenstockError, ValueError):
    """The table has a column with another type than it is to have."""


class DeltaTable:
    """The table in a folder, or in an object store, which only the pipeline writes whose ``state`` the path has.

    It has the columns of ``schema``, and perhaps others that it had before.
    """

    def __init__(self, folder: TablePath, schema: pa.Schema = LANDED) -> None:
        self.folder = folder
        self.schema = schema
        self._log = folder / DELTA_LOG
        self._opened: deltalake.DeltaTable | None = None

    @property
    def _table(self) -> deltalake.DeltaTable:
        """As it is now. Raises DamagedFile."""
        try:
            with translate_errors_at(self.folder):
                if self._opened is None:
                    self._opened = deltalake.DeltaTable(str(self.folder), **delta_rs_options(self.folder))
                else:
                    self._opened.update_incremental()
        except DeltaError as error:
            raise DamagedFile(f"{self._log} cannot be read: {str(error).partition(chr(10))[0]}") from None
        return self._opened

    @property
    def exists(self) -> bool:
        """Whether it is there."""
        if isinstance(self._log, Path):
            return self._log.is_dir()
        with translate_errors_at(self.folder):
            return self._opened is not None or deltalake.DeltaTable.is_deltatable(
                str(self.folder), **delta_rs_options(self.folder)
            )

    def begin(self) -> None:
        if isinstance(self._log, Path):
            _drop_torn(self._log)
            self._log.parent.mkdir(parents=True, exist_ok=True)
        with translate_errors_at(self.folder):
            if not deltalake.DeltaTable.is_deltatable(str(self.folder), **delta_rs_options(self.folder)):
                self._create()
        self.check_features()
        self._claim()
        self._add_columns()
        self._sync_since(self._table.version() - 1, added=False)  # who wrote it may have been killed before

    @property
    def schema_now(self) -> pa.Schema:
        """The columns of the table as they are, with those that others added."""
        schema: Any = self._table.schema().to_arrow()
        return pa.schema(schema)

    @property
    def form(self) -> FileForm:
        """The form of rewritten files: they keep the columns that other programs added."""
        own = {*FILE_SCHEMA.names, *PARTITION_COLUMNS}
        return FileForm(pa.schema([*FILE_SCHEMA, *(one for one in self.schema_now if one.name not in own)]))

    def check_features(self) -> None:
        """Raise FeatureNotWritten where another program gave the table a feature that is not written here."""
        Features.read(self._table).check(self.folder)

    def _partitions(self) -> list[str]:
        return [name for name in PARTITION_COLUMNS if name in self.schema.names]

    def _add_columns(self) -> None:
        """Have those of today: rows of before have nothing in them. Raises SchemaDiffers."""
        before = self._table.version()
        known = {one.name.lower(): one for one in self._table.schema().fields}
        lacking = []
        for one in deltalake.Schema.from_arrow(self.schema).fields:
            there = known.get(one.name.lower())
            if there is None:
                lacking.append(one)
            elif (there.name, there.type) != (one.name, one.type):
                raise SchemaDiffers(
                    f"{self.folder} has the column {there.name} of type {_type_of(there)}: it cannot become "
                    f"{one.name} of type {_type_of(one)}, but another column can be added"
                )
        if lacking:
            with translate_errors_at(self.folder):
                self._table.alter.add_columns(lacking)
            self._sync_since(before)

    def _create(self) -> None:
        try:
            deltalake.DeltaTable.create(
                str(self.folder),
                self.schema,
                partition_by=self._partitions(),
                configuration=self._configuration(),
                raise_if_key_not_exists=False,
                **delta_rs_options(self.folder),
            )
        except DeltaError:
            if not self.exists:  # else somebody was faster, and it is told whose it is
                raise
        self._sync([self._path(0)])

    def _claim(self) -> None:
        """Have a table at a URL say whose it is. Its other properties are the users' from the day it is made on."""
        table = self._table
        self._check_writer()
        if isinstance(self.folder, Path) or PROPERTY in table.metadata().configuration:
            return
        before = table.version()
        try:
            with translate_errors_at(self.folder):
                table.alter.set_table_properties({PROPERTY: own_name(self.folder)}, raise_if_not_exists=False)
        except CommitFailedError:
            table.update_incremental()
            self._check_writer()
            raise
        self._sync_since(before)

    def _configuration(self) -> dict[str, str]:
        return {
            **DEFAULT_PROPERTIES,
            **({PROPERTY: own_name(self.folder)} if isinstance(self.folder, ObjectPath) else {}),
        }

    def _check_writer(self) -> None:
        """Raises AnotherWriter where the table, as it was read last, is not ours to write."""
        if isinstance(self.folder, ObjectPath) and self._opened is not None:
            check_writer(self._opened.metadata().configuration, self.folder)

    def commit(self, batch: int, files: Sequence[NewFile]) -> None:
        table = self._table
        if _newest(table) >= batch:
            return
        self._check_written(files)
        before, now = table.version(), time.time_ns() // 1_000_000
        properties = CommitProperties(app_transactions=[Transaction(APPLICATION, batch, now)])
        try:
            self._write(table, _added(files, now), properties)
        except CommitFailedError:
            if not self._is_committed(batch):
                raise
        self._sync_since(before, added=False)
        version = table.version()
        if version // CHECKPOINT_EVERY > before // CHECKPOINT_EVERY:
            with translate_errors_at(self.folder):
                table.create_checkpoint()
                self._sync([self._log / f"{version:020}.checkpoint.parquet", self._log / LAST_CHECKPOINT])

    def _write(
        self, table: deltalake.DeltaTable, actions: list[AddAction | RemoveAction], properties: CommitProperties
    ) -> None:
        """Raises CommitFailedError where others committed what does not go with it, FeatureNotWritten."""
        self._check_writer()
        deletes = any(isinstance(action, RemoveAction) and action.data_change for action in actions)
        Features.read(table).check(self.folder, deletes=deletes)
        with translate_errors_at(self.folder):
            table.create_write_transaction(
                actions,
                "append",
                self.schema,
                partition_by=self._partitions(),
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )

    def _is_committed(self, batch: int) -> bool:
        """Whether what was in the way is our own commit: a store's answer may be lost, or come late, and the request be
        sent again.

        Raises AnotherWriter.
        """
        newest = _newest(self._table)
        self._check_writer()
        return newest >= batch

    def last_deletion(self) -> int:
        """The number of the last deletion that is done; 0 for none."""
        return int(self._table.transaction_version(DELETIONS_APPLICATION) or 0) if self.exists else 0

    def delete(self, number: int, gone: Sequence[str], files: Sequence[NewFile]) -> None:
        """Put files without some rows in the place of those that have them, as the deletion of this number."""
        transaction = Transaction(DELETIONS_APPLICATION, number, time.time_ns() // 1_000_000)
        self._replace(gone, files, CommitProperties(app_transactions=[transaction]), changed=True)

    def replace(self, gone: Sequence[str], files: Sequence[NewFile]) -> None:
        """Put files in the place of others that have the same rows."""
        self._replace(gone, files, CommitProperties(custom_metadata=OWN_COMMIT_MARK), changed=False)

    def _replace(
        self, gone: Sequence[str], files: Sequence[NewFile], properties: CommitProperties, *, changed: bool
    ) -> None:
        """Durably; under the lock of upkeep. Raises TableChanged."""
        now = time.time_ns() // 1_000_000
        removed = [RemoveAction(name, changed, now, partition_values=_folder_values(name)) for name in gone]
        actions = [*_added(files, now, changed=changed), *removed]
        table = self._table
        before = table.version()
        # Invariant: what is replaced is what was read. delta-rs itself would remove a file that somebody else has
        # replaced, and leave one whose vector it does not name, so that rows are there twice: it may commit only to
        # the version that was looked at, and each other version is looked at again.
        properties.max_commit_retries = 0
        for _ in range(COMMIT_ATTEMPTS):
            listed: dict[str, TableFile] = {file: file for file in self.active()}
            if gone and {one.name for one in files} <= {*listed} and not {*gone} & {*listed}:
                break  # a store's answer was lost: this is our own commit
            if any(name not in listed or listed[name].live is not None for name in gone):
                raise TableChanged(f"{self.folder}: another program changed files that were to be replaced")
            with suppress(CommitFailedError):
                self._write(table, actions, properties)
                break
        else:
            raise TableChanged(f"{self.folder}: other programs commit all the time")
        self._sync_since(before)

    def apply_vectors(self, files: Sequence[TableFile]) -> None:
        """Have files with deletion vectors rewritten without their deleted rows; under the lock of upkeep.

        delta-rs does it, as it alone writes what has to be said to remove such a file. Files without rows stay: they
        have nothing that could come back. Raises VectorStays where delta-rs would damage times.
        """
        for file in files:
            if (condition := self._first_row(file)) is not None:
                before = self._table.version()
                properties = CommitProperties(custom_metadata=OWN_COMMIT_MARK)
                with translate_errors_at(self.folder):
                    self._table.update(
                        {"source": "source"},
                        predicate=condition,
                        commit_properties=properties,
                        post_commithook_properties=NO_HOOKS,
                    )
                self._sync_since(before)

    def _first_row(self, file: TableFile) -> str | None:
        """Return a condition of SQL that holds for the first row of a file; None where it has none."""
        with open_rows(self.folder, file) as rows:
            if not rows.fits_nanoseconds():
                raise VectorNotApplicable(
                    f"{self.folder / file}: rows were deleted by a deletion vector, and times are beyond what can be "
                    f"rewritten here: run REORG TABLE delta.`{self.folder}` APPLY (PURGE) in Spark"
                )
            first = next((part.slice(0, 1).to_pylist()[0] for part in rows.batches(ROW_PLACE) if part.num_rows), None)
        if first is None:
            return None
        folder = [f"{column} = '{value}'" for column, value in _folder_values(file).items()]
        topic = str(first["topic"]).replace("'", "''")
        partition = "partition is null" if first["partition"] is None else f"partition = {first['partition']}"
        return " and ".join([*folder, f"topic = '{topic}'", partition, f'"offset" = {first["offset"]}'])

    def vacuum(self, keep_hours: int) -> None:
        """Remove files that left the table so many hours ago, and commits that a checkpoint stands for.

        Both go by age: call it only while the clock is believed.
        """
        # Full: what checkpoints have forgotten is found, too.
        table = self._table
        # Workaround: delta-rs 1.6.6 takes the files of deletion vectors in use for files that nobody needs.
        if any(file.live is not None for file in self.active()):
            _LOGGER.warning("%s: old files stay until deletion vectors are applied", self.folder)
            return
        self._check_writer()
        with translate_errors_at(self.folder):
            table.cleanup_metadata()
            table.vacuum(keep_hours, dry_run=False, enforce_retention_duration=False, full=True)

    def _check_written(self, files: Sequence[NewFile]) -> None:
        """Whoever was asleep for hours may have lost them. Raises TableChanged."""
        here = isinstance(self.folder, Path)
        if here and (lost := [one.name for one in files if not (self.folder / one.name).exists()]):
            raise TableChanged(f"{self.folder / lost[0]} is gone before it was committed")

    def _sync_since(self, before: int, *, added: bool = True) -> None:
        """Bring the commits after version ``before`` to the disk, and first what they ``added``: delta-rs does not."""
        after = self._table.version()
        for version in range(before + 1, after + 1) if isinstance(self.folder, Path) else ():
            if actions := self._actions(version):
                names = [str(action["add"]["path"]) for action in actions if "add" in action] if added else []
                self._sync([*(self.folder / unquote(name) for name in names), self._path(version)])

    def _sync(self, paths: Iterable[TablePath]) -> None:
        sync_written([path for path in paths if isinstance(path, Path)])

    def files(self, from_batch: int = 0) -> Iterator[tuple[int, list[str]]]:
        """Batches whose commits Delta has cleaned up are not found: see the Journal."""
        found: dict[int, list[str]] = {}
        for batch, files in self._commits():
            if batch < from_batch:
                break
            found.setdefault(batch, files)  # a typed table may have one twice: the newer commit is right
        yield from sorted(found.items())

    def newest(self) -> int:
        return _newest(self._table) if self.exists else -1

    def active(self) -> list[TableFile]:
        return self._listed(self._table) if self.exists else []

    def active_at(self, version: int) -> list[TableFile]:
        """Return the files of an earlier version. Raises DamagedFile where its log is gone."""
        try:
            with translate_errors_at(self.folder):
                earlier = deltalake.DeltaTable(str(self.folder), version=version, **delta_rs_options(self.folder))
                return self._listed(earlier)
        except DeltaError as error:
            raise DamagedFile(f"{self._log}: version {version}: {str(error).partition(chr(10))[0]}") from None

    def version(self) -> int:
        """Return the newest version; -1 where there is no table."""
        return self._table.version() if self.exists else -1

    def first_version(self) -> int:
        """Return the oldest version whose commit is still in the log of a table in a folder."""
        commits = sorted(self._log.glob("*.json")) if isinstance(self._log, Path) else []
        return int(commits[0].stem) if commits else self.version()

    def foreign_commit(self, version: int) -> ForeignCommit | None:
        """Return a commit of another program that changed rows; None for our own, and where the log has it no more."""
        actions = self._actions(version) or []
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        own = {APPLICATION, DELETIONS_APPLICATION}
        if "penstock" in info or any(action.get("txn", {}).get("appId") in own for action in actions):
            return None
        changes = [action.get("add") or action.get("remove") or {} for action in actions]
        names = frozenset(unquote(str(change["path"])) for change in changes if change.get("dataChange"))
        if not names:
            return None
        engine, operation = (str(info.get(key, "unknown")) for key in ("engineInfo", "operation"))
        metrics: dict[str, Any] = info.get("operationMetrics") or {}
        updated = next((int(metrics[key]) for key in UPDATED_ROWS if key in metrics), None)
        return ForeignCommit(version, engine, operation, names, updated)

    def _listed(self, table: deltalake.DeltaTable) -> list[TableFile]:
        with translate_errors_at(self.folder):
            # One snapshot: a list and vectors of different versions would bring deleted rows back.
            adds, vectors = pa.table(table.get_add_actions()), self._vectors(table)
        listed: list[Any] = adds.select(["path", "size_bytes"]).to_pylist()
        names = {unquote(one["path"]): int(one["size_bytes"]) for one in listed}
        return [TableFile.listed(name, size, vectors.get(name)) for name, size in sorted(names.items())]

    def _vectors(self, table: deltalake.DeltaTable) -> dict[str, Mask]:
        """Return the files that have a deletion vector, each with the rows that it leaves."""
        if DELETION_VECTORS not in (table.protocol().reader_features or ()):
            return {}
        root = unquote(table.table_uri).rstrip("/").removeprefix("file://") + "/"
        vectors: dict[str, Mask] = {}
        for batch in table.deletion_vectors():
            rows = pa.record_batch(batch)
            for path, live in zip(rows["filepath"].to_pylist(), rows["selection_vector"], strict=True):
                name = unquote(str(path)).removeprefix("file://").removeprefix(root)
                vectors[name] = live.values.to_numpy(zero_copy_only=False)
        return vectors

    def _commits(self) -> Iterator[tuple[int, list[str]]]:
        """The batches in the log, newest first. Other commits, such as those of compaction, are no batches."""
        version = self._table.version() if self.exists else -1
        while (actions := self._actions(version)) is not None:
            batch = next((a["txn"]["version"] for a in actions if a.get("txn", {}).get("appId") == APPLICATION), None)
            if batch is not None:
                yield int(batch), [unquote(str(action["add"]["path"])) for action in actions if "add" in action]
            version -= 1

    def _actions(self, version: int) -> list[dict[str, Any]] | None:
        """What a commit did; None where it is kept no more."""
        try:
            return _actions_in(self._path(version).read_text())
        except FileNotFoundError:
            return None

    def _path(self, version: int) -> TablePath:
        return self._log / f"{version:020}.json"


def _actions_in(text: str) -> list[dict[str, Any]]:
    return [parse_object(line) for line in text.splitlines() if line.strip()]


def _drop_torn(log: Path) -> None:
    """Remove the newest commits that a power cut left without their text: Spark then does those batches again.
    And a torn checkpoint: the commits before it are there.
    """
    for path in sorted(log.glob("*.checkpoint.parquet"), reverse=True)[:1]:
        try:
            pq.read_metadata(path)
        except (pa.ArrowInvalid, OSError):
            _LOGGER.warning("removed %s, which was torn", path)
            path.unlink()
            (log / LAST_CHECKPOINT).unlink(missing_ok=True)
    for path in sorted(log.glob("*.json"), reverse=True):
        try:
            if _actions_in(path.read_text()):
                return
        except ValueError:
            pass
        _LOGGER.warning("removed %s, which was torn", path)
        path.unlink()


def _added(files: Sequence[NewFile], now: int, *, changed: bool = True) -> list[AddAction | RemoveAction]:
    return [AddAction(one.name, one.size, _folder_values(one.name), now, changed, one.statistics) for one in files]


def _folder_values(name: str) -> dict[str, str | None]:
    """The values of the columns that a file's folders stand for."""
    return {column: value for column in PARTITION_COLUMNS if (value := partition_value(name, column))}


def _type_of(field: Any) -> str:
    return str(getattr(field.type, "type", field.type))


def _newest(table: deltalake.DeltaTable) -> int:
    found = table.transaction_version(APPLICATION)
    return -1 if found is None else int(found)
