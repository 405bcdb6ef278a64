"""DuckDB as a library of functions on whole Arrow columns: JSON, and hashes. No file, no extension, one thread."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute
"""Arrow's functions; untyped, because their stubs tell neither scalars from columns, nor masks from indices."""
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
Places = np.ndarray[tuple[int], np.dtype[np.intp]]


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config=SETTINGS)
    atexit.register(_connection.cache_clear)  # else it complains when the interpreter ends
    return connection


def compute(
    expressions: dict[str, str], given: dict[str, str] | None = None, **columns: pa.Array[Any]
) -> dict[str, pa.Array[Any]]:
    """SQL expressions over columns of one length; by name the results, of that length and in that order.

    ``given``: expressions that are computed first, once, and may be named in the others.
    """
    inner = ", ".join(["*", *_named(given or {})])
    outer = ", ".join(_named(expressions))
    own = _connection().cursor()
    try:
        own.register("columns", pa.table(columns))
        query = f"SELECT {outer} FROM (SELECT {inner} FROM columns)"  # noqa: S608  our own words
        found = own.sql(query).to_arrow_table()
    finally:
        own.close()
    return {name: _whole(found[name]) for name in expressions}


def summed_up(query: str, **columns: pa.Array[Any]) -> pa.Table:
    """The answer to a query of SQL over columns of one length, which are its table ``columns``."""
    own = _connection().cursor()
    try:
        own.register("columns", pa.table(columns))
        found: pa.Table = own.sql(query).to_arrow_table()
        return found
    finally:
        own.close()


def contents(texts: pa.Array[Any]) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], Bytes]:
    """Where each text begins and the last one ends, and the bytes of all: of the first from that place on."""
    if not len(texts):
        return np.zeros(1, np.int32), np.empty(0, np.uint8)
    _, starts, content = texts.buffers()
    offsets = np.frombuffer(starts, np.int32, len(texts) + 1, 4 * texts.offset)  # type: ignore[call-overload]  # takes buffers
    first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    return offsets, np.frombuffer(content, np.uint8, size, first) if size else np.empty(0, np.uint8)  # type: ignore[call-overload]  # as above


def rows_with(texts: pa.Array[Any], find: Callable[[Bytes], Places]) -> Mask:
    """Which texts have one of the bytes that are found among those of all."""
    offsets, content = contents(texts)
    rows = np.zeros(len(texts), bool)
    rows[np.searchsorted(offsets, find(content) + offsets[0], "right") - 1] = True
    return rows


def among(letters: bytes) -> Mask:
    """For each byte whether it is one of these."""
    found = np.zeros(256, bool)
    found[list(letters)] = True
    return found


def as_mask(column: pa.Array[Any]) -> Mask:
    """A column of truths as numpy; null is False."""
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(False))
    found: Mask = column.to_numpy(zero_copy_only=False).astype(bool)
    return found


def quoted(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def json_pointer(*keys: str) -> str:
    """Where a value is in an object: a path of keys as RFC 6901 writes it, and as SQL writes that."""
    return quoted("".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys))


def json_texts(path: Path, column: str) -> pa.Array[Any]:
    """A column of VARIANT of a Parquet file, as JSON texts, in the order of its rows."""
    own = _connection().cursor()
    try:
        rows = own.read_parquet(str(path), hive_partitioning=False)
        return _whole(rows.project(f'"{column}"::JSON::VARCHAR AS text').to_arrow_table()["text"])
    finally:
        own.close()


def _named(expressions: dict[str, str]) -> list[str]:
    return [f'{expression} AS "{name}"' for name, expression in expressions.items()]


def _whole(column: Any) -> pa.Array[Any]:
    whole: pa.Array[Any] = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return whole
