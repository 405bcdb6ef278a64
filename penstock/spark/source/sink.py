"""Writing to a topic from Spark, batch and stream: what a task sends again is stored once.

    frame.write.format("penstock").option("uri", "127.0.0.1:8845").option("topic", "events").mode("append").save()

The frame needs a column ``payload`` (or ``value``), binary or string; ``key``, ``type_url``, ``annotations`` and
``topic`` are taken where there are such columns. Options: ``uri`` (the daemon's gRPC address), ``topic``, and those of
``penstock.landing.daemon_connection``.

A task keeps its rows aside until it has them all, and stores them in one transaction (one after the other where they
are more than PART_BYTES): of an attempt that fails nothing is stored. Appends have a producer's name made of the query,
the micro-batch, the partition and the transaction, and numbers: what runs again with the same rows appends nothing
twice, for as long as the log remembers producers (``transactions.producer_memory``); one whose rows are
stored and that comes again with others is refused (OutOfSequence).
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
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.landing import daemon_connection
from penstock.landing.daemon_connection import BadConnection, DaemonConnection
from penstock.records import BODY
from penstock.spark.source.options import BadOption

WRITTEN = ("topic", *daemon_connection.OPTION_NAMES)
KNOWN = tuple(name.lower() for name in WRITTEN)
SPARKS_OWN = ("path", "checkpointlocation")
REQUEST_BYTES = 8 << 20
"""Bytes of rows in one append."""
PART_BYTES = 48 << 20
"""Bytes of rows in one transaction, below the server's default for ``transactions.max_size``."""
PART_APPENDS = 200
"""Appends in one transaction: fewer than the log remembers of a producer."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where rows go. ``topic`` is for rows that name none."""

    connection: DaemonConnection
    topic: str

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType) -> SinkOptions:
        """From Spark's options. Raises BadOption."""
        given = {name.lower(): value for name, value in options.items() if name.lower() not in SPARKS_OWN}
        for name in given:
            if name not in KNOWN:
                raise BadOption(f"{name}: unknown option for writing (known are {', '.join(WRITTEN)})")
        if not given.get("uri"):
            raise BadOption("uri: say where the log daemon is, as host:port of its gRPC address")
        columns = {field.name for field in schema.fields}
        if "topic" not in columns and not given.get("topic"):
            raise BadOption("topic: say which, by the option or by a column of that name")
        if not columns & {"payload", "value"}:
            raise BadOption("the frame has no column payload (or value)")
        try:
            return cls(DaemonConnection.from_options(given), given.get("topic", ""))
        except BadConnection as error:
            raise BadOption(str(error)) from None


@dataclass
class Appended(WriterCommitMessage):
    """How many rows one task appended."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    """Appends the rows of a batch query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._query = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as Spark's own
        return _append(self._options, f"spark-{self._query}-{_partition()}", iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of a stream's micro-batches."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as Spark's own
        context = TaskContext.get()
        said = context.getLocalProperty if context else lambda _: None
        query, epoch = said("sql.streaming.queryId"), said("streaming.sql.batchId")
        return _append(self._options, f"spark-{query}-{epoch}-{_partition()}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Everything is in the log already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What the tasks that ended have appended stays; the micro-batch that runs again adds the rest."""


def _partition() -> int:
    context = TaskContext.get()
    return int(context.partitionId()) if context else 0


def _append(options: SinkOptions, producer: str, batches: Iterator[pa.RecordBatch]) -> Appended:
    from penstock.client import Log  # on the executor

    rows = 0
    link, patience = options.connection.endpoint, options.connection.retry_for
    with tempfile.SpooledTemporaryFile(PART_BYTES) as aside:
        kept = _kept(aside, batches)
        with Log(link.address, token=link.token, tls=link.tls, retry_for=patience) as log:
            for number, part in enumerate(parts(kept, options.topic)):
                with log.transaction() as transaction:
                    for topic, piece, sequence in part:
                        transaction.append_batch(topic, piece, (f"{producer}.{number}", sequence))
                        rows += piece.num_rows
    return Appended(rows)


def _kept(aside: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches again, once all of them have come: the transaction waits for none."""
    first = next(batches, None)
    if first is None:
        return iter(())
    with pa.ipc.new_stream(aside, first.schema) as stream:
        stream.write_batch(first)
        for batch in batches:
            stream.write_batch(batch)
    aside.seek(0)
    return iter(pa.ipc.open_stream(aside))


Append = tuple[str, pa.RecordBatch, int]
"""Topic, rows (BODY), and which append to the topic in its transaction this is."""


def parts(batches: Iterable[pa.RecordBatch], topic: str) -> Iterator[list[Append]]:
    """The appends of each transaction; rows that name no topic go to ``topic``."""
    part: list[Append] = []
    size, numbers = 0, dict[str, int]()
    for batch in batches:
        for name, body in bodies(batch, topic):
            for piece in _pieces(body):
                if part and (size + piece.nbytes > PART_BYTES or len(part) == PART_APPENDS):
                    yield part
                    part, size, numbers = [], 0, {}
                part.append((name, piece, numbers.get(name, 0)))
                size, numbers[name] = size + piece.nbytes, numbers.get(name, 0) + 1
    if part:
        yield part


def bodies(batch: pa.RecordBatch, topic: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of a batch as BODY, by topic."""
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


def _cast(values: pa.Array[Any], wanted: pa.DataType) -> pa.Array[Any]:
    return values if values.type.equals(wanted) else values.cast(wanted)


def _pieces(body: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    count = max(1, -(-body.nbytes // REQUEST_BYTES))
    size = max(1, -(-body.num_rows // count))
    for begin in range(0, body.num_rows, size):
        yield body.slice(begin, size)
