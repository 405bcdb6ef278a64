"""The page of the failure for which nothing lands."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from penstock.handover.landing_failure import FailurePage, main_cause, next_step, read_landing_failure
from tests.small_disk import small_file_system

SLOW_WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to \
stage failure: Task 0 in stage 0.0 failed 1 times: Lost task 0.0 in stage 0.0 (TID 0) (host executor driver): \
org.apache.spark.SparkException: Python worker failed to connect back.
\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:294)
"""
UNWRITABLE = """[STREAM_FAILED] Query [id = 1] terminated with exception: An exception was raised by the Python Proxy.
Traceback (most recent call last):
  File "py4j/clientserver.py", line 617, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
py4j.protocol.Py4JJavaError: An error occurred while calling o1.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: PythonException: Traceback (most recent call last):
  File "penstock/landing/writing/part_writer.py", line 1, in write
PermissionError: [Errno 13] Permission denied: '/srv/tables/landed/kind=event'
"""
DEAD_WORKER = """An error occurred while calling o92.load.
: org.apache.spark.SparkException:
Error from python worker:
  /usr/bin/python: no module named pyspark
PYTHONPATH was:
"""


@pytest.mark.parametrize(
    ("text", "cause", "advice"),
    [
        (SLOW_WORKER, "Python worker failed to connect back", "pipeline.spark.pyspark.python"),
        (UNWRITABLE, "Permission denied: '/srv/tables/landed/kind=event'", "chown"),
        (DEAD_WORKER, "a Python worker ended: /usr/bin/python: no module named pyspark", "pyspark.python"),
        ("no space left on device in /srv (the table)", "no space left on device in /srv (the table)", "cleanup"),
        ("Traceback (most recent call last):\nKeyError: 'x'", "KeyError: 'x'", "pipeline.log"),
        (": java.lang.OutOfMemoryError: Java heap space", "Java heap space", "pipeline.log"),
        ("", "no reason", "pipeline.log"),
    ],
)
def test_cause_of_spark_is_one_line_with_a_next_step(text: str, cause: str, advice: str) -> None:
    assert main_cause(text) == cause
    assert advice in next_step(cause)


def test_failure_survives_its_process_and_counts_until_it_is_cleared(tmp_path: Path) -> None:
    path, moments = tmp_path / "state" / "landed.failure", iter(range(1_800_000_000_000_000, 2**62, 60_000_000))
    assert read_landing_failure(path) is None
    page = FailurePage(path, lambda: next(moments))
    page.record(ValueError("wrong"))
    page.close()
    again = FailurePage(path, lambda: next(moments))
    again.record("x" * 100_000)
    failure = read_landing_failure(path)
    assert failure is not None
    assert (failure.times, failure.newest - failure.since, len(failure.cause)) == (2, 60_000, 303)
    assert failure.document()["text"].startswith("landing fails since ")
    assert ", 2 times: xxx" in failure.document()["text"]
    again.clear()
    assert (read_landing_failure(path), again.failure) == (None, None)
    again.record("later")
    assert (again.failure.times if again.failure else 0) == 1
    again.close()
    path.write_bytes(b"torn")
    assert read_landing_failure(path) is None


def test_failure_is_recorded_on_a_full_disk(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "tables", "1m") as folder:
        page = FailurePage(folder / "landed.failure")
        with open(folder / "ballast", "ab", buffering=0) as ballast, contextlib.suppress(OSError):
            while ballast.write(bytes(4096)):
                pass
        page.record("no space left on device")
        failure = read_landing_failure(folder / "landed.failure")
        assert failure is not None
        assert "free space" in failure.advice
        late = FailurePage(folder / "other.failure")
        late.record("no space left on device")
        assert late.failure is not None, "it stays in memory"
        page.close()
