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
    cursor = _connection().cursor()
    try:
        cursor.register("columns", pa.table(columns))
        query = f"SELECT {outer} FROM (SELECT {inner} FROM columns)"  # noqa: S608  our own words
        answer = cursor.sql(query).to_arrow_table()
    finally:
        cursor.close()
    return {name: _to_array(answer[name]) for name in expressions}


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
