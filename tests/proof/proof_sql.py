"""The documented SQL that compares ``landed`` with ``proofs``, run by DuckDB as the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import deltalake
import duckdb
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from penstock.landing.table_paths import Layout

PAGE = Path(__file__).parents[2] / "docs" / "proof-sql.md"


def documented_sql(heading: str) -> str:
    """Return the SQL below a heading of the page."""
    match = re.search(rf"^## {heading}\n.*?```sql\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def differences(layout: Layout) -> list[dict[str, Any]]:
    """Return what differs between the table and its proofs."""
    return run_sql(layout, documented_sql("DuckDB"))


def offsets_never_proved(layout: Layout) -> list[dict[str, Any]]:
    """Return topics with offsets that have no fate."""
    return run_sql(layout, documented_sql("Offsets without a row"))


def run_sql(layout: Layout, sql: str) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        for name in ("landed", "proofs"):
            folder = str(layout.table(name))
            system = SubTreeFileSystem(folder, LocalFileSystem())
            connection.register(name, deltalake.DeltaTable(folder).to_pyarrow_dataset(filesystem=system))
        rows: list[dict[str, Any]] = connection.sql(sql).to_arrow_table().to_pylist()
        return rows
