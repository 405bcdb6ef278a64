"""Replace a damaged file of ``landed`` by one with the same rows; what is lost of them is read again.

The file is copied row group by row group. Columns that cannot be read come from the messages at the same offsets.
Invariant: the file is replaced only if a message was found for each of its rows, and if it agrees with all that can
still be read: columns, and the footer's statistics of lost columns. A topic that was created again, a changed
transformation or an expired record leave the file in the table. Rows that were deleted are not in the file's offsets.

Start with ``restore_rows``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.landing.damaged_files import REMOVING, note_damaged_file
from penstock.landing.duplicates.decision import StreamJudge
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.event_rules import WITH_UUID
from penstock.landing.journal import BACKFILL_MARK, landed_ends, read_journal
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.offset_runs import (
    NO_RUNS,
    Offsets,
    Runs,
    as_runs,
    count_offsets,
    difference,
    intersection,
    runs_of,
)
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import RowReader, TableFile, is_about_content, is_missing_or_damaged, open_rows
from penstock.landing.table_paths import Layout, kind_and_day
from penstock.landing.table_schema import FILE_SCHEMA
from penstock.landing.typed.columns import TypedTable
from penstock.landing.writing.written_file import (
    ROW_GROUP,
    FileWriter,
    WrittenFile,
    in_current_columns,
)
from penstock.proof.foreign_deletions import deleted_offsets
from penstock.qualified_names import topic_and_partition
from penstock.records import concatenated
from penstock.upkeep.compaction.compaction import removed_on_failure
from penstock.upkeep.repair.former_origins import (
    ORIGIN_COLUMNS,
    TIME,
    is_untimed_document,
    with_former_origins,
    with_former_times,
)
from penstock.upkeep.repair.lost_column import LostColumn
from penstock.upkeep.repair.other_rows import EVENT_KEY, ROW_KEY, OtherRows, encode_streams, runs_by_stream
from penstock.upkeep.repair.reread_rows import RereadRows, RowSources
from penstock.upkeep.typed.fill import CannotRestore

MAX_CANDIDATES = 8 * ROW_GROUP
"""Limit: messages that are read for a row group whose offsets are lost."""
HAS_VECTOR = "another program deleted rows of it by a deletion vector"
NOT_COMPARED = "landed_at"
"""Column that no message has."""
Column: TypeAlias = "pa.Array[Any]"
Indices = npt.NDArray[np.int64]


def restore_rows(layout: Layout, damaged: TableFile, sources: RowSources, typed: Sequence[TypedTable] = ()) -> int:
    """Replace a damaged file by one with the same rows, and return their number.

    Raises CannotRestore and other PenstockErrors, ArrowInvalid, OSError; then nothing has changed.
    """
    with hold_upkeep_lock(layout):
        table = table_of(layout)
        current = next((file for file in table.active() if file == damaged), None)
        if current is None:
            raise CannotRestore("it has left the table since")
        if not current.is_plain:
            raise CannotRestore(HAS_VECTOR)
        with removed_on_failure(table) as written:
            written.append(_FileRestore(layout, table, current, sources, typed).write())
            # Crash: before the commit the next check begins again, after it the next start enters the repair.
            note_damaged_file(layout, f"{table.folder}/{damaged}", REMOVING)
            # Crash: one commit removes the file and adds the new one.
            table.replace([damaged], written)
    return written[0].rows


@dataclass(frozen=True, slots=True)
class _RowGroup:
    """The columns of a row group that can be read, and the statistics of the lost ones."""

    rows: int
    columns: Mapping[str, Column]
    lost: Mapping[str, LostColumn]

    @property
    def has_key(self) -> bool:
        """Whether the offsets of the rows can be read."""
        return not {*ROW_KEY} & {*self.lost}

    @property
    def uncertain(self) -> tuple[str, ...]:
        """The columns in which rows that are read again may differ: no message has ``landed_at``, and the origin of a
        row of Kafka depends on when it landed, and with which others. Documents had no event time in early releases.
        """
        columns = self.columns
        has_untimed = {TIME, "payload", "type"} <= {*columns} and pc.any(
            is_untimed_document(columns[TIME], columns)
        ).as_py()
        uncertain = (NOT_COMPARED, TIME) if has_untimed else (NOT_COMPARED,)
        partition, lost = columns.get("partition"), self.lost.get("partition")
        nulls = lost.nulls if lost is not None else partition.null_count if partition is not None else None
        return uncertain if nulls == self.rows else (*uncertain, *ORIGIN_COLUMNS)


@dataclass(slots=True)
class _FileRestore:
    """The restoration of one file, under the lock of upkeep."""

    layout: Layout
    table: DeltaTable
    damaged: TableFile
    sources: RowSources
    typed: Sequence[TypedTable]
    reread: RereadRows = field(init=False)
    other_rows: OtherRows = field(init=False)

    def __post_init__(self) -> None:
        self.reread = RereadRows(self.sources, self.typed, *kind_and_day(self.damaged))
        self.other_rows = OtherRows(self.layout, self.table, self.damaged, self.sources.window)

    def write(self) -> WrittenFile:
        """Write the file's rows into a new one."""
        form, (kind, day) = self.table.form, kind_and_day(self.damaged)
        with FileWriter(self.table.folder, kind, day, form=form) as writer:
            rows = 0
            for columns in self._restored_groups():
                batch = pa.RecordBatch.from_pydict(dict(columns))
                writer.write(in_current_columns(batch, form.schema))
                rows += batch.num_rows
            # The table's log has the number of rows, too: a footer has no checksum.
            if self.damaged.written_rows not in (0, rows):
                raise CannotRestore(f"it has {rows:,} rows, and not {self.damaged.written_rows:,}")
            return writer.close()

    def _restored_groups(self) -> Iterator[Mapping[str, Column]]:
        """Yield all columns of each row group."""
        try:
            file = open_rows(self.table.folder, self.damaged)
        except (pa.ArrowInvalid, OSError) as error:
            if not is_missing_or_damaged(error):
                raise
            yield self._restore_group(self._lost_file())
            return
        with file:
            for number in file.groups():
                keys = _read_group(file, number, EVENT_KEY)
                if keys.has_key:
                    self.other_rows.add(_key_rows(keys.columns))
            for number in file.groups():
                yield self._restore_group(_read_group(file, number))

    def _lost_file(self) -> _RowGroup:
        """Return a file without a readable footer as one row group. Raises CannotRestore."""
        if not self.damaged.written_rows:
            raise CannotRestore("its footer cannot be read, and the table's log does not state its rows")
        bounds = self.table.statistics(self.damaged)
        lost = {
            name: LostColumn(*bounds.get(name, (None, None, None)), rounded=True)
            for name in self.table.form.schema.names
        }
        return _RowGroup(self.damaged.written_rows, {}, lost)

    def _restore_group(self, group: _RowGroup) -> Mapping[str, Column]:
        """Return all columns of a row group."""
        if not group.lost:
            return group.columns
        if foreign := {*group.lost} - {*FILE_SCHEMA.names}:
            raise CannotRestore(f"its columns {', '.join(sorted(foreign))} are another program's")
        rows = with_former_origins(self._find_rows(group), group.columns, group.lost)
        rows = with_former_times(rows, group.columns, group.lost)
        _check_columns(group, rows)
        columns = {**group.columns, **{name: rows[name] for name in group.lost}}
        if NOT_COMPARED in group.lost:
            columns[NOT_COMPARED] = self._landing_times(columns, group.lost[NOT_COMPARED])
        for name, statistics in group.lost.items():
            if name != NOT_COMPARED:
                statistics.check(columns[name], name)
        if {*EVENT_KEY} & {*group.lost}:
            self.other_rows.add(_key_rows(columns))
        return columns

    def _find_rows(self, group: _RowGroup) -> pa.RecordBatch:
        """Return the rows of a row group, in its order, as messages make them today."""
        runs = runs_by_stream(_key_rows(group.columns)) if group.has_key else self._possible_offsets(group)
        candidates = self.reread.read(runs)
        if not group.has_key and self.reread.kind in WITH_UUID:
            candidates = self._without_duplicates(candidates)
        # Order: after duplicates, which may repeat an event that only another row group can have.
        for name, statistics in group.lost.items() if not group.has_key else ():
            candidates = candidates if name in group.uncertain else statistics.select(candidates, name)
        names = ROW_KEY if group.has_key else _comparable(group)
        indices = _match(group, candidates, names)
        if (indices < 0).any():
            present = runs_by_stream(candidates)
            absent = {topic: difference(all_runs, present.get(topic, NO_RUNS)) for topic, all_runs in runs.items()}
            text = self.reread.explain({topic: rest for topic, rest in absent.items() if len(rest)})
            missing = int((indices < 0).sum())
            raise CannotRestore(f"{missing:,} of its rows cannot be read again" + (f": {text}" if text else ""))
        return candidates.take(pa.array(indices, pa.int64()))

    def _possible_offsets(self, group: _RowGroup) -> dict[str, Runs]:
        """Return the offsets that the rows may have: committed ones in the bounds that no other row has."""
        topics, partitions = group.columns.get("topic"), group.columns.get("partition")
        inside = _bounds_as_runs(group)
        possible: dict[str, Runs] = {}
        for name, end in landed_ends(self.layout).items():
            topic, partition = topic_and_partition(name)
            is_named = topic in pc.unique(topics).to_pylist() if topics is not None else _is_within(topic, group)
            if partitions is not None:
                is_named &= partition in pc.unique(partitions).to_pylist()
            if is_named and BACKFILL_MARK not in name:
                possible[name] = intersection(inside, as_runs([(0, end)]))
        deleted = deleted_offsets(self.layout)
        for name, runs in possible.items():
            rest = difference(runs, deleted.get(name, NO_RUNS))
            possible[name] = difference(rest, self.other_rows.offsets(name))
        if (count := sum(map(count_offsets, possible.values()))) > MAX_CANDIDATES:
            raise CannotRestore(f"its offsets cannot be read, and {count:,} messages may be its rows")
        return {name: runs for name, runs in possible.items() if len(runs)}

    def _without_duplicates(self, candidates: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows without events that are in other rows, or repeat an earlier one of these."""
        has_uuid = pc.is_valid(candidates["uuid"])
        events = candidates.filter(has_uuid)
        order = pc.sort_indices(events, [("partition", "ascending"), ("offset", "ascending")])
        events = events.take(order)
        judge = StreamJudge(self.other_rows.keys(), self.sources.window)
        before, repeats = judge.judge(EventsSeen.from_rows(events))
        remaining = events.filter(pa.array(~before & ~repeats))
        without_uuid = candidates.filter(pc.invert(has_uuid))
        return concatenated([remaining, without_uuid])

    def _landing_times(self, columns: Mapping[str, Column], statistics: LostColumn) -> Column:
        """Return ``landed_at`` of rows, from statistics, the journal or the table's log. Raises CannotRestore.

        Limit: of a batch whose journal is rolled up and whose commit Delta has cleaned up, it is the time of the last
        batch that it was rolled up with; never outside the statistics.
        """
        kind, rows = FILE_SCHEMA.field(NOT_COMPARED).type, len(columns["offset"])
        if statistics.low is not None and statistics.low == statistics.high:
            constant: Column = pa.repeat(pa.scalar(statistics.low, kind), rows)
            return constant
        names, codes = encode_streams(columns["topic"], columns["partition"])
        offsets, micros = columns["offset"].to_numpy(), np.zeros(rows, np.int64)

        def enter(ranges: Mapping[str, Sequence[int]], landed_at: int) -> None:
            for name, (begin, end) in ranges.items():
                if name in names:
                    micros[(codes == names.index(name)) & (offsets >= begin) & (offsets < end)] = landed_at

        rolled_up = None
        for commit in read_journal(self.layout):
            before = micros.copy()
            enter(commit.ranges(), commit.written_at)
            if commit.first not in (None, commit.batch) and (micros != before).any():
                rolled_up = min(commit.first or 0, commit.batch if rolled_up is None else rolled_up)
        # Order: after the journal, because a batch's own commit is exact.
        for batch in self.table.batches(rolled_up) if rolled_up is not None else ():
            # Commits of early releases have no time: the journal's stays.
            if "landed_at" in batch.description:
                enter(batch.description.get("ranges", {}), int(batch.description["landed_at"]))
        if not micros.all():
            raise CannotRestore("the journal does not have the times at which its rows landed")
        if rolled_up is not None and statistics.low is not None:
            low, high = (pa.scalar(bound, kind).value for bound in (statistics.low, statistics.high))
            micros = np.clip(micros, low, high)
        landed_at: Column = pa.array(micros, pa.int64()).cast(kind)
        if rolled_up is None:
            statistics.check(landed_at, NOT_COMPARED)
        return landed_at


def _read_group(file: RowReader, number: int, names: Sequence[str] = ()) -> _RowGroup:
    """Return a row group; ``names``: only these columns."""
    footer: Any = file.footer.row_group(number)
    columns, lost = {}, {}
    for name in names or file.columns:
        try:
            columns[name] = _one_chunk(file.read_group(number, [name])[name])
        except (pa.ArrowInvalid, OSError) as error:
            if not is_about_content(error):
                raise
            lost[name] = LostColumn.from_footer(footer, name)
    return _RowGroup(footer.num_rows, columns, lost)


def _one_chunk(column: pa.ChunkedArray[Any]) -> Column:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _numbers(rows: pa.RecordBatch | pa.Table) -> Offsets:
    offsets: Offsets = rows["offset"].to_numpy()
    return offsets


def _key_rows(columns: Mapping[str, Column]) -> pa.RecordBatch:
    """Return the columns by which other rows recognize rows."""
    names = EVENT_KEY if {*EVENT_KEY} <= {*columns} else ROW_KEY
    return pa.RecordBatch.from_pydict({name: columns[name] for name in names})


def _bounds_as_runs(group: _RowGroup) -> Runs:
    """Return the offsets that the rows of a group may have, of any topic. Raises CannotRestore."""
    if (offsets := group.columns.get("offset")) is not None:
        return runs_of(np.unique(offsets.to_numpy()))
    bounds = group.lost["offset"]
    if bounds.low is None:
        raise CannotRestore("its offsets can neither be read nor be bounded")
    return as_runs([(bounds.low, bounds.high + 1)])


def _is_within(topic: str, group: _RowGroup) -> bool:
    bounds = group.lost["topic"]
    return bounds.low is None or bool(bounds.low <= topic <= bounds.high)


def _comparable(group: _RowGroup) -> list[str]:
    """Return the columns by which a row whose offset is lost is recognized."""
    fields = [field for field in FILE_SCHEMA if field.name in group.columns and field.name not in group.uncertain]
    return [field.name for field in fields if not pa.types.is_nested(field.type)]


def _match(group: _RowGroup, candidates: pa.RecordBatch, names: Sequence[str]) -> Indices:
    """Return for each row of a group the index of the candidate with the same values; -1 without one.

    Raises CannotRestore if there are more candidates than rows.
    """
    codes = _value_codes(group, candidates, names)
    row_codes, candidate_codes = codes[: group.rows], codes[group.rows :]
    size = int(codes.max(initial=0)) + 1
    rows_by_code = np.bincount(row_codes, minlength=size)
    candidates_by_code = np.bincount(candidate_codes, minlength=size)
    landed: Any = group.columns[NOT_COMPARED].cast(pa.int64()) if NOT_COMPARED in group.columns else None
    micros = np.zeros(group.rows, np.int64) if landed is None else landed.to_numpy()
    # Order: of equal rows of one partition, earlier offsets landed earlier; partitions have no common order.
    is_ordered = {"topic", "partition"} <= {*names} or (micros == micros[:1]).all()
    if ((candidates_by_code > rows_by_code) & (rows_by_code > 0)).any() or not (is_ordered or rows_by_code.max() == 1):
        raise CannotRestore("its offsets cannot be read, and it is not certain which messages are its rows")
    row_order = np.lexsort((micros, row_codes))
    candidate_order = np.lexsort((_numbers(candidates), candidate_codes))
    rank = np.arange(group.rows) - (np.cumsum(rows_by_code) - rows_by_code)[row_codes[row_order]]
    has_candidate = rank < candidates_by_code[row_codes[row_order]]
    first = (np.cumsum(candidates_by_code) - candidates_by_code)[row_codes[row_order]]
    indices = np.full(group.rows, -1, np.int64)
    indices[row_order[has_candidate]] = candidate_order[(first + rank)[has_candidate]]
    return indices


def _value_codes(group: _RowGroup, candidates: pa.RecordBatch, names: Sequence[str]) -> Indices:
    """Return a number for each row of the group, then for each candidate; equal for equal values of the columns."""
    codes = np.zeros(group.rows + len(candidates), np.int64)
    for name in names:
        kind = FILE_SCHEMA.field(name).type
        joined: Any = pa.concat_arrays([group.columns[name].cast(kind), candidates[name]])
        numbers = joined.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
        # Limit: both factors are below the number of rows, so the product fits 63 bits.
        codes = np.unique(codes * (int(numbers.max(initial=0)) + 1) + numbers, return_inverse=True)[1].astype(np.int64)
    return codes


def _check_columns(group: _RowGroup, rows: pa.RecordBatch) -> None:
    """Raise CannotRestore if a column that can be read differs from the rows that messages make today."""
    readable = {name: column for name, column in group.columns.items() if name in FILE_SCHEMA.names}
    before = in_current_columns(pa.RecordBatch.from_pydict(readable))
    different = [name for name in readable if name != NOT_COMPARED and not before[name].equals(rows[name])]
    if different:
        raise CannotRestore(
            f"its messages make other rows today ({', '.join(different)} differ): the topic was created again, or the "
            "pipeline's settings have changed"
        )
