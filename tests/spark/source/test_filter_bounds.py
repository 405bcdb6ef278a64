"""Filters as bounds of a read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from penstock.landing.topics.topic_store import Range
from penstock.log import TopicReader
from penstock.spark.source.filter_bounds import Bounds, narrow
from tests.spark.spark_helpers import append


def cut(topics: Path, *filters: Filter) -> tuple[int, int]:
    bounds = Bounds()
    for pushed in filters:
        narrowed = narrow(bounds, pushed)
        assert narrowed is not None
        bounds = narrowed
    reader = TopicReader(topics / "t")
    part = bounds.cut(reader, Range("t", reader.start, reader.end))
    return part.begin, part.end


@pytest.fixture
def ten(topics: Path) -> Path:
    append(topics, "t", [b"x"] * 10)
    return topics


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("offset",), 3)], (3, 4)),
        ([GreaterThan(("offset",), 3)], (4, 10)),
        ([GreaterThanOrEqual(("offset",), 3)], (3, 10)),
        ([LessThan(("offset",), 3)], (0, 3)),
        ([LessThanOrEqual(("offset",), 3)], (0, 4)),
        ([GreaterThan(("offset",), 3), LessThan(("offset",), 6)], (4, 6)),
        ([EqualTo(("topic",), "t")], (0, 10)),
        ([In(("topic",), ("a", "t"))], (0, 10)),
    ],
)
def test_offsets_and_topics_are_cut_exactly(ten: Path, filters: list[Filter], expected: tuple[int, int]) -> None:
    assert cut(ten, *filters) == expected


@pytest.mark.parametrize(
    "filters",
    [
        [EqualTo(("topic",), "other")],
        [In(("topic",), ("a", "t")), EqualTo(("topic",), "a")],
        [GreaterThan(("offset",), 5), LessThan(("offset",), 5)],
        [GreaterThan(("offset",), 50)],
    ],
)
def test_contradicting_filters_leave_no_rows(ten: Path, filters: list[Filter]) -> None:
    begin, end = cut(ten, *filters)
    assert begin == end


def test_timestamps_are_cut_exactly_in_any_time_zone(ten: Path) -> None:
    stored = next(iter(TopicReader(ten / "t").read(0)))
    times = [value.as_py() for value in stored.batch.column("timestamp")]
    east = timezone(timedelta(hours=5))
    assert cut(ten, GreaterThanOrEqual(("timestamp",), times[4].astimezone(east))) == (4, 10)
    assert cut(ten, GreaterThan(("timestamp",), times[4])) == (5, 10)
    assert cut(ten, LessThanOrEqual(("timestamp",), times[4])) == (0, 5)
    assert cut(ten, EqualTo(("timestamp",), times[4])) == (4, 5)
    assert cut(ten, LessThan(("timestamp",), datetime(1990, 1, 1, tzinfo=UTC))) == (0, 0)


@pytest.mark.parametrize(
    "pushed",
    [EqualTo(("payload",), b"x"), IsNotNull(("offset",)), EqualTo(("offset",), None), LessThan(("topic",), "t")],
)
def test_other_filters_are_returned_to_spark(pushed: Filter) -> None:
    assert narrow(Bounds(), pushed) is None
