"""The table as a Delta table: protocol 1 and 2, no deletion vectors, no column mapping, so that every reader takes it.

Committed by delta-rs, which is asked nothing that it does not promise: it takes a batch's number twice, so the number
is compared here, under the lock of the one process that lands.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, CommitProperties, PostCommitHookProperties, RemoveAction, Transaction

from penstock.errors import PenstockError
from penstock.files.errors import DamagedFile
from penstock.files.file_system import sync_written
from penstock.files.json_values import parse_object
from penstock.landing.table.table_files import NewFile
from penstock.landing.table_paths import partition_value
from penstock.landing.table_schema import LANDED, PARTITION_COLUMNS

DELTA_LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
APPLICATION = "penstock"
DELETIONS = "penstock.deletions"
KEEP_HOURS = 6
"""A reader that began so long ago still finds its files, though they were merged since."""
CONFIGURATION = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": f"interval {KEEP_HOURS + 1} hours",
    "delta.enableExpiredLogCleanup": "true",
}
"""A checkpoint lists all files: then commits need not be kept, as the journal has what each batch brought."""
CHECKPOINT_EVERY = 100
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""delta-rs would remove commits before the checkpoint that stands for them is on the disk."""
_LOGGER = logging.getLogger(__name__)


class TableChanged(PenstockError, RuntimeError):
    """Files that were to be replaced are not in the table any more: it is to be looked at again."""


