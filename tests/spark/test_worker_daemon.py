"""The daemon of Spark's Python workers, in a real Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.spark.query.landing_tasks import _landing_workers
from penstock.spark.worker_daemon import LANDING, LANDING_WITH_FUNCTION, MODULE

pytestmark = pytest.mark.spark


def state(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a Python worker: whether its daemon has imported Arrow, and whether the worker can use pandas."""
    loaded = "libarrow" in Path(f"/proc/{os.getppid()}/maps").read_text()
    for _ in batches:
        try:
            import pandas  # noqa: F401
        except ModuleNotFoundError:
            usable = False
        else:
            usable = True
        yield pa.RecordBatch.from_pydict({"loaded": [loaded], "pandas": [usable], "daemon": [os.getppid()]})


@pytest.mark.parametrize(
    ("role", "loaded", "pandas"),
    [(LANDING, True, False), (LANDING_WITH_FUNCTION, True, True), ("reading", False, True)],
)
def test_workers_of_a_role_start_with_its_modules(spark: SparkSession, role: str, loaded: bool, pandas: bool) -> None:
    with _landing_workers(spark, role):
        frame = spark.range(2, numPartitions=2).mapInArrow(state, "loaded boolean, pandas boolean, daemon bigint")
    rows = [tuple(row) for row in frame.collect()]
    assert {row[:2] for row in rows} == {(loaded, pandas)}
    assert len({daemon for *_, daemon in rows}) == 1, "one daemon forks all workers of a role"


def test_session_with_another_python_keeps_the_daemon_of_spark() -> None:
    from penstock.spark.session import _daemon_settings

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        assert _daemon_settings("local[2,3]") == {"spark.python.daemon.module": MODULE}
        assert _daemon_settings("spark://host:7077") == {}
        patch.setenv("PYSPARK_PYTHON", "/opt/other/bin/python")
        assert _daemon_settings("local[2,3]") == {}
