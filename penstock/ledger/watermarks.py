"""How far each table is complete, and how complete: the ledger's receivers and topics joined with what has landed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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


def watermarks(
    pages: TierCounts, beyond: Mapping[str, UnlandedTail], in_buffer: Mapping[SourceBucket, Counts], now: float
) -> list[Watermark]:
    """One for each table and topic of which something has landed; ``now`` in seconds since the epoch."""
    return [
        mark
        for topic, landed in sorted(pages.landed.items())
        for mark in _topic(pages, topic, landed, _until(pages, topic, beyond, in_buffer, now))
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


def _topic(pages: TierCounts, topic: str, landed: TopicFates, until: int) -> Iterator[Watermark]:
    fates = Counts()
    for (_, bucket), counts in landed.counts.items():
        if bucket < until:
            fates.absorb(counts)
    taken = fates.total(Name.DELETED) + fates[Name.DROPPED]
    whole = fates.total(Name.LANDED) + taken
    lost = _lost(pages, topic, until)
    for table, name in TABLES.items():
        rows = fates[name]
        if rows or taken:
            expected = rows + lost * rows / whole + (fates.total(Name.QUARANTINED) if table == "events" else 0)
            yield Watermark(table, topic, until, rows, round(rows / expected, 6) if expected else 1.0)


def _lost(pages: TierCounts, topic: str, until: int) -> float:
    """Messages lost before the log: those of each source, as far as its messages go into this topic."""
    lost = 0.0
    for source in {source for source, _ in pages.logged.get(topic, {})}:
        mine, everywhere = (_rows(pages, topics, source, until) for topics in ([topic], list(pages.logged)))
        if everywhere:
            lost += _ends(pages, source, until) * mine / everywhere
    return lost


def _rows(pages: TierCounts, topics: list[str], source: str, until: int) -> int:
    of_topics = (pages.logged[topic].items() for topic in topics)
    return sum(rows for keyed in of_topics for (s, bucket), rows in keyed if s == source and bucket < until)


def _ends(pages: TierCounts, source: str, until: int) -> int:
    counted = (counts for (s, bucket), counts in pages.received.items() if s == source and bucket < until)
    return sum(lost(counts).total() for counts in counted)
