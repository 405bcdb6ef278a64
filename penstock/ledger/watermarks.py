"""Watermarks: up to which minute each table is complete, and which share of the known messages it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.counts import BUCKET_SECONDS, Counts, Name, SourceBucket, lost
from penstock.ledger.balance import UnlandedTail
from penstock.ledger.book import TierCounts, TopicFates

TABLES = {"events": "landed.event", "syslog": "landed.syslog", "messages": "landed.message"}
STAMP_DELAY_S = 5
"""Time after a minute's end in which a receiver may still stamp a round with it."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """The statement that a table holds everything it will ever hold of a topic's messages received before
    ``until``.

    ``until`` is the start of a minute in seconds since the epoch; ``landed`` is the number of the table's rows before
    it. ``share`` is the part of the known messages that the table holds: quarantined rows count as missing events, and
    losses before the log are distributed over the tables in proportion to their rows.
    """

    table: str
    topic: str
    until: int
    landed: int
    share: float


@dataclass(frozen=True, slots=True)
class _Losses:
    """Rows of all topics, and messages lost before the log, by source and bucket."""

    rows: dict[str, dict[int, int]] = field(default_factory=dict)
    lost: dict[str, dict[int, int]] = field(default_factory=dict)
    _cache: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def from_pages(cls, pages: TierCounts) -> _Losses:
        losses = cls()
        for logged in pages.logged.values():
            for (source, bucket), rows in logged.items():
                rows_by_bucket = losses.rows.setdefault(source, {})
                rows_by_bucket[bucket] = rows_by_bucket.get(bucket, 0) + rows
        for (source, bucket), counts in pages.received.items():
            losses.lost.setdefault(source, {})[bucket] = lost(counts).total()
        return losses

    def of_topic(self, logged: Mapping[SourceBucket, int], until: int) -> float:
        """Return the losses before ``until`` of the topic's sources, in proportion to the rows that went to this
        topic.
        """
        rows_by_source = Counts()
        for (source, bucket), rows in logged.items():
            rows_by_source[source] += rows if bucket < until else 0
        sums = {source: (rows, *self._before(source, until)) for source, rows in rows_by_source.items()}
        return sum(lost * rows / everywhere for rows, everywhere, lost in sums.values() if everywhere)

    def _before(self, source: str, until: int) -> tuple[int, int]:
        """Return rows and losses before ``until``. Cached: most topics share their sources."""
        if (source, until) not in self._cache:
            tiers = (self.rows.get(source, {}), self.lost.get(source, {}))
            rows, lost = (sum(count for bucket, count in keyed.items() if bucket < until) for keyed in tiers)
            self._cache[source, until] = rows, lost
        return self._cache[source, until]


def watermarks(
    pages: TierCounts, beyond: Mapping[str, UnlandedTail], in_buffer: Mapping[SourceBucket, Counts], now: float
) -> list[Watermark]:
    """Return a watermark for each table and topic with landed rows; ``now`` in seconds since the epoch."""
    losses = _Losses.from_pages(pages)
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
    """Return the first minute with messages on the way to ``topic``, at most the current one."""
    feeds = {source for source, _ in pages.logged.get(topic, {})}
    waiting = [bucket for (source, bucket), counts in in_buffer.items() if source in feeds and counts[Name.ACCEPTED]]
    waiting += [bucket for (_, bucket), rows in beyond[topic].pending.items() if rows] if topic in beyond else []
    # The current minute is never complete: its receivers still stamp rounds with it.
    settled = int(now - STAMP_DELAY_S) // BUCKET_SECONDS * BUCKET_SECONDS
    return min([settled, *waiting])


def _topic(pages: TierCounts, topic: str, landed: TopicFates, losses: _Losses, until: int) -> Iterator[Watermark]:
    fates = Counts()
    for (_, bucket), counts in landed.counts.items():
        if bucket < until:
            fates.absorb(counts)
    removed = fates.total(Name.DELETED) + fates[Name.DROPPED]
    total_landed = fates.total(Name.LANDED) + removed
    lost = losses.of_topic(pages.logged.get(topic, {}), until)
    for table, name in TABLES.items():
        rows = fates[name]
        if rows or removed:
            expected = rows + lost * rows / total_landed + (fates.total(Name.QUARANTINED) if table == "events" else 0)
            yield Watermark(table, topic, until, rows, round(rows / expected, 6) if expected else 1.0)
