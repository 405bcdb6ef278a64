"""Taking rows out of a Delta table, each deletion once.

First out of the typed tables; then the files without them are written, and what is known of them, then the commit that
puts the files in the place of the old ones and has the deletion's number: killed before it, all is done again; after
it, nothing. The old files stay a while for readers that are at them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.landed_keys import NO_LIMIT, LandedKeys, within_window
from penstock.landing.event_rules import WITH_UUID, MessageKind
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.requests.conditions import BEFORE, IN, NOT_IN, Condition, matching_rows
from penstock.landing.requests.deletions import RETENTION, Deletion, pending_deletions, request_deletion, write_record
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import has_landed_table, table_of
from penstock.landing.table.table_file import Mask, TableFile
from penstock.landing.table_paths import Layout, partition_value
from penstock.landing.writing.batch_commit import read_events
from penstock.landing.writing.written_file import WrittenFile, copy_rows
from penstock.proof.deleted_rows import DeletedRows
from penstock.proof.evidence import read_rows
from penstock.proof.foreign_deletions import foreign_masks
from penstock.upkeep.compaction.compaction import kept_if_committed
from penstock.upkeep.deletion.typed_removal import apply_vectors_where, take_out

TYPE_MARK = "/"
"""Between a kind and a type in the names of ages (``event/click``)."""

DAYS_AT_ONCE = 7
"""Of rows that are older than they are kept."""


def count(layout: Layout, conditions: Sequence[Condition]) -> tuple[int, int]:
    """How many rows, and in how many files, conditions hold for."""
    found = [int(matching_rows(layout.landed, name, conditions).sum()) for name in table_of(layout).active()]
    return sum(found), sum(1 for rows in found if rows)


def carry_out(layout: Layout, window: int, latest_time: int = NO_LIMIT) -> int:
    """Execute the open deletion requests and return their number. One process at a time.

    ``window`` of duplicates, in microseconds; ``latest_time``: log times after it were stamped by a wrong clock.
    """
    waiting = pending_deletions(layout) if has_landed_table(layout) else []
    for one in waiting:
        with hold_upkeep_lock(layout):
            Removal(layout, one, window, latest_time).run()
    return len(waiting)


@dataclass(slots=True)
class Removal:
    """One deletion."""

    layout: Layout
    deletion: Deletion
    window: int
    latest_time: int
    rows: DeletedRows = field(init=False)
    keys: list[EventsSeen] = field(default_factory=list)
    latest: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = DeletedRows(self.deletion)

    def run(self) -> None:
        table = DeltaTable(self.layout.landed)
        known = LandedKeys.load(self.layout.keys, self.window)
        self.latest = known.newest_by_stream() if known else {}
        if self.deletion.version is not None:
            self._account(table, self.deletion.version)
            return
        apply_vectors_where(table, table.active, self.deletion.conditions)
        names, batch = _as_of_a_batch(table)
        take_out(self.layout, self.deletion.conditions, batch)
        with kept_if_committed(table) as written:
            gone = self._rewritten(table, names, written)
            self._record(batch)
            table.delete(self.deletion.number, gone, written)

    def _account(self, table: DeltaTable, version: int) -> None:
        """Record the rows that another program's commit deleted, and commit the deletion's number alone."""
        _, batch = _as_of_a_batch(table)
        if (commit := table.foreign_commit(version)) is not None:
            for file, mask in foreign_masks(self.layout, table, commit):
                self._take(file, mask)
        self._record(batch)
        table.delete(self.deletion.number, [], [])

    def _rewritten(self, table: DeltaTable, names: Sequence[TableFile], written: list[WrittenFile]) -> list[str]:
        """Write files without the rows; the names of those that they stand for."""
        gone: list[str] = []
        for name in names:
            mask = matching_rows(self.layout.landed, name, self.deletion.conditions)
            if mask.any():
                gone.append(name)
                self._take(name, mask)
                written += [] if mask.all() else [copy_rows(self.layout.landed, name, ~mask, form=table.form)]
        return gone

    def _record(self, batch: int) -> None:
        deleted, offsets = self.rows.by_topic(), self.rows.offsets()
        write_record(self.layout, self.deletion, batch, deleted, offsets, self._keys_of_late())

    def _take(self, name: TableFile, mask: Mask) -> None:
        """Know the rows of a file that go."""
        self.rows.add(read_rows(self.layout.landed, [name]).filter(pa.array(mask)))
        if partition_value(name, "kind") in WITH_UUID:
            events = read_events(self.layout.landed, name, mask)
            self.keys += [keys for keys in self._within_window([events]) if len(keys)]

    def _keys_of_late(self) -> EventsSeen:
        """Those that may be needed to know a duplicate by."""
        return EventsSeen.concat(list(self._within_window(self.keys)))

    def _within_window(self, events: Sequence[EventsSeen]) -> Iterator[EventsSeen]:
        return within_window(events, self.window, self.latest, self.latest_time)


def _as_of_a_batch(table: DeltaTable) -> tuple[list[TableFile], int]:
    """Files, and the newest batch in them."""
    while True:
        batch = table.newest()
        names = table.active()
        if table.newest() == batch:
            return names, batch


def expired(ages: dict[str, float], now: float) -> list[list[Condition]]:
    """The conditions of rows that are older than their kind, or type, is kept (seconds); by whole days of receipt."""
    types = {name.partition(TYPE_MARK)[2] for name in ages if TYPE_MARK in name}
    found = []
    for name, age in ages.items():
        kind, _, of_type = name.partition(TYPE_MARK)
        before = (datetime.fromtimestamp(now, UTC) - timedelta(seconds=age)).date().isoformat()
        conditions = [Condition("kind", IN, (kind,)), Condition("date", BEFORE, (before,))]
        if of_type:
            conditions.append(Condition("type", IN, (of_type,)))
        elif kind == MessageKind.EVENT and types:
            conditions.append(Condition("type", NOT_IN, tuple(sorted(types))))
        found.append(conditions)
    return found


def expire(layout: Layout, ages: dict[str, float], now: float) -> list[Deletion]:
    """Ask for the deletion of what is older than it is kept, where there is any; of much, some days at once."""
    return [request_deletion(layout, RETENTION, step) for one in expired(ages, now) for step in _steps(layout, one)]


def _steps(layout: Layout, conditions: Sequence[Condition]) -> list[list[Condition]]:
    """The same as several deletions, the oldest days first: what one takes is held in memory until it is written."""
    names = [name for name in table_of(layout).active() if matching_rows(layout.landed, name, conditions).any()]
    days = sorted({partition_value(name, "date") for name in names})
    before = [[*conditions, Condition("date", BEFORE, (day,))] for day in days[DAYS_AT_ONCE::DAYS_AT_ONCE]]
    return [*before, list(conditions)] if days else []
