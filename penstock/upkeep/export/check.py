"""The proof of an export: each row is in the target as the export writes it, and the target has no other row.

Both sides are read once. Ranges of offsets whose sums differ are read a second time, for the keys of rows with a
difference, and some of these rows a third time, for their columns (``row_differences``).

Invariant: both sides are of one position. The target yields the rows of the version that was pinned, and the table
yields the rows through that position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.config.keys.export import ExportConfig
from penstock.errors import PenstockError
from penstock.landing.offset_runs import Runs
from penstock.landing.requests.deletions import RETENTION
from penstock.landing.rows.engine import pc
from penstock.landing.table_paths import Layout
from penstock.proof.deleted_rows import mask_of_rows
from penstock.upkeep.changes import DELETED, Changes, Position, read_changes, read_deleted
from penstock.upkeep.export.row_differences import (
    RangeSums,
    comparable,
    differing_columns,
    key_of,
    value_text,
    with_keys,
)
from penstock.upkeep.export.target import KEY, Sums, Target, runs_by_topic

MAX_ATTEMPTS = 20
"""Limit: a comparison is repeated if a step or a deletion came in between."""
MAX_RANGES = 8
"""Limit: ranges of offsets whose rows are looked at; their keys are in memory."""
MAX_ROWS = 20
"""Limit: rows with a difference that are named."""
MISSING, ADDED, REPEATED, ALTERED = "missing", "added", "repeated", "altered"
_Rows = Callable[[pa.Table | None], Iterator[pa.RecordBatch]]
"""Returns the comparable rows of one side; with runs of offsets, only these."""


class NotComparable(PenstockError, RuntimeError):
    """The rows cannot be compared now; the text says why."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that differs: ``kind`` is MISSING, ADDED or REPEATED in the target, or ALTERED in a column."""

    topic: str
    partition: int | None
    offset: int
    kind: str
    column: str = ""
    expected: str = ""
    present: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows through ``batch`` on both sides; ``batches_behind``: batches that the target lacks.

    ``differences`` has some of the rows that differ, ``ranges`` is the number of ranges of offsets with such rows.
    ``without_key``: rows of the target without topic or offset. ``not_compared``: columns to which the owner of the
    target gave another type; ``other_columns``: columns that the owner added.
    """

    batch: int
    batches_behind: int
    deletions_behind: int
    table: Sums
    target: Sums
    ranges: int
    differences: tuple[Difference, ...]
    without_key: int
    not_compared: tuple[str, ...]
    other_columns: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        """Whether both sides have the same rows."""
        return self.table == self.target and not self.ranges and not self.without_key


def compare(layout: Layout, config: ExportConfig, target: Target) -> Comparison:
    """Compare the rows of the target with the expected ones. Raises NotComparable, TargetAway."""
    for _ in range(MAX_ATTEMPTS):
        position = target.pin()
        if position is None:
            raise NotComparable(f"export {config.name}: nothing was copied yet")
        everything = read_changes(layout, config.source)
        since = read_changes(layout, config.source, position)
        if since.is_complete:
            raise NotComparable(f"export {config.name}: the next step copies all rows again")
        # Invariant: no deletion between the two reads of the table.
        if everything.next.deletion != since.next.deletion:
            continue
        without = pa.concat_tables([since.deleted, _retained_runs(layout, config)])
        comparison = _compare_rows(everything, since, target, position, without)
        # A step into ClickHouse removes rows before its position is there: rows that were deleted or replaced since.
        now = since if comparison.is_equal else read_changes(layout, config.source, position)
        is_step_due = now.is_complete or now.next.deletion != since.next.deletion
        if comparison.is_equal or not (target.has_newer_step() or is_step_due):
            return comparison
    raise NotComparable(f"export {config.name}: steps or deletions came during every attempt; try again")


def _retained_runs(layout: Layout, config: ExportConfig) -> pa.Table:
    """Return the runs that retention removed from the table and not from the target."""
    if config.retention:
        return DELETED.empty_table()
    deleted = read_deleted(layout, config.source, Position())
    return deleted.filter(pc.equal(deleted["why"], pa.scalar(RETENTION)))


def _compare_rows(
    everything: Changes, since: Changes, target: Target, position: Position, without: pa.Table
) -> Comparison:
    names, other_columns = target.match_columns(everything.schema)
    if not {*KEY} <= {*names}:
        raise NotComparable(f"the types of {', '.join(KEY)} in the target are not those of an export")
    schema = pa.schema([everything.schema.field(name) for name in names])
    expected = partial(_expected_rows, everything, frozenset(since.batch_times), target, schema)
    present = partial(_present_rows, target, schema, runs_by_topic(without))
    ranges, sums, without_key = RangeSums(), [Sums(), Sums()], 0
    for index, read in enumerate((expected, present)):
        for rows in read(None):
            keyed = with_keys(rows)
            without_key += rows.num_rows - keyed.num_rows
            sums[index] = sums[index].plus(keyed)
            ranges.add(keyed, is_expected=index == 0)
    differing = ranges.differing()
    return Comparison(
        batch=position.batch,
        batches_behind=len(since.batch_times),
        deletions_behind=(since.next.deletion or 0) - (position.deletion or 0),
        table=sums[0],
        target=sums[1],
        ranges=differing.num_rows,
        differences=tuple(_find_differences(differing, expected, present)),
        without_key=without_key,
        not_compared=tuple(name for name in everything.schema.names if name not in names),
        other_columns=tuple(other_columns),
    )


def _expected_rows(
    everything: Changes, later: frozenset[int], target: Target, schema: pa.Schema, runs: pa.Table | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows through the target's batch, as the target has them."""
    times = pa.array(sorted(later), pa.int64())
    for rows in everything.added():
        # Every source has ``landed_at``.
        through = rows.filter(pc.invert(pc.is_in(rows["landed_at"].cast(pa.int64()), value_set=times)))
        if runs is not None:
            through = through.filter(pa.array(mask_of_rows(through, runs_by_topic(runs))))
        if through.num_rows:
            yield comparable(target.stored(through.select(schema.names)))


