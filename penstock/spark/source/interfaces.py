"""PySpark's interfaces for sources in Python where versions differ: no other module asks which of them exist.

Spark 4.2 gives a stream's reader the start and the limit of a batch; ``StartKeeper`` remembers the start for Spark 4.0
and 4.1, which give neither. Spark 4.0 pushes no filters, and has no class for a stream's writer of Arrow batches.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import PenstockError
from penstock.qualified_names import flat_offsets, is_partition

HAS_READ_LIMITS = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether Spark gives a stream's reader the start and the limit of a batch."""

if TYPE_CHECKING or HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:
    from dataclasses import dataclass

    class ReadLimit:
        """A limit of a batch, as Spark 4.2 has it."""

    class ReadAllAvailable(ReadLimit):
        """No limit."""

    @dataclass
    class ReadMaxRows(ReadLimit):
        """The most rows of a batch."""

        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):
        """The most bytes of a batch."""

        max_bytes: int

    class SupportsTriggerAvailableNow:
        """A mark that Spark before 4.2 does not look for."""


if TYPE_CHECKING or hasattr(datasource, "Filter"):
    from pyspark.sql.datasource import (
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
    )
else:
    # Spark 4.0 filters all rows itself and never makes one of these.
    Filter = type("Filter", (), {})
    EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual = (
        type(name, (Filter,), {})
        for name in ("EqualTo", "GreaterThan", "GreaterThanOrEqual", "In", "LessThan", "LessThanOrEqual")
    )

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    # Spark 4.0 gives Arrow batches to each writer of this class, and asks no stream's writer for another one.
    from pyspark.sql.datasource import DataSourceArrowWriter as DataSourceStreamArrowWriter

__all__ = [
    "HAS_READ_LIMITS",
    "DataSourceStreamArrowWriter",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "LessThan",
    "LessThanOrEqual",
    "PlanGoesBack",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "StartKeeper",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "for_this_spark",
]


class PlanGoesBack(PenstockError, RuntimeError):
    """A batch of a stream ends before it begins: its rows would be read twice."""


class LimitedReader(Protocol):
    """A stream's reader as Spark 4.2 calls it."""

    def initialOffset(self) -> dict[str, Any]: ...  # noqa: N802
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]: ...  # noqa: N802
    def getDefaultReadLimit(self) -> ReadLimit: ...  # noqa: N802
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]: ...
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]: ...


def for_this_spark(reader: DataSourceStreamReader) -> DataSourceStreamReader:
    """Return a reader with the interface of Spark 4.2 as the installed Spark calls it."""
    return reader if HAS_READ_LIMITS else StartKeeper(reader)  # type: ignore[arg-type]  # it is a LimitedReader


class StartKeeper(DataSourceStreamReader):
    """A reader for Spark 4.0 and 4.1, which asks for the end of a batch without its start and limit.

    Invariant: the start is the end of the newest plan. Spark plans the batches of a query one after the other, with
    each end that differs from the one before, and names the newest plan of a checkpoint when a query starts: it calls
    ``partitions`` with its end twice. Not so before the first batch with the trigger ``availableNow``, so a stream for
    that trigger must have no limit: its first end is then at or behind the newest plan.
    """

    def __init__(self, reader: LimitedReader) -> None:
        self._reader = reader
        self._initial: dict[str, Any] | None = None
        self._start: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        # Spark asks after the first latestOffset: both must name the same offset.
        if self._initial is None:
            self._initial = self._reader.initialOffset()
        return self._initial

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802  as Spark 4.0 calls it
        start = self.initialOffset() if self._start is None else self._start
        self._start = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
        return self._start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the parts of a batch. Raises PlanGoesBack."""
        begins, ends = flat_offsets(start), flat_offsets(end)
        # A partition of Kafka may end earlier (its topic was created again): the driver checks it.
        if back := sorted(n for n, offset in ends.items() if not is_partition(n) and offset < begins.get(n, 0)):
            raise PlanGoesBack(
                f"the batch of {back[0]} begins at offset {start[back[0]]} and ends at {end[back[0]]}: nothing is read"
            )
        self._start = end
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of rows for Spark; times are in UTC."""
    # Spark before 4.2 has no such parameter, and UTC always.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    converted: pa.Schema = to_arrow_schema(schema, **zone)
    return converted
