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

Both ways give the same rows, synced ones only; with ``path`` no daemon is needed. Gaps and corrupt batches are left
out, as the balance counts them (``onDataLoss`` = count), or end the query with the offsets that are gone (fail). A
stream's progress shows beside the ends of the topics how far it is behind (``_lag``: rows, and seconds that the oldest
of them has waited).
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
from pyspark.sql.datasource import (
    Filter as PushedFilter,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.landing.topics.topic_store import Range, TopicStore, TopicView
from penstock.spark.source.filter_bounds import Bounds, narrow
from penstock.spark.source.options import COLUMNS, LATEST, BadOption, SourceOptions
from penstock.spark.source.sink import BatchWriter, SinkOptions, StreamWriter
from penstock.spark.source.slices import Slice, plan, read_slice

FEW_ROWS = 100
"""So few rows are taken whatever their size: a message has 16 MiB at most by default."""


class PenstockSource(DataSource):
    """The data source; register it with ``register(spark)``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "penstock"

    @property
    def _options(self) -> SourceOptions:
        return SourceOptions.of(self._given)

    def schema(self) -> str:
        """The columns asked for, as DDL."""
        return ", ".join(f"`{name}` {COLUMNS[name]}" for name in self._options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(self._options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """See ``penstock.spark.source.sink``. A topic can only be appended to."""
        if overwrite:
            raise BadOption("a topic cannot be overwritten: write with mode append")
        return BatchWriter(SinkOptions.of(self._given, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StreamWriter(SinkOptions.of(self._given, schema))


def register(spark: SparkSession) -> None:
    """Make ``format("penstock")`` known to a session, and let it push filters down to it."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")  # where it is off, pushFilters is an error
    spark.dataSource.register(PenstockSource)


class BatchReader(DataSourceReader):
    """Reads what there is when the query starts, narrowed by filters on topic, offset and timestamp."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = _arrow(schema)
        self._bounds = Bounds()

    def pushFilters(self, filters: list[PushedFilter]) -> Iterable[PushedFilter]:  # noqa: N802
        """Takes the filters that bound topic, offset or timestamp; gives the others back to Spark."""
        for one in filters:
            bounds = narrow(self._bounds, one)
            if bounds is None:
                yield one
            else:
                self._bounds = bounds

    def partitions(self) -> list[Slice]:
        ranges = []
        for topic, view in self._options.store().views(self._options.topics).items():
            with contextlib.suppress(FileNotFoundError):  # deleted a moment ago
                ranges.append(self._range(topic, view))
        return plan([part for part in ranges if part.rows > 0], self._options.partitions)

    def _range(self, topic: str, view: TopicView) -> Range:
        options = self._options
        begin, end = options.begin(topic, view), options.end(topic, view)
        begin = begin if options.fail_on_loss else max(begin, view.start)
        return self._bounds.cut(view, Range(topic, begin, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows topics. A stream offset is ``{topic: next offset}``; a topic it does not name begins at 0.

    It begins at 0 even where the first rows have expired, so that every offset of a topic is in some range
    and can be accounted for.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = _arrow(schema)
        self._store: TopicStore | None = None
        self._target: dict[str, int] | None = None
        self._taken: dict[str, int] = {}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        options = self._options
        if options.starting_word != LATEST and options.starting_at is None:
            return _ordered(options.starting)
        known = {}
        for topic, view in self._views().items():
            with contextlib.suppress(FileNotFoundError):  # deleted a moment ago
                known[topic] = options.begin(topic, view)
        return self._note(_ordered({**known, **options.starting}))

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """As far as the limit lets it, shared by the topics in proportion to what waits in each."""
        ends = self._ends() if self._target is None else self._target
        waiting = {topic: end - start.get(topic, 0) for topic, end in ends.items() if end > start.get(topic, 0)}
        if isinstance(limit, ReadMaxRows | ReadMaxBytes):
            waiting = self._limited(waiting, limit)
        return self._note(_ordered({**start, **{topic: start.get(topic, 0) + rows for topic, rows in waiting.items()}}))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_rows:
            return ReadMaxRows(options.max_rows)
        return ReadMaxBytes(options.max_bytes) if options.max_bytes else ReadAllAvailable()

    def _limited(self, waiting: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """What the limits let through of the rows that wait in each topic; at least one row."""
        rows = sum(waiting.values())
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else rows
        if self._options.max_bytes and rows > FEW_ROWS:
            size = sum(n * self._topics.row_bytes(topic) for topic, n in waiting.items())
            most = min(most, max(1, round(rows * self._options.max_bytes / max(size, 1))))
        return share(waiting, most)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The ends of the topics, which the query's progress shows beside what it has read, and the lag."""
        ends = self._ends()
        behind = {topic: end - self._taken.get(topic, 0) for topic, end in ends.items()}
        waiting = [topic for topic, rows in behind.items() if rows > 0]
        since = (self._topics.waiting_since(topic, self._taken.get(topic, 0)) for topic in waiting)
        oldest = min((at for at in since if at is not None), default=None)
        seconds = round(max(time.time() - oldest / 1e6, 0.0), 3) if oldest is not None else 0.0
        return {**_ordered(ends), "_lag": {"rows": sum(behind.values()), "seconds": seconds}}

    def _note(self, offsets: dict[str, int]) -> dict[str, int]:
        self._taken = offsets
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
        """The end of each topic there is."""
        ends = {}
        for topic, view in self._views().items():
            with contextlib.suppress(FileNotFoundError):  # deleted a moment ago
                ends[topic] = view.end
        return ends

    def __getstate__(self) -> dict[str, Any]:
        """A store holds open files and connections, and stays behind when Spark sends this object to a worker."""
        return {**self.__dict__, "_store": None}


def _read(options: SourceOptions, partition: InputPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    ranges = partition.ranges if isinstance(partition, Slice) else ()
    return read_slice(options.store(), ranges, schema, wanted=options.filter, fail=options.fail_on_loss)


def share(waiting: Mapping[str, int], limit: int) -> dict[str, int]:
    """At most ``limit`` rows in all, divided in proportion to what waits; what rounding leaves goes round."""
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    shares = {topic: rows * limit // total for topic, rows in waiting.items()}
    for topic in sorted(waiting, key=lambda t: waiting[t] - shares[t], reverse=True)[: limit - sum(shares.values())]:
        shares[topic] += 1
    return shares


def _ordered(offsets: Mapping[str, int]) -> dict[str, int]:
    """Sorted by topic: Spark compares offsets by their text."""
    return {topic: int(offsets[topic]) for topic in sorted(offsets)}


def _arrow(schema: StructType) -> pa.Schema:
    converted: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return converted
