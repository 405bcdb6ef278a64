"""Names and types that a query may use: the views with their columns, and the topics.

Invariant: the types are the ones that ``Query`` answers with, but nothing of the tables or the log is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from penstock.landing.event_rules import VIEWS
from penstock.landing.from_kafka.rows import LOG_ROW
from penstock.landing.table_schema import LANDED, VIEW_COLUMNS
from penstock.proof.watermarks import WATERMARKS
from penstock.sql.tables import Tables

SHORT_TYPES = {"TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ"}
"""DuckDB accepts both names."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """Types of columns by view; ``topic_columns`` belong to each of ``topics``, as ``topics."NAME"``."""

    views: Mapping[str, Mapping[str, str]]
    topics: tuple[str, ...]
    topic_columns: Mapping[str, str]


def read_catalog(tables: Tables) -> Catalog:
    """Return everything that a query over ``tables`` may name. Lists topics, so it may raise OSError."""
    schemas = {"landed": LANDED}
    schemas |= {view: pa.schema([LANDED.field(name) for name in VIEW_COLUMNS[view].split(", ")]) for view in VIEWS}
    schemas |= {table.view: table.schema for table in tables.typed}
    schemas["watermarks"] = WATERMARKS
    with duckdb.connect(":memory:") as connection:
        views = {view: _types(connection, schema) for view, schema in schemas.items()}
        topic_columns = _types(connection, LOG_ROW)
    for view in VIEWS:
        # The views declare the text as JSON, so that its fields can be selected.
        if "data" in views[view]:
            views[view]["data"] = "JSON"
    names = tables.store.views(["*"]) if tables.store is not None else {}
    return Catalog(views, tuple(name for name in names if tables.may_read(name)), topic_columns)


def _types(connection: duckdb.DuckDBPyConnection, schema: pa.Schema) -> dict[str, str]:
    relation = connection.from_arrow(schema.empty_table())
    return {
        name: SHORT_TYPES.get(str(kind), str(kind)) for name, kind in zip(relation.columns, relation.types, strict=True)
    }
