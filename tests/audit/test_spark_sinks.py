"""Spark Structured Streaming as the audited pipeline: losses and doubled batches are found, restarts are no finding."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import deltalake
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from tests.audit.audited import RECORDS, filled_topic, run_audit
from tests.kafka.kafka_helpers import Topics

pytestmark = pytest.mark.spark
WriteBatch = Callable[[DataFrame, int], None]


def stream(spark: SparkSession, topics: Topics, topic: str, checkpoint: Path) -> DataStreamWriter:
    """Return a stream of the topic's records that ends with the present last record."""
    options = {"kafka.bootstrap.servers": topics.address, "subscribe": topic, "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**options).load()
    return records.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)


def land_in_files(spark: SparkSession, topics: Topics, topic: str, folder: Path) -> None:
    query = stream(spark, topics, topic, folder / "checkpoint").format("parquet").start(str(folder / "t"))
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


def test_batch_that_was_committed_twice_to_delta_names_both_versions(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, _ = filled_topic(topics)
    fails = [True]

    def write(batch: DataFrame, number: int) -> None:
        deltalake.write_deltalake(str(tmp_path / "t"), batch.toArrow(), mode="append")
        if fails.pop():
            raise RuntimeError("ends between the commit of the table and the checkpoint")

    def land() -> None:
        stream(spark, topics, topic, tmp_path / "checkpoint").foreachBatch(write).start().awaitTermination(120)

    with pytest.raises(StreamingQueryException):
        land()
    fails.append(False)
    land()
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report.get("missing"), report.get("doubled")) == (1, 0, RECORDS), errors
    (part,) = report["partitions"]
    assert sorted(commit.partition(",")[0] for commit in part["doubled_in"].values()) == ["version 0", "version 1"]


def test_batch_that_was_replayed_with_its_number_names_both_versions(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Case of apache/paimon#9666: the sink does not look at the number of a batch."""
    topic, _ = filled_topic(topics)

    def write(batch: DataFrame, number: int) -> None:
        deltalake.write_deltalake(str(tmp_path / "t"), batch.toArrow(), mode="append")

    def land() -> None:
        query = stream(spark, topics, topic, tmp_path / "checkpoint").foreachBatch(write).start()
        assert query.awaitTermination(120)

    land()
    topics.plain(topic, [b"later"] * 10)
    land()
    # A driver that ends after the sink's commit leaves no entry of its own.
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    land()
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report.get("missing"), report.get("doubled")) == (1, 0, 10), errors
    (part,) = report["partitions"]
    assert part["doubled"] == [[RECORDS, RECORDS + 10]]
    assert sorted(commit.partition(",")[0] for commit in part["doubled_in"].values()) == ["version 1", "version 2"]
