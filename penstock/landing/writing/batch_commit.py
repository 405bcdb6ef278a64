"""The work of the driver with the files of a micro-batch: find duplicates, commit, remember keys.

Invariant: each batch is in the table once, and of the events with one key within the window one row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.landing.duplicates.decision import find_late_duplicates
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.hash_run import HashRun
from penstock.landing.duplicates.landed_keys import NO_LIMIT, LandedKeys, mapped_runs, within_window
from penstock.landing.event_rules import WITH_UUID
from penstock.landing.offset_runs import OffsetRange
from penstock.landing.row_sums import RowSums, commit_metadata
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.table_file import TableFile, as_written, open_rows
from penstock.landing.writing.part_writer import PartResult
from penstock.landing.writing.written_file import FileRole, WrittenFile, copy_without_rows

_KEY_COLUMNS = ["topic", "partition", "offset", "timestamp", "uuid"]
_UUID_PREFIXES = tuple(f"kind={kind}/" for kind in WITH_UUID)
"""Prefixes of the names of files whose rows may have uuids."""
Keys = Callable[[], Iterable[EventsSeen]]
Mask = npt.NDArray[np.bool_]
CommitHook = Callable[[int, Sequence[WrittenFile]], Mapping[str, int]]
"""Receives a batch and its files before they are committed; returns violations of contracts by rule."""
_LOGGER = logging.getLogger(__name__)


class TableMovedOn(PenstockError, RuntimeError):
    """Another batch was committed during the call."""


class BatchCommit:
    """Commits of micro-batches into a table, each once. One process at a time.

    ``keys`` is the folder of landed keys, ``window`` is in microseconds. ``deleted`` returns recent keys whose rows
    were deleted; ``before_commit`` commits the typed tables; ``latest_time`` is the plausible time in microseconds;
    ``ranges_of`` returns the planned offsets of a batch by topic, which its commit states.
    """

    def __init__(
        self,
        table: DeltaTable,
        keys: Path,
        window: int,
        deleted: Keys = tuple,
        before_commit: CommitHook = lambda batch, files: {},
        latest_time: Callable[[], int] = lambda: NO_LIMIT,
        ranges_of: Callable[[int], Mapping[str, OffsetRange]] = lambda batch: {},
    ) -> None:
        self._table, self._window, self._before_commit, self._ranges_of = table, window, before_commit, ranges_of
        self._load_keys = partial(load_landed_keys, table, keys, window, deleted, latest_time)
        self._keys = self._load_keys()

    @property
    def folder(self) -> TablePath:
        """The folder of the table."""
        return self._table.folder

    def is_landed(self, batch: int) -> bool:
        """Report whether a batch is committed and its keys are remembered."""
        return self._keys.batch >= batch and self._table.newest() >= batch

    def land(self, batch: int, write: Callable[[], Sequence[PartResult]]) -> None:
        """Commit the files that ``write`` returns, unless the table has the batch already."""
        if self._table.newest() < batch:
            parts = write()
            files = self._remove_duplicates(parts)
            # Order: typed tables, the table, the keys. Typed tables may be one batch ahead, and are replaced then;
            # keys that are behind are read from the table.
            violations = self._before_commit(batch, files)
            sums = RowSums()
            for file in files:
                sums.absorb(file.sums)
            landed_at = max((part.landed_at for part in parts), default=0)
            relands = any(file.role == FileRole.RELANDED for file in files)
            ranges = self._ranges_of(batch)
            description = commit_metadata(batch, landed_at, ranges, sums, violations, relands=relands)
            self._table.commit(batch, files, description)
            self._remove_replaced(parts, files)
            self._keys.add(batch, EventsSeen.concat([file.seen for file in files if file.seen is not None]))
        elif self._keys.batch < batch:
            # The batch was committed, but the store's answer was lost, or the commit was not synced.
            self._table.write_unsynced()
            self._keys = self._load_keys()

    def _remove_replaced(self, parts: Sequence[PartResult], files: Sequence[WrittenFile]) -> None:
        """Remove files that were replaced or consist of duplicates."""
        # Order: after the commit. If the store is unreachable, the batch is decided again from these files.
        committed = {file.name for file in files}
        for file in (file for part in parts for file in part.files if file.name not in committed):
            (self._table.folder / file.name).unlink(missing_ok=True)
            for typed in file.typed.values():
                if typed is not None:
                    typed.remove()

    def _remove_duplicates(self, parts: Sequence[PartResult]) -> list[WrittenFile]:
        """Return the files without duplicates."""
        files = [file for part in parts for file in part.files]
        checked = [file for file in files if _needs_check(file)]
        unchecked = [file for file in files if not _needs_check(file)]
        through = min((part.through for part in parts), default=-1)
        return [*unchecked, *self._drop_duplicates(checked, through)] if checked else unchecked

    def _drop_duplicates(self, files: Sequence[WrittenFile], through: int) -> Iterator[WrittenFile]:
        """Yield files without duplicates; ``through``: the last batch whose keys all tasks knew."""
        seen = EventsSeen.concat([file.seen for file in files if file.seen is not None])
        separate = np.repeat([file.role == FileRole.SEPARATE for file in files], [file.rows for file in files])
        dropped = find_late_duplicates(seen, separate, self._keys.runs_since(through), self._keys.runs, self._window)
        start = 0
        for file in files:
            mask = dropped[start : start + file.rows]
            start += file.rows
            remaining = copy_without_rows(self._table.folder, file, mask) if mask.any() else file
            if remaining is not None:
                yield remaining


def load_landed_keys(
    table: DeltaTable,
    folder: Path,
    window: int,
    deleted: Keys = tuple,
    latest_time: Callable[[], int] = lambda: NO_LIMIT,
) -> LandedKeys:
    """Return the keys of landed rows, through the table's newest batch: as stored, else from the table."""
    newest = table.newest()
    keys = LandedKeys.load(folder, window, latest_time)
    # Crash: a power cut may lose the newest commit of a table whose keys were stored already.
    if keys is None or keys.batch > newest:
        keys = LandedKeys(folder, window, latest_time)
        if newest >= 0:
            _LOGGER.info("reading the keys that landed from the table")
            keys.add(newest, recent_events(table, window, deleted, latest_time()))
    for batch, files in table.files(keys.batch + 1):
        keys.add(batch, EventsSeen.concat(list(_events(table, as_written(files)))))
    return keys


