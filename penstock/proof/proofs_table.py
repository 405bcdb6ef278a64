"""The Delta table ``proofs`` next to ``landed``: what was proved of it, for SQL without Penstock (docs/proof-sql.md).

Each row has the sums of one slice of a topic: of proved batches, of backfills, or (negative) of a deletion.
Invariant: the commit that appends rows carries the newest batch and deletion that they cover, so after a crash nothing
is appended twice and nothing is missing. Start with ``ProofsTable.append``.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import CommitProperties, Transaction

from penstock.landing.history import read_sum, stretches
from penstock.landing.journal import Commit, latest
from penstock.landing.landing_lock import hold_proofs_lock
from penstock.landing.requests.deletions import DeletionRecord
from penstock.landing.requests.deletions import newest_request as newest_deletion
from penstock.landing.row_sums import ROW_SUMS, SLICE_OFFSETS, RowSums
from penstock.landing.storage.parquet_files import NewParquet
from penstock.landing.table.delta_table import DEFAULT_PROPERTIES, OWN_COMMIT_MARK, DeltaTable
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import TableFile, open_rows
from penstock.landing.table.table_reader import APPLICATION, DELETIONS_APPLICATION
from penstock.landing.table_paths import Layout
from penstock.landing.table_schema import MICROS
from penstock.proof.proofs import Proof, ProvedBatch, latest_proofs
from penstock.qualified_names import topic_and_partition

APPEND_INTERVAL_S = 60.0
"""Interval between commits; a deletion is appended at once, because until then SQL misses its rows."""
ROLL_AT_FILES = 60
"""Limit: files of the table before the next append merges them: about one merge an hour."""
LANDED, BACKFILLED = "landed", "backfilled"
KINDS = {
    "event": "events",
    "syslog": "syslog",
    "message": "messages",
    "quarantine": "quarantined",
    "dropped": "dropped",
}
"""Columns with the number of rows, by kind."""
_SUM = pa.decimal128(38, 0)
_COUNTS: Sequence[str] = ("rows", *KINDS.values(), "duplicates", "missing", "unaccounted")
_COLUMNS: dict[str, pa.DataType] = {
    "fate": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "slice": pa.int64(),
    "first_offset": pa.int64(),
    "end_offset": pa.int64(),
    **dict.fromkeys(_COUNTS, pa.int64()),
    "offsets": _SUM,
    "uuid_hashes": _SUM,
    **dict.fromkeys(ROW_SUMS, _SUM),
    "batch": pa.int64(),
    "version": pa.int64(),
    "landed_at": MICROS,
    "proved_at": MICROS,
}
SCHEMA = pa.schema(_COLUMNS)
_KEYS = ("fate", "topic", "partition", "slice")
_SUMS = ("offsets", "uuid_hashes")
_ALL_SUMS = (*_SUMS, *ROW_SUMS)
_ADDED = (*_COUNTS, *_SUMS)
_LATEST = ("end_offset", "batch", "version", "landed_at", "proved_at")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _NewFile:
    """A file for a commit; the table has no folders, and statistics only of the number of rows."""

    name: str
    size: int
    statistics: str
    kind: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class _Covered:
    """The proofs of the batches ``first`` to ``batch``; ``commit`` is of the last."""

    first: int
    batch: int
    commit: Commit
    proved: ProvedBatch


class ProofsTable(DeltaTable):
    """The table ``proofs`` of a layout."""

    properties: Mapping[str, str] = {
        name: text for name, text in DEFAULT_PROPERTIES.items() if name != "delta.dataSkippingStatsColumns"
    }

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout.proof_table, SCHEMA)
        self._layout, self._has_begun = layout, False

    def append(self) -> bool:
        """Append what was proved and deleted since the last call; return whether a commit was needed."""
        with hold_proofs_lock(self._layout):
            if not self._has_begun:
                self.begin()
                self._has_begun = True
            covered, replaces_all = self._new_batches()
            newest = -1 if replaces_all else self.newest()
            batch = max([newest, *(part.batch for part in covered)])
            rows = list(_rows_of_batches(covered))
            deletion = 0 if replaces_all else self.last_deletion()
            for number, deleted in _deletions(self._layout, deletion, batch):
                deletion, rows = number, [*rows, *deleted]
            if batch == newest and not rows:
                return False
            proved_at = datetime.now(UTC)
            rows = [row | {"proved_at": proved_at} for row in rows]
            self._commit_rows(rows, batch, deletion, replaces_all=replaces_all)
            return True

    def _new_batches(self) -> tuple[list[_Covered], bool]:
        """Return the proved batches that the table lacks, and whether its rows have to be replaced."""
        newest = self.newest()
        # A RESTORE takes rows away and keeps the numbers of batch and deletion, so that no later call would add them.
        if changes := self.examine_changed_rows(APPLICATION) if newest >= 0 else []:
            _LOGGER.error(
                "%s: version %d is %s of %s: all rows are written again",
                *(self.folder, changes[0].version, changes[0].operation, changes[0].engine),
            )
            return _proved(self._layout, -1), True
        batches = _proved(self._layout, newest)
        # A table from a backup may end within a stretch that was rolled up since: then all rows are written again.
        if any(part.first <= newest for part in batches):
            return _proved(self._layout, -1), True
        return batches, False

    def _commit_rows(self, rows: Sequence[Row], batch: int, deletion: int, *, replaces_all: bool) -> None:
        active = self.active()
        removed: list[TableFile] = active if replaces_all or len(active) >= ROLL_AT_FILES else []
        if removed and not replaces_all:
            rows = merged([*_read(self, removed), *rows])
        now_ms = time.time_ns() // 1_000_000
        transactions = [Transaction(APPLICATION, batch, now_ms), Transaction(DELETIONS_APPLICATION, deletion, now_ms)]
        properties = CommitProperties(app_transactions=transactions, custom_metadata=OWN_COMMIT_MARK)
        before = self.version()
        # Crash: a file that no commit names is removed by the vacuum.
        files = [_write(self, rows)] if rows else []
        self._replace(removed, files, properties, changed=True)
        self._checkpoint(before, self.version())


def _proved(layout: Layout, newest: int) -> list[_Covered]:
    """Return the proved batches after ``newest``; rolled-up ones as their stretches, which may begin before it."""
    # Order: lines, then stretches. A rollup writes a stretch before it drops lines, so no batch is missed.
    _, lines = latest_proofs(layout)
    commits = {commit.batch: commit for commit in latest(layout)[1]}
    covered = []
    for stretch in stretches(layout) if newest < read_sum(layout).batch else ():
        proved = ProvedBatch.from_document(
            {"batch": stretch.batch, "proofs": stretch.proofs, "refills": stretch.refills}
        )
        covered.append(_Covered(stretch.first, stretch.batch, Commit.from_document(stretch.commit), proved))
    last = max((part.batch for part in covered), default=newest)
    recent = [proved for proved in lines if proved.batch > last and proved.batch in commits]
    covered += [_Covered(proved.batch, proved.batch, commits[proved.batch], proved) for proved in recent]
    return [part for part in covered if part.batch > newest]


def _rows_of_batches(covered: Iterable[_Covered]) -> Iterable[Row]:
    """Return one row per fate, topic and slice, of all batches together."""
    rows: list[Row] = []
    for part in covered:
        landed_at = EPOCH + timedelta(microseconds=part.commit.written_at)
        origin = {"batch": part.batch, "version": part.commit.version, "landed_at": landed_at}
        with_fates = [(LANDED, proof) for proof in part.proved.proofs]
        with_fates += [(BACKFILLED, backfill.proof) for backfill in part.proved.backfills]
        rows.extend(row for fate, proof in with_fates for row in _rows_of_proof(proof, fate, origin))
    return merged(rows)


def _rows_of_proof(proof: Proof, fate: str, origin: Row) -> list[Row]:
    """Return a row per slice. Offsets without a row count in the first one."""
    sums = proof.sums or RowSums.from_document([_no_rows(proof)])
    numbers = sorted(number for _, number in sums)
    ends = [*(number * SLICE_OFFSETS for number in numbers[1:]), proof.end]
    starts = [proof.begin, *ends[:-1]]
    duplicates, unaccounted = proof.total("duplicate"), len(proof.unaccounted)
    # Every offset is a row, a duplicate, missing for a recorded reason, or unaccounted.
    missing = proof.end - proof.begin - sums.rows - duplicates - unaccounted if fate == LANDED else 0
    without_row = [{"duplicates": duplicates, "missing": missing, "unaccounted": unaccounted}]
    without_row += [{}] * (len(numbers) - 1)
    spans = [{"first_offset": start, "end_offset": end} for start, end in zip(starts, ends, strict=True)]
    return [
        {**_row(fate, proof.topic, number, sums), **span, **counts, **origin}
        for number, span, counts in zip(numbers, spans, without_row, strict=True)
    ]


def _no_rows(proof: Proof) -> Row:
    return {
        "topic": proof.topic,
        "slice": proof.begin // SLICE_OFFSETS,
        "rows": {},
        **dict.fromkeys(_ALL_SUMS, 0),
    }


def _row(fate: str, topic: str, number: int, sums: RowSums, sign: int = 1) -> Row:
    """Return the counts and sums of a slice; ``sign`` -1 for rows that left the table."""
    name, partition = topic_and_partition(topic)
    of_slice = sums[topic, number]
    counts = {column: sign * of_slice.kinds.get(kind, 0) for kind, column in KINDS.items()}
    return {
        "fate": fate,
        "topic": name,
        "partition": partition,
        "slice": number,
        "first_offset": number * SLICE_OFFSETS,
        "end_offset": (number + 1) * SLICE_OFFSETS,
        **dict.fromkeys(_COUNTS, 0),
        "rows": sign * of_slice.rows,
        **counts,
        "offsets": sign * of_slice.offsets,
        "uuid_hashes": sign * of_slice.uuid_hashes,
        "row_hashes": None if of_slice.row_hashes is None else sign * of_slice.row_hashes,
        "row_positions": None if of_slice.row_positions is None else sign * of_slice.row_positions,
        "proved_at": None,
    }


def _deletions(layout: Layout, after: int, batch: int) -> Iterable[tuple[int, list[Row]]]:
    """Yield the number and the rows of each deletion that the table lacks."""
    if newest_deletion(layout) <= after:
        return
    version = table_of(layout).version()
    for deletion, sums in DeletionRecord(layout).sums(after):
        fate, origin = f"deleted.{deletion.why}", {"batch": batch, "version": version, "landed_at": None}
        yield deletion.number, [_row(fate, topic, number, sums, -1) | origin for topic, number in sums]


def merged(rows: Iterable[Row]) -> list[Row]:
    """Merge rows of one fate, topic and slice into one."""
    by_key: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in _KEYS)
        total = by_key.get(key)
        if total is None:
            by_key[key] = dict(row)
            continue
        for name in _ADDED:
            total[name] += row[name]
        for name in ROW_SUMS:
            is_whole = total[name] is not None and row[name] is not None
            total[name] = total[name] + row[name] if is_whole else None
        total["first_offset"] = min(total["first_offset"], row["first_offset"])
        for name in _LATEST:
            moments = [row[name] for row in (total, row) if row[name] is not None]
            total[name] = max(moments, default=None)
    return list(by_key.values())


def _read(table: ProofsTable, files: Iterable[TableFile]) -> list[Row]:
    rows: list[Row] = []
    for file in files:
        with open_rows(table.folder, file) as opened:
            rows += opened.read().to_pylist()
    # Sums as integers: Python's decimals are rounded to 28 digits when they are added.
    return [row | {name: None if row.get(name) is None else int(row[name]) for name in _ALL_SUMS} for row in rows]


def _write(table: ProofsTable, rows: Sequence[Row]) -> _NewFile:
    exact = [row | {name: None if row[name] is None else Decimal(row[name]) for name in _ALL_SUMS} for row in rows]
    name = f"{uuid4().hex}.parquet"
    file = NewParquet(table.folder / name)
    try:
        pq.write_table(pa.Table.from_pylist(exact, schema=SCHEMA), file.sink, write_page_checksum=True)
    except BaseException:
        file.discard()
        raise
    return _NewFile(name, file.finish(), json.dumps({"numRecords": len(rows)}))


class ProofAppender:
    """Appends to the table ``proofs`` in time. Owned by one thread; failures are logged and retried."""

    def __init__(self, layout: Layout, clock: Callable[[], float] = time.monotonic) -> None:
        self._layout, self._table, self._clock = layout, ProofsTable(layout), clock
        self._next = clock()
        self._batch, self._deletion, self._failure = -1, 0, ""

    @property
    def batch(self) -> int:
        """The newest batch in the table, after the first ``step``."""
        return self._batch

    def step(self, *, now: bool = False) -> None:
        """Append if it is due, if ``now``, or if a deletion was recorded since the last call."""
        # Fast path: the worker calls this five times a second. One directory listing.
        newest = newest_deletion(self._layout)
        is_new_deletion = newest > self._deletion and table_of(self._layout).last_deletion() > self._deletion
        if not (now or is_new_deletion or self._clock() >= self._next):
            return
        self._next = self._clock() + APPEND_INTERVAL_S
        try:
            self._table.append()
            self._batch, self._deletion, self._failure = self._table.newest(), self._table.last_deletion(), ""
        except Exception as error:  # noqa: BLE001 - proofs are stored and posted without it; retried in a minute
            if (failure := str(error).partition("\n")[0]) != self._failure:
                self._failure = failure
                _LOGGER.warning("the table of proofs is not written, and retried each minute: %s", failure)
