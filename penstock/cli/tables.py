"""A look into the tables without Spark: only files that were committed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
from rich.table import Table
from rich.text import Text

from penstock.spark.commits import read_journal
from penstock.spark.layout import Layout
from penstock.spark.tables import VIEWS

COLUMNS = ("offset", "payload")
PAYLOAD_SHOWN = 48


def rows_by_view(tables: Path) -> dict[str, int]:
    """The number of rows of each view."""
    layout = Layout.of(tables)
    rows: Counter[str] = Counter()
    for name in _files(layout):
        rows[_kind(name)] += pq.read_metadata(layout.landed / name).num_rows
    return {view: rows[kind] for view, (kind, _) in VIEWS.items()}


def some_rows(tables: Path, count: int) -> Table:
    """A few rows of different files, as a table for people."""
    layout = Layout.of(tables)
    shown = Table("type", *COLUMNS, box=None)
    for column in shown.columns:
        column.no_wrap = True
    one_of_each = {_folder(name): name for name in _files(layout)}
    for name in sorted(one_of_each.values())[:count]:
        (row,) = pq.read_table(layout.landed / name, columns=list(COLUMNS)).slice(0, 1).to_pylist()
        payload = (row["payload"] or b"").decode(errors="replace")[:PAYLOAD_SHOWN]
        shown.add_row(_partition(name, "type") or _kind(name), str(row["offset"]), Text(payload))
    return shown


def _files(layout: Layout) -> list[str]:
    return [name for commit in read_journal(layout) for name in commit.files]


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _kind(name: str) -> str:
    return _partition(name, "kind")


def _partition(name: str, column: str) -> str:
    for part in name.split("/"):
        if part.startswith(f"{column}="):
            return unquote(part.partition("=")[2])
    return ""