def landed_runs(table: DeltaTable, folder: Path, window: int, batch: int, deleted: Keys = tuple) -> list[HashRun]:
    """Return the landed keys through ``batch``, the newest, for a reader; write nothing. Raises TableMovedOn."""
    through, runs = mapped_runs(folder, window)
    if through > batch:
        raise TableMovedOn
    if through < 0:
        return [HashRun.from_events(recent_events(table, window, deleted))] if batch >= 0 else []
    later = as_written(name for number, files in table.files(through + 1) if number <= batch for name in files)
    return [*runs, *(HashRun.from_events(events) for events in _events(table, later))]


def recent_events(table: DeltaTable, window: int, deleted: Keys, latest_time: int = NO_LIMIT) -> EventsSeen:
    """Return the events that landed at most the window (microseconds) before the newest of their topic."""
    parts = chain(deleted(), _events(table, reversed(table.active())))
    # Newest days first, so that most old events are dropped before they are joined.
    candidates = EventsSeen.concat(list(within_window(parts, window, latest_time=latest_time)))
    return next(within_window([candidates], window, latest_time=latest_time))


def _events(table: DeltaTable, files: Iterable[TableFile]) -> Iterator[EventsSeen]:
    return (read_events(table.folder, name) for name in files if name.startswith(_UUID_PREFIXES))


def read_events(table: TablePath, name: TableFile, mask: Mask | None = None) -> EventsSeen:
    """Return the events in a file of the table, or in the rows of a mask; none if the file is removed.

    Rows that another program inserted without topic, offset or time are not events of a stream.
    """
    try:
        with open_rows(table, name) as file:
            rows = file.read(_KEY_COLUMNS) if file.has_values("uuid") else None
    except FileNotFoundError:
        rows = None
    if rows is None:
        return EventsSeen.concat([])
    rows = rows if mask is None else rows.filter(pa.array(mask))
    for column in ("uuid", "topic", "offset", "timestamp"):
        rows = rows.filter(pc.is_valid(rows[column])) if rows[column].null_count else rows
    batches = rows.combine_chunks().to_batches()
    return EventsSeen.from_rows(batches[0]) if batches else EventsSeen.concat([])


def _needs_check(file: WrittenFile) -> bool:
    return file.seen is not None and file.role != FileRole.RELANDED
