"""Names and types that a query may use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from penstock.landing.table_paths import Layout
from penstock.landing.topics.from_folder import FolderStore
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.sql.catalog import SHORT_TYPES, read_catalog
from penstock.sql.query import Query
from penstock.sql.tables import Tables
from tests.spark.spark_helpers import append, event

TYPED = TypedTable("orders", "order", (Column("amount", "double", "amount"), Column("placed", "timestamp", "placed")))


def described_types(tables: Tables, name: str) -> dict[str, str]:
    """Return the types that DuckDB itself names."""
    with Query(tables, f"select column_name, column_type from (describe select * from {name})") as query:
        rows = query.answer().to_pylist()
    return {row["column_name"]: SHORT_TYPES.get(row["column_type"], row["column_type"]) for row in rows}


def test_catalog_has_the_columns_and_types_of_each_view(topics: Path, tmp_path: Path) -> None:
    append(topics, "t", [event(0)])
    tables = Tables(Layout.for_tables(tmp_path / "tables"), FolderStore(topics), typed=(TYPED,))
    catalog = read_catalog(tables)
    assert [*catalog.views] == ["landed", "events", "syslog", "messages", "quarantine", "events_orders", "watermarks"]
    assert {view: dict(columns) for view, columns in catalog.views.items()} == {
        view: described_types(tables, view) for view in catalog.views
    }
    assert catalog.views["events_orders"]["amount"] == "DOUBLE"
    assert catalog.topic_columns == described_types(tables, "topics.t")


def test_catalog_lists_readable_topics_only(topics: Path, tmp_path: Path) -> None:
    append(topics, "mine", [event(0)])
    append(topics, "other", [event(1)])
    tables = Tables(Layout.for_tables(tmp_path / "tables"), FolderStore(topics))
    assert read_catalog(tables).topics == ("mine", "other")
    assert read_catalog(replace(tables, readable=frozenset({"mine"}))).topics == ("mine",)
    assert read_catalog(replace(tables, store=None)).topics == ()
