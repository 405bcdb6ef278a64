"""DuckDB as a library of functions on whole Arrow columns: JSON and hashes. No file, no extension, one thread."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

if TYPE_CHECKING:
    import duckdb

pc: Any = pyarrow.compute
"""Arrow's functions; untyped, because the stubs do not distinguish scalars from columns, nor masks from indices."""
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
Places = np.ndarray[tuple[int], np.dtype[np.intp]]


# Fast path: one connection per process. Cursors share it, so that no call opens a database.
@cache
def _connection() -> duckdb.DuckDBPyConnection:
    # Takes 0.2 s, which commands that only read counts and positions do without.
    import duckdb

    connection = duckdb.connect(":memory:", config=SETTINGS)
    # Workaround: DuckDB 1.x reports an error if a connection is freed only when the interpreter ends.
    atexit.register(_connection.cache_clear)
    return connection


def compute(
    expressions: dict[str, str], shared: dict[str, str] | None = None, **columns: pa.Array[Any]
) -> dict[str, pa.Array[Any]]:
    """Evaluate SQL expressions over columns of one length; return columns by name, in the order of the rows.

    ``shared`` expressions are computed first, once, and may be used in the others by name.
    """
    inner = ", ".join(["*", *_name_expressions(shared or {})])
    outer = ", ".join(_name_expressions(expressions))
    query = f"SELECT {outer} FROM (SELECT {inner} FROM columns)"  # noqa: S608  our own words
    table = pa.table(columns)
    key = query, table.schema
    # Fast path: a few thousand rows take DuckDB less time than to plan a query, so plans are kept.
    statement = _idle_statements().pop(key, None) or _Statement(*key)
    answer = statement.run(table)
    # A statement that failed is not kept.
    _keep_idle(key, statement)
    return {name: _to_array(answer[name]) for name in expressions}


class _Columns:
    """The columns of a call, as the table that a planned query reads."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.table: pa.Table | None = None

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the columns; DuckDB asks for them at each run."""
        table: Any = self._schema.empty_table() if self.table is None else self.table
        return table.__arrow_c_stream__(requested_schema)


class _Statement:
    """A planned query over ``columns`` of one schema. For one thread at a time."""

    def __init__(self, query: str, schema: pa.Schema) -> None:
        # Separate from the statement: DuckDB refers to the columns, so that a cycle would never be freed.
        self._columns = _Columns(schema)
        self._cursor = _connection().cursor()
        self._cursor.register("columns", self._columns)
        self._relation = self._cursor.sql(query)

    def run(self, table: pa.Table) -> pa.Table:
        """Return the answer for columns of the same schema."""
        self._columns.table = table
        try:
            answer: pa.Table = self._relation.to_arrow_table()
            return answer
        finally:
            self._columns.table = None


_Key = tuple[str, pa.Schema]
MAX_IDLE_STATEMENTS = 256
"""Limit: plans that are kept: of the landing's own queries, and a few for each typed table."""


@cache
def _idle_statements() -> dict[_Key, _Statement]:
    idle: dict[_Key, _Statement] = {}
    # Workaround: as for the connection.
    atexit.register(idle.clear)
    return idle


def _keep_idle(key: _Key, statement: _Statement) -> None:
    # Threads share the plans: an entry is popped while it is used, and each step is one operation on the dictionary.
    idle = _idle_statements()
    if len(idle) >= MAX_IDLE_STATEMENTS:
        idle.pop(next(iter(list(idle)), key), None)
    idle[key] = statement


def aggregate(query: str, **columns: pa.Array[Any]) -> pa.Table:
    """Return the answer to an SQL query over the table ``columns``."""
    cursor = _connection().cursor()
    try:
        cursor.register("columns", pa.table(columns))
        answer: pa.Table = cursor.sql(query).to_arrow_table()
        return answer
    finally:
        cursor.close()


def text_bytes(texts: pa.Array[Any]) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], Bytes]:
    """Return the offsets of texts, and their bytes from the first offset to the last."""
    if not len(texts):
        return np.zeros(1, np.int32), np.empty(0, np.uint8)
    _, offset_buffer, content = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, len(texts) + 1, 4 * texts.offset)  # type: ignore[call-overload]  # takes buffers
    first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    return offsets, np.frombuffer(content, np.uint8, size, first) if size else np.empty(0, np.uint8)  # type: ignore[call-overload]  # as above


def rows_with(texts: pa.Array[Any], find: Callable[[Bytes], Places]) -> Mask:
    """Return a mask of the texts that contain a byte at one of the positions that ``find`` returns."""
    offsets, content = text_bytes(texts)
    rows = np.zeros(len(texts), bool)
    # Fast path: one search over the bytes of all texts instead of one per text.
    rows[np.searchsorted(offsets, find(content) + offsets[0], "right") - 1] = True
    return rows


def byte_mask(letters: bytes) -> Mask:
    """Return for each byte value whether it is one of ``letters``."""
    is_member = np.zeros(256, bool)
    is_member[list(letters)] = True
    return is_member


def as_mask(column: pa.Array[Any]) -> Mask:
    """Convert a boolean column to numpy; null becomes False."""
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(False))
    mask: Mask = column.to_numpy(zero_copy_only=False).astype(bool)
    return mask


def sql_literal(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"


def json_pointer(*keys: str) -> str:
    """Return a path of keys as a JSON pointer (RFC 6901), quoted for SQL."""
    return sql_literal("".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys))


def _name_expressions(expressions: dict[str, str]) -> list[str]:
    return [f'{expression} AS "{name}"' for name, expression in expressions.items()]


def _to_array(column: Any) -> pa.Array[Any]:
    array: pa.Array[Any] = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return array
