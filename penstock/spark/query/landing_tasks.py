"""The tasks of a micro-batch: from planned input to files, whose names return to the driver; Python on Arrow
batches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.landing.from_kafka.rows import LOG_ROW, with_null_partition
from penstock.landing.storage.object_errors import TablesAway, translate_full_disk
from penstock.landing.topics.topic_store import Range, TopicStore
from penstock.landing.writing.part_writer import Job, MessageBatch, PartResult, write_part
from penstock.process.tuning import freeze_loaded_objects
from penstock.spark.query.part_results import SharedFolder, pack_result, unpack_result
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.slices import read_slice
from penstock.spark.worker_daemon import LANDING, LANDING_WITH_FUNCTION, ROLE

RESULT = "result binary"
_LOGGER = logging.getLogger(__name__)
Sources = Callable[[Iterator[pa.RecordBatch]], Iterable[MessageBatch]]


def run_tasks(frame: DataFrame, sources: Sources, job: Job, landed_at: int, scratch: Path) -> list[PartResult]:
    """Run the tasks of a micro-batch and return their results. ``landed_at`` in microseconds.

    ``scratch``: folder for temporary files, which are removed when they are read. Raises TablesAway.
    """
    with translate_full_disk(scratch):
        shared = SharedFolder.offer(scratch)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part = _pack(write_part(sources(batches), job, landed_at), shared)
        # Spark runs a garbage collection after each task; frozen objects are not scanned again.
        freeze_loaded_objects()
        yield pa.RecordBatch.from_arrays([pa.array([part], pa.binary())], names=["result"])

    with _landing_workers(frame.sparkSession, LANDING_WITH_FUNCTION if job.transform.function else LANDING):
        written = frame.mapInArrow(task, RESULT)
    packed_parts: list[Any] = written.toArrow()["result"].to_pylist()
    parts = [unpack_result(packed_part) for packed_part in packed_parts]
    # Logged by the driver: the output of workers is not in the pipeline's log.
    for failure in (failure for part in parts for failure in part.failures):
        _LOGGER.warning("%s", failure)
    # One store is unavailable to all tasks, so the first message is enough.
    if away := next((part.away for part in parts if part.away), ""):
        raise TablesAway(away)
    return parts


def _pack(part: PartResult, shared: SharedFolder) -> bytes:
    """Return the bytes for Spark. On a full disk the result lets the driver wait and retry."""
    try:
        with translate_full_disk(shared.folder):
            return pack_result(part, shared.visible_here())
    except TablesAway as error:
        return pack_result(PartResult([], -1, away=str(error)), None)


@contextmanager
def _landing_workers(spark: SparkSession, role: str) -> Iterator[None]:
    """Let functions that are defined in the block run in Python workers of their own.

    Spark shares workers among all functions of one environment. Without a role, workers that only read plans would
    also grow to the size of the ones that land, and there would be twice as many.
    """
    environment = spark.sparkContext.environment
    environment[ROLE] = role
    try:
        yield
    finally:
        del environment[ROLE]


def log_messages(options: Mapping[str, str]) -> Sources:
    """Return the reader for ranges of the log's topics; ``options`` as the data source takes them."""

    def sources(batches: Iterator[pa.RecordBatch]) -> Iterable[MessageBatch]:
        return messages_in(batches, SourceOptions.from_options(options).store())

    return sources


def kafka_messages(kafka: Mapping[str, str], gap: int) -> Sources:
    """Return the reader for ranges of Kafka's partitions, with large messages assembled. ``kafka``: properties of the
    client.
    """

    def sources(batches: Iterator[pa.RecordBatch]) -> Iterable[MessageBatch]:
        from penstock.landing.from_kafka.read_back import read_messages  # the client is needed on executors only

        for batch in batches:
            ranges = (Range(part["topic"], part["begin"], part["end"]) for part in batch.to_pylist())
            yield from map(MessageBatch, read_messages(kafka, gap, ranges))

    return sources


def messages_in(batches: Iterable[pa.RecordBatch], store: TopicStore) -> Iterator[MessageBatch]:
    """Yield the messages of ranges (RANGES)."""
    for batch in batches:
        for range_row in batch.to_pylist():
            ranges: Sequence[Range] = [Range(range_row["topic"], range_row["begin"], range_row["end"])]
            for rows in read_slice(store, ranges, LOG_ROW):
                yield MessageBatch(with_null_partition(rows), range_row["again"])
