"""Changes of a view or typed table since a position: rows of later batches, and the offsets of deleted rows.

Invariant: a consumer that applies each answer to its rows, and continues at ``next``, has the rows of the table.
Rows are recognized as new by ``landed_at``, which all rows of a batch share, so merges and rewritten files are no
changes. Deletions have numbers and records of their own, so they are found however long ago they were done. Lost rows
that land again have a new ``landed_at``, so their offsets also count as deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.files.file_system import sync_written
from penstock.landing.event_rules import VIEWS
from penstock.landing.offset_runs import Runs
from penstock.landing.requests.deletions import FOREIGN, DeletionRecord
from penstock.landing.rows.engine import pc
from penstock.landing.table.delta_table import ROW_KEY, DeltaTable
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import TableFile, open_rows
from penstock.landing.table.table_reader import BatchFiles, LogSince
from penstock.landing.table_paths import TYPED_MARK, Layout, partition_value
from penstock.landing.table_schema import LANDED, PARTITION_COLUMNS, VIEW_COLUMNS
from penstock.landing.typed.typed_delta import BEFORE_FIRST_BATCH, TypedDelta, existing_typed_tables, read_starts
from penstock.landing.writing.written_file import in_current_columns, with_partition_columns
from penstock.proof.commit_notes import may_hold_returned_rows
from penstock.proof.deleted_rows import mask_of_rows
from penstock.qualified_names import topic_and_partition

LANDED_VIEW = "landed"
BATCH_COLUMN = "_batch"
"""Column of added rows: the number of their batch, null if the table's log no longer names it."""
_DELETED_TYPES: dict[str, pa.DataType] = {
    "deletion": pa.int64(),
    "why": pa.string(),
    "batch": pa.int64(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "begin": pa.int64(),
    "end": pa.int64(),
}
DELETED = pa.schema(_DELETED_TYPES)
"""Columns of deleted rows: their offsets [begin, end), the deletion's number and reason, and the newest batch at it.

RELANDED rows have no number, and ``batch`` is the batch that brings them again.
"""
RELANDED = "relanded"
"""Reason of offsets whose rows are among the added ones and were perhaps read before: a consumer deletes them first."""
READ_ROWS = 32 << 10
"""Limit: rows of a batch in memory; payloads may be large."""
MAX_ATTEMPTS = 50
"""Limit: a listing is repeated if the table changed during it; a listing takes less time than a commit."""
_POSITION = re.compile(r"(-?\d+)(?:\.(\d+)\.(-?\d+)\.(\d+))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NoSuchSource(PenstockError, ValueError):
    """An unknown view or typed table; the text lists the existing ones."""


class TableChanging(PenstockError, RuntimeError):
    """A table that was changed during every attempt to list it."""


class BadPosition(PenstockError, ValueError):
    """A text that is not a position."""


@dataclass(frozen=True, slots=True)
class Position:
    """The batch and the deletion through which changes were read.

    ``start``: the batch after which the typed table was written at that time; -1 for all batches, less after refills.
    ``landed_at`` of the batch, in microseconds; 0 if it is not known. ``deletion`` and ``start`` are None in a position
    of a batch alone.
    """

    batch: int = BEFORE_FIRST_BATCH
    deletion: int | None = None
    start: int | None = None
    landed_at: int = 0

    def __str__(self) -> str:
        if self.deletion is None or self.start is None:
            return str(self.batch)
        return f"{self.batch}.{self.deletion}.{self.start}.{self.landed_at}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the number of a batch, or the ``next`` of an earlier answer. Raises BadPosition."""
        match = _POSITION.fullmatch(text)
        # Limit: numbers of 64 bits.
        if match is None or len(text) > 80:
            raise BadPosition(f"{text!r} is not a batch number, nor the `next` of an earlier answer")
        batch, deletion, start, landed_at = match.groups()
        if deletion is None:
            return cls(int(batch))
        return cls(int(batch), int(deletion), int(start), int(landed_at))


@dataclass(frozen=True, slots=True)
class Source:
    """A view or typed table as of one version: ``files`` of ``table``, read in the columns of ``schema``."""

    table: DeltaTable
    schema: pa.Schema
    files: list[TableFile]
    kind: str = ""
    deleted_before: Mapping[str, Runs] = field(default_factory=dict)
    """Offsets by topic of deleted rows that another program may have brought back: they are not rows of the table."""

    def read(self, landed_at: frozenset[int] | None, names: frozenset[str] | None) -> Iterator[pa.RecordBatch]:
        """Yield rows. ``landed_at``: only rows with one of these times; ``names``: only of these files."""
        for file in self.files:
            if (names is None or file in names) and self.kind in ("", partition_value(file, "kind")):
                yield from self._read_file(file, landed_at)

    def _read_file(self, file: TableFile, landed_at: frozenset[int] | None) -> Iterator[pa.RecordBatch]:
        in_file = [name for name in {*self.schema.names, "landed_at"} if name not in PARTITION_COLUMNS]
        with open_rows(self.table.folder, file) as rows:
            if landed_at is not None and not _may_contain(rows.bounds("landed_at"), landed_at):
                return
            columns = [name for name in rows.columns if name in in_file]
            for batch in rows.batches(columns, READ_ROWS):
                matching = batch if landed_at is None else _rows_of_times(batch, landed_at)
                if self.deleted_before:
                    matching = matching.filter(pa.array(~mask_of_rows(matching, self.deleted_before)))
                if matching.num_rows:
                    yield self._with_all_columns(matching, file)

    def _with_all_columns(self, rows: pa.RecordBatch, file: TableFile) -> pa.RecordBatch:
        folders = [self.schema.field(name) for name in PARTITION_COLUMNS if name in self.schema.names]
        plain = pa.schema([field for field in self.schema if field not in folders])
        complete = with_partition_columns(in_current_columns(rows, plain), file, pa.schema([*plain, *folders]))
        return complete.select(self.schema.names)


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes since a position.

    ``is_complete``: ``added`` yields all rows of the table, which replace all earlier ones: at the first read, if the
    table's log no longer reaches back to the position, if a typed table was filled or refilled, or if the position is
    of other tables. ``names``: the files that may have added rows, None for any; ``batch_times``: batches by the time
    of their rows, in microseconds.
    """

    next: Position
    is_complete: bool
    deleted: pa.Table
    source: Source
    names: frozenset[str] | None
    batch_times: Mapping[int, int]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the added rows."""
        return self.source.schema

    @property
    def schema_with_batch(self) -> pa.Schema:
        """The columns of ``added_with_batch``."""
        return self.schema.append(pa.field(BATCH_COLUMN, pa.int64()))

    @property
    def is_empty(self) -> bool:
        """Whether neither a batch nor a deletion came."""
        return not self.is_complete and not self.batch_times and not self.deleted.num_rows

    def added(self) -> Iterator[pa.RecordBatch]:
        """Yield the added rows. Raises FileNotFoundError if they are read too late.

        Files are removed hours after they were replaced, so the rows are read soon after the call.
        """
        if self.is_complete:
            yield from self.source.read(None, None)
        elif self.batch_times:
            yield from self.source.read(frozenset(self.batch_times), self.names)

    def added_with_batch(self) -> Iterator[pa.RecordBatch]:
        """Yield the added rows with the column ``_batch`` at the end."""
        for rows in self.added():
            yield rows.append_column(BATCH_COLUMN, self._batch_of_rows(rows))

    def _batch_of_rows(self, rows: pa.RecordBatch) -> pa.Array[Any]:
        times = pa.array(list(self.batch_times), pa.int64())
        indices = pc.index_in(rows["landed_at"].cast(pa.int64()), value_set=times)
        return pa.array(list(self.batch_times.values()), pa.int64()).take(indices)


def _rows_of_times(rows: pa.RecordBatch, landed_at: frozenset[int]) -> pa.RecordBatch:
    times = pa.array(sorted(landed_at), pa.int64())
    return rows.filter(pc.is_in(rows["landed_at"].cast(pa.int64()), value_set=times))


def _may_contain(bounds: tuple[Any, Any] | None, landed_at: frozenset[int]) -> bool:
    if bounds is None:
        return False
    low, high = ((bound - _EPOCH) // timedelta(microseconds=1) for bound in bounds)
    return any(low <= time <= high for time in landed_at)


def read_changes(layout: Layout, view: str = LANDED_VIEW, since: Position | None = None) -> Changes:
    """Return the changes of a view or typed table since a position; None for all rows.

    Only committed batches are read. Raises NoSuchSource, UnknownFormat, DamagedFile, TableChanging.
    """
    landed = table_of(layout)
    table, kind = _open_source(layout, landed, view)
    for _ in range(MAX_ATTEMPTS):
        versions = landed.version(), table.version()
        newest, last_deletion = landed.newest(), landed.last_deletion()
        start = _start_of(layout, view, newest)
        # Fast path: for all rows, the log needs to name the newest batch only.
        log = landed.log_since(newest - 1 if since is None else since.batch)
        added = log if table is landed else table.log_since(-1 if since is None else since.batch)
        # Only batches that ``landed`` has: a later one may be replaced when it is repeated.
        files = table.through(newest) if isinstance(table, TypedDelta) else table.active()
        record = DeletionRecord(layout)
        # Invariant: files, batches and deletions are of one version.
        if versions == (landed.version(), table.version()):
            break
    else:
        raise TableChanging(f"{layout.landed} was changed during every attempt to list it; try again")
    _sync_newest(landed, log)
    times = {_time_of(batch): batch.batch for batch in log.batches if batch.files}
    relanded = {_time_of(batch): batch.batch for batch in log.batches if batch.description.get("relands")}
    since = since or Position()
    # Batches of earlier versions of Penstock do not state their time.
    is_complete = _needs_all_rows(since, newest, last_deletion, start, log) or 0 in times
    # The rows stay in a copy, which deletions up to the position no longer reach.
    is_suspect = is_complete and last_deletion > 0 and may_hold_returned_rows(layout, table)
    deleted_before = record.readable_runs(by_penstock=True) if is_suspect else {}
    source = Source(table, _columns_of(table, view), files, kind, deleted_before)
    names = added.names if added.is_complete else None
    deleted = DELETED.empty_table()
    if not is_complete:
        deleted = pa.concat_tables([_deleted(record, view, since), *_relanded(source, names, relanded)])
    return Changes(
        Position(newest, last_deletion, start, _landed_at(log, newest)),
        is_complete,
        deleted,
        source,
        names,
        times,
    )


def _open_source(layout: Layout, landed: DeltaTable, view: str) -> tuple[DeltaTable, str]:
    """Return the table of a view and the kind of its rows, "" for all. Raises NoSuchSource."""
    if view == LANDED_VIEW or view in VIEWS:
        return landed, VIEWS[view].value if view in VIEWS else ""
    typed = {table.folder.name: table for table in existing_typed_tables(layout)}
    if view not in typed:
        raise NoSuchSource(f"unknown view {view!r}; existing views: {', '.join([LANDED_VIEW, *VIEWS, *typed])}")
    return typed[view], ""


def _columns_of(table: DeltaTable, view: str) -> pa.Schema:
    if view in VIEWS:
        return pa.schema([LANDED.field(name) for name in VIEW_COLUMNS[view].split(", ")])
    return table.schema


def _start_of(layout: Layout, view: str, newest: int) -> int:
    if not view.startswith(TYPED_MARK):
        return BEFORE_FIRST_BATCH
    # A table that is not configured has no start. Later batches may be missing, until `penstock tables fill`.
    return read_starts(layout).get(view.removeprefix(TYPED_MARK), newest)


def _time_of(batch: BatchFiles) -> int:
    """Return the time of a batch's rows in microseconds; 0 if its commit does not say it."""
    return int(batch.description.get("landed_at", 0))


def _sync_newest(landed: DeltaTable, log: LogSince) -> None:
    # Crash: a power cut may lose the newest commit, which its writer perhaps has not synced yet; the batch is then
    # repeated with other rows. Earlier commits are synced before the next one is written.
    if log.batches and isinstance(path := landed.commit_path(log.batches[-1].version), Path):
        sync_written([path])


def _landed_at(log: LogSince, batch: int) -> int:
    """Return the time of a batch's rows in microseconds; 0 if the log does not say it."""
    batches = [*log.batches, *([] if log.previous is None else [log.previous])]
    return next((_time_of(entry) for entry in batches if entry.batch == batch), 0)


def _needs_all_rows(since: Position, newest: int, last_deletion: int, start: int, log: LogSince) -> bool:
    if since.batch < 0 or since.batch > newest or (since.deletion or 0) > last_deletion or not log.is_complete:
        return True
    # A typed table that was filled has rows of batches that were read without them; a refilled one has other values.
    if since.start is not None and start < since.start:
        return True
    # Crash: tables that were restored from a backup have other batches under the same numbers.
    previous = log.previous
    described = _time_of(previous) if previous is not None else 0
    is_same = previous is not None and previous.batch == since.batch
    return bool(since.landed_at and described and is_same and described != since.landed_at)


def read_deleted(layout: Layout, view: str, since: Position) -> pa.Table:
    """Return the deletions after a position, as in ``Changes``."""
    return _deleted(DeletionRecord(layout), view, since)


def _deleted(record: DeletionRecord, view: str, since: Position) -> pa.Table:
    """Return the deletions after a position; without a number, those since its batch was the newest."""
    # Rows that another program deletes from ``landed`` stay in typed tables.
    is_typed = view.startswith(TYPED_MARK)
    rows: list[pa.Table] = []
    for deletion, batch, runs_by_topic in record.runs_since(since.deletion or 0):
        is_earlier = since.deletion is None and batch < since.batch
        if is_earlier or (is_typed and deletion.why == FOREIGN):
            continue
        for name, runs in runs_by_topic.items():
            topic, number = topic_and_partition(name)
            count = len(runs)
            rows.append(
                pa.table(
                    [
                        pa.array(np.full(count, deletion.number)),
                        pa.array([deletion.why] * count, pa.string()),
                        pa.array(np.full(count, batch)),
                        pa.array([topic] * count, pa.string()),
                        pa.array([number] * count, pa.int32()),
                        pa.array(runs[:, 0]),
                        pa.array(runs[:, 1]),
                    ],
                    schema=DELETED,
                )
            )
    return pa.concat_tables([DELETED.empty_table(), *rows])


def _relanded(source: Source, names: frozenset[str] | None, batch_times: Mapping[int, int]) -> Iterator[pa.Table]:
    """Yield the offsets of all added rows of batches with rows that land again.

    The rows of the view decide, not the request: a typed table may still have a row that ``landed`` had lost.
    """
    keys = replace(source, schema=pa.schema([source.schema.field(name) for name in ROW_KEY]))
    for landed_at, batch in batch_times.items():
        yield from (_runs_of_rows(rows, batch) for rows in keys.read(frozenset([landed_at]), names))


def _runs_of_rows(rows: pa.RecordBatch, batch: int) -> pa.Table:
    columns = [rows["topic"].cast(pa.string()), rows["partition"].cast(pa.int32()), rows["offset"].cast(pa.int64())]
    ordered = pa.table(columns, list(ROW_KEY)).sort_by([(name, "ascending") for name in ROW_KEY])
    topics = ordered["topic"].combine_chunks().dictionary_encode().indices.to_numpy()
    partitions = pc.fill_null(ordered["partition"], -1).to_numpy()
    offsets = ordered["offset"].to_numpy()
    follows = (np.diff(topics) == 0) & (np.diff(partitions) == 0) & (np.diff(offsets) == 1)
    first, last = np.r_[True, ~follows], np.r_[~follows, True]
    begins = ordered.filter(pa.array(first))
    count = begins.num_rows
    return pa.table(
        [
            pa.nulls(count, pa.int64()),
            pa.repeat(RELANDED, count),
            pa.array(np.full(count, batch)),
            begins["topic"],
            begins["partition"],
            begins["offset"],
            pa.array(offsets[last] + 1),
        ],
        schema=DELETED,
    )
