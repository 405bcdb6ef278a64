"""Delete rows from a Delta table, each deletion once.

Order: the typed tables; files without the rows; the record of the deletion; then the commit that replaces the old
files and carries the deletion's number. Crash: before the commit everything is repeated, after it nothing. The old
files stay for a while for readers that have them open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType

import pyarrow as pa

from penstock.files.errors import DamagedFile
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.landed_keys import NO_LIMIT, LandedKeys, within_window
from penstock.landing.event_rules import WITH_UUID, MessageKind
from penstock.landing.journal import lands_hashed_rows
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.requests.conditions import BEFORE, IN, NOT_IN, Condition, matching_rows
from penstock.landing.requests.deletions import (
    RETENTION,
    Deletion,
    DeletionRecord,
    pending_deletions,
    request_deletion,
    write_record,
)
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import has_landed_table, table_of
from penstock.landing.table.table_file import Mask, TableFile
from penstock.landing.table_paths import Layout, partition_value
from penstock.landing.writing.batch_commit import read_events
from penstock.landing.writing.written_file import WrittenFile, copy_rows
from penstock.proof.commit_notes import may_hold_deleted_rows
from penstock.proof.deleted_rows import DeletedRows, landed_offsets
from penstock.proof.evidence import read_rows, with_hashes
from penstock.proof.foreign_deletions import filled_offsets, foreign_masks, remaining_copies, without
from penstock.proof.proofs_table import ProofAppender
from penstock.upkeep.compaction.compaction import removed_on_failure
from penstock.upkeep.deletion.foreign import note_unreadable
from penstock.upkeep.deletion.typed_removal import TypedRemoval, delete_typed_rows, prepare_files

TYPE_MARK = "/"
"""Separator of kind and type in the keys of retention (``event/click``)."""
UNKNOWN_DAY = "1970-01-01"
"""Day of rows whose source did not say when they were made, or whose clock had just begun."""

NO_TYPED_ROWS: Mapping[str, TypedRemoval] = MappingProxyType({})
DAYS_PER_DELETION = 7
"""Limit: the offsets and keys that one deletion removes are in memory until they are written."""


def count_rows(layout: Layout, conditions: Sequence[Condition]) -> tuple[int, int]:
    """Return the number of rows for which conditions hold, and the number of their files."""
    counts = [int(matching_rows(layout.landed, name, conditions).sum()) for name in table_of(layout).active()]
    return sum(counts), sum(1 for rows in counts if rows)


def execute_deletions(layout: Layout, window: int, latest_time: int = NO_LIMIT) -> int:
    """Execute the open deletion requests and return their number. One process at a time.

    ``window`` of duplicates is in microseconds; log times after ``latest_time`` were stamped by a wrong clock.
    """
    deletions = pending_deletions(layout) if has_landed_table(layout) else []
    for deletion in deletions:
        with hold_upkeep_lock(layout):
            Removal(layout, deletion, window, latest_time).run()
    if deletions:
        # Until then SQL misses the deleted rows. The proof worker repeats it if this fails.
        ProofAppender(layout).step(now=True)
    return len(deletions)


@dataclass(slots=True)
class Removal:
    """The execution of one deletion, under the lock of upkeep."""

    layout: Layout
    deletion: Deletion
    window: int
    latest_time: int
    rows: DeletedRows = field(init=False)
    keys: list[EventsSeen] = field(default_factory=list)
    latest: dict[str, int] = field(default_factory=dict)
    hashed: bool = field(init=False)

    def __post_init__(self) -> None:
        self.rows = DeletedRows(self.deletion)
        # Sums of rows are compared only if those of landed and of deleted rows are there.
        self.hashed = lands_hashed_rows(self.layout)

    def run(self) -> None:
        table = DeltaTable(self.layout.landed)
        # Order: first. A table that no deletion can be written to is refused before typed tables lose rows.
        table.check_features(deletes=self.deletion.version is None)
        # Order: before the landed offsets. Rows that land from here on stay: they would be deleted without a count.
        batch = table.newest()
        may_hold_copies = may_hold_deleted_rows(self.layout, table)
        if may_hold_copies:
            self.rows.counted = DeletionRecord(self.layout).readable_runs()
        landed = landed_offsets(self.layout, table, self.deletion.version)
        if landed is not None and may_hold_copies:
            landed = without(landed, filled_offsets(self.layout, table))
        self.rows.landed = landed
        landed_keys = LandedKeys.load(self.layout.keys, self.window)
        self.latest = landed_keys.newest_by_stream() if landed_keys else {}
        if self.deletion.version is not None:
            self._account(table, batch, self.deletion.version)
            return
        conditions = self.deletion.conditions
        prepare_files(table, partial(table.through, batch), partial(matching_rows, conditions=conditions))
        masks = [(name, matching_rows(self.layout.landed, name, conditions)) for name in table.through(batch)]
        masks = [(name, mask) for name, mask in masks if mask.any()]
        if masks and may_hold_copies:
            self.rows.copied = remaining_copies(self.layout, table, masks)
        typed = delete_typed_rows(self.layout, self.deletion, batch, masks)
        with removed_on_failure(table) as written:
            replaced = self._rewrite_files(table, masks, written)
            self._record(batch, typed, replaced)
            table.delete(self.deletion.number, replaced, written)

    def _account(self, table: DeltaTable, batch: int, version: int) -> None:
        """Record the rows that another program's commit deleted, and commit the deletion's number alone.

        If its files cannot be read now, the record has no rows, and the commit is looked at again later: deletions are
        done in order, so this one would stop all that follow.
        """
        replaced: list[str] | None = None
        if (commit := table.foreign_commit(version)) is not None:
            try:
                masks = list(foreign_masks(self.layout, table, commit))
                replaced = [str(file) for file, _ in masks]
                for file, mask in masks:
                    self._collect(file, mask)
            except DamagedFile as error:
                # Order: before the record. Crash: after the note, the deletion is repeated and notes it again.
                note_unreadable(self.layout, commit, str(error))
        self._record(batch, NO_TYPED_ROWS, replaced)
        table.delete(self.deletion.number, [], [])

    def _rewrite_files(
        self, table: DeltaTable, masks: Sequence[tuple[TableFile, Mask]], written: list[WrittenFile]
    ) -> list[str]:
        """Write files without the rows; return the names of the files that they replace."""
        for name, mask in masks:
            self._collect(name, mask)
            written += [] if mask.all() else [copy_rows(self.layout.landed, name, ~mask, form=table.form)]
        return [str(name) for name, _ in masks]

    def _record(self, batch: int, typed: Mapping[str, TypedRemoval], replaced: Sequence[str] | None) -> None:
        """Write the record; ``replaced``: None if it cannot be said which files had the rows."""
        deleted, offsets, sums = self.rows.by_topic(), self.rows.offsets(), self.rows.sums
        evidence = {
            "rows": self.rows.rows + self.rows.repeated,
            "typed": {name: removal.rows for name, removal in typed.items()},
            "typed_replaced": {name: removal.replaced for name, removal in typed.items()},
            "replaced": replaced,
            "at": datetime.now(UTC).isoformat(),
        }
        write_record(self.layout, self.deletion, batch, deleted, offsets, self._recent_keys(), sums, evidence)

    def _collect(self, name: TableFile, mask: Mask) -> None:
        """Collect offsets, fates and recent keys of the rows of a file that are deleted."""
        rows = read_rows(self.layout.landed, [name]).filter(pa.array(mask))
        self.rows.add(with_hashes(rows, self.layout.landed, name, mask) if self.hashed and rows.num_rows else rows)
        if partition_value(name, "kind") in WITH_UUID:
            events = read_events(self.layout.landed, name, mask)
            self.keys += [keys for keys in self._within_window([events]) if len(keys)]

    def _recent_keys(self) -> EventsSeen:
        """Return the keys that may still be needed to recognize duplicates."""
        # Filtered again: the newest times are complete only after all files.
        return EventsSeen.concat(list(self._within_window(self.keys)))

    def _within_window(self, events: Sequence[EventsSeen]) -> Iterator[EventsSeen]:
        return within_window(events, self.window, self.latest, self.latest_time)


def expired(ages: dict[str, float], now: float) -> list[list[Condition]]:
    """Return the conditions of rows past the retention (seconds) of their kind or type, by whole days of receipt.

    Rows of an unknown time, such as records of Kafka without a timestamp, stay: they may be new.
    """
    types = {name.partition(TYPE_MARK)[2] for name in ages if TYPE_MARK in name}
    rules = []
    for name, age in ages.items():
        kind, _, event_type = name.partition(TYPE_MARK)
        first_kept_day = (datetime.fromtimestamp(now, UTC) - timedelta(seconds=age)).date().isoformat()
        is_past = [Condition("date", BEFORE, (first_kept_day,)), Condition("date", NOT_IN, (UNKNOWN_DAY,))]
        conditions = [Condition("kind", IN, (kind,)), *is_past]
        if event_type:
            conditions.append(Condition("type", IN, (event_type,)))
        elif kind == MessageKind.EVENT and types:
            conditions.append(Condition("type", NOT_IN, tuple(sorted(types))))
        rules.append(conditions)
    return rules


def request_expired(layout: Layout, ages: dict[str, float], now: float) -> list[Deletion]:
    """Request the deletion of expired rows, if there are any."""
    return [
        request_deletion(layout, RETENTION, step)
        for conditions in expired(ages, now)
        for step in _split_by_days(layout, conditions)
    ]


def _split_by_days(layout: Layout, conditions: Sequence[Condition]) -> list[list[Condition]]:
    """Split a deletion into several, oldest days first; return none if no row matches."""
    names = [name for name in table_of(layout).active() if matching_rows(layout.landed, name, conditions).any()]
    days = sorted({partition_value(name, "date") for name in names})
    earlier_steps = [
        [*conditions, Condition("date", BEFORE, (day,))] for day in days[DAYS_PER_DELETION::DAYS_PER_DELETION]
    ]
    return [*earlier_steps, list(conditions)] if days else []
