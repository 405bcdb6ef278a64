"""A typed table in an answer: what it has, and what it is about to have."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.landing.from_kafka.rows import LOG_ROW, with_null_partition
from penstock.landing.table_paths import Layout
from penstock.landing.topics.from_folder import FolderStore
from penstock.landing.topics.topic_store import Range
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.landing.writing.part_writer import MessageBatch
from penstock.sql.query import BadQuery, Query
from penstock.sql.tables import Tables
from tests.landing.typed.test_typed_tables import kill_before_landed
from tests.landing.typed.typed_life import CLICK, WINDOW, Life
from tests.spark.spark_helpers import append, event

PLAN = '{"batchWatermarkMs":0,"batchTimestampMs":1}'


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.for_tables(tmp_path / "tables")


@pytest.fixture
def tables(topics: Path, layout: Layout) -> Tables:
    append(topics, "t", [event(n, data={"path": f"/{n}", "ms": n, "more": {"n": n}}) for n in range(4)])
    append(topics, "other", [event(9, data={"ms": "9"}), event(10, "view"), b"text"])
    return Tables(layout, FolderStore(topics), window=WINDOW, typed=(CLICK,))


def sources(topics: Path, begin: int, end: int) -> list[MessageBatch]:
    return [
        MessageBatch(with_null_partition(rows)) for rows in FolderStore(topics).read(Range("t", begin, end), LOG_ROW)
    ]


def plan(layout: Layout, batch: int, end: int) -> None:
    path = layout.checkpoint / "offsets" / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["v1", PLAN, json.dumps({"t": end})]))


def run_query(tables: Tables, text: str) -> list[tuple[Any, ...]]:
    with Query(tables, text) as query:
        return [tuple(row.values()) for row in query.answer().to_pylist()]


ALL = [("u0", "/0", 0), ("u1", "/1", 1), ("u2", "/2", 2), ("u3", "/3", 3), ("u9", None, None)]
CLICKS = "select uuid, path, ms from events_click order by uuid"


def test_each_event_is_in_its_typed_view_once(topics: Path, layout: Layout, tables: Tables) -> None:
    assert run_query(tables, CLICKS) == ALL
    life = Life(layout)
    for batch, end in enumerate((1, 2)):
        plan(layout, batch, end)
        life.land(batch, sources(topics, batch, end))
        assert run_query(tables, CLICKS) == ALL
    plan(layout, 2, 4)
    kill_before_landed(life, 2, sources(topics, 2, 4))
    assert run_query(tables, CLICKS) == ALL, "the typed table is one batch ahead"
    assert run_query(tables, "select rest from events_click where uuid in ('u3', 'u9') order by uuid") == [
        ('{"more":{"n":3}}',),
        ('{"ms":"9"}',),
    ]
    alone = replace(tables, store=None)
    assert run_query(alone, CLICKS) == ALL[:2], "as of the newest batch of the table"
    assert run_query(tables, 'select count(*) from landed join events_click using (topic, "offset")') == [(5,)]


def test_column_missing_in_the_table_is_null(topics: Path, layout: Layout, tables: Tables) -> None:
    plan(layout, 0, 2)
    Life(layout).land(0, sources(topics, 0, 2))
    more = TypedTable("click", "click", (*CLICK.columns, Column("more", "json", "more")))
    rows = run_query(replace(tables, typed=(more,)), "select more from events_click where topic = 't' order by uuid")
    assert rows == [(None,), (None,), ('{"n":2}',), ('{"n":3}',)]


def test_user_sees_typed_rows_of_readable_topics_only(topics: Path, layout: Layout, tables: Tables) -> None:
    plan(layout, 0, 2)
    Life(layout).land(0, sources(topics, 0, 2))
    readable = replace(tables, readable=frozenset({"other"}))
    assert run_query(readable, CLICKS) == ALL[4:]
    assert run_query(replace(tables, readable=frozenset({"other", "t"})), CLICKS) == ALL


def test_unknown_view_error_names_existing_views(tables: Tables) -> None:
    with pytest.raises(BadQuery, match="events_click"):
        run_query(tables, "select * from events_view")
