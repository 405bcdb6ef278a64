"""Tables of databases: DuckDB and SQLite, addressed as ``sqlite:///shop.db?table=orders``."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa

from penstock.audit.columns import OffsetColumns
from penstock.audit.tables.table import BATCH_ROWS, AuditedTable, OffsetRows, TableUnreadable, offset_rows

SCHEMES = ("duckdb", "sqlite")


class SqlTable(AuditedTable):
    """A table or view of a database; ``connect`` opens a read-only connection of DB-API 2.

    The rows are of one moment: each database reads one statement from one snapshot.
    """

    def __init__(self, kind: str, table: str, connect: Callable[[], Any], errors: tuple[type[Exception], ...]) -> None:
        self.kind, self._table, self._errors = kind, table, errors
        with self._translated():
            self._connection = connect()

    def column_names(self) -> list[str]:
        """Return the columns."""
        description = self._execute(f"SELECT * FROM {_quoted(self._table)} LIMIT 0").description  # noqa: S608
        return [column[0] for column in description]

    def rows(self, columns: OffsetColumns, topic: str) -> Iterator[OffsetRows]:
        """Yield the offsets of all rows."""
        names = ", ".join(_quoted(name) for name in columns.names)
        cursor = self._execute(f"SELECT {names} FROM {_quoted(self._table)}")  # noqa: S608 - the names are quoted
        while batch := self._fetch(cursor):
            arrays = {
                name: _array(values) for name, values in zip(columns.names, zip(*batch, strict=True), strict=True)
            }
            yield offset_rows(self._table, pa.RecordBatch.from_pydict(arrays), columns, topic)

    def _execute(self, query: str) -> Any:
        with self._translated():
            cursor = self._connection.cursor()
            cursor.execute(query)
        return cursor

    def _fetch(self, cursor: Any) -> Any:
        with self._translated():
            return cursor.fetchmany(BATCH_ROWS)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise TableUnreadable(f"{self.kind}: {str(error).partition(chr(10))[0]}") from None


def _array(values: tuple[Any, ...]) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        return pa.array([None if value is None else str(value) for value in values])


def _quoted(name: str) -> str:
    """Quote an identifier; a dot separates schema and table, or a struct and its field."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def open_database(address: str) -> SqlTable:
    """Return the table that ``?table=`` names in a database. Raises TableUnreadable."""
    parts = urlsplit(address)
    table = parse_qs(parts.query).get("table", [""])[0]
    if not table:
        raise TableUnreadable(f"{parts.scheme}: name the table with ?table=NAME")
    path = unquote(parts.path.removeprefix("/") if parts.path.startswith("//") else parts.path) or unquote(parts.netloc)
    if parts.scheme == "sqlite":
        connect = lambda: sqlite3.connect(f"file:{path}?mode=ro", uri=True)  # noqa: E731
        return SqlTable("SQLite", table, connect, (sqlite3.Error,))
    import duckdb

    return SqlTable("DuckDB", table, lambda: duckdb.connect(path, read_only=True), (duckdb.Error,))
