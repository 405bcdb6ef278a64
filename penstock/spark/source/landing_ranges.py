"""The source of a micro-batch of the landing: its rows are ranges of offsets, and tasks read the messages
themselves.

So Spark plans, limits, stores offsets and retries, and no message becomes a row of the JVM. Invariant: this module does
not import what tasks need: Spark loads it in three more processes before the first task, each for a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.landing.journal import BACKFILL_MARK
from penstock.landing.requests.backfill_requests import load_requests, offsets_in_turn
from penstock.landing.topics.topic_store import Range
from penstock.process.tuning import freeze_loaded_objects
from penstock.spark.source.data_source import PenstockSource, StreamReader, sorted_offsets
from penstock.spark.source.interfaces import ReadLimit, for_this_spark
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.slices import Slice, plan

_TYPES: dict[str, pa.DataType] = {"topic": pa.string(), "begin": pa.int64(), "end": pa.int64(), "again": pa.bool_()}
RANGES = pa.schema(_TYPES)
RANGES_DDL = "topic string, begin bigint, end bigint, again boolean"


@dataclass(frozen=True, slots=True)
class LandingRange(Range):
    """Offsets [begin, end) of a topic; ``relands``: they were committed before and are no longer in the table."""

    relands: bool = False


class LandingSource(PenstockSource):
    """The data source of the landing; its rows are ranges (RANGES).

    Further options: ``holdFile``: no new offsets are planned while this file exists; ``backfillsFolder``: requests to
    land offsets again; ``onlyBackfills``: land requested offsets only; ``untilAvailable``: plan nothing behind the ends
    that the topics have when the query starts.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        lower_options = {name.lower(): value for name, value in options.items()}
        self._hold = Path(lower_options.pop("holdfile"))
        self._backfills = (
            Path(lower_options.pop("backfillsfolder")),
            lower_options.pop("onlybackfills", "false") == "true",
        )
        self._until_available = lower_options.pop("untilavailable", "false") == "true"
        super().__init__(lower_options)

    @classmethod
    def name(cls) -> str:
        return "penstock_landing"

    def schema(self) -> str:
        return RANGES_DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return for_this_spark(
            RangeReader(self._options, schema, self._hold, self._backfills, until_available=self._until_available)
        )


def register_landing(spark: SparkSession) -> None:
    """Register ``format("penstock_landing")`` in a session."""
    spark.dataSource.register(LandingSource)


class RangeReader(StreamReader):
    """StreamReader whose rows are the ranges themselves; it plans nothing while the hold file exists."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        hold: Path,
        backfills: tuple[Path, bool],
        *,
        until_available: bool = False,
    ) -> None:
        super().__init__(options, schema)
        self._hold = hold
        self._until_available = until_available
        self._backfills, self._only_backfills = backfills

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return the next offsets; requested ones first, so that a topic does not skip unlanded offsets."""
        # A pipeline that stops creates this file: the current micro-batch ends, and no new one is planned.
        if self._hold.exists():
            return start
        if self._until_available and self._target is None:
            self.prepareForTriggerAvailableNow()
        latest = super().latestOffset(start, limit)
        requested = {name: end for name, end in latest.items() if BACKFILL_MARK in name}
        if any(end > start.get(name, 0) for name, end in requested.items()):
            return self._remember(sorted_offsets({**start, **requested}))
        return latest

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Slice]:
        """Return the ranges of a micro-batch. A topic's own turn skips offsets of requests that the micro-batch's
        plan knows.
        """
        # A request that `end` does not name came after the plan and takes nothing from a topic's turn: a repeated
        # micro-batch has the same offsets.
        backfills = load_requests(self._backfills)
        ranges: list[Range] = []
        for name, last in end.items():
            first = start.get(name, 0)
            backfill = backfills.get(name)
            runs = backfill.part(first, last) if backfill else offsets_in_turn(name, first, last, end, backfills)
            relands = backfill is not None and backfill.lost
            ranges += [LandingRange(name.partition(BACKFILL_MARK)[0], *run, relands) for run in runs]
        return plan(ranges, self._options.partitions)

    def _ends(self) -> dict[str, int]:
        requested = {name: request.rows for name, request in load_requests(self._backfills).items()}
        return requested if self._only_backfills else {**super()._ends(), **requested}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return range_rows(partition)


def range_rows(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the ranges of a slice as rows (RANGES)."""
    ranges = partition.ranges if isinstance(partition, Slice) else ()
    rows = [
        {"topic": part.topic, "begin": part.begin, "end": part.end, "again": getattr(part, "relands", False)}
        for part in ranges
    ]
    yield pa.RecordBatch.from_pylist(rows, schema=RANGES)
    freeze_loaded_objects()  # Spark runs a garbage collection in the worker after each task
