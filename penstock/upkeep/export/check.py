"""The proof of an export: count, sum of offsets and sum of uuid hashes are the same in the table and in the target."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.config.keys.export import ExportConfig
from penstock.errors import PenstockError
from penstock.landing.requests.deletions import RETENTION
from penstock.landing.rows.engine import pc
from penstock.landing.table_paths import Layout
from penstock.upkeep.changes import DELETED, Changes, Position, read_changes, read_deleted
from penstock.upkeep.export.target import Sums, Target

MAX_ATTEMPTS = 20
"""Limit: a comparison is repeated if a step or a deletion came in between."""


class NotComparable(PenstockError, RuntimeError):
    """The sums cannot be compared now; the text says why."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The sums of the rows through ``batch`` on both sides; ``batches_behind``: batches that the target lacks."""

    batch: int
    batches_behind: int
    deletions_behind: int
    table: Sums
    target: Sums

    @property
    def is_equal(self) -> bool:
        """Whether both sides have the same sums."""
        return self.table == self.target


def compare(layout: Layout, config: ExportConfig, target: Target) -> Comparison:
    """Compare the sums of the target with the expected ones. Raises NotComparable, TargetAway."""
    for _ in range(MAX_ATTEMPTS):
        position = target.position()
        if position is None:
            raise NotComparable(f"export {config.name}: nothing was copied yet")
        everything = read_changes(layout, config.source)
        since = read_changes(layout, config.source, position)
        if since.is_complete:
            raise NotComparable(f"export {config.name}: the next step copies all rows again")
        of_target = target.sums(pa.concat_tables([since.deleted, _retained_runs(layout, config)]))
        # Invariant: one position, and no deletion between the two reads of the table.
        if target.position() == position and everything.next.deletion == since.next.deletion:
            behind = (since.next.deletion or 0) - (position.deletion or 0)
            return Comparison(
                position.batch, len(since.batch_times), behind, _sums_of(everything, since, target), of_target
            )
    raise NotComparable(f"export {config.name}: steps or deletions came during every attempt; try again")


def _retained_runs(layout: Layout, config: ExportConfig) -> pa.Table:
    """Return the runs that retention removed from the table and not from the target."""
    if config.retention:
        return DELETED.empty_table()
    deleted = read_deleted(layout, config.source, Position())
    return deleted.filter(pc.equal(deleted["why"], pa.scalar(RETENTION)))


def _sums_of(everything: Changes, since: Changes, target: Target) -> Sums:
    """Return the sums of the rows through the target's batch."""
    later = pa.array(list(since.batch_times), pa.int64())
    sums = Sums()
    for rows in everything.added():
        is_later = pc.is_in(rows["landed_at"].cast(pa.int64()), value_set=later)
        sums = sums.plus(target.stored(rows.filter(pc.invert(is_later))))
    return sums
