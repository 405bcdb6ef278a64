"""The methods that an audit needs of a table, and the kind of table at an address."""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.audit.columns import OffsetColumns
from penstock.errors import PenstockError
from penstock.landing.offset_runs import Offsets, Runs

BATCH_ROWS = 1 << 20
"""Rows in memory at once: 8 MiB per column."""
_HIVE_VALUE = re.compile(r"([^/=]+)=([^/]*)/")


class TableUnreadable(PenstockError, RuntimeError):
    """The table cannot be read: the audit cannot be decided."""


class OffsetRows(NamedTuple):
    """Rows of one file, shape (n,) each; ``partition`` is None without such a column. Rows without offset are absent.

    ``without_offset``: number of rows whose offset is null.
    """

    file: str
    offset: Offsets
    partition: Offsets | None
    is_of_topic: npt.NDArray[np.bool_] | None
    without_offset: int


class Loss(NamedTuple):
    """Rows that a commit removed: ``commit`` names version, operation, engine and time."""

    commit: str
    ranges: Runs


class AuditedTable(ABC):
    """A table at one version. Methods raise TableUnreadable.

    A kind of table without a history and without files of its own needs only ``column_names`` and ``rows``.
    """

    kind: str
    version = ""
    """Identifies the version that is read, for the report; empty if the kind of table has none."""

    @abstractmethod
    def column_names(self) -> list[str]:
        """Return the columns, dotted for nested fields."""

    @abstractmethod
    def rows(self, columns: OffsetColumns, topic: str) -> Iterator[OffsetRows]:
        """Yield the offsets of all rows."""

    def commits_of(self, files: set[str]) -> dict[str, str]:
        """Return the commit that added each file, for kinds of tables with a history."""
        return {}

    def losses(self, columns: OffsetColumns, topic: str, partition: int, missing: Runs) -> list[Loss]:
        """Return the commits that removed rows with these offsets, the newest first."""
        return []

    def orphans(self, columns: OffsetColumns, topic: str, partition: int, missing: Runs) -> dict[str, int]:
        """Return files that hold missing rows but belong to no version of the table, with the number of rows."""
        return {}


@contextlib.contextmanager
def translate_errors(subject: object, *errors: type[Exception]) -> Iterator[None]:
    """Turn errors of files, stores, Arrow and ``errors`` into TableUnreadable, with the first line of their text."""
    translated: tuple[type[Exception], ...] = (PenstockError, OSError, pa.ArrowException, *errors)
    try:
        yield
    except TableUnreadable:
        raise
    except translated as error:
        raise TableUnreadable(f"{subject} cannot be read: {str(error).partition(chr(10))[0]}") from None


def open_table(address: str, options: Mapping[str, str] | None = None) -> AuditedTable:
    """Return the table at a folder, URL or database address; ``options``: delta-rs options of an object store.

    Raises TableUnreadable.
    """
    from penstock.audit.tables.delta import DeltaTable, is_delta
    from penstock.audit.tables.parquet_folder import ParquetFolder
    from penstock.audit.tables.sql_databases import SCHEMES, open_database

    scheme = address.partition("://")[0] if "://" in address else ""
    if scheme in SCHEMES:
        return open_database(address)
    if is_delta(address, options or {}):
        return DeltaTable(address, options or {})
    if scheme and scheme != "file":
        raise TableUnreadable(f"{address}: no Delta table; other kinds of tables are read from folders and databases")
    path = Path(unquote(address.removeprefix("file://")))
    if (path / "metadata").is_dir() and any((path / "metadata").glob("*.metadata.json")):
        raise TableUnreadable(f"{address} is an Iceberg table, which this version cannot read")
    return ParquetFolder(path)


def offset_rows(file: str, rows: pa.RecordBatch, columns: OffsetColumns, topic: str) -> OffsetRows:
    """Return the offsets in a batch with the columns of ``columns``; values in the file's path are used if a column
    is not in the file, as Hive and Delta write partitioned tables.
    """
    offset = _column(rows, columns.offset)
    if offset is None:
        raise TableUnreadable(f"{file} has no column {columns.offset!r}")
    in_path = {name: unquote(value) for name, value in _HIVE_VALUE.findall(file)}
    has_offset = pc.is_valid(offset)
    keep = has_offset.to_numpy(zero_copy_only=False)
    partition = _numbers(rows, columns.partition, in_path, keep) if columns.partition else None
    is_of_topic = None
    if columns.topic:
        topics = _column(rows, columns.topic)
        if topics is not None:
            texts = topics.cast(pa.string()) if not pa.types.is_string(topics.type) else topics
            is_of_topic = pc.fill_null(pc.equal(texts, pa.scalar(topic)), False).to_numpy(zero_copy_only=False)[keep]
        elif columns.topic in in_path:
            is_of_topic = np.full(int(keep.sum()), in_path[columns.topic] == topic)
    numbers = _as_numbers(offset, keep, file, columns.offset)
    return OffsetRows(file, numbers, partition, is_of_topic, len(keep) - int(keep.sum()))


def _column(rows: pa.RecordBatch, name: str) -> Any:
    """Return a column by its dotted name; None if the batch lacks it."""
    head, *fields = name.split(".")
    if name in rows.schema.names:
        return rows.column(rows.schema.get_field_index(name))
    if head not in rows.schema.names:
        return None
    column: Any = rows.column(rows.schema.get_field_index(head))
    for field in fields:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(field) < 0:
            return None
        column = pc.struct_field(column, field)
    return column


def _numbers(
    rows: pa.RecordBatch, name: str, in_path: Mapping[str, str], keep: npt.NDArray[np.bool_]
) -> Offsets | None:
    column = _column(rows, name)
    if column is not None:
        return _as_numbers(pc.fill_null(column, -1) if column.null_count else column, keep, "", name)
    if name in in_path and in_path[name].lstrip("-").isdigit():
        return np.full(int(keep.sum()), int(in_path[name]), np.int64)
    return None


def _as_numbers(column: Any, keep: npt.NDArray[np.bool_], file: str, name: str) -> Offsets:
    try:
        filled = pc.fill_null(column, 0) if column.null_count else column
        numbers: Offsets = filled.cast(pa.int64()).to_numpy(zero_copy_only=False)[keep]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableUnreadable(f"{file}: column {name!r} has no whole numbers: {error}") from None
    return numbers


def dotted_names(schema: pa.Schema) -> list[str]:
    """Return the names of all columns and nested fields."""
    return [name for field in schema for name in _field_names(field, "")]


def _field_names(field: Any, prefix: str) -> Iterator[str]:
    yield prefix + field.name
    if pa.types.is_struct(field.type):
        for inner in field.type:
            yield from _field_names(inner, f"{prefix}{field.name}.")