class DeltaTable:
    """The table in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = self.landed = folder
        self._log = folder / DELTA_LOG
        self._opened: deltalake.DeltaTable | None = None

    @property
    def _table(self) -> deltalake.DeltaTable:
        """As it is now. Raises DamagedFile."""
        try:
            if self._opened is None:
                self._opened = deltalake.DeltaTable(str(self.folder))
            else:
                self._opened.update_incremental()
        except DeltaError as error:
            raise DamagedFile(f"{self._log} cannot be read: {str(error).partition(chr(10))[0]}") from None
        return self._opened

    def begin(self) -> None:
        self._drop_torn()
        if not deltalake.DeltaTable.is_deltatable(str(self.folder)):
            self.folder.mkdir(parents=True, exist_ok=True)
            deltalake.DeltaTable.create(
                str(self.folder), LANDED, partition_by=list(PARTITION_COLUMNS), configuration=dict(CONFIGURATION)
            )
            sync_written([self._path(0)])
        self._configure()

    def _configure(self) -> None:
        """Have the settings of today, also where the table was made by an earlier version."""
        before = self._table.version()
        known = self._table.metadata().configuration
        if lacking := {name: value for name, value in CONFIGURATION.items() if known.get(name) != value}:
            self._table.alter.set_table_properties(lacking, raise_if_not_exists=False)
            self._sync_since(before)

    def commit(self, batch: int, files: Sequence[NewFile]) -> None:
        table = self._table
        if _newest(table) >= batch:
            return
        self._check_written(files)
        before, now = table.version(), time.time_ns() // 1_000_000
        properties = CommitProperties(app_transactions=[Transaction(APPLICATION, batch, now)])
        table.create_write_transaction(
            _added(files, now),
            "append",
            LANDED,
            partition_by=list(PARTITION_COLUMNS),
            commit_properties=properties,
            post_commithook_properties=NO_HOOKS,
        )
        self._sync_since(before, added=False)
        version = table.version()
        if version // CHECKPOINT_EVERY > before // CHECKPOINT_EVERY:
            table.create_checkpoint()
            sync_written([self._log / f"{version:020}.checkpoint.parquet", self._log / LAST_CHECKPOINT])
            table.cleanup_metadata()

    def deleted(self) -> int:
        """The number of the last deletion that is done; 0 for none."""
        return int(self._table.transaction_version(DELETIONS) or 0) if self._log.is_dir() else 0

    def delete(self, number: int, gone: Sequence[str], files: Sequence[NewFile]) -> None:
        """Put files without some rows in the place of those that have them, as the deletion of this number."""
        transaction = Transaction(DELETIONS, number, time.time_ns() // 1_000_000)
        self._replace(gone, files, CommitProperties(app_transactions=[transaction]), changed=True)

    def replace(self, gone: Sequence[str], files: Sequence[NewFile]) -> None:
        """Put files in the place of others that have the same rows."""
        self._replace(gone, files, CommitProperties(), changed=False)

    def _replace(
        self, gone: Sequence[str], files: Sequence[NewFile], properties: CommitProperties, *, changed: bool
    ) -> None:
        """Durably; under the lock of upkeep. Raises TableChanged."""
        table, now = self._table, time.time_ns() // 1_000_000
        if not {*gone} <= {*self.sizes()}:
            raise TableChanged(f"{self.folder}: files were merged meanwhile")  # delta-rs would not mind
        before = table.version()
        table.create_write_transaction(
            [
                *_added(files, now, changed=changed),
                *(RemoveAction(name, changed, now, partition_values=_folder_values(name)) for name in gone),
            ],
            "append",
            LANDED,
            partition_by=list(PARTITION_COLUMNS),
            commit_properties=properties,
            post_commithook_properties=NO_HOOKS,
        )
        self._sync_since(before)

    def vacuum(self, keep_hours: int) -> None:
        """Remove files that are not in the table, and have not been for so many hours."""
        # Full: what checkpoints have forgotten is found, too.
        self._table.vacuum(keep_hours, dry_run=False, enforce_retention_duration=False, full=True)

    def sizes(self) -> dict[str, int]:
        """The files of the table, with their bytes."""
        adds = self._adds() if self._log.is_dir() else {"path": pa.array([]), "size_bytes": pa.array([])}
        return dict(zip(map(unquote, adds["path"].to_pylist()), adds["size_bytes"].to_pylist(), strict=True))

    def _check_written(self, files: Sequence[NewFile]) -> None:
        """Whoever was asleep for hours may have lost them. Raises TableChanged."""
        if lost := [one.name for one in files if not (self.folder / one.name).exists()]:
            raise TableChanged(f"{self.folder / lost[0]} is gone before it was committed")

    def _sync_since(self, before: int, *, added: bool = True) -> None:
        """Bring the commits after version ``before`` to the disk, and first what they ``added``: delta-rs does not."""
        for version in range(before + 1, self._table.version() + 1):
            if actions := self._actions(version):
                names = [str(action["add"]["path"]) for action in actions if "add" in action] if added else []
                sync_written([*(self.folder / unquote(name) for name in names), self._path(version)])

    def files(self, from_batch: int = 0) -> Iterator[tuple[int, list[str]]]:
        """Batches whose commits Delta has cleaned up are not found: see the Journal."""
        found: dict[int, list[str]] = {}
        for batch, files in self._commits():
            if batch < from_batch:
                break
            found[batch] = files
        yield from sorted(found.items())

    def newest(self) -> int:
        return _newest(self._table) if self._log.is_dir() else -1

    def active(self) -> list[str]:
        if not self._log.is_dir():
            return []
        return sorted(unquote(str(path)) for path in self._adds()["path"].to_pylist())

    def _adds(self) -> Any:
        return pa.table(self._table.get_add_actions())

    def _commits(self) -> Iterator[tuple[int, list[str]]]:
        """The batches in the log, newest first. Other commits, such as those of compaction, are no batches."""
        version = self._table.version() if self._log.is_dir() else -1
        while (actions := self._actions(version)) is not None:
            batch = next((a["txn"]["version"] for a in actions if a.get("txn", {}).get("appId") == APPLICATION), None)
            if batch is not None:
                yield int(batch), [unquote(str(action["add"]["path"])) for action in actions if "add" in action]
            version -= 1

    def _actions(self, version: int) -> list[dict[str, Any]] | None:
        """What a commit did; None where it is kept no more."""
        try:
            lines = self._path(version).read_text().splitlines()
        except FileNotFoundError:
            return None
        return [parse_object(line) for line in lines if line.strip()]

    def _path(self, version: int) -> Path:
        return self._log / f"{version:020}.json"

    def _drop_torn(self) -> None:
        """Remove the newest commits that a power cut left without their text: Spark then does those batches again.
        And a torn checkpoint: the commits before it are there.
        """
        for path in sorted(self._log.glob("*.checkpoint.parquet"), reverse=True)[:1]:
            try:
                pq.read_metadata(path)
            except (pa.ArrowInvalid, OSError):
                _LOGGER.warning("removed %s, which was torn", path)
                path.unlink()
                (self._log / LAST_CHECKPOINT).unlink(missing_ok=True)
        for path in sorted(self._log.glob("*.json"), reverse=True):
            try:
                if path.read_text() and self._actions(int(path.stem)):
                    return
            except ValueError:
                pass
            _LOGGER.warning("removed %s, which was torn", path)
            path.unlink()


def _added(files: Sequence[NewFile], now: int, *, changed: bool = True) -> list[AddAction | RemoveAction]:
    return [
        AddAction(one.name, one.size, {"kind": one.kind, "date": one.date}, now, changed, one.statistics)
        for one in files
    ]


def _folder_values(name: str) -> dict[str, str | None]:
    """The values of the columns that a file's folders stand for."""
    return {column: partition_value(name, column) for column in PARTITION_COLUMNS}


def _newest(table: deltalake.DeltaTable) -> int:
    found = table.transaction_version(APPLICATION)
    return -1 if found is None else int(found)
