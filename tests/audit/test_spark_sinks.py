"""Spark Structured Streaming as the audited pipeline: losses and doubled batches are findings, restarts are not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.audit.audited import RECORDS, filled_topic, run_audit
from tests.audit.spark_sink import COMMITTED, land_in_delta, stream
from tests.kafka.kafka_helpers import Topics

pytestmark = pytest.mark.spark


def land_in_files(spark: SparkSession, topics: Topics, topic: str, folder: Path) -> None:
    query = stream(spark, topics.address, topic, folder / "checkpoint").format("parquet").start(str(folder / "t"))
    assert query.awaitTermination(120)


def test_batch_that_was_written_twice_before_its_commit_is_no_finding(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, _ = filled_topic(topics)
    land_in_files(spark, topics, topic, tmp_path)
    topics.plain(topic, [b"later %d" % number for number in range(10)])
    land_in_files(spark, topics, topic, tmp_path)
    # A kill between the batch and its commit leaves the files, and neither entry.
    (tmp_path / "t" / "_spark_metadata" / "1").unlink()
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report.get("missing")) == (1, 10), errors
    assert sum(report["partitions"][0]["orphans"].values()) == 10
    land_in_files(spark, topics, topic, tmp_path)
    status, report, errors = run_audit(topics, topic, tmp_path / "t", "--all")
    assert (status, report.get("required"), report.get("compared_records")) == (0, RECORDS + 10, RECORDS + 10), errors


def test_records_lost_after_the_checkpoint_was_deleted_are_found(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, _ = filled_topic(topics)
    land_in_files(spark, topics, topic, tmp_path)
    topics.plain(topic, [b"later"] * 10)
    # Spark begins again with batch 0, which its sink takes for one that is committed already.
    shutil.rmtree(tmp_path / "checkpoint")
    land_in_files(spark, topics, topic, tmp_path)
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report.get("missing"), report.get("doubled")) == (1, 10, 0), errors
    assert report["partitions"][0]["missing"] == [[RECORDS, RECORDS + 10]]


def versions_of_doubled_rows(part: dict[str, Any]) -> list[str]:
    return sorted(commit.partition(",")[0] for commit in part["doubled_in"].values())


def test_kill_between_commit_and_checkpoint_and_a_deleted_checkpoint_name_the_versions(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, _ = filled_topic(topics)
    command = [sys.executable, "-m", "tests.audit.spark_sink", topics.address, topic, str(tmp_path)]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True, start_new_session=True) as driver:
        assert driver.stdout is not None
        try:
            assert any(COMMITTED in line for line in driver.stdout)
        finally:
            # The group has Python's process and the Java virtual machine.
            os.killpg(driver.pid, signal.SIGKILL)
    checkpoint = tmp_path / "checkpoint"
    assert ((checkpoint / "offsets" / "0").exists(), (checkpoint / "commits" / "0").exists()) == (True, False)
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report.get("required")) == (0, RECORDS), errors
    land_in_delta(spark, topics.address, topic, tmp_path)
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report.get("missing"), report.get("doubled")) == (1, 0, RECORDS), errors
    assert versions_of_doubled_rows(report["partitions"][0]) == ["version 0", "version 1"]
    topics.plain(topic, [b"later"] * 10)
    land_in_delta(spark, topics.address, topic, tmp_path)
    shutil.rmtree(checkpoint)
    land_in_delta(spark, topics.address, topic, tmp_path)
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report.get("missing"), report["partitions"][0]["doubled"]) == (1, 0, [[0, RECORDS + 10]]), errors
    assert versions_of_doubled_rows(report["partitions"][0]) == [f"version {number}" for number in range(4)]


def test_batch_that_was_replayed_with_its_number_names_both_versions(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Case of apache/paimon#9666: the sink does not look at the number of a batch."""
    topic, _ = filled_topic(topics)
    land_in_delta(spark, topics.address, topic, tmp_path)
    topics.plain(topic, [b"later"] * 10)
    land_in_delta(spark, topics.address, topic, tmp_path)
    # A driver that ends after the sink's commit leaves no entry of its own.
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    land_in_delta(spark, topics.address, topic, tmp_path)
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report.get("missing"), report.get("doubled")) == (1, 0, 10), errors
    (part,) = report["partitions"]
    assert part["doubled"] == [[RECORDS, RECORDS + 10]]
    assert versions_of_doubled_rows(part) == ["version 1", "version 2"]
