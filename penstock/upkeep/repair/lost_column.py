"""The statistics of a column that cannot be read: what a restored column must agree with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.landing.writing.written_file import round_to_millis
from penstock.upkeep.typed.fill import CannotRestore

MAX_STATISTIC_BYTES = 60
"""Limit: other engines cut longer texts in statistics (64 bytes in parquet-rs)."""


@dataclass(frozen=True, slots=True)
class LostColumn:
    """The statistics of a lost column; ``low`` and ``high`` None if there are none.

    ``rounded``: times are rounded outwards to milliseconds, as in the table's log.
    """

    low: Any
    high: Any
    nulls: int | None
    rounded: bool = False

    @classmethod
    def from_footer(cls, footer: Any, name: str) -> LostColumn:
        """Return the statistics of a column of a row group."""
        leaves = [footer.column(index) for index in range(footer.num_columns)]
        statistics = next((leaf.statistics for leaf in leaves if leaf.path_in_schema == name), None)
        if statistics is None:
            return cls(None, None, None)
        nulls = statistics.null_count if statistics.has_null_count else None
        low, high = (statistics.min, statistics.max) if statistics.has_min_max else (None, None)
        return cls(low, high, nulls)

    def select(self, rows: pa.RecordBatch, name: str) -> pa.RecordBatch:
        """Return the rows whose column ``name`` is within the statistics."""
        if self.low is None or _is_cut((self.low, self.high)):
            return rows
        column: Any = rows[name]
        low, high = (pa.scalar(bound, column.type) for bound in (self.low, self.high))
        is_within: Any = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
        return rows.filter(is_within.fill_null(self.nulls != 0))

    def agrees(self, column: pa.Array[Any]) -> bool:
        """Report whether a column has the bounds and nulls of the statistics."""
        extremes: Any = (None, None)
        if self.low is not None:
            bounds: Any = pc.min_max(column).as_py()
            extremes = bounds["min"], bounds["max"]
            if self.rounded and pa.types.is_timestamp(column.type):
                extremes = round_to_millis(extremes[0], up=False), round_to_millis(extremes[1], up=True)
        has_same_bounds = _is_cut(extremes) or extremes == (self.low, self.high)
        return has_same_bounds and self.nulls in (None, column.null_count)

    def check(self, column: pa.Array[Any], name: str) -> None:
        """Raise CannotRestore if a column differs from the statistics."""
        if not self.agrees(column):
            raise CannotRestore(
                f"its messages make other rows today ({name} differs): the topic was created again, or the pipeline's "
                "settings have changed"
            )


def _is_cut(bounds: Iterable[Any]) -> bool:
    return any(isinstance(bound, str | bytes) and len(bound) >= MAX_STATISTIC_BYTES for bound in bounds)
