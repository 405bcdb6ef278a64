"""Queries of the table page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console.pages.table import TableQuery, UnknownColumn, columns_html, intervals

COLUMNS = {
    "received": "TIMESTAMPTZ",
    "topic": "VARCHAR",
    "offset": "BIGINT",
    "data": "JSON",
    "s": "STRUCT(n INTEGER)",
    "payload": "BLOB",
}
NOW = datetime(2026, 11, 22, 10, 0, 30, tzinfo=UTC)


def rows_of(text: str) -> list[Any]:
    """Return what a query answers over three rows."""
    with duckdb.connect(":memory:") as connection:
        connection.execute(
            """create table events as select * from (values
            (TIMESTAMPTZ '2026-11-22 09:59:10+00', 'a', 1, '{"user": {"na.me": "ann"}, "n": 7}'::JSON, {'n': 1},
             '\\xFFone'::BLOB),
            (TIMESTAMPTZ '2026-11-22 10:00:10+00', 'b', 2, '{"user": "it''s"}'::JSON, {'n': 2}, encode('küche')),
            (TIMESTAMPTZ '2026-11-22 08:00:00+00', 'c', 3, NULL, NULL, NULL))
            t(received, topic, "offset", data, s, payload)"""
        )
        return connection.execute(text).fetchall()


@pytest.mark.parametrize(
    ("conditions", "text", "offsets"),
    [
        ({}, "", [2, 1, 3]),
        ({"topic": "a"}, "", [1]),
        ({"offset": "2"}, "", [2]),
        ({"data.n": "7"}, "", [1]),
        ({"data.user": "it's"}, "", [2]),
        ({"s.n": "2"}, "", [2]),
        ({}, "ann", [1]),
        ({"topic": "b"}, "ann", []),
        ({}, "one", [1]),
        ({}, "küche", [2]),
        ({}, "09:59", [1]),
        ({"topic": "'; drop table events; --"}, "", []),
    ],
)
def test_newest_rows_meet_the_conditions(conditions: dict[str, str], text: str, offsets: list[int]) -> None:
    query = TableQuery("events", COLUMNS, conditions, text)
    assert [row[2] for row in rows_of(query.newest_rows_sql())] == offsets


@given(st.text(), st.text())
def test_any_condition_is_a_query_or_refused(path: str, text: str) -> None:
    query = TableQuery("events", COLUMNS, {f"data.{path}": text.replace("\0", "")}, text.replace("\0", ""))
    try:
        rows_of(query.newest_rows_sql())
    except UnknownColumn:
        assert not path


def test_unknown_column_is_refused_with_the_columns() -> None:
    with pytest.raises(UnknownColumn, match="events has no column 'x': received, topic"):
        TableQuery("events", COLUMNS, {"x": "1"}).newest_rows_sql()
    with pytest.raises(UnknownColumn, match=r"'offset\.x'"):
        TableQuery("events", COLUMNS, {"offset.x": "1"}).newest_rows_sql()


def test_rows_are_counted_by_interval_with_empty_ones() -> None:
    span, interval = timedelta(minutes=4), timedelta(minutes=1)
    counts = dict(rows_of(TableQuery("events", COLUMNS).row_counts_sql(NOW, span, interval)))
    bars = intervals(counts, NOW, span, interval)
    assert [(f"{begin:%H:%M}", count) for begin, count in bars] == [
        ("09:57", 0),
        ("09:58", 0),
        ("09:59", 1),
        ("10:00", 1),
    ]


def test_match_is_marked_in_its_column() -> None:
    assert TableQuery("events", COLUMNS, {"data.user": "ann", "topic": "a"}, "x").highlights() == {
        "data": "ann",
        "topic": "a",
        "": "x",
    }


def test_columns_are_escaped() -> None:
    assert "<code>&lt;b&gt;</code> <small>VARCHAR</small>" in columns_html({"<b>": "VARCHAR"})
