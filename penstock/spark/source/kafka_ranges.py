"""The source of a micro-batch that lands from Kafka: its rows are ranges of offsets of partitions.

Spark plans, stores offsets and retries; tasks read the records themselves (``landing_tasks``), so no record becomes a
row of the JVM, and one set of client properties (librdkafka's) serves the whole pipeline. The offsets have the form of
Spark's own Kafka source, ``{"events": {"0": 5}}``. Invariant: as ``landing_ranges``, this module imports nothing that
only tasks need.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.kafka.errors import KafkaAway
from penstock.landing.from_kafka.partitions import KafkaPartitions
from penstock.landing.topics.topic_store import Range
from penstock.qualified_names import flat_offsets, nested_offsets
from penstock.spark.source.data_source import share_rows
from penstock.spark.source.interfaces import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    for_this_spark,
)
from penstock.spark.source.landing_ranges import RANGES_DDL, range_rows
from penstock.spark.source.options import default_partitions
from penstock.spark.source.slices import Slice, plan

CLIENT_PREFIX = "kafka."
AWAY_S = 60.0
"""Time without an answer of Kafka that a query survives: a broker restarts within it, and Spark need not."""
Offsets = dict[str, Any]
"""Offsets by topic and number of the partition, as text: ``{"events": {"0": 5}}``."""


class KafkaLandingSource(DataSource):
    """The data source of a landing from Kafka; its rows are ranges (RANGES).

    Options: ``kafka.NAME`` (properties of the client), ``topic`` (names or patterns with commas), ``holdFile``,
    ``untilAvailable`` (as of LandingSource), and ``maxRowsPerTrigger``.
    """

    @classmethod
    def name(cls) -> str:
        return "penstock_kafka_landing"

    def schema(self) -> str:
        return RANGES_DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = {name.lower(): value for name, value in self.options.items()}
        kafka = {name.removeprefix(CLIENT_PREFIX): v for name, v in options.items() if name.startswith(CLIENT_PREFIX)}
        return for_this_spark(
            KafkaRangeReader(
                kafka,
                tuple(options["topic"].split(",")),
                int(options["maxrowspertrigger"]),
                Path(options["holdfile"]),
                until_available=options["untilavailable"] == "true",
            )
        )


def register_kafka_landing(spark: SparkSession) -> None:
    """Register ``format("penstock_kafka_landing")`` in a session."""
    spark.dataSource.register(KafkaLandingSource)


class KafkaRangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader that plans ranges of partitions, each from its first offset on; nothing while the hold file exists.

    Only committed records are planned. A partition that Kafka does not show, or no broker leads, keeps its offset.
    One that ends before its planned offset is planned with the lower end: the driver finds out whether its topic was
    created again (``KafkaContinuity``). Used in one thread; Spark sends a copy without the client to the workers.
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        patterns: tuple[str, ...],
        max_rows: int,
        hold: Path,
        *,
        until_available: bool = False,
    ) -> None:
        self._kafka, self._patterns, self._max_rows, self._hold = dict(kafka), patterns, max_rows, hold
        self._until_available = until_available
        self._target: dict[str, int] | None = None
        self._away_since: float | None = None

    @cached_property
    def _partitions(self) -> KafkaPartitions:
        # A reader that ends with what is available may not end without the records of a partition.
        return KafkaPartitions(self._kafka, skips_leaderless=not self._until_available)

    def initialOffset(self) -> Offsets:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._max_rows) if self._max_rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._ends()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Return the offsets up to the limit, shared by the partitions in proportion to their waiting records.

        Raises KafkaAway if Kafka has not answered for ``AWAY_S``; until then nothing is planned.
        """
        # A pipeline that stops creates this file: the current micro-batch ends, and no new one is planned.
        if self._hold.exists():
            return start
        if self._until_available and self._target is None:
            self.prepareForTriggerAvailableNow()
        try:
            ends = self._ends() if self._target is None else self._target
            begins = self._with_begins(flat_offsets(start), ends)
        except KafkaAway:
            # From the first failure on: the batch before may have taken longer.
            now = time.monotonic()
            self._away_since = now if self._away_since is None else self._away_since
            # A reader that ends with what is available would end without it.
            if self._until_available or now > self._away_since + AWAY_S:
                raise
            return start
        self._away_since = None
        waiting = {name: end - begins[name] for name, end in ends.items() if end > begins[name]}
        if isinstance(limit, ReadMaxRows):
            waiting = share_rows(waiting, limit.max_rows)
        lower = {name: end for name, end in ends.items() if end < begins[name]}
        planned = {**begins, **{name: begins[name] + rows for name, rows in waiting.items()}, **lower}
        return nested_offsets(planned)

    def partitions(self, start: Offsets, end: Offsets) -> list[Slice]:
        ends = flat_offsets(end)
        begins = self._with_begins(flat_offsets(start), ends)
        ranges = [Range(name, begins[name], last) for name, last in ends.items() if last > begins[name]]
        return plan(ranges, default_partitions())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return range_rows(partition)

    def _ends(self) -> dict[str, int]:
        return {name: view.end for name, view in self._partitions.views(self._patterns).items()}

    def _with_begins(self, offsets: dict[str, int], names: Mapping[str, int]) -> dict[str, int]:
        """Return offsets, and the first readable offset of each other partition of ``names``. Raises KafkaAway."""
        missing = [name for name in names if name not in offsets]
        # A topic that is gone begins at 0: the task finds out that no record is left.
        return {**dict.fromkeys(missing, 0), **offsets, **self._partitions.begins(missing)} if missing else offsets

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a worker, without the client: it has threads and connections."""
        return {name: value for name, value in self.__dict__.items() if name != "_partitions"}
