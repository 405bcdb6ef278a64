"""The senders of listeners: their present tables, and the ledger's totals of tables that are gone.

A receiver keeps the counts in a file (``handover.sender_table``). The ledger stores them once an hour, so that they
survive the file. Invariant: of a table that exists only the file counts, so nothing is counted twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from penstock.counts import BUCKET_SECONDS, Counts
from penstock.handover.sender_reading import Senders, are_silent
from penstock.handover.sender_table import COUNT_NAMES, MAX_SENDERS, OTHERS, SILENT_PAUSES
from penstock.ledger.book.bucket_tables import RowTable
from penstock.ledger.posts import MAX_POSTED, SenderTotals, Totals
from penstock.qualified_names import is_relayed, split_relayed

GONE = ""
"""Name under which the tables that are gone are summed."""
NO_TABLE = "-"
"""Name that no table has."""
CLOSED = 1 << 63
"""Version of a table that is summed: no later post may change it."""


def totals_of(senders: Senders) -> Totals:
    """Return the senders of a table."""
    total: Totals = {}
    rows = zip(senders.first.tolist(), senders.last.tolist(), senders.counts.tolist(), strict=True)
    for index, (first, last, counts) in enumerate(rows):
        if first:
            name = senders.name(index)
            sender = SenderTotals(first, last, Counts(dict(zip(COUNT_NAMES, counts, strict=True))))
            # Two rows may have one name: an address, and a host that calls itself so.
            total[name] = total[name].plus(sender) if name in total else sender
    return total


def sum_totals(tables: Iterable[Totals]) -> Totals:
    """Return the sum of several tables, at most MAX_SENDERS senders: the smallest are summed as others."""
    total: Totals = {}
    for totals in tables:
        for name, sender in totals.items():
            total[name] = total[name].plus(sender) if name in total else sender
    named = sorted((name for name in total if name != OTHERS), key=lambda name: -total[name].size)
    for name in named[MAX_SENDERS:]:
        smallest = total.pop(name)
        total[OTHERS] = total[OTHERS].plus(smallest) if OTHERS in total else smallest
    return total


@dataclass(slots=True)
class SenderPages:
    """Posted senders of one listener, by table. Invariant: the totals are replaced, never changed."""

    tables: dict[str, Totals] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)

    def copy(self) -> SenderPages:
        """Return a copy that shares no mutable state."""
        return SenderPages(dict(self.tables), dict(self.versions))

    def enter(self, table: str, version: int, senders: Mapping[str, SenderTotals]) -> bool:
        """Enter a post; report whether it changed anything. A sender without a first arrival is removed."""
        if version < self.versions.get(table, -1):
            return False
        if table not in self.tables:
            # A new table: the others no longer change.
            self.tables = {GONE: sum_totals(self.tables.values())} if self.tables else {}
            self.versions = dict.fromkeys(self.versions, CLOSED)
        previous = self.tables.get(table, {})
        self.versions[table] = version
        self.tables[table] = {n: s for n, s in {**previous, **senders}.items() if s.first}
        return self.tables[table] != previous

    def sum_gone_tables(self, existing: str) -> Totals:
        """Return the senders of all tables except the existing one."""
        return sum_totals(totals for table, totals in self.tables.items() if table != existing)


def changed_senders(pages: SenderPages | None, senders: Senders) -> Iterator[Totals]:
    """Yield changed senders of a table for one post each; removed senders have no first arrival."""
    posted = pages.tables.get(senders.file_id, {}) if pages else {}
    current = totals_of(senders)
    changed = {name: sender for name, sender in current.items() if posted.get(name) != sender}
    changed |= {name: SenderTotals(0, 0, Counts()) for name in posted if name not in current}
    remaining = iter(changed.items())
    while part := dict(islice(remaining, MAX_POSTED)):
        yield part


@dataclass(frozen=True, slots=True)
class SenderState:
    """A sender as of now. ``pauses``: seconds since its last message, and usually between two; None if only posts are
    known.
    """

    name: str
    totals: SenderTotals
    pauses: tuple[float, float] | None = None
    is_silent: bool = False
    is_new: bool = False

    def document(self) -> dict[str, object]:
        """Return the sender as a JSON-ready mapping; times in seconds since the epoch."""
        counts = self.totals.counts
        return {
            "sender": self.name,
            "first_seen": self.totals.first / 1e6,
            "last_seen": self.totals.last / 1e6,
            "accepted": counts["accepted"],
            "losses": {name: count for name, count in counts.items() if count and name != "accepted"},
            "silent": self.is_silent,
            "new": self.is_new,
            "silence_s": self.pauses and round(self.pauses[0], 1),
            "usual_pause_s": self.pauses and round(self.pauses[1], 1),
        }


def sender_states(receivers: Iterable[tuple[SenderPages | None, Senders | None]], expect_s: float) -> list[SenderState]:
    """Return the senders of one listener, the largest first; its receivers may be several.

    The kernel chooses the receiver of a datagram, so a sender is judged by all of them: see ``silent_senders``.
    """
    receivers = list(receivers)
    tables = [table for _, table in receivers if table is not None]
    former_totals = (pages.sum_gone_tables(table.file_id if table else NO_TABLE) for pages, table in receivers if pages)
    total = sum_totals([*map(totals_of, tables), *former_totals])
    silent, new = silent_senders(tables, expect_s), new_senders(tables)
    pauses: dict[str, tuple[float, float]] = {}
    for table in tables:
        for index in np.flatnonzero(table.first).tolist():
            silence_s, pause_s = float(table.silence[index]), float(table.pause[index])
            previous = pauses.get(name := table.name(index), (silence_s, pause_s))
            pauses[name] = min(previous[0], silence_s), max(previous[1], pause_s)
    ordered = sorted(total.items(), key=lambda item: (item[0] == OTHERS, -item[1].size, item[0]))
    return [SenderState(name, totals, pauses.get(name), name in silent, name in new) for name, totals in ordered]


def silent_senders(tables: Iterable[Senders], expect_s: float) -> dict[str, float]:
    """Return the senders that are silent at all receivers together, and for how long (seconds).

    A sender is judged once, by its latest arrival, its longest pause and its longest steady time: a receiver that the
    kernel chose for few of its messages says nothing about its rhythm.
    """
    tables = list(tables)
    if len(tables) == 1:
        # Fast path: only silent senders need their names.
        indices = np.flatnonzero(tables[0].is_silent(expect_s)).tolist()
        return {tables[0].name(index): float(tables[0].silence[index]) for index in indices}
    rows: dict[str, int] = {}
    row_of = [rows.setdefault(table.name(index), len(rows)) for table in tables for index in range(1, len(table.kinds))]
    silence, pause, steady = np.full(len(rows), np.inf), np.zeros(len(rows)), np.zeros(len(rows))
    if rows:
        np.minimum.at(silence, row_of, np.concatenate([table.silence[1:] for table in tables]))
        np.maximum.at(pause, row_of, np.concatenate([table.pause[1:] for table in tables]))
        np.maximum.at(steady, row_of, np.concatenate([table.steady[1:] for table in tables]))
    names = list(rows)
    indices = np.flatnonzero(are_silent(silence, pause, steady, expect_s)).tolist()
    return {names[index]: float(silence[index]) for index in indices}


def new_senders(tables: Iterable[Senders]) -> set[str]:
    """Return the senders that are new at each receiver that knows them."""
    masks = [(table, table.is_new()) for table in tables]
    new = {table.name(index) for table, is_new in masks for index in np.flatnonzero(is_new).tolist()}
    if len(masks) > 1:
        new -= {table.name(index) for table, is_new in masks for index in np.flatnonzero(~is_new).tolist()}
    return new


HOST_HISTORY_S = 86_400
"""Time from which a host's rhythm is learned."""
MIN_HOST_MINUTES, MIN_HOST_SILENCE_S = 10, 300.0
"""Minutes with entries after which a host's rhythm is known, and the shortest silence."""
USUAL_QUANTILE = 0.9
"""Part of a host's pauses that are usual; longer ones are outages."""


def silent_hosts(logged: Mapping[str, RowTable], now: float) -> dict[str, float]:
    """Return the hosts that relay to this one and have stopped, and for how long (seconds).

    ``logged`` has the entries by topic, source and minute; a relayed source is ``HOST/LISTENER``. ``now``: seconds
    since the epoch.
    """
    minutes: dict[str, set[int]] = {}
    begin = now - HOST_HISTORY_S
    for rows in logged.values():
        for source, columns in rows.sources():
            if is_relayed(source):
                recent = columns.buckets[bisect_right(columns.buckets, begin) :]
                if recent:
                    minutes.setdefault(split_relayed(source)[0], set()).update(recent)
    silent: dict[str, float] = {}
    for host, buckets in sorted(minutes.items()):
        silence_s = now - max(buckets) - BUCKET_SECONDS
        if len(buckets) >= MIN_HOST_MINUTES and silence_s > MIN_HOST_SILENCE_S:
            pauses = np.diff(sorted(buckets))
            if silence_s > SILENT_PAUSES * float(np.quantile(pauses, USUAL_QUANTILE)):
                silent[host] = silence_s
    return silent
