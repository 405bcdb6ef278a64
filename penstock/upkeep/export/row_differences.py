"""Hashes of whole rows, and their sums by ranges of offsets, with which two sides of a copy are compared.

Expected rows are added and rows of the target subtracted, so the sum of a range without a difference is zero. Memory
holds sums of ranges, never rows. Both sides are hashed here, with the same functions, so the target needs none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.landing.rows.engine import compute, pc
from penstock.upkeep.export.target import KEY, as_json, is_nested

RANGE_OFFSETS = 1 << 16
"""Offsets of a range: a billion rows have 15,000 ranges, and the keys of a range take 3 MB."""
MAX_PARTS = 64
"""Limit: sums of batches in memory before they are added up."""
_SUMS = ("hash", "expected", "present")
_NULL = "null"


def comparable(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with JSON texts for nested values: DuckDB hashes an empty list like null."""
    columns = [as_json(column) if is_nested(column.type) else column for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def hash_rows(rows: pa.RecordBatch) -> pa.Array[Any]:
    """Return a hash of all columns of each comparable row."""
    columns: dict[str, Any] = {f"c{index}": _hashable(column) for index, column in enumerate(rows.columns)}
    # Twice: the last column enters the inner hash unmixed, so values that two rows exchange could cancel each other.
    return compute({"hash": f"hash(hash({', '.join(columns)}))"}, None, **columns)["hash"]


def differing_columns(expected: pa.RecordBatch, present: pa.RecordBatch) -> list[str]:
    """Return the columns in which two comparable rows differ."""
    return [
        name
        for name in expected.schema.names
        if hash_rows(expected.select([name]))[0] != hash_rows(present.select([name]))[0]
    ]


def value_text(column: pa.Array[Any]) -> str:
    """Return the only value of a column as a text for people."""
    if pa.types.is_timestamp(column.type):
        # DuckDB shows times with a zone in the zone of the machine.
        column = column.cast(pa.timestamp("us"))
    text = compute({"text": "value::VARCHAR"}, value=column)["text"][0].as_py()
    return _NULL if text is None else str(text)


def _hashable(column: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_dictionary(column.type):
        return column.cast(pa.string())
    if pa.types.is_float64(column.type):
        # As bits, because 0.0 equals -0.0. PostgreSQL has one NaN.
        bits: pa.Array[Any] = pc.if_else(pc.is_nan(column), pa.scalar(float("nan")), column).view(pa.int64())
        return bits
    if pa.types.is_timestamp(column.type):
        return column.view(pa.int64())
    return column.view(pa.int32()) if pa.types.is_date32(column.type) else column


class RangeSums:
    """Sums of hashes and numbers of rows by topic, partition and range of offsets. Used by one thread."""

    def __init__(self, width: int = RANGE_OFFSETS) -> None:
        """``width``: offsets of a range; 1 for single rows."""
        self._width, self._parts = width, list[pa.Table]()

    def add(self, rows: pa.RecordBatch, *, is_expected: bool) -> None:
        """Add expected rows, or subtract rows of the target; all have topic and offset."""
        hashes = hash_rows(rows).to_numpy()
        count = np.ones(rows.num_rows, np.int64)
        begins = rows["offset"].cast(pa.int64()).to_numpy() // self._width * self._width
        columns = {
            "topic": rows["topic"].cast(pa.string()),
            "partition": rows["partition"].cast(pa.int32()),
            "begin": begins,
            "hash": hashes if is_expected else np.negative(hashes),
            "expected": count * is_expected,
            "present": count * (not is_expected),
        }
        self._parts.append(_added_up([pa.table(columns)]))
        if len(self._parts) >= MAX_PARTS:
            self._parts = [_added_up(self._parts)]

    def differing(self) -> pa.Table:
        """Return the ranges with a difference by ``topic``, ``partition``, ``begin`` and ``end``, with their sums."""
        if not self._parts:
            return pa.table({name: [] for name in ("topic", "partition", "begin", "end", *_SUMS)})
        sums = _added_up(self._parts)
        is_other = pc.or_(
            pc.not_equal(sums["hash"], pa.scalar(0, pa.uint64())), pc.not_equal(sums["expected"], sums["present"])
        )
        ranges = sums.filter(is_other).sort_by([(name, "ascending") for name in ("topic", "partition", "begin")])
        return ranges.append_column("end", pc.add(ranges["begin"], self._width))


def _added_up(parts: Iterable[pa.Table]) -> pa.Table:
    keys = ["topic", "partition", "begin"]
    grouped = pa.TableGroupBy(pa.concat_tables(parts), keys, use_threads=False)
    sums = grouped.aggregate([(name, "sum") for name in _SUMS])
    return sums.select([*keys, *(f"{name}_sum" for name in _SUMS)]).rename_columns([*keys, *_SUMS])


def with_keys(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that have topic and offset: another program may insert rows without them."""
    if not rows["topic"].null_count and not rows["offset"].null_count:
        return rows
    return rows.filter(pc.and_(rows["topic"].is_valid(), rows["offset"].is_valid()))


def key_of(rows: pa.RecordBatch) -> tuple[Any, ...]:
    """Return topic, partition and offset of the only row."""
    return tuple(rows[name][0].as_py() for name in KEY)