def _present_rows(
    target: Target, schema: pa.Schema, without: Mapping[str, Runs], runs: pa.Table | None
) -> Iterator[pa.RecordBatch]:
    for rows in target.read(schema, runs):
        remaining = rows.filter(pa.array(~mask_of_rows(rows, without))) if without else rows
        if remaining.num_rows:
            yield comparable(remaining)


def _find_differences(ranges: pa.Table, expected: _Rows, present: _Rows) -> Iterator[Difference]:
    if not ranges.num_rows:
        return
    sums = RangeSums(1)
    for read, is_expected in ((expected, True), (present, False)):
        for rows in read(ranges.slice(0, MAX_RANGES)):
            sums.add(with_keys(rows), is_expected=is_expected)
    keys = sums.differing().slice(0, MAX_ROWS)
    altered = keys.filter(pc.and_(pc.equal(keys["expected"], 1), pc.equal(keys["present"], 1)))
    sides = [_rows_by_key(read(altered)) if altered.num_rows else {} for read in (expected, present)]
    for row in keys.to_pylist():
        key = row["topic"], row["partition"], row["begin"]
        if any(key not in side for side in sides):
            yield Difference(*key, _kind_of(row["expected"], row["present"]))
            continue
        before, after = (side[key] for side in sides)
        for name in differing_columns(before, after):
            yield Difference(*key, ALTERED, name, value_text(before[name]), value_text(after[name]))


def _kind_of(expected: int, present: int) -> str:
    if not present or not expected:
        return ADDED if present else MISSING
    return REPEATED if present > expected else ALTERED


def _rows_by_key(batches: Iterator[pa.RecordBatch]) -> dict[tuple[Any, ...], pa.RecordBatch]:
    # Limit: MAX_ROWS rows.
    rows = [batch.slice(index, 1) for batch in batches for index in range(batch.num_rows)]
    return {key_of(row): row for row in rows}
