"""The tables for programs without Spark: PyArrow datasets, which DuckDB, Polars and pandas take as they are.

import duckdb, penstock.tables
clicks = penstock.tables.open("penstock-data/tables", "events")
duckdb.sql("select type, count(*) from clicks group by type")
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from penstock.errors import PenstockError
from penstock.landing.event_rules import VIEWS
from penstock.landing.table.begun_table import DELTA, begun_as, table_of
from penstock.landing.table_paths import Layout
from penstock.landing.table_schema import LANDED, PARTITION_COLUMNS


class NoSuchView(PenstockError, ValueError):
    """There is no view of that name; the text names those that there are."""


def open(folder: Path | str, view: str = "landed") -> ds.Dataset:
    """The rows that are committed now, lazily: of a view, or ``landed`` for all. Raises NoSuchView, FormatDiffers."""
    if view != "landed" and view not in VIEWS:
        raise NoSuchView(f"there is no view {view!r}: known are landed, {', '.join(VIEWS)}")
    layout = Layout.of(folder)
    rows = _landed(layout)
    return rows if view == "landed" else rows.filter(ds.field("kind") == VIEWS[view].value)


def _landed(layout: Layout) -> ds.Dataset:
    names = table_of(layout).active()
    if begun_as(layout) == DELTA and names:
        import deltalake

        # With delta-rs's own, a thread that closes a file may meet an interpreter that has ended, and abort.
        local = SubTreeFileSystem(str(layout.landed.absolute()), LocalFileSystem())
        return deltalake.DeltaTable(str(layout.landed)).to_pyarrow_dataset(filesystem=local)
    return dataset_of(layout.landed, [layout.landed / name for name in names])


def dataset_of(folder: Path, files: Sequence[Path]) -> ds.Dataset:
    """The rows of files of the table in a folder."""
    parts = [LANDED.field(name) for name in PARTITION_COLUMNS]
    by_folder = ds.partitioning(LANDED.empty_table().select([part.name for part in parts]).schema, flavor="hive")
    return ds.dataset(
        [str(path) for path in files],
        schema=LANDED,
        format="parquet",
        partitioning=by_folder,
        partition_base_dir=str(folder),
    )
