"""The tables for programs without Spark: PyArrow datasets, which DuckDB, Polars and pandas read directly.

import duckdb, penstock.tables
clicks = penstock.tables.open("penstock-data/tables", "events")
duckdb.sql("select type, count(*) from clicks group by type")
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from penstock.config.syntax.tables_url import check_place, is_url
from penstock.errors import PenstockError
from penstock.landing.event_rules import VIEWS
from penstock.landing.storage.object_path import ObjectPath, TablePath, arrow_file_system
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import TableFile, copy_live_rows
from penstock.landing.table_paths import TYPED_MARK, Layout
from penstock.landing.table_schema import LANDED, PARTITION_COLUMNS
from penstock.landing.typed.typed_delta import typed_names

if TYPE_CHECKING:
    from penstock.upkeep.changes import Changes


class NoSuchView(PenstockError, ValueError):
    """An unknown view name; the text lists the existing ones."""


def open(folder: Path | str, view: str = "landed", storage_options: Mapping[str, str] | None = None) -> ds.Dataset:
    """Return the committed rows of a view or typed table as a lazy dataset; later commits need another call.

    Args:
        folder: The folder of the tables, or a URL (s3, gs, abfss).
        view: ``landed``, ``events``, ``syslog``, ``messages``, ``quarantine``, or the name of a typed table.
        storage_options: Options of delta-rs for a URL.

    Raises:
        NoSuchView, UnknownFormat, TablesAway, TablesRefused; FileNotFoundError without the folder, which the pipeline
        makes when it starts.

    """
    address = check_place(folder) if isinstance(folder, str) else str(folder)
    if is_url(address):
        return _at_url(ObjectPath(address, storage_options or {}), view)
    layout = _existing_layout(address)
    typed = typed_names(layout)
    if view in typed:
        return _delta_rows(layout.tables / view)
    _check(view, typed)
    return _rows_of_view(_landed(layout), view)


def changes(folder: Path | str, view: str = "landed", since: str | None = None) -> Changes:
    """Return the rows added to and deleted from a view or typed table since a position.

    ``added()`` and ``added_with_batch()`` yield record batches, ``deleted`` is a table of runs of offsets,
    ``is_complete`` says that the added rows are all rows and replace earlier ones, and ``str(next)`` is the position
    for the next call.

    Args:
        folder: The folder of the tables.
        view: As for ``open``.
        since: A batch number, or the ``next`` of an earlier call; None for all rows.

    Raises:
        NoSuchSource, BadPosition, UnknownFormat, DamagedFile; FileNotFoundError as ``open``.

    """
    from penstock.upkeep.changes import Position, read_changes

    return read_changes(_existing_layout(folder), view, None if since is None else Position.parse(since))


def _existing_layout(folder: Path | str) -> Layout:
    if not Path(folder).is_dir():
        # Otherwise a program in the wrong folder would compute with no rows, or remove all of its copy.
        raise FileNotFoundError(
            f"there is no folder of tables at {Path(folder).absolute()}; the pipeline makes it when it starts"
        )
    return Layout.for_tables(folder)


def _check(view: str, typed: Sequence[str]) -> None:
    if view != "landed" and view not in VIEWS:
        raise NoSuchView(f"unknown view {view!r}; existing views: {', '.join(['landed', *VIEWS, *typed])}")


def _rows_of_view(rows: ds.Dataset, view: str) -> ds.Dataset:
    return rows if view == "landed" else rows.filter(ds.field("kind") == VIEWS[view].value)


def _at_url(tables: ObjectPath, view: str) -> ds.Dataset:
    from penstock.landing.table.delta_table import DeltaTable
    from penstock.landing.typed.typed_delta import TypedDelta

    if view.startswith(TYPED_MARK) and DeltaTable(tables / view).exists:
        table = TypedDelta(tables / view)
        return dataset_of(table.folder, table.active(), table.schema)
    _check(view, ())
    landed = tables / "landed"
    return _rows_of_view(dataset_of(landed, DeltaTable(landed).active()), view)


def _landed(layout: Layout) -> ds.Dataset:
    landed = layout.tables / "landed"
    return _delta_rows(landed) if table_of(layout).newest() >= 0 else dataset_of(landed, [])


def _delta_rows(folder: Path) -> ds.Dataset:
    """Return the rows of a Delta table in a folder, with columns that other programs added."""
    from penstock.landing.table.delta_table import DeltaTable

    table = DeltaTable(folder)
    return dataset_of(folder, table.active(), table.schema_now)


def dataset_of(
    folder: TablePath, files: Sequence[TableFile], schema: pa.Schema = LANDED, copies: Path | None = None
) -> ds.Dataset:
    """Return the rows of files of the table in a folder, with the columns of ``schema``.

    ``copies``: folder for copies of files with deletion vectors, without their deleted rows; None: a folder that is
    removed when this process ends.
    """
    plain = [file for file in files if file.live is None]
    marked = [file for file in files if file.live is not None]
    system, base = (None, "") if isinstance(folder, Path) else arrow_file_system(folder)
    parts = [_dataset([base + _within(folder / file) for file in plain], schema, base + _within(folder), system)]
    # PyArrow's datasets do not apply deletion vectors, so such a file is copied without its deleted rows.
    for file in marked:
        copy = copy_live_rows(folder, file, copies or _copies())
        parts.append(_dataset([str(copy)], schema, str(copy).removesuffix(file).rstrip("/"), None))
    rows: ds.Dataset = ds.dataset([part for part in parts if part.files] or parts) if marked else parts[0]
    return rows


def _dataset(paths: Sequence[str], schema: pa.Schema, folder: str, system: Any) -> Any:
    options = ds.ParquetReadOptions(dictionary_columns=None, coerce_int96_timestamp_unit="us")
    columns = [schema.field(name) for name in PARTITION_COLUMNS if name in schema.names]
    by_folder = ds.partitioning(schema.empty_table().select([column.name for column in columns]).schema, flavor="hive")
    return ds.dataset(
        list(paths),
        schema=schema,
        format=ds.ParquetFileFormat(read_options=options),
        partitioning=by_folder,
        partition_base_dir=folder,
        filesystem=system,
    )


@lru_cache(maxsize=1)
def _copies() -> Path:
    """Return a folder that is removed when this process ends."""
    # Datasets are lazy, so the copies must exist until the program ends.
    folder = tempfile.TemporaryDirectory(prefix="penstock-tables-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def _within(path: TablePath) -> str:
    return str(path) if isinstance(path, Path) else path.name
