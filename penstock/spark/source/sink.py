"""Writing to a topic from Spark, batch and stream; a repeated task stores its rows once.

    frame.write.format("penstock").option("uri", "127.0.0.1:8845").option("topic", "events").mode("append").save()

The frame needs a column ``payload`` (or ``value``), binary or string; ``key``, ``type_url``, ``annotations`` and
``topic`` are optional columns. Options: ``uri`` (the daemon's gRPC address), ``topic``, and the options of
``penstock.landing.daemon_connection``.

Order: a task collects all its rows, then stores them in one transaction (several, one after the other, if they exceed
PART_BYTES), so a failed attempt stores nothing. The producer's name consists of query, micro-batch, partition and
transaction: a repeated task with the same rows appends nothing twice, for as long as the log remembers producers
(``transactions.producer_memory``). A repeated task with other rows is refused (OutOfSequence).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.landing import daemon_connection
from penstock.landing.daemon_connection import BadConnection, DaemonConnection
from penstock.records import BODY
from penstock.spark.source.interfaces import DataSourceStreamArrowWriter
from penstock.spark.source.options import BadOption

OPTION_NAMES = ("topic", *daemon_connection.OPTION_NAMES)
LOWER_NAMES = tuple(name.lower() for name in OPTION_NAMES)
OPTIONS_OF_SPARK = ("path", "checkpointlocation")
REQUEST_BYTES = 8 << 20
"""Limit of the rows of one append."""
PART_BYTES = 48 << 20
"""Limit of the rows of one transaction, below the server's default for ``transactions.max_size``."""
PART_APPENDS = 200
"""Limit of appends in one transaction, below the number that the log remembers of a producer."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of a write. ``topic`` is for rows that name none."""

    connection: DaemonConnection
    topic: str

    @classmethod
    def from_options(cls, options: Mapping[str, str], schema: StructType) -> SinkOptions:
        """Parse Spark's options. Raises BadOption."""
        lower_options = {name.lower(): value for name, value in options.items() if name.lower() not in OPTIONS_OF_SPARK}
        for name in lower_options:
            if name not in LOWER_NAMES:
                raise BadOption(f"{name}: unknown option for writing (existing options: {', '.join(OPTION_NAMES)})")
        if not lower_options.get("uri"):
            raise BadOption("uri: missing; set the host:port of the log daemon's gRPC address")
        columns = {field.name for field in schema.fields}
        if "topic" not in columns and not lower_options.get("topic"):
            raise BadOption("topic: missing; set the option, or add a column of that name")
        if not columns & {"payload", "value"}:
            raise BadOption("the frame has no column payload (or value)")
        try:
            return cls(DaemonConnection.from_options(lower_options), lower_options.get("topic", ""))
        except BadConnection as error:
            raise BadOption(str(error)) from None


@dataclass
class Appended(WriterCommitMessage):
    """Commit message of a task: the number of its rows."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    """Writer of a batch query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._query = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as Spark's own
        return _append(self._options, f"spark-{self._query}-{_partition()}", iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer of a stream's micro-batches."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as Spark's own
        context = TaskContext.get()
        property_of = context.getLocalProperty if context else lambda _: None
        query, epoch = property_of("sql.streaming.queryId"), property_of("streaming.sql.batchId")
        return _append(self._options, f"spark-{query}-{epoch}-{_partition()}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the tasks have stored all rows."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: rows of tasks that ended stay, and the repeated micro-batch adds the rest."""


def _partition() -> int:
    context = TaskContext.get()
    return int(context.partitionId()) if context else 0


def _append(options: SinkOptions, producer: str, batches: Iterator[pa.RecordBatch]) -> Appended:
    from penstock.client import Log  # on the executor

    rows = 0
    link, retry_s = options.connection.endpoint, options.connection.retry_for
    # Limit: rows of a task beyond PART_BYTES go to disk.
    with tempfile.SpooledTemporaryFile(PART_BYTES) as buffer_file:
        collected = _collect(buffer_file, batches)
        with Log(link.address, token=link.token, tls=link.tls, retry_for=retry_s) as log:
            for number, part in enumerate(parts(collected, options.topic)):
                with log.transaction() as transaction:
                    for topic, piece, sequence in part:
                        transaction.append_batch(topic, piece, (f"{producer}.{number}", sequence))
                        rows += piece.num_rows
    return Appended(rows)


def _collect(buffer_file: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read all batches into a file, then return them again: a transaction must not wait for Spark."""
    first = next(batches, None)
    if first is None:
        return iter(())
    with pa.ipc.new_stream(buffer_file, first.schema) as stream:
        stream.write_batch(first)
        for batch in batches:
            stream.write_batch(batch)
    buffer_file.seek(0)
    return iter(pa.ipc.open_stream(buffer_file))


Append = tuple[str, pa.RecordBatch, int]
"""Topic, rows (BODY), and the sequence number of the append to the topic in its transaction."""


def parts(batches: Iterable[pa.RecordBatch], topic: str) -> Iterator[list[Append]]:
    """Yield the appends of each transaction; rows without a topic go to ``topic``."""
    part: list[Append] = []
    size, numbers = 0, dict[str, int]()
    for batch in batches:
        for name, body in bodies(batch, topic):
            for piece in _split_by_size(body):
                # A new transaction starts when the next append would exceed a limit of the server.
                if part and (size + piece.nbytes > PART_BYTES or len(part) == PART_APPENDS):
                    yield part
                    part, size, numbers = [], 0, {}
                part.append((name, piece, numbers.get(name, 0)))
                size, numbers[name] = size + piece.nbytes, numbers.get(name, 0) + 1
    if part:
        yield part


def bodies(batch: pa.RecordBatch, topic: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of a batch as BODY, by topic."""
    names = batch.schema.names
    payload = batch.column("payload" if "payload" in names else "value")
    columns = [
        _cast(payload if f.name == "payload" else batch.column(f.name), f.type)
        if f.name == "payload" or f.name in names
        else pa.nulls(batch.num_rows, f.type)
        for f in BODY
    ]
    body = pa.RecordBatch.from_arrays(columns, schema=BODY)
    if "topic" not in names:
        yield topic, body
        return
    named = batch.column("topic").fill_null(topic)
    for name in pc.unique(named).to_pylist():
        yield name or topic, body.filter(pc.equal(named, pa.scalar(name)))  # type: ignore[arg-type]  # nulls are filled


def _cast(column: pa.Array[Any], target_type: pa.DataType) -> pa.Array[Any]:
    return column if column.type.equals(target_type) else column.cast(target_type)


def _split_by_size(body: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    count = max(1, -(-body.nbytes // REQUEST_BYTES))
    size = max(1, -(-body.num_rows // count))
    for begin in range(0, body.num_rows, size):
        yield body.slice(begin, size)
