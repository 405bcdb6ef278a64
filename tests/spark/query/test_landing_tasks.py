"""The tasks that land, in a real Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.spark.query.landing_tasks import _landing_workers
from penstock.spark.worker_daemon import LANDING, ROLE

pytestmark = pytest.mark.spark


def workers_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a Python worker: its number, and its role."""
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "role": [os.environ.get(ROLE, "")]})


def test_landing_tasks_run_in_workers_of_their_own(spark: SparkSession) -> None:
    rows = spark.range(4, numPartitions=2)
    schema = "pid bigint, role string"
    with _landing_workers(spark, LANDING):
        landing = rows.mapInArrow(workers_of, schema)
    plain_workers = rows.mapInArrow(workers_of, schema)
    landing_workers, theirs = ({tuple(row) for row in frame.collect()} for frame in (landing, plain_workers))
    assert {role for _, role in landing_workers} == {"landing"}
    assert {role for _, role in theirs} == {""}
    assert not {pid for pid, _ in landing_workers} & {pid for pid, _ in theirs}


def test_a_landing_from_the_log_needs_no_client_of_kafka() -> None:
    program = "import sys; sys.modules['confluent_kafka'] = None; import penstock.spark.pipeline"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
