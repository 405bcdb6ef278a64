"""The tasks of a micro-batch: Python on Arrow batches, from what Spark planned to files, whose names go back."""

from __future__ import annotations

import gc
import logging
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.landing.from_kafka.range_assembler import RangeAssembler
from penstock.landing.from_kafka.rows import ROW
from penstock.landing.storage.object_errors import TablesAway
from penstock.landing.writing.part_writer import Job, PartResult, Source, write_part
from penstock.spark.query.kafka_source import as_records
from penstock.spark.source.landing_ranges import messages_in
from penstock.spark.source.options import SourceOptions

RESULT = "result binary"
ROLE = "SPARK_WORKER_ROLE"
"""An environment variable of Python workers."""
_LOGGER = logging.getLogger(__name__)
Sources = Callable[[Iterator[pa.RecordBatch]], Iterable[Source]]


def written_parts(frame: DataFrame, sources: Sources, job: Job, landed_at: int) -> list[PartResult]:
    """Run the tasks of a micro-batch; what they wrote. ``landed_at`` in microseconds. Raises TablesAway."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part = write_part(sources(batches), job, landed_at)
        _keep_what_is_imported()
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(part)], pa.binary())], names=["result"])

    with _workers_of_their_own(frame.sparkSession):
        written = frame.mapInArrow(task, RESULT)
    found = written.toArrow()
    results: list[Any] = found["result"].to_pylist()
    parts: list[PartResult] = [pickle.loads(one) for one in results]  # noqa: S301  made by our own tasks
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


@cache
def _keep_what_is_imported() -> None:
    """Once in a worker: Spark has it look for garbage after each task, else among all that is loaded."""
    gc.collect()
    gc.freeze()


def of_the_log(options: Mapping[str, str]) -> Sources:
    """What is in ranges of topics of the log; ``options``: where they are, as the data source takes it."""

    def sources(batches: Iterator[pa.RecordBatch]) -> Iterable[Source]:
        return messages_in(batches, SourceOptions.of(options).store())

    return sources


def of_kafka(kafka: Mapping[str, str], gap: int) -> Sources:
    """What records of Kafka are, large messages whole. ``kafka``: properties of the client."""

    def sources(batches: Iterator[pa.RecordBatch]) -> Iterable[Source]:
        from penstock.landing.from_kafka.read_back import LookBack  # on the executor: only here is the client needed

        assembler = RangeAssembler(LookBack(kafka, gap), gap)
        for batch in batches:
            for rows in assembler.take(as_records(batch)):
                yield Source(rows.select(ROW.names))
        for rows in assembler.finish():
            yield Source(rows.select(ROW.names))

    return sources
