"""The Spark data source ``penstock``: topics as tables and as streams, from their folder or from the log daemon.

    spark.dataSource.register(PenstockSource)
    spark.read.format("penstock").option("topic", "events").load("penstock-data/topics")
    spark.read.format("penstock").option("topic", "events").option("uri", "127.0.0.1:8846").load()

Options: ``path`` (the folder of the topics) or ``uri`` (the daemon's Flight server, with ``token``, ``tlsCa``,
``tlsCert``, ``tlsKey``, ``tlsName`` and ``retryFor``: see ``penstock.landing.daemon_connection``), ``topic`` (names or
patterns with commas; ``*``, the default, is all but internal ones), ``startingOffsets`` (earliest, latest,
``latest-100`` for the last 100 rows of each topic, or JSON by topic), ``startingTimestamp`` (ISO, or milliseconds),
``endingOffsets`` and ``endingTimestamp`` (batch only), ``maxRowsPerTrigger``, ``maxBytesPerTrigger`` (by the average
size of a topic's rows), ``columns`` (only these are read: Spark does no pruning for Python sources), ``filter`` (an
expression on annotations, as the log daemon takes it), ``onDataLoss`` and ``partitions``. A topic that appears while a
stream runs joins in, from its first offset.

Both ways return the same synced rows; ``path`` needs no daemon. Gaps and corrupt batches are left out and counted by
the balance (``onDataLoss`` = count), or end the query with the missing offsets (fail). A stream's progress shows the
ends of the topics and the lag (``_lag``: rows, and seconds that the oldest of them has waited).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from penstock.landing.topics.topic_store import Range, TopicStore, TopicView
from penstock.spark.source.filter_bounds import Bounds, narrow
from penstock.spark.source.interfaces import (
    HAS_READ_LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    arrow_schema,
    for_this_spark,
)
from penstock.spark.source.interfaces import Filter as PushedFilter
from penstock.spark.source.options import COLUMNS, LATEST, BadOption, SourceOptions
from penstock.spark.source.sink import BatchWriter, SinkOptions, StreamWriter
from penstock.spark.source.slices import Slice, plan, read_slice

ALWAYS_READ_ROWS = 100
"""Rows that are read at any size: with the default limit of 16 MiB per message they fit into memory."""


class PenstockSource(DataSource):
    """The data source; register it with ``register(spark)``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._raw_options = dict(options)

    @classmethod
    def name(cls) -> str:
        return "penstock"

    @property
    def _options(self) -> SourceOptions:
        return SourceOptions.from_options(self._raw_options)

    def schema(self) -> str:
        """Return the selected columns as DDL."""
        return ", ".join(f"`{name}` {COLUMNS[name]}" for name in self._options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = self._options
        if not HAS_READ_LIMITS and (options.max_rows or options.max_bytes):
            # A query with the trigger availableNow would end after one batch.
            raise BadOption(
                "maxRowsPerTrigger, maxBytesPerTrigger: they need Spark 4.2 or later, earlier ones limit no batch"
            )
        return for_this_spark(StreamReader(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer; topics can only be appended to."""
        if overwrite:
            raise BadOption("a topic cannot be overwritten: write with mode append")
        return BatchWriter(SinkOptions.from_options(self._raw_options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StreamWriter(SinkOptions.from_options(self._raw_options, schema))


def register(spark: SparkSession) -> None:
    """Register ``format("penstock")`` in a session, and allow it to receive filters."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")  # if it is off, Spark raises for pushFilters
    spark.dataSource.register(PenstockSource)


class BatchReader(DataSourceReader):
    """Reader of the rows that exist when the query starts, narrowed by filters on topic, offset and timestamp."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._bounds = Bounds()

    def pushFilters(self, filters: list[PushedFilter]) -> Iterable[PushedFilter]:  # noqa: N802
        """Take the filters that bound topic, offset or timestamp; yield the others for Spark."""
        for pushed in filters:
            bounds = narrow(self._bounds, pushed)
            if bounds is None:
                yield pushed
            else:
                self._bounds = bounds

    def partitions(self) -> list[Slice]:
        ranges = []
        for topic, view in self._options.store().views(self._options.topics).items():
            with contextlib.suppress(FileNotFoundError):  # deleted since the listing
                ranges.append(self._range(topic, view))
        return plan([part for part in ranges if part.rows > 0], self._options.partitions)

    def _range(self, topic: str, view: TopicView) -> Range:
        options = self._options
        begin, end = options.begin(topic, view), options.end(topic, view)
        # A batch read skips expired rows, unless their loss must end the query.
        begin = begin if options.fail_on_loss else max(begin, view.start)
        return self._bounds.cut(view, Range(topic, begin, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader that follows topics. A stream offset is ``{topic: next offset}``; a topic that it does not name begins
    at 0.

    Invariant: it begins at 0 even if the first rows have expired, so that every offset of a topic is in some range and
    can be accounted for. Used in one thread of the driver; Spark sends a copy without the store to the workers.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._store: TopicStore | None = None
        self._target: dict[str, int] | None = None
        self._planned: dict[str, int] = {}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        options = self._options
        if options.starting_word != LATEST and options.starting_at is None:
            return sorted_offsets(options.starting)
        offsets_by_topic = {}
        for topic, view in self._views().items():
            with contextlib.suppress(FileNotFoundError):  # deleted since the listing
                offsets_by_topic[topic] = options.begin(topic, view)
        return self._remember(sorted_offsets({**offsets_by_topic, **options.starting}))

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return the offsets up to the limit, shared by the topics in proportion to their waiting rows."""
        ends = self._ends() if self._target is None else self._target
        waiting = {topic: end - start.get(topic, 0) for topic, end in ends.items() if end > start.get(topic, 0)}
        if isinstance(limit, ReadMaxRows | ReadMaxBytes):
            waiting = self._limit(waiting, limit)
        return self._remember(
            sorted_offsets({**start, **{topic: start.get(topic, 0) + rows for topic, rows in waiting.items()}})
        )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_rows:
            return ReadMaxRows(options.max_rows)
        return ReadMaxBytes(options.max_bytes) if options.max_bytes else ReadAllAvailable()

    def _limit(self, waiting: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the rows of each topic that the limits allow; at least one row."""
        rows = sum(waiting.values())
        row_limit = limit.max_rows if isinstance(limit, ReadMaxRows) else rows
        if self._options.max_bytes and rows > ALWAYS_READ_ROWS:
            size = sum(count * self._topics.row_bytes(topic) for topic, count in waiting.items())
            row_limit = min(row_limit, max(1, round(rows * self._options.max_bytes / max(size, 1))))
        return share_rows(waiting, row_limit)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the ends of the topics and the lag, for the query's progress."""
        ends = self._ends()
        behind = {topic: end - self._planned.get(topic, 0) for topic, end in ends.items()}
        waiting = [topic for topic, rows in behind.items() if rows > 0]
        waiting_since = (self._topics.waiting_since(topic, self._planned.get(topic, 0)) for topic in waiting)
        oldest = min((since_us for since_us in waiting_since if since_us is not None), default=None)
        seconds = round(max(time.time() - oldest / 1e6, 0.0), 3) if oldest is not None else 0.0
        return {**sorted_offsets(ends), "_lag": {"rows": sum(behind.values()), "seconds": seconds}}

    def _remember(self, offsets: dict[str, int]) -> dict[str, int]:
        self._planned = offsets
        return offsets

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._ends()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Slice]:
        ranges = [Range(topic, start.get(topic, 0), last) for topic, last in end.items() if last > start.get(topic, 0)]
        return plan(ranges, self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition, self._schema)

    @property
    def _topics(self) -> TopicStore:
        self._store = self._store or self._options.store()
        return self._store

    def _views(self) -> dict[str, TopicView]:
        return self._topics.views(self._options.topics)

    def _ends(self) -> dict[str, int]:
        """Return the end of each existing topic."""
        ends = {}
        for topic, view in self._views().items():
            with contextlib.suppress(FileNotFoundError):  # deleted since the listing
                ends[topic] = view.end
        return ends

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a worker, without the store: it holds open files and connections."""
        return {**self.__dict__, "_store": None}


def _read(options: SourceOptions, partition: InputPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    ranges = partition.ranges if isinstance(partition, Slice) else ()
    return read_slice(options.store(), ranges, schema, annotation_filter=options.filter, fail=options.fail_on_loss)


def share_rows(waiting: Mapping[str, int], limit: int) -> dict[str, int]:
    """Return at most ``limit`` rows in total, divided in proportion to the waiting rows."""
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    shares = {topic: rows * limit // total for topic, rows in waiting.items()}
    # Rows lost by rounding go to the topics with the most remaining rows, one each.
    for topic in sorted(waiting, key=lambda t: waiting[t] - shares[t], reverse=True)[: limit - sum(shares.values())]:
        shares[topic] += 1
    return shares


def sorted_offsets(offsets: Mapping[str, int]) -> dict[str, int]:
    """Return offsets sorted by topic: Spark compares offsets by their text."""
    return {topic: int(offsets[topic]) for topic in sorted(offsets)}
