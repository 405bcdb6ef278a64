"""Running totals of the book by source: a balance of all time reads them and adds up no buckets.

Invariant: totals that were kept while counts were entered equal the sums of the same buckets (``from_buckets``).
Crash: they are in memory only, and a start adds up the buckets that it reads, so nothing separates a total from its
counts. A rebuild adds up the buckets of the files, and so reports a total that differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.counts import SourceBucket

Totals = dict[str, dict[str, int]]
"""Counts by source or topic, and by name."""
BucketCounts = Mapping[SourceBucket, Mapping[str, int]]


@dataclass(slots=True)
class SourceTotals:
    """Sums over all buckets. Threads: the lock of the book that owns them; a copy is a snapshot.

    ``received`` and ``delivered`` (rows in topics) are by source, ``logged`` and ``uuids`` by topic, ``fates`` by topic
    and source. ``last_seen`` has the start of the newest bucket of each source, in seconds since the epoch.
    """

    received: Totals = field(default_factory=dict)
    last_seen: dict[str, int] = field(default_factory=dict)
    delivered: dict[str, int] = field(default_factory=dict)
    logged: dict[str, int] = field(default_factory=dict)
    fates: dict[str, Totals] = field(default_factory=dict)
    uuids: Totals = field(default_factory=dict)

    @classmethod
    def from_buckets(
        cls,
        received: BucketCounts,
        logged: Mapping[str, Mapping[SourceBucket, int]],
        landed: Mapping[str, tuple[BucketCounts, BucketCounts]],
        is_selected: Callable[[int], bool] | None = None,
    ) -> SourceTotals:
        """Add up the buckets that are selected, or all; ``landed`` has fates and uuids by topic."""
        totals = cls()
        for key, counts in received.items():
            if is_selected is None or is_selected(key[1]):
                totals.receive(key, counts)
        for topic, rows_by_bucket in logged.items():
            totals.logged[topic] = 0
            for (source, bucket), rows in rows_by_bucket.items():
                if is_selected is None or is_selected(bucket):
                    totals.add_rows(topic, source, rows)
        for topic, (fates, uuids) in landed.items():
            for (source, bucket), counts in fates.items():
                if is_selected is None or is_selected(bucket):
                    totals.add_fates(topic, source, counts)
            for (_, bucket), counts in uuids.items():
                if is_selected is None or is_selected(bucket):
                    totals.add_uuids(topic, counts)
        return totals

    def receive(self, key: SourceBucket, counts: Mapping[str, int]) -> None:
        """Add what a source received in a bucket."""
        source, bucket = key
        if bucket > self.last_seen.get(source, -1):
            self.last_seen[source] = bucket
        _add(self.received, source, counts)

    def add_rows(self, topic: str, source: str, rows: int) -> None:
        """Add rows of a source that a topic has stored."""
        self.delivered[source] = self.delivered.get(source, 0) + rows
        self.logged[topic] = self.logged.get(topic, 0) + rows

    def add_fates(self, topic: str, source: str, counts: Mapping[str, int]) -> None:
        """Add fates of the rows of a source in a topic."""
        if (fates := self.fates.get(topic)) is None:
            fates = self.fates[topic] = {}
        _add(fates, source, counts)

    def add_uuids(self, topic: str, counts: Mapping[str, int]) -> None:
        """Add numbers of known uuids, and sums of their hashes, of a topic."""
        _add(self.uuids, topic, counts)

    def copy(self) -> SourceTotals:
        """Return a copy that shares no mutable state."""
        return SourceTotals(
            _copy(self.received),
            dict(self.last_seen),
            dict(self.delivered),
            dict(self.logged),
            {topic: _copy(fates) for topic, fates in self.fates.items()},
            _copy(self.uuids),
        )


def _add(totals: Totals, key: str, counts: Mapping[str, int]) -> None:
    # Fast path: a plain dictionary takes a third of the time of `Counts.absorb`.
    if (total := totals.get(key)) is None:
        total = totals[key] = {}
    for name, count in counts.items():
        total[name] = total.get(name, 0) + count


def _copy(totals: Totals) -> Totals:
    return {key: counts.copy() for key, counts in totals.items()}
