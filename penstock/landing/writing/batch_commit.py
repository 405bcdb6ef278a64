"""What the driver does with the files of a micro-batch: decide which rows are duplicates, commit, remember."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.landing.duplicates.decision import reconsidered
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.hash_run import HashRun
from penstock.landing.duplicates.landed_keys import NO_LIMIT, LandedKeys, mapped_runs, within_window
from penstock.landing.event_rules import WITH_UUID
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.table_file import TableFile, as_written, open_rows
from penstock.landing.writing.part_writer import PartResult
from penstock.landing.writing.written_file import AGAIN, ASIDE, WrittenFile, copy_without_rows

COLUMNS = ["topic", "partition", "offset", "timestamp", "uuid"]
MAY_HAVE = tuple(f"kind={kind}/" for kind in WITH_UUID)
"""What the names of files begin with whose rows may have uuids."""
Keys = Callable[[], Iterable[EventsSeen]]
Mask = npt.NDArray[np.bool_]
Beside = Callable[[int, Sequence[WrittenFile]], None]
_LOGGER = logging.getLogger(__name__)


class TableMovedOn(PenstockError, RuntimeError):
    """Another batch was committed meanwhile."""


class BatchCommit:
    """Commits micro-batches into a table, each once. ``keys``: the folder of the keys that landed; ``window`` in
    microseconds; ``deleted``: the keys of late whose rows were taken out of the table; ``beside``: has the tables
    committed that stand beside this one, with the files that are about to be; ``latest_time``: what the clock should
    say, in microseconds. One process at a time.
    """

    def __init__(
        self,
        table: DeltaTable,
        keys: Path,
        window: int,
        deleted: Keys = tuple,
        beside: Beside = lambda batch, files: None,
        latest_time: Callable[[], int] = lambda: NO_LIMIT,
    ) -> None:
        self._table, self._window, self._beside = table, window, beside
        self._known = partial(load_landed_keys, table, keys, window, deleted, latest_time)
        self._keys = self._known()

    def is_landed(self, batch: int) -> bool:
        """Whether nothing is left to do for a batch."""
        return self._keys.batch >= batch and self._table.newest() >= batch

    def land(self, batch: int, write: Callable[[], Sequence[PartResult]]) -> None:
        """Commit what ``write`` wrote, unless the table has the batch already."""
        if self._table.newest() < batch:
            parts = write()
            files = self._decided(parts)
            self._beside(batch, files)
            self._table.commit(batch, files)
            self._remove_replaced(parts, files)
            self._keys.add(batch, EventsSeen.concat([file.seen for file in files if file.seen is not None]))
        elif self._keys.batch < batch:  # it was committed, though a store's answer did not come
            self._keys = self._known()

    def _remove_replaced(self, parts: Sequence[PartResult], files: Sequence[WrittenFile]) -> None:
        """Only now: where a store is away, the batch is decided again from what the tasks wrote."""
        kept = {file.name for file in files}
        for name in (file.name for part in parts for file in part.files if file.name not in kept):
            (self._table.folder / name).unlink(missing_ok=True)

    def _decided(self, parts: Sequence[PartResult]) -> list[WrittenFile]:
        """The files without duplicates."""
        files = [file for part in parts for file in part.files]
        judged = [file for file in files if _is_judged(file)]
        others = [file for file in files if not _is_judged(file)]
        through = min((part.through for part in parts), default=-1)
        return [*others, *self._without_duplicates(judged, through)] if judged else others

    def _without_duplicates(self, files: Sequence[WrittenFile], through: int) -> Iterator[WrittenFile]:
        """``through``: the batch through which all tasks knew the keys that landed."""
        seen = EventsSeen.concat([file.seen for file in files if file.seen is not None])
        aside = np.repeat([file.role == ASIDE for file in files], [file.rows for file in files])
        dropped = reconsidered(seen, aside, self._keys.since(through), self._keys.runs, self._window)
        at = 0
        for file in files:
            mine = dropped[at : at + file.rows]
            at += file.rows
            left = copy_without_rows(self._table.folder, file, mine) if mine.any() else file
            if left is not None:
                yield left


def load_landed_keys(
    table: DeltaTable,
    folder: Path,
    window: int,
    deleted: Keys = tuple,
    latest_time: Callable[[], int] = lambda: NO_LIMIT,
) -> LandedKeys:
    """Return the keys of what landed, through the table's newest batch: as they were kept, else from the table."""
    newest = table.newest()
    keys = LandedKeys.load(folder, window, latest_time)
    if keys is None or keys.batch > newest:
        keys = LandedKeys(folder, window, latest_time)
        if newest >= 0:
            _LOGGER.info("reading the keys that landed from the table")
            keys.add(newest, recent_events(table, window, deleted, latest_time()))
    for batch, files in table.files(keys.batch + 1):
        keys.add(batch, EventsSeen.concat(list(_events(table, as_written(files)))))
    return keys


def landed_runs(table: DeltaTable, folder: Path, window: int, batch: int, deleted: Keys = tuple) -> list[HashRun]:
    """Likewise for a reader, through ``batch``, the newest; nothing is written. Raises TableMovedOn."""
    through, runs = mapped_runs(folder, window)
    if through > batch:
        raise TableMovedOn
    if through < 0:
        return [HashRun.of(recent_events(table, window, deleted))] if batch >= 0 else []
    later = as_written(name for number, files in table.files(through + 1) if number <= batch for name in files)
    return [*runs, *(HashRun.of(one) for one in _events(table, later))]


def recent_events(table: DeltaTable, window: int, deleted: Keys, latest_time: int = NO_LIMIT) -> EventsSeen:
    """Return the events that landed at most the window (microseconds) before the newest of their topic."""
    parts = chain(deleted(), _events(table, reversed(table.active())))
    candidates = EventsSeen.concat(list(within_window(parts, window, latest_time=latest_time)))
    return next(within_window([candidates], window, latest_time=latest_time))


def _events(table: DeltaTable, files: Iterable[TableFile]) -> Iterator[EventsSeen]:
    return (read_events(table.folder, name) for name in files if name.startswith(MAY_HAVE))


def read_events(table: TablePath, name: TableFile, which: Mask | None = None) -> EventsSeen:
    """The rows with a uuid in a file of the table, or those of some of its rows; none where it is gone."""
    try:
        with open_rows(table, name) as file:
            rows = file.read(COLUMNS) if file.has_values("uuid") else None
    except FileNotFoundError:
        rows = None
    if rows is None:
        return EventsSeen.concat([])
    rows = rows if which is None else rows.filter(pa.array(which))
    batches = rows.filter(pc.is_valid(rows["uuid"])).combine_chunks().to_batches()
    return EventsSeen.of(batches[0]) if batches else EventsSeen.concat([])


def _is_judged(file: WrittenFile) -> bool:
    return file.seen is not None and file.role != AGAIN
