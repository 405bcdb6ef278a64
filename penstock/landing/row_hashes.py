"""Hashes of whole rows, by which any SQL engine names a row that was altered (docs/proof-sql.md).

A hash is the first 15 hexadecimal digits of the MD5 of the row's texts as a number, plus a weighted sum of its times in
milliseconds. Invariant: the SQL of the page computes the same number from the table, in each engine. ``landed_at`` is
not in it: a repair may replace it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.landing.md5_columns import text_hashes
from penstock.landing.rows.engine import pc
from penstock.landing.table_schema import FILE_SCHEMA

RowHashes = npt.NDArray[np.int64]
TEXTS = tuple(field.name for field in FILE_SCHEMA if field.type == pa.string() and field.name != "topic")
BYTES = ("payload", "key")
TIME_WEIGHTS = {"timestamp": 1, "received": 3, "bucket": 5, "event_time": 7}
HASHED_COLUMNS = (*TEXTS, "annotations", *BYTES, *TIME_WEIGHTS)
NULL, VALUE, NEXT, TEXTS_OF_MAP = b"\x1e", b"\x1f", b"\x1c", b"\x1d"
"""Marks in the joined text: a null, the begin of a value, between the names of a map, between names and texts."""
_YEAR_ONE_US = 62_135_596_800_000_000
"""Microseconds from the year 1 to 1970: no time is negative, so that every engine divides alike, and -1 is null."""
_ROUNDING_US = 500
"""Trino rounds Delta's times to milliseconds."""
MAX_JOINED_BYTES = 256 << 20
"""Limit: bytes of rows that are joined at once; Arrow's offsets count to 2 GiB, and a file's batch may have more."""


def row_hashes(rows: pa.RecordBatch, kind: str, day: str) -> RowHashes:
    """Return the hash of each row of a folder of the table; missing columns count as null."""
    if rows.nbytes > MAX_JOINED_BYTES and (half := rows.num_rows // 2):
        return np.concatenate([row_hashes(part, kind, day) for part in (rows.slice(0, half), rows.slice(half))])
    existing = {*rows.schema.names}
    parts: list[Any] = [b"".join(VALUE + folder.encode() if folder else NULL for folder in (kind, day))]
    for name in (*TEXTS, "annotations", *BYTES):
        column = rows[name] if name in existing else None
        # Fast path: most columns of most rows are empty, and cost nothing.
        if column is None or column.null_count == len(column):
            parts[-1] += VALUE + TEXTS_OF_MAP if name == "annotations" else NULL
            continue
        values = (_map_texts(column) if name == "annotations" else column).cast(pa.binary())
        if values.null_count:
            parts += [pc.coalesce(pc.binary_join_element_wise(VALUE, values, b""), NULL), b""]
        else:
            parts[-1] += VALUE
            parts += [values, b""]
    columns = [pa.repeat(pa.scalar(parts[0]), rows.num_rows), *parts[1:]]
    hashes: RowHashes = text_hashes(pc.binary_join_element_wise(*columns, b"")).astype(np.int64)
    for name, weight in TIME_WEIGHTS.items():
        hashes += weight * (_millis(rows[name]) if name in existing else np.int64(-1))
    return hashes


def _map_texts(column: Any) -> Any:
    """Return the names of each map, then its texts, as one text; null is as an empty map, as in ClickHouse."""
    joined = [_join_lists(pa.ListArray.from_arrays(column.offsets, part)) for part in (column.keys, column.items)]
    both = pc.binary_join_element_wise(*joined, TEXTS_OF_MAP.decode())
    return pc.if_else(column.is_valid(), both, TEXTS_OF_MAP.decode()) if column.null_count else both


def _join_lists(lists: Any) -> Any:
    """Join the texts of each list, without nulls, as SQL does."""
    if not lists.values.null_count:
        return pc.binary_join(lists, NEXT.decode())
    return pa.array([NEXT.decode().join(filter(None.__ne__, texts)) for texts in lists.to_pylist()], pa.string())


def _millis(times: pa.Array[Any]) -> RowHashes:
    """Return times in milliseconds since the year 1; -1 for null."""
    micros = times.cast(pa.int64())
    known = micros.fill_null(0) if micros.null_count else micros
    millis: RowHashes = (known.to_numpy() + (_YEAR_ONE_US + _ROUNDING_US)) // 1000
    if micros.null_count:
        millis = np.where(times.is_null().to_numpy(zero_copy_only=False), np.int64(-1), millis)
    return millis
