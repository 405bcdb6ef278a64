"""Taking rows out of a Delta table, each deletion once.

First out of the typed tables; then the files without them are written, and what is known of them, then the commit that
puts the files in the place of the old ones and has the deletion's number: killed before it, all is done again; after
it, nothing. The old files stay a while for readers that are at them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts, SourceBucket
from penstock.landing.deletion.conditions import BEFORE, IN, NOT_IN, Condition, rows_of
from penstock.landing.deletion.deletions import RETENTION, Deleted, Deletion, ask, pending, write_record
from penstock.landing.deletion.typed_removal import apply_vectors_where, take_out
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.landed_keys import NO_LIMIT, LandedKeys, within_window
from penstock.landing.event_rules import WITH_UUID, MessageKind
from penstock.landing.landing_lock import alone_at_upkeep
from penstock.landing.offset_runs import NO_RUNS, Runs, as_runs, inside, runs_of
from penstock.landing.proof.evidence import fate, is_of_topic, of_topic, read_rows, tally
from penstock.landing.proof.uuid_sums import of_events
from penstock.landing.table.begun_table import is_begun, table_of
from penstock.landing.table.delta_table import DeltaTable, ForeignCommit
from penstock.landing.table.table_file import Mask, TableFile
from penstock.landing.table_paths import Layout, partition_value
from penstock.landing.writing.batch_commit import events_of
from penstock.landing.writing.compaction import kept_if_committed
from penstock.landing.writing.written_file import WrittenFile, with_rows

TYPE_MARK = "/"
"""Between a kind and a type in the names of ages (``event/click``)."""

DAYS_AT_ONCE = 7
"""Of rows that are older than they are kept."""


def count(layout: Layout, conditions: Sequence[Condition]) -> tuple[int, int]:
    """How many rows, and in how many files, conditions hold for."""
    found = [int(rows_of(layout.landed, name, conditions).sum()) for name in table_of(layout).active()]
    return sum(found), sum(1 for rows in found if rows)


def carry_out(layout: Layout, window: int, latest_time: int = NO_LIMIT) -> int:
    """Execute the open deletion requests and return their number. One process at a time.

    ``window`` of duplicates, in microseconds; ``latest_time``: log times after it were stamped by a wrong clock.
    """
    waiting = pending(layout) if is_begun(layout) else []
    for one in waiting:
        with alone_at_upkeep(layout):
            Removal(layout, one, window, latest_time).run()
    return len(waiting)


@dataclass(slots=True)
class Removal:
    """One deletion."""

    layout: Layout
    deletion: Deletion
    window: int
    latest_time: int
    taken: dict[str, dict[SourceBucket, Counts]] = field(default_factory=dict)
    uuids: dict[str, dict[SourceBucket, Counts]] = field(default_factory=dict)
    runs: dict[str, list[Runs]] = field(default_factory=dict)
    keys: list[EventsSeen] = field(default_factory=list)
    latest: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        table = DeltaTable(self.layout.landed)
        known = LandedKeys.load(self.layout.keys, self.window)
        self.latest = known.newest() if known else {}
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
            self.take_foreign(table, commit)
        self._record(batch)
        table.delete(self.deletion.number, [], [])

    def take_foreign(self, table: DeltaTable, commit: ForeignCommit) -> None:
        """Know the rows that were in the files of a commit before it, and in none of them after."""
        after = [file for file in table.active_at(commit.version) if file in commit.names]
        remaining = offsets_by_topic(self.layout, after)
        for file in table.active_at(commit.version - 1):
            if file in commit.names:
                rows = read_rows(self.layout.landed, [file])
                mask = np.zeros(rows.num_rows, bool)
                for topic in map(str, pc.unique(rows["topic"].cast(pa.string())).to_pylist()):
                    mine = is_of_topic(rows, topic).to_numpy().astype(bool)
                    mask |= mine & ~inside(rows["offset"].to_numpy(), remaining.get(topic, NO_RUNS))
                if mask.any():
                    self._take(file, mask)

    @property
    def rows(self) -> int:
        """The number of rows taken."""
        return sum(counts.total() for places in self.taken.values() for counts in places.values())

    def deleted(self) -> list[Deleted]:
        """Return what was taken, by topic."""
        return [
            Deleted(self.deletion.number, self.deletion.why, topic, taken, self.uuids.get(topic, {}))
            for topic, taken in sorted(self.taken.items())
        ]

    def _rewritten(self, table: DeltaTable, names: Sequence[TableFile], written: list[WrittenFile]) -> list[str]:
        """Write files without the rows; the names of those that they stand for."""
        gone: list[str] = []
        for name in names:
            mask = rows_of(self.layout.landed, name, self.deletion.conditions)
            if mask.any():
                gone.append(name)
                self._take(name, mask)
                written += [] if mask.all() else [with_rows(self.layout.landed, name, ~mask, form=table.form)]
        return gone

    def _record(self, batch: int) -> None:
        told = self.deleted()
        runs = {topic: as_runs(np.concatenate(parts)) for topic, parts in self.runs.items()}
        write_record(self.layout, self.deletion, batch, told, runs, self._keys_of_late())

    def _take(self, name: TableFile, mask: Mask) -> None:
        """Know the rows of a file that go."""
        rows = read_rows(self.layout.landed, [name]).filter(pa.array(mask))
        for topic in pc.unique(rows["topic"].cast(pa.string())).to_pylist():
            mine = of_topic(rows, str(topic))
            self.runs.setdefault(str(topic), []).append(runs_of(np.sort(mine["offset"].to_numpy())))
            for place, fates in tally(mine).items():
                counts = Counts({fate(kind, reason): n for (kind, reason), n in fates.items()})
                self.taken.setdefault(str(topic), {}).setdefault(place, Counts()).absorb(counts)
            for place, sums in of_events(mine).items():
                self.uuids.setdefault(str(topic), {}).setdefault(place, Counts()).absorb(sums)
        if partition_value(name, "kind") in WITH_UUID:
            events = events_of(self.layout.landed, name, mask)
            self.keys += [keys for keys in self._within_window([events]) if len(keys)]

    def _keys_of_late(self) -> EventsSeen:
        """Those that may be needed to know a duplicate by."""
        return EventsSeen.concat(list(self._within_window(self.keys)))

    def _within_window(self, events: Sequence[EventsSeen]) -> Iterator[EventsSeen]:
        return within_window(events, self.window, self.latest, self.latest_time)


def offsets_by_topic(layout: Layout, files: Sequence[TableFile]) -> dict[str, Runs]:
    """Return the offsets of the rows of files of the table ``landed``."""
    parts: dict[str, list[Runs]] = {}
    for file in files:
        rows = read_rows(layout.landed, [file])
        for topic in map(str, pc.unique(rows["topic"].cast(pa.string())).to_pylist()):
            offsets = np.unique(of_topic(rows, topic)["offset"].to_numpy())
            parts.setdefault(topic, []).append(runs_of(offsets))
    return {topic: as_runs(np.concatenate(runs)) for topic, runs in parts.items()}


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
    return [ask(layout, RETENTION, step) for one in expired(ages, now) for step in _steps(layout, one)]


def _steps(layout: Layout, conditions: Sequence[Condition]) -> list[list[Condition]]:
    """The same as several deletions, the oldest days first: what one takes is held in memory until it is written."""
    names = [name for name in table_of(layout).active() if rows_of(layout.landed, name, conditions).any()]
    days = sorted({partition_value(name, "date") for name in names})
    before = [[*conditions, Condition("date", BEFORE, (day,))] for day in days[DAYS_AT_ONCE::DAYS_AT_ONCE]]
    return [*before, list(conditions)] if days else []
