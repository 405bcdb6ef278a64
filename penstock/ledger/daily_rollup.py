"""Roll-up by day: buckets older than every retention are kept as one bucket a day, which begins at midnight UTC.

What is entered later for such a day is entered in its bucket, so that it does not matter when a bucket was folded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from penstock.counts import Counts, SourceBucket

DAY = 86_400
CLOSED = 1 << 62
"""The version of what an auditor told of a day that is rolled up: higher than any post's."""
LEAST = 7 * DAY
"""Seconds for which minutes are kept apart at least, however short the retention is."""


def day_of(bucket: int) -> int:
    """The start of the day that a bucket is in, seconds since the epoch."""
    return bucket - bucket % DAY


def horizon(now: float, retentions: Iterable[float]) -> int:
    """Before this (the start of a day) all buckets are older than every retention (seconds).

    Topics that are kept for ever hold nothing up.
    """
    return day_of(int(now - max([LEAST, *(age for age in retentions if math.isfinite(age))])))


def rolled_key(key: SourceBucket, before: int) -> SourceBucket:
    """Where the counts of ``key`` are kept when what is older than ``before`` is rolled up."""
    source, bucket = key
    return key if bucket >= before else (source, day_of(bucket))


def roll_counts(keyed: Mapping[SourceBucket, Mapping[str, int]], before: int) -> dict[SourceBucket, Counts]:
    """Counts by source and bucket, rolled up. What is not rolled up is shared with ``keyed``."""
    rolled: dict[SourceBucket, Counts] = {}
    for key, counts in keyed.items():
        at = rolled_key(key, before)
        if at == key and at not in rolled and isinstance(counts, Counts):
            rolled[at] = counts
        else:
            rolled[at] = plus(rolled.get(at), counts)
    return rolled


def roll_rows(keyed: Mapping[SourceBucket, int], before: int) -> dict[SourceBucket, int]:
    """Rows by source and bucket, rolled up."""
    rolled: dict[SourceBucket, int] = {}
    for key, rows in keyed.items():
        at = rolled_key(key, before)
        rolled[at] = rolled.get(at, 0) + rows
    return rolled


def roll_told(told: Mapping[SourceBucket, tuple[int, Counts]], before: int) -> dict[SourceBucket, tuple[int, Counts]]:
    """What an auditor told by topic and bucket, rolled up; what it tells later of a day that is, is not taken."""
    rolled: dict[SourceBucket, tuple[int, Counts]] = {}
    for key, (version, counts) in told.items():
        old = key[1] < before
        at = (key[0], day_of(key[1])) if old else key
        rolled[at] = (CLOSED, plus(rolled[at][1] if at in rolled else None, counts)) if old else (version, counts)
    return rolled


def plus(counts: Mapping[str, int] | None, more: Mapping[str, int]) -> Counts:
    """The sum of both, which are left as they are: whoever holds them may go on reading."""
    total = Counts(counts or {})
    total.absorb(more)
    return total


def widened(within: int | range | None, before: int) -> int | range | None:
    """The buckets asked for, where days are rolled up: the whole day that the minute or the first second is in."""
    if isinstance(within, range):
        return range(day_of(within.start), within.stop) if within.start < before else within
    return within if within is None or within >= before else day_of(within)
