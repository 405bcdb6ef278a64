"""What a micro-batch of the landing is made of: ranges of offsets. Its tasks read the messages by themselves.

So Spark plans, limits, writes down and tries again, and no message becomes a row of the JVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from penstock.landing.from_kafka.rows import LOG_ROW, with_null_partition
from penstock.landing.journal import REFILL_MARK
from penstock.landing.requests.backfill_requests import load_requests, offsets_in_turn
from penstock.landing.topics.topic_store import Range, TopicStore
from penstock.landing.writing.part_writer import MessageBatch
from penstock.process.tuning import freeze_loaded_objects
from penstock.spark.source.data_source import PenstockSource, StreamReader, _ordered
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.slices import Slice, plan, read_slice

_TYPES: dict[str, pa.DataType] = {"topic": pa.string(), "begin": pa.int64(), "end": pa.int64(), "again": pa.bool_()}
RANGES = pa.schema(_TYPES)


@dataclass(frozen=True, slots=True)
class LandingRange(Range):
    """Offsets [begin, end) of a topic; ``again``: they were committed before, and are in the table no more."""

    again: bool = False


class LandingSource(PenstockSource):
    """The source of the landing: its rows are ranges (RANGES).

    Options besides the usual ones: ``holdFile``: nothing new is taken while there is a file of that name;
    ``refillsFolder``: requests to land offsets out of turn; ``onlyRefills``: nothing but these.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        self._hold = Path(given.pop("holdfile"))
        self._refills = Path(given.pop("refillsfolder")), given.pop("onlyrefills", "false") == "true"
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        return "penstock_landing"

    def schema(self) -> str:
        return "topic string, begin bigint, end bigint, again boolean"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return RangeReader(self._options, schema, self._hold, self._refills)


def register_landing(spark: SparkSession) -> None:
    """Make ``format("penstock_landing")`` known to a session."""
    spark.dataSource.register(LandingSource)


class RangeReader(StreamReader):
    """A StreamReader whose rows are the ranges themselves, and that waits while it is held."""

    def __init__(self, options: SourceOptions, schema: StructType, hold: Path, refills: tuple[Path, bool]) -> None:
        super().__init__(options, schema)
        self._hold = hold
        self._refills, self._only_refills = refills

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """As the stream's; requests first, so that a topic passes over nothing that has not landed."""
        if self._hold.exists():
            return start
        found = super().latestOffset(start, limit)
        asked = {name: end for name, end in found.items() if REFILL_MARK in name}
        if any(end > start.get(name, 0) for name, end in asked.items()):
            return self._note(_ordered({**start, **asked}))
        return found

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Slice]:
        """A topic's own turn leaves out what requests have taken that this micro-batch, as it was planned, knows of."""
        known = load_requests(self._refills)
        ranges: list[Range] = []
        for name, last in end.items():
            first = start.get(name, 0)
            runs = known[name].part(first, last) if name in known else offsets_in_turn(name, first, last, end, known)
            again = name in known and known[name].lost
            ranges += [LandingRange(name.partition(REFILL_MARK)[0], *run, again) for run in runs]
        return plan(ranges, self._options.partitions)

    def _ends(self) -> dict[str, int]:
        asked = {name: request.rows for name, request in load_requests(self._refills).items()}
        return asked if self._only_refills else {**super()._ends(), **asked}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        ranges = partition.ranges if isinstance(partition, Slice) else ()
        rows = [
            {"topic": one.topic, "begin": one.begin, "end": one.end, "again": getattr(one, "again", False)}
            for one in ranges
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=RANGES)
        freeze_loaded_objects()  # Spark has a worker look for garbage after each task


def messages_in(batches: Iterable[pa.RecordBatch], store: TopicStore) -> Iterator[MessageBatch]:
    """The messages in ranges (RANGES)."""
    for batch in batches:
        for one in batch.to_pylist():
            ranges: Sequence[Range] = [Range(one["topic"], one["begin"], one["end"])]
            for rows in read_slice(store, ranges, LOG_ROW):
                yield MessageBatch(with_null_partition(rows), one["again"])
