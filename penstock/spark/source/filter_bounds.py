"""Filters on topic, offset and timestamp as bounds of a batch read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from penstock.landing.topics.topic_store import Range, TopicView

LOWEST = -(1 << 63)
HIGHEST = (1 << 63) - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets and timestamps (microseconds) from the first one to before the second; ``topics`` None for all."""

    topics: frozenset[str] | None = None
    offsets: tuple[int, int] = (LOWEST, HIGHEST)
    times: tuple[int, int] = (LOWEST, HIGHEST)

    def cut(self, view: TopicView, whole: Range) -> Range:
        """The part of a topic's range that is inside; with no rows where nothing is."""
        if self.topics is not None and whole.topic not in self.topics:
            return Range(whole.topic, whole.begin, whole.begin)
        begin, end = max(whole.begin, self.offsets[0]), min(whole.end, self.offsets[1])
        if self.times[0] > LOWEST:
            begin = max(begin, view.at_timestamp(self.times[0]))
        if self.times[1] < HIGHEST:
            end = min(end, view.at_timestamp(self.times[1]))
        return Range(whole.topic, begin, max(begin, end))


def narrow(bounds: Bounds, one: Filter) -> Bounds | None:
    """``bounds`` with a filter applied; None where it bounds nothing that a reader can seek by."""
    column, value = getattr(one, "attribute", None), getattr(one, "value", None)
    if column == ("topic",):
        return _topics(bounds, one, value)
    if column == ("offset",) and type(value) is int and (span := _span(one, value)):
        return replace(bounds, offsets=_meet(bounds.offsets, span))
    if column == ("timestamp",) and isinstance(value, datetime) and (span := _span(one, _micros(value))):
        return replace(bounds, times=_meet(bounds.times, span))
    return None


def _topics(bounds: Bounds, one: Filter, value: Any) -> Bounds | None:
    names = frozenset([value]) if isinstance(one, EqualTo) else frozenset(value) if isinstance(one, In) else None
    if names is None:
        return None
    return replace(bounds, topics=names if bounds.topics is None else bounds.topics & names)


def _span(one: Filter, value: int) -> tuple[int, int] | None:
    """Values from the first to before the second."""
    match one:
        case EqualTo():
            return value, value + 1
        case GreaterThan():
            return value + 1, HIGHEST
        case GreaterThanOrEqual():
            return value, HIGHEST
        case LessThan():
            return LOWEST, value
        case LessThanOrEqual():
            return LOWEST, value + 1
    return None


def _meet(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])


def _micros(value: datetime) -> int:
    since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
