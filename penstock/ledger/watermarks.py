"""Watermarks: up to which minute each table is complete, and which share of the known messages it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.counts import BUCKET_SECONDS, Counts, Name, SourceBucket, lost, summed
from penstock.ledger.balance import UnlandedTail
from penstock.ledger.book.book_pages import BookPages, TopicFates
from penstock.ledger.book.bucket_tables import ROWS, CountTable, RowTable, SourceColumns

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
    """Rows of all topics, and messages lost before the log, by source."""

    received: CountTable
    logged: dict[str, list[SourceColumns]] = field(default_factory=dict)
    _cache: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def from_pages(cls, pages: BookPages) -> _Losses:
        losses = cls(pages.received)
        for logged in pages.logged.values():
            for source, columns in logged.sources():
                losses.logged.setdefault(source, []).append(columns)
        return losses

    def of_topic(self, logged: RowTable, until: int) -> float:
        """Return the losses before ``until`` of the topic's sources, in proportion to the rows that went to this
        topic.
        """
        rows_by_source = {source: counts.get(ROWS, 0) for source, counts in logged.sums(range(until)).items()}
        sums = {source: (rows, *self._before(source, until)) for source, rows in rows_by_source.items()}
        return sum(lost * rows / everywhere for rows, everywhere, lost in sums.values() if everywhere)

    def _before(self, source: str, until: int) -> tuple[int, int]:
        """Return rows and losses before ``until``. Cached: most topics share their sources."""
        if (source, until) not in self._cache:
            before = range(until)
            rows = sum(columns.sums(before).get(ROWS, 0) for columns in self.logged.get(source, ()))
            self._cache[source, until] = rows, lost(self.received.sums_of(source, before)).total()
        return self._cache[source, until]


def watermarks(
    pages: BookPages, beyond: Mapping[str, UnlandedTail], in_buffer: Mapping[SourceBucket, Counts], now: float
) -> list[Watermark]:
    """Return a watermark for each table and topic with landed rows; ``now`` in seconds since the epoch."""
    losses = _Losses.from_pages(pages)
    return [
        mark
        for topic, landed in sorted(pages.landed.items())
        for mark in _topic(pages, topic, landed, losses, _until(pages, topic, beyond, in_buffer, now))
    ]


def _until(
    pages: BookPages,
    topic: str,
    beyond: Mapping[str, UnlandedTail],
    in_buffer: Mapping[SourceBucket, Counts],
    now: float,
) -> int:
    """Return the first minute with messages on the way to ``topic``, at most the current one."""
    feeds = {source for source, _ in pages.logged[topic].sources()} if topic in pages.logged else set()
    waiting = [bucket for (source, bucket), counts in in_buffer.items() if source in feeds and counts[Name.ACCEPTED]]
    waiting += [bucket for (_, bucket), rows in beyond[topic].pending.items() if rows] if topic in beyond else []
    # The current minute is never complete: its receivers still stamp rounds with it.
    settled = int(now - STAMP_DELAY_S) // BUCKET_SECONDS * BUCKET_SECONDS
    return min([settled, *waiting])


def _topic(pages: BookPages, topic: str, landed: TopicFates, losses: _Losses, until: int) -> Iterator[Watermark]:
    fates = summed(landed.counts.sums(range(until)).values())
    removed = fates.total(Name.DELETED) + fates[Name.DROPPED]
    total_landed = fates.total(Name.LANDED) + removed
    lost = losses.of_topic(pages.logged.get(topic, RowTable()), until)
    for table, name in TABLES.items():
        rows = max(fates[name], 0)
        # A deletion that is posted again to a new ledger may come before the landing of its rows.
        if total_landed > 0 and (rows or removed):
            expected = rows + lost * rows / total_landed + (fates.total(Name.QUARANTINED) if table == "events" else 0)
            yield Watermark(table, topic, until, rows, round(rows / expected, 6) if expected else 1.0)
