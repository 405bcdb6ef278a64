"""Filters on topic, offset and timestamp as bounds of a batch read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from penstock.landing.topics.topic_store import Range, TopicView
from penstock.spark.source.interfaces import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

LOWEST = -(1 << 63)
HIGHEST = (1 << 63) - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets and timestamps (microseconds) from the first one to before the second; ``topics`` None for all."""

    topics: frozenset[str] | None = None
    offsets: tuple[int, int] = (LOWEST, HIGHEST)
    times: tuple[int, int] = (LOWEST, HIGHEST)

    def cut(self, view: TopicView, full_range: Range) -> Range:
        """Return the part of a topic's range within the bounds; without rows if there is none."""
        if self.topics is not None and full_range.topic not in self.topics:
            return Range(full_range.topic, full_range.begin, full_range.begin)
        begin, end = max(full_range.begin, self.offsets[0]), min(full_range.end, self.offsets[1])
        if self.times[0] > LOWEST:
            begin = max(begin, view.at_timestamp(self.times[0]))
        if self.times[1] < HIGHEST:
            end = min(end, view.at_timestamp(self.times[1]))
        return Range(full_range.topic, begin, max(begin, end))


def narrow(bounds: Bounds, pushed: Filter) -> Bounds | None:
    """Return the bounds with a filter applied; None if a reader cannot seek by it."""
    column, operand = getattr(pushed, "attribute", None), getattr(pushed, "value", None)
    if column == ("topic",):
        return _narrow_topics(bounds, pushed, operand)
    if column == ("offset",) and type(operand) is int and (span := _span(pushed, operand)):
        return replace(bounds, offsets=_intersect(bounds.offsets, span))
    if column == ("timestamp",) and isinstance(operand, datetime) and (span := _span(pushed, _micros(operand))):
        return replace(bounds, times=_intersect(bounds.times, span))
    return None


def _narrow_topics(bounds: Bounds, pushed: Filter, operand: Any) -> Bounds | None:
    names = (
        frozenset([operand]) if isinstance(pushed, EqualTo) else frozenset(operand) if isinstance(pushed, In) else None
    )
    if names is None:
        return None
    return replace(bounds, topics=names if bounds.topics is None else bounds.topics & names)


def _span(pushed: Filter, number: int) -> tuple[int, int] | None:
    """Return the range of values, end exclusive, that a comparison allows; None for others."""
    match pushed:
        case EqualTo():
            return number, number + 1
        case GreaterThan():
            return number + 1, HIGHEST
        case GreaterThanOrEqual():
            return number, HIGHEST
        case LessThan():
            return LOWEST, number
        case LessThanOrEqual():
            return LOWEST, number + 1
    return None


def _intersect(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
    return max(first[0], second[0]), min(first[1], second[1])


def _micros(moment: datetime) -> int:
    # Integer arithmetic: a float of seconds loses microseconds.
    elapsed = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds
