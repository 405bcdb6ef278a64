"""Rows that landed with an annotation's name twice are read by every engine after ``penstock tables repair``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout
from penstock.sql.query import BadQuery, Query
from penstock.sql.tables import Tables
from penstock.upkeep.compaction.annotation_repair import has_repeated_names, repair_annotations
from penstock.upkeep.compaction.compaction import compact_table
from tests.spark.spark_helpers import HandWritten, landed_event, landed_message

TWICE = [("_a", "1"), ("b", "x"), ("_a", "2")]
ONCE = [("_a", "1\0002"), ("b", "x")]


@pytest.fixture
def table(tmp_path: Path) -> HandWritten:
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    table.commit({"t": 2}, [landed_message(0, annotations=TWICE), landed_event(1, "u1", annotations=[("b", "y")])])
    table.commit({"t": 3}, [landed_message(2, annotations=None)])
    return table


def read_by_duckdb(layout: Layout) -> list[tuple[Any, ...]]:
    files = [str(layout.landed / name) for name in table_of(layout).active()]
    return duckdb.execute('select "offset", annotations from read_parquet(?) order by 1', [files]).fetchall()


def test_repair_makes_table_readable_with_all_rows(table: HandWritten) -> None:
    with pytest.raises(duckdb.Error, match="must be unique"):
        read_by_duckdb(table.layout)
    assert repair_annotations(table.layout) == 1
    assert read_by_duckdb(table.layout) == [(0, dict(ONCE)), (1, {"b": "y"}), (2, None)]
    assert repair_annotations(table.layout) == 0
    with Query(Tables(table.layout), 'select annotations from landed order by "offset"') as query:
        assert query.answer()["annotations"].to_pylist() == [ONCE, [("b", "y")], None]


def test_sql_names_repair_until_it_ran(table: HandWritten) -> None:
    readable = Tables(table.layout, readable=frozenset({"t"}))
    with pytest.raises(BadQuery, match="penstock tables repair"), Query(readable, "from landed") as query:
        query.answer()
    repair_annotations(table.layout)
    with Query(readable, "from landed") as query:
        assert query.answer().num_rows == 3


def test_merge_repairs_annotations(tmp_path: Path) -> None:
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    for number in range(2):
        table.commit({"t": number + 1}, [landed_message(number, annotations=TWICE)])
    assert compact_table(table.layout.landed) == (2, 1)
    (name,) = table_of(table.layout).active()
    assert not has_repeated_names(table.layout.landed, name)
    read: pa.Table = pq.read_table(table.layout.landed / name, columns=["annotations"], partitioning=None)
    assert read["annotations"].to_pylist() == [ONCE, ONCE]
