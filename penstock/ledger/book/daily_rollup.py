"""Roll-up by day: buckets older than every retention are summed into one bucket a day, which begins at midnight
UTC. Days more than ``DAYS_FOR_S`` before that are summed by month, so that the book of a listener stops growing.

Invariant: late counts for a rolled-up day or month enter its bucket, so the book does not depend on when it was rolled
up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np

from penstock.counts import Counts, SourceBucket

DAY = 86_400
CLOSED = 1 << 62
"""Version of an auditor's rolled-up day: higher than that of any post, so that no late post replaces it."""
MIN_DETAIL_S = 7 * DAY
"""Minimum age before minutes are summed by day, however short the retention is."""
DAYS_FOR_S = 400 * DAY
"""Time before the last rolled-up day in which days stay apart: a chart of a year by day is complete."""


def day_of(bucket: int) -> int:
    """Return the start of the day of a bucket, in seconds since the epoch."""
    return bucket - bucket % DAY


@lru_cache(maxsize=1 << 12)
def month_of(bucket: int) -> int:
    """Return the start of the month (UTC) of a bucket, in seconds since the epoch."""
    return int(np.datetime64(bucket // DAY, "D").astype("M8[M]").astype("M8[D]").astype(np.int64)) * DAY


@lru_cache(maxsize=16)
def month_limit(before: int) -> int:
    """Return the start of the month before which buckets are summed by month, if those before ``before`` are by day."""
    return month_of(before - DAYS_FOR_S)


def rolled_bucket(bucket: int, before: int) -> int:
    """Return the bucket that has the counts of ``bucket`` once everything older than ``before`` is rolled up."""
    if bucket >= before:
        return bucket
    return day_of(bucket) if bucket >= month_limit(before) else month_of(bucket)


def horizon(now: float, retentions: Iterable[float]) -> int:
    """Return the start of the day before which all buckets are older than every retention (seconds).

    Topics with unlimited retention do not count: they would keep minutes forever.
    """
    return day_of(int(now - max([MIN_DETAIL_S, *(age for age in retentions if math.isfinite(age))])))


def rolled_key(key: SourceBucket, before: int) -> SourceBucket:
    """Return the key of the counts of ``key`` once everything older than ``before`` is rolled up."""
    source, bucket = key
    return key if bucket >= before else (source, rolled_bucket(bucket, before))


def roll_counts(keyed: Mapping[SourceBucket, Mapping[str, int]], before: int) -> dict[SourceBucket, Counts]:
    """Roll up counts by source and bucket. Unchanged counts are shared with ``keyed``."""
    rolled: dict[SourceBucket, Counts] = {}
    for key, counts in keyed.items():
        rolled_up = rolled_key(key, before)
        if rolled_up == key and rolled_up not in rolled and isinstance(counts, Counts):
            rolled[rolled_up] = counts
        else:
            rolled[rolled_up] = plus(rolled.get(rolled_up), counts)
    return rolled


def counts_by_day(keyed: Mapping[SourceBucket, Mapping[str, int]]) -> dict[SourceBucket, Counts]:
    """Return the sums of counts by source and day."""
    by_day: dict[SourceBucket, Counts] = {}
    for (source, bucket), counts in keyed.items():
        by_day[source, day_of(bucket)] = plus(by_day.get((source, day_of(bucket))), counts)
    return by_day


def roll_rows(keyed: Mapping[SourceBucket, int], before: int) -> dict[SourceBucket, int]:
    """Roll up rows by source and bucket."""
    rolled: dict[SourceBucket, int] = {}
    for key, rows in keyed.items():
        rolled_up = rolled_key(key, before)
        rolled[rolled_up] = rolled.get(rolled_up, 0) + rows
    return rolled


def roll_audit(audit: Mapping[SourceBucket, tuple[int, Counts]], before: int) -> dict[SourceBucket, tuple[int, Counts]]:
    """Roll up an auditor's counts by topic and bucket; later reports for a closed day are ignored."""
    rolled: dict[SourceBucket, tuple[int, Counts]] = {}
    for key, (version, counts) in audit.items():
        old = key[1] < before
        rolled_up = (key[0], day_of(key[1])) if old else key
        day_counts = rolled[rolled_up][1] if rolled_up in rolled else None
        rolled[rolled_up] = (CLOSED, plus(day_counts, counts)) if old else (version, counts)
    return rolled


def plus(counts: Mapping[str, int] | None, more: Mapping[str, int]) -> Counts:
    """Return the sum of both. The operands stay unchanged: snapshots share them."""
    total = Counts(counts or {})
    total.absorb(more)
    return total


def widened(within: int | range | None, before: int) -> int | range | None:
    """Return the requested buckets, extended to the whole rolled-up day or month of the first one."""
    if isinstance(within, range):
        return range(rolled_bucket(within.start, before), within.stop)
    return within if within is None else rolled_bucket(within, before)
