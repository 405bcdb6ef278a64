"""A Delta table at one version, with its history: which commit lost rows, and which files no version has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
from deltalake.exceptions import DeltaError

from penstock.audit.columns import OffsetColumns
from penstock.audit.tables.parquet_folder import rows_of_file
from penstock.audit.tables.table import (
    BATCH_ROWS,
    AuditedTable,
    Loss,
    Missing,
    OffsetRows,
    Orphan,
    PartitionOffsets,
    TableUnreadable,
    dotted_names,
    offset_rows,
    remove_offsets,
    translate_errors,
)
from penstock.errors import PenstockError
from penstock.landing.offset_runs import count_offsets
from penstock.landing.storage.object_path import ObjectPath, TablePath, delta_rs_options
from penstock.landing.table.table_file import TableFile, open_rows
from penstock.landing.table.table_reader import DELTA_LOG, TableReader

MAX_VERSIONS = 1000
"""Limit: earlier versions that are searched for lost rows; opening one takes some milliseconds."""


def is_delta(address: str, options: Mapping[str, str]) -> bool:
    """Report whether a Delta table is at ``address``. Raises TableUnreadable if a store does not answer."""
    with translate_errors(address, DeltaError):
        return TableReader(_path(address, options)).exists


def _path(address: str, options: Mapping[str, str]) -> TablePath:
    if "://" in address and not address.startswith("file://"):
        return ObjectPath(address.rstrip("/"), dict(options))
    return Path(unquote(address.removeprefix("file://")))


class DeltaTable(AuditedTable):
    """The version that is newest when the object is created."""

    kind = "Delta"

    def __init__(self, address: str, options: Mapping[str, str]) -> None:
        self._folder = _path(address, options)
        self._reader = TableReader(self._folder)
        with translate_errors(address, DeltaError):
            self._number = self._reader.version()
            self._files = self._reader.active_at(self._number)
            self._schema = self._reader.schema_now
            is_of_penstock = self._reader.newest() >= 0
        if is_of_penstock:
            # Rows of duplicates are left out of such a table, and chunks of a large message share a row: both would
            # look missing here, while the ledger has them.
            raise TableUnreadable(f"{address} is landed by Penstock; `penstock balance --rebuild` proves it")
        self.version = str(self._number)

    def column_names(self) -> list[str]:
        """Return the columns of the table."""
        return dotted_names(self._schema)

    def rows(self, columns: OffsetColumns, topic: str) -> Iterator[OffsetRows]:
        """Yield the offsets of all rows of the version, without deleted ones."""
        for file in self._files:
            yield from self._rows_of(file, columns, topic)

    def _rows_of(self, file: TableFile, columns: OffsetColumns, topic: str) -> Iterator[OffsetRows]:
        with translate_errors(file, DeltaError), open_rows(self._folder, file, columns.dictionaries) as reader:
            available = set(dotted_names(reader.schema))
            columns_of_file = [column for column in columns.names if column in available]
            for batch in reader.batches(columns_of_file, BATCH_ROWS):
                yield offset_rows(str(file), batch, columns, topic)

    def commits_of(self, files: set[str]) -> dict[str, str]:
        """Return the commit that added each file, as far as the log goes back."""
        commits: dict[str, str] = {}
        for number, before, after in self._versions():
            added = {str(file) for file in after} - {str(file) for file in before}
            commits |= {name: self._describe(number) for name in files & added}
            if files <= commits.keys():
                break
        return commits

    def losses(self, columns: OffsetColumns, topic: str, missing: Missing) -> list[Loss]:
        """Return the commits that removed rows with these offsets, the newest first."""
        losses = []
        for number, before, after in self._versions():
            identities = {file.identity for file in after}
            removed = [file for file in before if file.identity not in identities]
            if not removed:
                continue
            lost = self._held(removed, columns, topic, missing)
            if lost:
                # A rewrite keeps rows in other files, which this commit adds: older files lack them, or they would not
                # be missing.
                identities = {file.identity for file in before}
                added = [file for file in after if file.identity not in identities]
                lost = remove_offsets(lost, self._held(added, columns, topic, lost))
            losses += [Loss(self._describe(number), *of_partition) for of_partition in lost.items()]
            missing = remove_offsets(missing, lost)
            if not missing:
                break
        return losses

    def _held(self, files: list[TableFile], columns: OffsetColumns, topic: str, missing: Missing) -> Missing:
        """Return the missing offsets that rows of ``files`` have; files that are vacuumed have none."""
        held = PartitionOffsets(missing)
        for file in files:
            with contextlib.suppress(TableUnreadable):
                for rows in self._rows_of(file, columns, topic):
                    held.add(rows)
        return held.among(missing)

    def orphans(self, columns: OffsetColumns, topic: str, missing: Missing) -> list[Orphan]:
        """Return files of the folder that no searched version has, and that hold missing rows."""
        orphans: list[Orphan] = []
        if not isinstance(self._folder, Path):
            return orphans
        for path in sorted(self._folder.rglob("*.parquet")):
            name = str(path.relative_to(self._folder))
            if name in self._listed or name.startswith(DELTA_LOG):
                continue
            held = PartitionOffsets(missing)
            # A writer that was killed leaves torn files.
            with contextlib.suppress(TableUnreadable):
                for rows in rows_of_file(path, name, columns, topic):
                    held.add(rows)
            orphans += [
                Orphan(name, partition, count_offsets(ranges)) for partition, ranges in held.among(missing).items()
            ]
        return orphans

    def _versions(self) -> Iterator[tuple[int, list[TableFile], list[TableFile]]]:
        """Yield each version's number, and the files before and after it, the newest first, while the log has it."""
        after = self._files
        for number in range(self._number, max(-1, self._number - MAX_VERSIONS), -1):
            try:
                before = self._reader.active_at(number - 1) if number else []
            except PenstockError:
                return
            yield number, before, after
            after = before

    @cached_property
    def _listed(self) -> set[str]:
        """The files of all searched versions: computed once, as each version is opened for it."""
        return {str(file) for _, before, after in self._versions() for file in (*before, *after)} | {*self._files}

    @cached_property
    def _history(self) -> dict[int, dict[str, Any]]:
        with translate_errors(self._folder, DeltaError):
            table = deltalake.DeltaTable(str(self._folder), **delta_rs_options(self._folder))
            return {int(entry["version"]): entry for entry in table.history() if "version" in entry}

    def _describe(self, number: int) -> str:
        entry = self._history.get(number, {})
        operation = entry.get("operation", "an unknown operation")
        engine = entry.get("engineInfo") or entry.get("clientVersion") or "an unknown engine"
        moment = entry.get("timestamp")
        when = f" at {datetime.fromtimestamp(moment / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if moment else ""
        return f"version {number}, {operation} by {engine}{when}"
