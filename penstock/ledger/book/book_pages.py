"""The pages of the book: counts of all tiers, with what is known about each topic and sender.

Invariant: ``Counts`` in pages are replaced and never changed, so that a shallow copy is a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.counts import Counts, SourceBucket
from penstock.ledger.book.bucket_tables import CountTable, RowTable
from penstock.ledger.book.senders import SenderPages
from penstock.ledger.book.source_totals import SourceTotals
from penstock.ledger.posts import (
    ClientPost,
    EventPost,
)


@dataclass(slots=True)
class TopicFates:
    """The fates of a topic's offsets before ``through``, and of those in ``ahead``.

    ``backfills`` has request and version of each backfill that was entered; ``deletion`` is the number of the last
    deletion.
    """

    through: int = 0
    version: int = -1
    counts: CountTable = field(default_factory=CountTable)
    uuids: CountTable = field(default_factory=CountTable)
    ahead: tuple[tuple[int, int], ...] = ()
    backfills: frozenset[tuple[int, int]] = frozenset()
    deletion: int = 0

    def copy(self) -> TopicFates:
        """Return a copy that shares no mutable state."""
        return replace(self, counts=self.counts.copy(), uuids=self.uuids.copy())

    def beyond(self, end: int) -> list[tuple[int, int]]:
        """Return the ranges of offsets before ``end`` that no post covers."""
        missing, reached = [], self.through
        for begin, stop in [*sorted(self.ahead), (end, end)]:
            if begin > reached:
                missing.append((reached, min(begin, end)))
            reached = max(reached, stop)
        return [(begin, stop) for begin, stop in missing if begin < stop]


MAX_EVENTS = 10_000
"""Limit for the events in memory; older ones remain in the topic ``_ledger``."""
Life = tuple[str, str, str]
"""Tier, source and incarnation of an auditor."""


@dataclass(frozen=True, slots=True)
class Covered:
    """The offset up to which a topic is entered (``end``, exclusive), and the timestamp of the row before it.

    ``time`` is in microseconds; 0 if the last offset is in a gap.
    """

    end: int = 0
    time: int = 0


@dataclass(slots=True)
class BookPages:
    """The counts of all tiers; ``ends`` are the ends of the offsets that ``logged`` covers, by topic.

    ``covered`` says up to where each topic, internal ones included, is entered. ``unreadable_ranges`` has the gaps
    before that whose counts cannot be read. Buckets older than ``rolled`` (seconds since the epoch) are summed by day
    or month. Invariant: ``Counts`` in dictionaries are replaced and never changed, so a shallow copy is a snapshot.
    ``totals`` replaces the buckets in a summary of a book, which has none.
    """

    received: CountTable = field(default_factory=CountTable)
    logged: dict[str, RowTable] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    landed: dict[str, TopicFates] = field(default_factory=dict)
    clients: dict[tuple[str, str], ClientPost] = field(default_factory=dict)
    audits: dict[Life, dict[SourceBucket, tuple[int, Counts]]] = field(default_factory=dict)
    """Audit counts by topic and bucket, with the version of the post that reported them."""
    covered: dict[str, Covered] = field(default_factory=dict)
    unreadable_ranges: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    rolled: int = 0
    last_posts: dict[Life, int] = field(default_factory=dict)
    """Bucket of the last post of each auditor."""
    events: dict[str, EventPost] = field(default_factory=dict)
    """The newest events by id."""
    event_losses: dict[str, Counts] = field(default_factory=dict)
    """Losses by place, summed over all events, also over events that left memory."""
    senders: dict[str, SenderPages] = field(default_factory=dict)
    """Senders by listener."""
    totals: SourceTotals | None = None
    positions: dict[str, dict[str, int]] = field(default_factory=dict, compare=False)
    """Positions in log buffers up to which batches were entered since the start, by topic (``advance_positions``)."""

    def copy(self) -> BookPages:
        """Return a copy that shares no mutable state."""
        return BookPages(
            self.received.copy(),
            {topic: rows.copy() for topic, rows in self.logged.items()},
            dict(self.ends),
            {topic: landed.copy() for topic, landed in self.landed.items()},
            dict(self.clients),
            {life: dict(audit) for life, audit in self.audits.items()},
            dict(self.covered),
            {topic: list(ranges) for topic, ranges in self.unreadable_ranges.items()},
            self.rolled,
            dict(self.last_posts),
            dict(self.events),
            dict(self.event_losses),
            {listener: pages.copy() for listener, pages in self.senders.items()},
            positions=self.copied_positions(),
        )

    def roll_tables(self) -> None:
        """Sum the buckets older than ``rolled`` by day or month."""
        self.received.roll_up(self.rolled)
        for rows in self.logged.values():
            rows.roll_up(self.rolled)
        for landed in self.landed.values():
            landed.counts.roll_up(self.rolled)
            landed.uuids.roll_up(self.rolled)

    def copied_positions(self) -> dict[str, dict[str, int]]:
        """Return a copy of ``positions``."""
        return {topic: positions.copy() for topic, positions in self.positions.items()}

    def sent(self) -> dict[str, Counts]:
        """Return the counts that senders report as sent, by listener; a listener without a report is missing."""
        sent: dict[str, Counts] = {}
        for (listener, _), post in self.clients.items():
            sent.setdefault(listener, Counts()).absorb(post.counts)
        return sent

    def add_up(self, within: range | None = None) -> SourceTotals:
        """Return the totals by source of all buckets, or of the buckets ``within``."""
        landed = {topic: (fates.counts, fates.uuids) for topic, fates in self.landed.items()}
        return SourceTotals.from_buckets(self.received, self.logged, landed, within)
