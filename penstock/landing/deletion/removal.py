"""Taking rows out of a Delta table, each deletion once.

First the files without them, then what is known of them, then the commit that puts the files in the place of the old
ones and has the deletion's number: killed before it, all is done again; after it, nothing. The old files stay a while
for readers that are at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts, SourceBucket
from penstock.landing.backfill.requests import runs_of
from penstock.landing.deletion.conditions import BEFORE, IN, NOT_IN, Condition, Mask, rows_of
from penstock.landing.deletion.deletions import RETENTION, Deleted, Deletion, Runs, ask, pending, write_record
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.landed_keys import LandedKeys, within_window
from penstock.landing.event_rules import MessageKind
from penstock.landing.landing_lock import alone_at_upkeep
from penstock.landing.proof.evidence import fate, of_topic, read_rows, tally
from penstock.landing.proof.uuid_sums import of_events
from penstock.landing.table.begun_table import DELTA, begun_as
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table_paths import Layout, partition_value
from penstock.landing.writing.batch_commit import events_of
from penstock.landing.writing.compaction import kept_if_committed
from penstock.landing.writing.written_file import WrittenFile, with_rows

TYPE_MARK = "/"
"""Between a kind and a type in the names of ages (``event/click``)."""


def count(layout: Layout, conditions: Sequence[Condition]) -> tuple[int, int]:
    """How many rows, and in how many files, conditions hold for."""
    found = [int(rows_of(layout.landed, name, conditions).sum()) for name in DeltaTable(layout.landed).active()]
    return sum(found), sum(1 for rows in found if rows)


def carry_out(layout: Layout, window: int) -> int:
    """Do what is to be done; how many deletions. ``window``: of duplicates, in microseconds. One process at a time."""
    waiting = pending(layout) if begun_as(layout) == DELTA else []
    for one in waiting:
        with alone_at_upkeep(layout):
            _Removal(layout, one, window).run()
    return len(waiting)


@dataclass(slots=True)
class _Removal:
    """One deletion."""

    layout: Layout
    deletion: Deletion
    window: int
    taken: dict[str, dict[SourceBucket, Counts]] = field(default_factory=dict)
    uuids: dict[str, dict[SourceBucket, Counts]] = field(default_factory=dict)
    runs: dict[str, Runs] = field(default_factory=dict)
    keys: list[EventsSeen] = field(default_factory=list)

    def run(self) -> None:
        table = DeltaTable(self.layout.landed)
        names, batch = table.active(), table.newest()
        with kept_if_committed(table) as written:
            gone = self._rewritten(names, written)
            self._record(batch)
            table.delete(self.deletion.number, gone, written)

    def _rewritten(self, names: Sequence[str], written: list[WrittenFile]) -> list[str]:
        """Write files without the rows; the names of those that they stand for."""
        gone: list[str] = []
        for name in names:
            mask = rows_of(self.layout.landed, name, self.deletion.conditions)
            if mask.any():
                gone.append(name)
                self._take(name, mask)
                written += [] if mask.all() else [with_rows(self.layout.landed, name, ~mask)]
        return gone

    def _record(self, batch: int) -> None:
        told = [
            Deleted(self.deletion.number, self.deletion.why, topic, taken, self.uuids.get(topic, {}))
            for topic, taken in sorted(self.taken.items())
        ]
        write_record(self.layout, self.deletion, batch, told, self.runs, self._keys_of_late())

    def _take(self, name: str, mask: Mask) -> None:
        """Know the rows of a file that go."""
        rows = read_rows(self.layout.landed, [name]).filter(pa.array(mask))
        for topic in pc.unique(rows["topic"].cast(pa.string())).to_pylist():
            mine = of_topic(rows, str(topic))
            self.runs[str(topic)] = [*self.runs.get(str(topic), ()), *runs_of(np.sort(mine["offset"].to_numpy()))]
            for place, fates in tally(mine).items():
                counts = Counts({fate(kind, reason): n for (kind, reason), n in fates.items()})
                self.taken.setdefault(str(topic), {}).setdefault(place, Counts()).absorb(counts)
            for place, sums in of_events(mine).items():
                self.uuids.setdefault(str(topic), {}).setdefault(place, Counts()).absorb(sums)
        if partition_value(name, "kind") == MessageKind.EVENT:
            self.keys.append(events_of(self.layout.landed / name).take(mask))

    def _keys_of_late(self) -> EventsSeen:
        """Those that may be needed to know a duplicate by."""
        known = LandedKeys.load(self.layout.keys, self.window)
        latest = [run.seen() for run in known.runs] if known else []
        sorted_out = list(within_window([*latest, *self.keys], self.window))
        return EventsSeen.concat(sorted_out[len(latest) :])


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
    """Ask for the deletion of what is older than it is kept, where there is any."""
    return [ask(layout, RETENTION, one) for one in expired(ages, now) if _any(layout, one)]


def _any(layout: Layout, conditions: Sequence[Condition]) -> bool:
    return any(rows_of(layout.landed, name, conditions).any() for name in DeltaTable(layout.landed).active())
