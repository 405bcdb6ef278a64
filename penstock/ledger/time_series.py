"""The balance over time: fates by interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.counts import BUCKET_SECONDS, Counts, Name, SourceBucket, lost
from penstock.ledger.balance import UnlandedTail
from penstock.ledger.book.book_pages import BookPages
from penstock.ledger.book.bucket_tables import ROWS
from penstock.ledger.book.daily_rollup import roll_counts, rolled_bucket

PENDING = "pending"
LOGGED = "logged"
"""Count of rows in a topic that no pipeline reads."""


def series(
    pages: BookPages,
    beyond: Mapping[str, UnlandedTail],
    in_buffer: Mapping[SourceBucket, Counts],
    since: int,
    step: int,
) -> dict[int, Counts]:
    """Return counts by interval of ``step`` seconds (a multiple of a bucket) from ``since`` on, keyed by its start.

    Counts are ``accepted``, the receivers' losses, the fates of what landed, ``logged`` and ``pending``. A rolled-up
    day or month belongs to the interval in which it begins, even if ``since`` is later in it.
    """
    before = pages.rolled
    since = rolled_bucket(since, before)
    in_buffer = roll_counts(in_buffer, before)
    counts_by_interval: dict[int, Counts] = {}

    def add(bucket: int, counts: Mapping[str, int]) -> None:
        if bucket >= since:
            counts_by_interval.setdefault(bucket - bucket % step, Counts()).absorb(counts)

    for start, totals in pages.received.by_interval(since, step).items():
        counts_by_interval.setdefault(start, Counts()).absorb(_accepted_and_lost(totals))
    for (_, bucket), counts in in_buffer.items():
        add(bucket, _accepted_and_lost(counts))
        add(bucket, {PENDING: counts[Name.ACCEPTED] - counts[f"{Name.POLICY_DROP}log"]})
    for topic in pages.logged.keys() - pages.landed.keys():
        for start, totals in pages.logged[topic].by_interval(since, step).items():
            counts_by_interval.setdefault(start, Counts()).absorb({LOGGED: totals.get(ROWS, 0)})
    for landed in pages.landed.values():
        for start, totals in landed.counts.by_interval(since, step).items():
            counts_by_interval.setdefault(start, Counts()).absorb(totals)
    for tail in (unrolled.rolled(before) for unrolled in beyond.values()):
        for (_, bucket), rows in tail.pending.items():
            add(bucket, {PENDING: rows})
        for (_, bucket), fates in tail.gaps.items():
            add(bucket, fates)
    return counts_by_interval


def _accepted_and_lost(counts: Mapping[str, int]) -> dict[str, int]:
    return {Name.ACCEPTED: counts.get(Name.ACCEPTED, 0), **lost(counts)}


def document(counts_by_interval: Mapping[int, Counts], step: int, rolled: int = 0) -> dict[str, Any]:
    """Return the series as a JSON-ready mapping in order of time; before ``rolled`` only whole days or months."""
    return {
        "step": step,
        "by_day_before": rolled,
        "series": [
            {"bucket": bucket, "counts": counts_by_interval[bucket].pruned()} for bucket in sorted(counts_by_interval)
        ],
    }


def whole_step(step: int) -> int:
    """Round ``step`` down to a multiple of a bucket, at least one bucket."""
    return max(BUCKET_SECONDS, step - step % BUCKET_SECONDS)
