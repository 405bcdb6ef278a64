"""The balance over time: what became of the messages of each stretch of minutes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.counts import BUCKET_SECONDS, Counts, Name, SourceBucket, lost
from penstock.ledger.balance import UnlandedTail
from penstock.ledger.book import TierCounts
from penstock.ledger.daily_rollup import day_of, roll_counts

PENDING = "pending"
LOGGED = "logged"
"""In a topic that no pipeline reads."""


def series(
    pages: TierCounts,
    beyond: Mapping[str, UnlandedTail],
    in_buffer: Mapping[SourceBucket, Counts],
    since: int,
    step: int,
) -> dict[int, Counts]:
    """Counts by stretch of ``step`` seconds (a multiple of a bucket) from ``since`` on, by its start.

    ``accepted``, what the receivers lost, the fates of what has landed, ``logged`` and ``pending``.
    A day that is rolled up stands in the stretch that it begins in, also when ``since`` is later in that day.
    """
    before = pages.rolled
    since = day_of(since) if since < before else since
    in_buffer = roll_counts(in_buffer, before)
    found: dict[int, Counts] = {}

    def add(bucket: int, counts: Mapping[str, int]) -> None:
        if bucket >= since:
            found.setdefault(bucket - bucket % step, Counts()).absorb(counts)

    for tier in (pages.received, in_buffer):
        for (_, bucket), counts in tier.items():
            add(bucket, _ends(counts))
    for (_, bucket), counts in in_buffer.items():
        add(bucket, {PENDING: counts[Name.ACCEPTED] - counts[f"{Name.POLICY_DROP}log"]})
    for topic in pages.logged.keys() - pages.landed.keys():
        for (_, bucket), rows in pages.logged[topic].items():
            add(bucket, {LOGGED: rows})
    for landed in pages.landed.values():
        for (_, bucket), counts in landed.counts.items():
            add(bucket, counts)
    for of_topic in (one.rolled(before) for one in beyond.values()):
        for (_, bucket), rows in of_topic.pending.items():
            add(bucket, {PENDING: rows})
        for (_, bucket), fates in of_topic.gaps.items():
            add(bucket, fates)
    return found


def _ends(counts: Counts) -> dict[str, int]:
    return {Name.ACCEPTED: counts[Name.ACCEPTED], **lost(counts)}


def document(found: Mapping[int, Counts], step: int, rolled: int = 0) -> dict[str, Any]:
    """As JSON-ready mapping, in order of time; before ``rolled`` there are only whole days."""
    return {
        "step": step,
        "by_day_before": rolled,
        "series": [{"bucket": b, "counts": found[b].pruned()} for b in sorted(found)],
    }


def whole_step(step: int) -> int:
    """``step`` made a multiple of a bucket, at least one."""
    return max(BUCKET_SECONDS, step - step % BUCKET_SECONDS)
