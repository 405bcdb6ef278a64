"""The tasks of a micro-batch: Python on Arrow batches, from what Spark planned to files, whose names go back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.landing.from_kafka.range_assembler import RangeAssembler
from penstock.landing.from_kafka.rows import ROW
from penstock.landing.storage.object_errors import TablesAway
from penstock.landing.writing.part_writer import Job, MessageBatch, PartResult, write_part
from penstock.process.tuning import freeze_loaded_objects
from penstock.spark.query.kafka_source import as_records
from penstock.spark.query.part_results import SharedFolder, packed, unpacked
from penstock.spark.source.landing_ranges import messages_in
from penstock.spark.source.options import SourceOptions

RESULT = "result binary"
ROLE = "SPARK_WORKER_ROLE"
"""An environment variable of Python workers."""
_LOGGER = logging.getLogger(__name__)
Sources = Callable[[Iterator[pa.RecordBatch]], Iterable[MessageBatch]]


def written_parts(frame: DataFrame, sources: Sources, job: Job, landed_at: int, scratch: Path) -> list[PartResult]:
    """Run the tasks of a micro-batch; what they wrote. ``landed_at`` in microseconds; ``scratch``: a folder for
    what goes as soon as it was looked at. Raises TablesAway.
    """
    shared = SharedFolder.offer(scratch)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part = packed(write_part(sources(batches), job, landed_at), shared.visible_here())
        freeze_loaded_objects()
        yield pa.RecordBatch.from_arrays([pa.array([part], pa.binary())], names=["result"])

    with _workers_of_their_own(frame.sparkSession):
        written = frame.mapInArrow(task, RESULT)
    found: list[Any] = written.toArrow()["result"].to_pylist()
    parts = [unpacked(one) for one in found]
    for failure in (failure for part in parts for failure in part.failures):
        _LOGGER.warning("%s", failure)
    if away := next((part.away for part in parts if part.away), ""):
        raise TablesAway(away)
    return parts


@contextmanager
def _workers_of_their_own(spark: SparkSession) -> Iterator[None]:
    """Functions made meanwhile run in Python workers that do nothing else.

    Workers are shared by all functions of one environment: those that only read what is planned would become as large
    as those that land it, and there would be twice as many.
    """
    environment = spark.sparkContext.environment
    environment[ROLE] = "landing"
    try:
        yield
    finally:
        del environment[ROLE]


def of_the_log(options: Mapping[str, str]) -> Sources:
    """What is in ranges of topics of the log; ``options``: where they are, as the data source takes it."""

    def sources(batches: Iterator[pa.RecordBatch]) -> Iterable[MessageBatch]:
        return messages_in(batches, SourceOptions.of(options).store())

    return sources


def of_kafka(kafka: Mapping[str, str], gap: int) -> Sources:
    """What records of Kafka are, large messages whole. ``kafka``: properties of the client."""

    def sources(batches: Iterator[pa.RecordBatch]) -> Iterable[MessageBatch]:
        from penstock.landing.from_kafka.read_back import LookBack  # on the executor: only here is the client needed

        assembler = RangeAssembler(LookBack(kafka, gap), gap)
        for batch in batches:
            for rows in assembler.add_batch(as_records(batch)):
                yield MessageBatch(rows.select(ROW.names))
        for rows in assembler.finish():
            yield MessageBatch(rows.select(ROW.names))

    return sources
