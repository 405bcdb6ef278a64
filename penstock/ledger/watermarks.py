"""How far each table is complete, and how complete: the ledger's receivers and topics joined with what has landed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.counts import BUCKET_SECONDS, Counts, Name, SourceBucket, lost
from penstock.ledger.balance import UnlandedTail
from penstock.ledger.book import TierCounts, TopicFates

TABLES = {"events": "landed.event", "syslog": "landed.syslog", "messages": "landed.message"}
SETTLED = 5
"""Seconds after a minute's end until which a receiver may still stamp a round with it."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """A table holds whatever it will ever hold of a topic's messages received before ``until``.

    ``until`` is the start of a minute in seconds since the epoch; ``landed`` are the table's rows of before.
    ``share`` is how many of the messages known to have come it holds: what is in quarantine counts as a missing
    event, what was lost before the log is divided over the tables as the rest is.
    """

    table: str
    topic: str
    until: int
    landed: int
    share: float


@dataclass(frozen=True, slots=True)
class _Losses:
    """By source and bucket: the rows of all topics, and the messages lost before the log."""

    rows: dict[str, dict[int, int]] = field(default_factory=dict)
    lost: dict[str, dict[int, int]] = field(default_factory=dict)
    _known: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, pages: TierCounts) -> _Losses:
        found = cls()
        for logged in pages.logged.values():
            for (source, bucket), rows in logged.items():
                of_source = found.rows.setdefault(source, {})
                of_source[bucket] = of_source.get(bucket, 0) + rows
        for (source, bucket), counts in pages.received.items():
            found.lost.setdefault(source, {})[bucket] = lost(counts).total()
        return found

    def of_topic(self, logged: Mapping[SourceBucket, int], until: int) -> float:
        """Messages of before ``until``: those of each source, as far as its messages go into this topic."""
        mine = Counts()
        for (source, bucket), rows in logged.items():
            mine[source] += rows if bucket < until else 0
        sums = {source: (rows, *self._before(source, until)) for source, rows in mine.items()}
        return sum(lost * rows / everywhere for rows, everywhere, lost in sums.values() if everywhere)

    def _before(self, source: str, until: int) -> tuple[int, int]:
        """Of both what is before ``until``, which most topics have in common."""
        if (source, until) not in self._known:
            both = (self.rows.get(source, {}), self.lost.get(source, {}))
            rows, lost = (sum(n for bucket, n in keyed.items() if bucket < until) for keyed in both)
            self._known[source, until] = rows, lost
        return self._known[source, until]


def watermarks(
    pages: TierCounts, beyond: Mapping[str, UnlandedTail], in_buffer: Mapping[SourceBucket, Counts], now: float
) -> list[Watermark]:
    """One for each table and topic of which something has landed; ``now`` in seconds since the epoch."""
    losses = _Losses.of(pages)
    return [
        mark
        for topic, landed in sorted(pages.landed.items())
        for mark in _topic(pages, topic, landed, losses, _until(pages, topic, beyond, in_buffer, now))
    ]


def _until(
    pages: TierCounts,
    topic: str,
    beyond: Mapping[str, UnlandedTail],
    in_buffer: Mapping[SourceBucket, Counts],
    now: float,
) -> int:
    """The first minute of which something is on its way into ``topic``, at the latest the present one."""
    feeds = {source for source, _ in pages.logged.get(topic, {})}
    waiting = [b for (source, b), counts in in_buffer.items() if source in feeds and counts[Name.ACCEPTED]]
    waiting += [b for (_, b), rows in beyond[topic].pending.items() if rows] if topic in beyond else []
    settled = int(now - SETTLED) // BUCKET_SECONDS * BUCKET_SECONDS
    return min([settled, *waiting])


def _topic(pages: TierCounts, topic: str, landed: TopicFates, losses: _Losses, until: int) -> Iterator[Watermark]:
    fates = Counts()
    for (_, bucket), counts in landed.counts.items():
        if bucket < until:
            fates.absorb(counts)
    taken = fates.total(Name.DELETED) + fates[Name.DROPPED]
    whole = fates.total(Name.LANDED) + taken
    lost = losses.of_topic(pages.logged.get(topic, {}), until)
    for table, name in TABLES.items():
        rows = fates[name]
        if rows or taken:
            expected = rows + lost * rows / whole + (fates.total(Name.QUARANTINED) if table == "events" else 0)
            yield Watermark(table, topic, until, rows, round(rows / expected, 6) if expected else 1.0)
